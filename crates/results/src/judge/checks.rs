//! Honesty checks: how far the figures can be trusted.

use iotax_model::record::{CacheDrop, Measurement, Stop};
use iotax_model::units::human;
use iotax_model::{IoEngine, Warning, WarningKind, Workload};

use super::edges::{Edge, other_devices};
use super::figures::bottom_disks;
use super::warm_up::warm_up;
use super::{Comparison, each_cell, measured};
use crate::stats::steady::steadiness;
use crate::store::Run;

/// The agent's clock may differ from the host's by this share.
const CLOCK: f64 = 0.01;
/// The host sees a window begin and end by messages, which take some time to arrive, above all on a loaded machine.
const MESSAGES_NS: f64 = 50e6;
/// A generator that used this share of its threads' time was the limit.
const SATURATED: f64 = 0.95;
/// A backlog of this share of what was due is more than a moment's delay.
const BACKLOG: f64 = 0.01;
/// The bottom device must have served this share of the bytes read.
const SERVED: f64 = 0.5;

/// Everything the records show, run by run, target by target, measurement by measurement.
///
/// `broken` are edges whose ends stand on different devices.
pub(super) fn check(run: &Run, comparisons: &[Comparison], broken: &[Edge]) -> Vec<Warning> {
    let mut found: Vec<Warning> = incomplete_run(run).into_iter().collect();
    found.extend(missing_comparisons(run, comparisons));
    found.extend(broken.iter().filter_map(|edge| not_one_layer(run, edge)));
    found.extend(emulated(run));
    found.extend(super::outliers::outliers(run));
    for measurement in &run.measurements {
        let Some(workload) = run.plan.workloads.iter().find(|w| w.name == measurement.workload) else {
            continue;
        };
        let checks = [
            no_io(measurement),
            errors(measurement),
            corrupt(measurement),
            stopped(workload, measurement),
            cannot_sustain(workload, measurement),
            clock(run, measurement),
            cache_kept(measurement),
            cache_lie(run, workload, measurement),
            saturated(workload, measurement),
            unsteady(workload, measurement),
        ];
        found.extend(checks.into_iter().flatten());
    }
    found
}

fn about(m: &Measurement, kind: WarningKind, evidence: String, remedy: &str) -> Warning {
    Warning {
        kind,
        target: Some(m.target.clone()),
        workload: Some(m.workload.clone()),
        block: Some(m.block),
        evidence,
        remedy: remedy.into(),
    }
}

fn incomplete_run(run: &Run) -> Option<Warning> {
    let planned = run.plan.repeat as usize * run.plan.targets.len() * run.plan.workloads.len();
    let there = run.measurements.len();
    (there < planned).then(|| Warning {
        kind: WarningKind::Incomplete,
        target: None,
        workload: None,
        block: None,
        evidence: format!("{there} of {planned} measurements are there"),
        remedy: format!("iotax resume {} measures the rest", run.id),
    })
}

/// Cells that the plan compares and the records cannot. Before the first measurement there is nothing to name.
fn missing_comparisons<'a>(
    run: &'a Run,
    comparisons: &'a [Comparison],
) -> impl Iterator<Item = Warning> + 'a {
    each_cell(run).filter_map(|(workload, spec)| {
        let target = &spec.name;
        let compared = run.measurements.is_empty() || comparisons.iter().any(|c| c.workload == workload && c.target == *target);
        if compared || *target == run.plan.baseline {
            return None;
        }
        let blocks = |target: &str| measured(run, workload, target).len();
        let evidence = format!(
            "no block holds both {target} ({} measured) and {} ({} measured) with I/O completed, so they are not compared",
            blocks(target), run.plan.baseline, blocks(&run.plan.baseline),
        );
        Some(Warning {
            kind: WarningKind::Incomplete,
            target: Some(target.into()),
            workload: Some(workload.into()),
            block: None,
            evidence,
            remedy: format!("iotax resume {} measures what is missing", run.id),
        })
    })
}

fn not_one_layer(run: &Run, edge: &Edge) -> Option<Warning> {
    let (from, to) = other_devices(run, edge)?;
    Some(Warning {
        kind: WarningKind::Incomplete,
        target: Some(edge.to.clone()),
        workload: None,
        block: None,
        evidence: format!(
            "{} stands on {to} and {} on {from}, so what {} costs cannot be told from what the devices differ by",
            edge.to, edge.from, edge.name
        ),
        remedy: "put both on one device".into(),
    })
}

