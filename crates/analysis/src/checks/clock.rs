//! Finds clocks that disagree or are slow, and CPU time stolen by the hypervisor.

use iotax_model::record::{HostActivity, HostCpu, Measurement, Sample};
use iotax_model::units::human;
use iotax_model::{TargetSpec, Warning, WarningKind};

use super::{Case, about_target};
use crate::finding::Finding;
use crate::stats::median;
use iotax_model::Run;

/// Largest tolerated relative difference between a window's length by the agent's clock and by the host's.
const CLOCK: f64 = 0.01;
/// Relative error of the agent's clock above which rates and latencies are unusable.
const WRONG: f64 = 0.05;
/// Allowance for message delay in nanoseconds: the host sees a window's start and end by messages, which arrive late on a loaded machine.
const MESSAGES_NS: f64 = 50e6;
/// Shortest window that is checked alone, in nanoseconds. In shorter windows message delay alone exceeds [`WRONG`], so they are checked
/// together.
const ALONE_NS: f64 = MESSAGES_NS / WRONG;
/// Stolen CPU time, as a share of all CPU time, above which a warning is given.
const STEAL: f64 = 0.05;
/// Slow clocksources: reading the device takes microseconds, and in a guest causes a VM exit. Linux falls back to them if it distrusts the
/// time stamp counter.
const SLOW: [&str; 5] = ["hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"];

/// Remedy for a guest's wrong clock.
const PARAVIRTUAL: &str =
    "rates and latencies are off by as much; give the guest a paravirtual clocksource such as kvm-clock";

pub(super) fn emulated(run: &Run) -> impl Iterator<Item = Warning> + '_ {
    run.targets.iter().filter(|target| target.emulated).map(|target| Warning {
        kind: WarningKind::Emulated,
        target: Some(target.name.clone()),
        workload: None,
        round: None,
        evidence:
            "the guest's CPU was emulated (TCG): its tax is that of emulation, not of hardware virtualization"
                .into(),
        remedy: "measure on a machine where KVM runs guests: one with vmx or svm among its CPU flags".into(),
    })
}

/// Compares the length of a window of 1 s or longer by a guest's clock and by the host's. Targets without a guest are not checked.
pub(super) fn elapsed(case: &Case<'_>) -> Option<Finding> {
    let m = case.m;
    if !case.in_guest() {
        return None;
    }
    // A guest's clock stands still while the guest is stopped, so that time is subtracted.
    let stopped: u64 = m.standstills.iter().map(|one| one.duration_ns).sum();
    let (agent, host) = (m.outcome.duration_ns as f64, m.host_duration_ns?.saturating_sub(stopped) as f64);
    if host < ALONE_NS {
        return None;
    }
    let off = agent / host - 1.0;
    ((agent - host).abs() > CLOCK * host + MESSAGES_NS).then(|| {
        let evidence = format!(
            "the window lasted {} by the agent's clock and {} by the host's ({:+.1}%)",
            human::time(agent),
            human::time(host),
            off * 100.0
        );
        let wrong = by_interval(m).is_some_and(|off| off.abs() > WRONG);
        case.finding(WarningKind::Clock, evidence, PARAVIRTUAL).unusable_if(wrong)
    })
}

/// A guest's windows that are shorter than 1 s. They are checked together, because message delays at their starts and ends cancel out.
struct ShortWindows<'a> {
    spec: &'a TargetSpec,
    windows: Vec<&'a Measurement>,
    /// Total length of the windows by the agent's clock, in nanoseconds.
    agent: f64,
    /// Total length of the windows by the host's clock, in nanoseconds.
    host: f64,
}

impl<'a> ShortWindows<'a> {
    /// Sums the short windows of each guest; guests whose sum is still too short are left out.
    fn all(run: &'a Run) -> impl Iterator<Item = Self> {
        let guests = run.plan.targets.iter().filter(|target| target.is_in_guest());
        let sum = |spec: &'a TargetSpec| {
            let mut all = Self { spec, windows: Vec::new(), agent: 0.0, host: 0.0 };
            for m in run.measurements.iter().filter(|m| m.target == spec.name) {
                let Some(host) = m.host_duration_ns.map(|ns| ns as f64).filter(|ns| *ns < ALONE_NS) else {
                    continue;
                };
                all.agent += m.outcome.duration_ns as f64;
                all.host += host;
                all.windows.push(m);
            }
            (all.host >= ALONE_NS).then_some(all)
        };
        guests.filter_map(sum)
    }

    /// Returns whether the clocks differ by more than `share`, after allowing for message delay.
    fn differ_by(&self, share: f64) -> bool {
        let late = MESSAGES_NS * (self.windows.len() as f64).sqrt();
        (self.agent - self.host).abs() > share * self.host + late
    }

    fn evidence(&self) -> String {
        format!(
            "{} windows lasted {} by the agent's clock and {} by the host's ({:+.1}%)",
            self.windows.len(),
            human::time(self.agent),
            human::time(self.host),
            (self.agent / self.host - 1.0) * 100.0
        )
    }

    fn warning(&self, m: Option<&Measurement>) -> Warning {
        Warning {
            kind: WarningKind::Clock,
            target: Some(self.spec.name.clone()),
            workload: m.map(|m| m.workload.clone()),
            round: m.map(|m| m.round),
            evidence: self.evidence(),
            remedy: PARAVIRTUAL.into(),
        }
    }
}

