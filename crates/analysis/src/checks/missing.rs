//! Checks for missing and failed measurements, and for corrupt data.

use iotax_model::record::Stop;
use iotax_model::units::human;
use iotax_model::verify_errors::FaultKind;
use iotax_model::{CellKey, RunState, Warning, WarningKind};

use super::Case;
use crate::cells::by_cell;
use crate::cells::each_cell;
use crate::comparison::Comparison;
use crate::edges::{Edge, other_devices};
use crate::failed::{Failed, SYNC};
use crate::figures::done;
use crate::finding::Finding;
use crate::sequential_status::SequentialStatus;
use iotax_model::Run;

/// Finds missing measurements. In a run that adds rounds, a target is no longer measured once its comparisons are decided; this does not
/// count as missing. In a search, nothing counts as missing.
pub(super) fn measurements(run: &Run, status: Option<&SequentialStatus>) -> Option<Warning> {
    // A search chooses its measurements as it goes, so none can be missing.
    if run.plan.searches() {
        return None;
    }
    // A run that waits for a steady state adds rounds one by one.
    let rounds = run.measurements.iter().map(|m| m.round).max().unwrap_or(0).max(run.plan.repeat);
    let planned = status.map_or(rounds as usize * run.plan.cells(), |status| status.planned);
    let there = run.measurements.len();
    (there < planned).then(|| Warning {
        kind: WarningKind::Incomplete,
        target: None,
        workload: None,
        round: None,
        evidence: format!("{there} of {planned} measurements are there"),
        remedy: match status.and_then(|status| status.stopped) {
            _ if run.state == RunState::Running => "wait for its end: it is still measuring".into(),
            Some(_) => {
                "a new run: this one has taken its looks, and rounds that they counted are not made up for"
                    .into()
            }
            None => format!("measure the rest: {}", run.command("resume", "")),
        },
    })
}

/// Finds targets that have no round in common with the baseline on a workload, and so cannot be compared on it. Finds none before the first
/// measurement, in a search, or with all targets under load together. Leaves out lost targets, and all targets if the baseline is lost.
pub(super) fn comparisons<'a>(
    run: &'a Run,
    comparisons: &'a [Comparison],
) -> impl Iterator<Item = Warning> + 'a {
    let measured = by_cell(run);
    // A search compares the rates that it finds; targets under load together are not compared.
    let is_compared = !run.plan.searches() && !run.plan.is_together();
    each_cell(run).filter(move |_| is_compared).filter_map(move |(workload, spec)| {
        let (workload, target) = (&workload.name, &spec.name);
        let compared = run.measurements.is_empty() || comparisons.iter().any(|c| c.cell() == CellKey { workload, target });
        // The run's own warnings give the reason for a lost target.
        let lost = |name: &str| run.targets.iter().any(|record| record.name == name && record.lost.is_some());
        if compared || *target == run.plan.baseline || lost(target) || lost(&run.plan.baseline) {
            return None;
        }
        let rounds = |target: &str| measured.get(&CellKey { workload, target }).map_or(0, Vec::len);
        let evidence = format!(
            "no round holds both {target} ({} measured) and {} ({} measured) with I/O completed, so they are not compared",
            rounds(target), run.plan.baseline, rounds(&run.plan.baseline),
        );
        Some(Warning {
            kind: WarningKind::Incomplete,
            target: Some(target.into()),
            workload: Some(workload.into()),
            round: None,
            evidence,
            remedy: format!("measure what is missing: {}", run.command("resume", "")),
        })
    })
}

pub(super) fn not_one_layer(run: &Run, edge: &Edge) -> Option<Warning> {
    let (from, to) = other_devices(run, edge)?;
    Some(Warning {
        kind: WarningKind::Incomplete,
        target: Some(edge.to.clone()),
        workload: None,
        round: None,
        evidence: format!(
            "{} stands on {to} and {} on {from}, so the cost of {} cannot be separated from the difference of the devices",
            edge.to, edge.from, edge.name
        ),
        remedy: "put both on one device".into(),
    })
}

pub(super) fn no_io(case: &Case<'_>) -> Option<Finding> {
    // Streams report bytes even where packets are unknown.
    let Case { workload, m, .. } = case;
    (done(m, &m.outcome.tallies) == 0).then(|| {
        let (what, part) = if workload.kind.is_network() {
            ("nothing arrived", "path")
        } else {
            ("no I/O was completed", "storage")
        };
        let evidence = format!("{what} in the window, so this round is compared with nothing");
        let remedy = &format!("lengthen the runtime; if it stays so, the {part} has stalled");
        case.finding(WarningKind::Incomplete, evidence, remedy).unusable_if(true)
    })
}