fn emulated(run: &Run) -> impl Iterator<Item = Warning> + '_ {
    run.targets.iter().filter(|target| target.emulated).map(|target| Warning {
        kind: WarningKind::Emulated,
        target: Some(target.name.clone()),
        workload: None,
        block: None,
        evidence:
            "the guest's CPU was emulated (TCG): its tax is that of emulation, not of hardware virtualization"
                .into(),
        remedy: "measure on a machine where KVM runs guests: one with vmx or svm among its CPU flags".into(),
    })
}

fn no_io(m: &Measurement) -> Option<Warning> {
    (m.outcome.tallies.ios() == 0).then(|| {
        let evidence = "no I/O was completed in the window, so this block is compared with nothing".into();
        about(
            m,
            WarningKind::Incomplete,
            evidence,
            "lengthen the runtime; if it stays so, the storage has stalled",
        )
    })
}

fn errors(m: &Measurement) -> Option<Warning> {
    if m.outcome.errors.is_empty() {
        return None;
    }
    let counts: Vec<String> = m
        .outcome
        .errors
        .iter()
        .map(|e| {
            let last = e.last_offset.filter(|last| *last != e.first_offset);
            let last = last.map(|last| format!(", last at {last}")).unwrap_or_default();
            format!("{} x {} on {}, first at byte {}{last}", e.count, e.error, e.direction, e.first_offset)
        })
        .collect();
    let remedy =
        "the figures leave the failed I/Os out; see the kernel log for the device, then measure again";
    Some(about(m, WarningKind::Incomplete, counts.join("; "), remedy))
}

fn stopped(workload: &Workload, m: &Measurement) -> Option<Warning> {
    let (why, remedy) = match m.outcome.stop? {
        Stop::Stalled => (
            format!(
                "an I/O was in flight for longer than stall_timeout = {}",
                workload.stall_timeout.unwrap_or_default()
            ),
            "the figures end where the storage stalled; see the kernel log for the device",
        ),
        Stop::Errors => (
            format!("max_errors = {} was reached", workload.max_errors.unwrap_or_default()),
            "the figures end where the errors began; see the kernel log for the device",
        ),
    };
    let evidence = format!(
        "the measurement was ended after {} of {}: {why}",
        human::time(m.outcome.duration_ns as f64),
        workload.runtime
    );
    Some(about(m, WarningKind::Incomplete, evidence, remedy))
}

/// What waits at the end of the window is neither in the rates nor in the response times.
fn cannot_sustain(workload: &Workload, m: &Measurement) -> Option<Warning> {
    let pacing = m.outcome.pacing?;
    let slots = u64::from(workload.iodepth) * u64::from(workload.numjobs);
    let telling = pacing.backlog > slots && pacing.backlog as f64 > BACKLOG * pacing.due as f64;
    telling.then(|| {
        let evidence = format!(
            "{} I/Os that were due had not begun when the window ended, the oldest for {}; {} had become due in it, and {} \
             had to wait for a slot, for up to {}",
            pacing.backlog,
            human::time(pacing.backlog_ns as f64),
            pacing.due,
            pacing.delayed,
            human::time(pacing.longest_delay_ns as f64)
        );
        let remedy = "the target cannot sustain this rate at this iodepth: response times grow for as long as it lasts; \
                      lower the rate, or raise iodepth";
        about(m, WarningKind::CannotSustain, evidence, remedy)
    })
}

fn corrupt(m: &Measurement) -> Option<Warning> {
    let findings = m.outcome.verify.as_ref().filter(|findings| findings.faulty() > 0)?;
    let faults: Vec<String> = findings.faults.iter().map(ToString::to_string).collect();
    let evidence = format!(
        "{} of {} checks found a block that does not hold what was written there: {}",
        findings.faulty(),
        findings.checked,
        faults.join("; ")
    );
    let remedy = "do not trust this storage with data; the kernel log may name the device, and the same check on the layers \
                  beneath finds the one that is to blame";
    Some(about(m, WarningKind::Corrupt, evidence, remedy))
}