/// Finds guests whose short windows, taken together, differ from the host's clock, but not enough to make the figures unusable.
pub(super) fn elapsed_in_all(run: &Run) -> Vec<Warning> {
    let all = ShortWindows::all(run).filter(|all| all.differ_by(CLOCK) && !all.differ_by(WRONG));
    all.map(|all| all.warning(None)).collect()
}

/// Finds short windows of guests whose clock is too far off to use the figures.
pub(super) fn wrong_in_all(run: &Run) -> Vec<Finding> {
    let all = ShortWindows::all(run).filter(|all| all.differ_by(WRONG));
    all.flat_map(|all| {
        let findings = all.windows.iter().map(|m| Finding { warning: all.warning(Some(m)), unusable: true });
        findings.collect::<Vec<_>>()
    })
    .collect()
}

/// Returns the relative error of the agent's clock: the median over the intervals of agent time / host time, minus 1. A late message makes
/// one interval longer and the next shorter, which hardly moves the median. `None` for fewer than three intervals.
fn by_interval(m: &Measurement) -> Option<f64> {
    let intervals = m.samples.iter().zip(&m.host_samples);
    let ratio = |(sample, host): (&Sample, &HostActivity)| {
        (host.duration_ns > 0).then(|| sample.duration_ns as f64 / host.duration_ns as f64)
    };
    let ratios: Vec<f64> = intervals.filter_map(ratio).collect();
    median(&ratios).filter(|_| ratios.len() >= 3).map(|ratio| ratio - 1.0)
}

/// Finds slow clocksources: in guests, on other machines and on this host.
pub(super) fn sources(run: &Run) -> Vec<Warning> {
    let slow = |name: &str| SLOW.contains(&name);
    let words = |name: &str| {
        format!("the clocksource is {name}: the kernel asks a device for the time, for every I/O")
    };
    let remedy = "use a paravirtual clocksource such as kvm-clock, or the CPU's counter (tsc); the kernel log says why it was not \
                  chosen";
    let targets = run.targets.iter().filter_map(|record| {
        let name = record.guest_clocksource.as_deref().filter(|name| slow(name))?;
        Some(about_target(record, WarningKind::Clock, words(name), remedy))
    });
    let host = run.environment.clocksource.as_deref().filter(|name| slow(name)).map(|name| Warning {
        kind: WarningKind::Clock,
        target: None,
        workload: None,
        round: None,
        evidence: format!("on this host {}", words(name)),
        remedy: remedy.into(),
    });
    host.into_iter().chain(targets).collect()
}

/// Finds CPU time that the hypervisor gave to other guests.
pub(super) fn steal(case: &Case<'_>) -> Option<Finding> {
    let m = case.m;
    let sentence = |name: &str, cpu: Option<HostCpu>| {
        let cpu = cpu?;
        let all = cpu.busy_ns() + cpu.idle_ns + cpu.iowait_ns.unwrap_or(0) + cpu.steal_ns;
        let share = cpu.steal_ns as f64 / all as f64;
        (all > 0 && share > STEAL)
            .then(|| format!("{:.0}% of {name} CPU time went to others (steal)", share * 100.0))
    };
    let inside = if case.in_guest() { "the guest's" } else { "that machine's" };
    let found: Vec<String> = [
        sentence("this host's", m.host.as_ref().and_then(|host| host.cpu)),
        sentence(inside, m.outcome.inside.as_ref().and_then(|inside| inside.cpu)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let remedy = "latencies contain waits for a CPU: measure while the machine below is idle, or with CPUs of your own";
    (!found.is_empty()).then(|| case.finding(WarningKind::Clock, found.join("; "), remedy))
}