pub(super) fn errors(case: &Case<'_>) -> Option<Finding> {
    let outcome = &case.m.outcome;
    if outcome.errors.is_empty() {
        return None;
    }
    let counts: Vec<String> = outcome
        .errors
        .iter()
        .map(|e| {
            let count = match e.in_ramp {
                0 => e.count.to_string(),
                ramp if ramp == e.count => format!("{ramp} (in the warm-up)"),
                ramp => format!("{} ({ramp} of them in the warm-up)", e.count),
            };
            if e.direction == SYNC || case.workload.kind.is_network() {
                return format!("{count} x {} on {}", e.error, e.direction);
            }
            let last = e.last_offset.filter(|last| *last != e.first_offset);
            let last = last.map(|last| format!(", last at {last}")).unwrap_or_default();
            format!("{count} x {} on {}, first at byte {}{last}", e.error, e.direction, e.first_offset)
        })
        .collect();
    // A failed flush loses writes that were already counted as completed.
    let lost = outcome.errors.iter().any(|error| error.direction == SYNC);
    let planned = case.spec.and_then(|spec| spec.stack.failing_reads());
    let planned =
        planned.filter(|_| outcome.errors.iter().all(|one| one.error == "EIO" && one.direction == "read"));
    if let Some(setting) = planned {
        let remedy = format!("the target's {setting} lets reads fail; the figures leave them out");
        return Some(case.finding(WarningKind::Incomplete, counts.join("; "), &remedy));
    }
    let remedy = if case.workload.kind.is_network() {
        "the figures are of what was carried all the same; see the logs of both ends, then measure again"
    } else if lost {
        "what was counted as written may be lost; see the kernel log for the device, then measure again"
    } else {
        "the figures leave the failed I/Os out; see the kernel log for the device, then measure again"
    };
    let found = case.finding(WarningKind::Incomplete, counts.join("; "), remedy);
    Some(found.unusable_if(lost || Failed::of(case.m).is_too_many()))
}

pub(super) fn stopped(case: &Case<'_>) -> Option<Finding> {
    let Case { workload, m, .. } = case;
    let (why, remedy) = match m.outcome.stop? {
        Stop::Stalled => (
            format!(
                "an I/O was in flight for longer than stall_timeout = {}",
                workload.stall_timeout.unwrap_or_default()
            ),
            "the figures end where the storage stalled; see the kernel log for the device",
        ),
        Stop::Unanswered => (
            "I/Os in flight at its end were not answered in the time after it".into(),
            "the figures leave them out, and so say more than was done; see the kernel log for the device, and whether what serves it was stopped",
        ),
        Stop::Errors
            if m.outcome.errors.is_empty()
                && m.outcome.verify.as_ref().is_some_and(|findings| findings.journal.is_some()) =>
        {
            (
                "the journal took no more records".into(),
                "the figures end there; give the journal room, or another place",
            )
        }
        Stop::Errors => (
            format!("max_errors = {} was reached", workload.max_errors.unwrap_or_default()),
            "the figures end where the errors began; see the kernel log for the device",
        ),
        Stop::Gone => (
            "the agent or its guest was gone".into(),
            "the figures are those that had come until then; what was written was not read back",
        ),
    };
    let evidence = format!(
        "the measurement was ended after {} of {}: {why}",
        human::time(m.outcome.duration_ns as f64),
        workload.runtime
    );
    Some(case.finding(WarningKind::Incomplete, evidence, remedy).unusable_if(true))
}

pub(super) fn unverified(case: &Case<'_>) -> Option<Finding> {
    let reason = case.m.outcome.verify.as_ref()?.incomplete()?;
    let remedy = "nothing is known of the rest: fix what stopped it, then measure again";
    Some(case.finding(WarningKind::Incomplete, reason, remedy).unusable_if(true))
}

pub(super) fn corrupt(case: &Case<'_>) -> Option<Finding> {
    let findings = case.m.outcome.verify.as_ref().filter(|findings| findings.faulty() > 0)?;
    let faults: Vec<String> = findings.faults.iter().map(ToString::to_string).collect();
    let evidence = format!(
        "{} of {} checks found a block that does not hold what was written there: {}",
        findings.faulty(),
        findings.checked,
        faults.join("; ")
    );
    let is_foreign = findings.faults.iter().all(|fault| fault.kind == FaultKind::Foreign);
    let remedy = if is_foreign && findings.faulty() == findings.checked {
        "nothing here was written by a workload with verify: write it by one, with --keep, and check that"
    } else {
        "do not trust this storage with data; the kernel log may name the device, and the same check on the layers below finds \
         the one that is to blame"
    };
    Some(case.finding(WarningKind::Corrupt, evidence, remedy).unusable_if(true))
}