/// Only a guest has a clock of its own.
fn clock(run: &Run, m: &Measurement) -> Option<Warning> {
    run.plan.targets.iter().find(|target| target.name == m.target)?.guest.as_ref()?;
    let (agent, host) = (m.outcome.duration_ns as f64, m.host_duration_ns? as f64);
    let off = agent / host - 1.0;
    ((agent - host).abs() > CLOCK * host + MESSAGES_NS).then(|| {
        let evidence = format!(
            "the window lasted {} by the agent's clock and {} by the host's ({:+.1}%)",
            human::time(agent),
            human::time(host),
            off * 100.0
        );
        let remedy = "rates and latencies are off by as much; give the guest a paravirtual clocksource such as kvm-clock";
        about(m, WarningKind::Clock, evidence, remedy)
    })
}

fn cache_kept(m: &Measurement) -> Option<Warning> {
    let kept = |place: &str, drop: Option<CacheDrop>| match drop {
        Some(CacheDrop::FileOnly) => Some(format!("{place}: only the file's own pages were dropped")),
        Some(CacheDrop::Nothing) => Some(format!("{place}: nothing was dropped")),
        Some(CacheDrop::PageCache) | None => None,
    };
    let evidence: Vec<String> = [kept("on the host", m.host_cache), kept("in the guest", m.guest_cache)]
        .into_iter()
        .flatten()
        .collect();
    if evidence.is_empty() {
        return None;
    }
    let remedy = "run as root, so that /proc/sys/vm/drop_caches can be written";
    Some(about(m, WarningKind::CacheKept, evidence.join("; "), remedy))
}

fn cache_lie(run: &Run, workload: &Workload, m: &Measurement) -> Option<Warning> {
    let asked = m.outcome.tallies.read.as_ref()?.bytes;
    let host = m.machine()?;
    let to_a_device = workload.direct && workload.ioengine != IoEngine::Null;
    if !to_a_device || asked == 0 || host.disks.is_empty() {
        return None;
    }
    let served: u64 = bottom_disks(run, &m.target, host).map(|(_, disk)| disk.read_bytes).sum();
    ((served as f64) < SERVED * asked as f64).then(|| {
        let evidence = format!(
            "{} were read directly, the device served {} ({:.0}%)",
            human::bytes(asked),
            human::bytes(served),
            served as f64 / asked as f64 * 100.0
        );
        let remedy = "a cache beneath answered: use cache = \"none\" for the guest, fill the area first, or make it \
                      larger than every cache";
        about(m, WarningKind::CacheLie, evidence, remedy)
    })
}

fn saturated(workload: &Workload, m: &Measurement) -> Option<Warning> {
    // The null backend measures the generator itself; who keeps a schedule or polls looks all the time.
    let window = f64::from(workload.numjobs) * m.outcome.duration_ns as f64;
    let share = m.outcome.cpu.total_ns() as f64 / window;
    let waited = m.outcome.pacing.is_none_or(|pacing| pacing.delayed > 0);
    let polls = workload.hipri || workload.sqthread_poll;
    let tells = workload.ioengine != IoEngine::Null && waited && !polls;
    (tells && window > 0.0 && share >= SATURATED).then(|| {
        let evidence = format!(
            "the generator used {:.0}% of the time of its {} thread{}",
            share * 100.0,
            workload.numjobs,
            if workload.numjobs == 1 { "" } else { "s" }
        );
        about(
            m,
            WarningKind::SaturatedGenerator,
            evidence,
            "the storage may be faster than this: raise numjobs, and a guest's vcpus with it",
        )
    })
}

fn unsteady(workload: &Workload, m: &Measurement) -> Option<Warning> {
    let found = steadiness(&m.samples).filter(|found| !found.is_steady())?;
    let mut evidence = format!(
        "the rate spread over {:.0}% of its mean (steady: at most 20%) and moved by {:+.0}% from start to end (at most 10%)",
        found.range * 100.0,
        found.drift * 100.0
    );
    let mut remedy =
        "let it settle with a longer ramp_time, and average more with a longer runtime".to_owned();
    if let Some((seen, mended)) = warm_up(workload, m) {
        evidence = format!("{evidence}; {seen}");
        remedy = mended;
    }
    Some(about(m, WarningKind::Unsteady, evidence, &remedy))
}
