//! Compares replays phase by phase of their trace, because a target may be slower only in some phases, such as during a backup.

use iotax_model::record::{Measurement, ReplayPhase};
use iotax_model::{CellKey, MeasurementKey, Run};

use crate::checks;
use crate::comparison::Ratio;
use crate::grade;
use crate::metric::Metric;
use crate::sample::{Sample, decide_family};
use crate::stats::Estimate;

/// One target compared with the baseline in each phase of the replayed trace.
#[derive(Debug, Clone, PartialEq)]
pub struct PhasedComparison<'a> {
    /// The workload's name.
    pub workload: &'a str,
    /// The target's name.
    pub target: &'a str,
    /// Phases in which both targets did I/O, by ascending time.
    pub phases: Vec<PhaseRatio>,
}

/// One target compared with the baseline in one phase of the trace.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseRatio {
    /// Start of the phase in nanoseconds from the trace's first I/O.
    pub from_ns: u64,
    /// End of the phase in nanoseconds from the trace's first I/O.
    pub to_ns: u64,
    /// Ratio of mean response times, target over baseline.
    pub ratio: Ratio,
}

/// Compares every target with the baseline in each phase of every replay whose trace has at least two phases. All phases and targets of a
/// replay share one 5% error rate (Holm).
#[must_use]
pub fn phased_comparisons(run: &Run) -> Vec<PhasedComparison<'_>> {
    let replays = run.plan.workloads.iter().filter(|workload| workload.read_iolog.is_some());
    let replays: Vec<&str> = replays.map(|workload| workload.name.as_str()).collect();
    if replays.is_empty() || run.plan.is_together() {
        return Vec::new();
    }
    let findings = checks::of_measurements(run);
    let unusable = grade::withheld(&findings);
    let usable: Vec<&Measurement> = run.measured().filter(|m| !unusable.contains_key(&m.key())).collect();
    replays.into_iter().flat_map(|workload| of_workload(run, workload, &usable)).collect()
}

/// Mean response times of a target and of the baseline in one phase, paired by round.
struct PhaseCase<'a> {
    target: &'a str,
    from_ns: u64,
    to_ns: u64,
    base_ns: f64,
    sample: Sample,
}

fn of_workload<'a>(run: &'a Run, workload: &'a str, usable: &[&Measurement]) -> Vec<PhasedComparison<'a>> {
    let targets = run.plan.targets.iter().map(|target| target.name.as_str());
    let targets: Vec<&str> = targets.filter(|target| *target != run.plan.baseline).collect();
    let cases: Vec<PhaseCase<'_>> =
        targets.iter().copied().flat_map(|target| phase_cases(run, workload, target, usable)).collect();
    let family = cases.iter().map(|case| (Metric::LATENCY_MEAN, case.sample.clone())).collect();
    let decided = decide_family(family, run.plan.margin.share());
    let ratios = cases.iter().zip(&decided).map(|(case, decision)| {
        let mean = case.sample.mean().exp();
        let ratio = Ratio::new(Metric::LATENCY_MEAN, (mean, case.base_ns), &case.sample, decision, None);
        (case.target, PhaseRatio { from_ns: case.from_ns, to_ns: case.to_ns, ratio })
    });
    let ratios: Vec<(&str, PhaseRatio)> = ratios.collect();
    let of = |target: &'a str| {
        let phases = ratios.iter().filter(|(of, _)| *of == target).map(|(_, phase)| phase.clone());
        PhasedComparison { workload, target, phases: phases.collect() }
    };
    targets.into_iter().map(of).filter(|compared| compared.phases.len() > 1).collect()
}

/// Collects the phases of a target from rounds whose phases match the baseline's.
fn phase_cases<'a>(
    run: &Run,
    workload: &str,
    target: &'a str,
    usable: &[&Measurement],
) -> Vec<PhaseCase<'a>> {
    let of = |name: &str, round: u32| {
        let cell = CellKey { workload, target: name };
        let m = usable.iter().find(|m| m.key() == MeasurementKey { cell, round })?;
        m.outcome.replayed.as_ref().filter(|replayed| replayed.phase_ns > 0)
    };
    let rounds = run.measurements.iter().map(|m| m.round).max().unwrap_or(0);
    let both = (1..=rounds).filter_map(|round| Some((of(target, round)?, of(&run.plan.baseline, round)?)));
    let both: Vec<_> = both.filter(|(ours, theirs)| ours.phase_ns == theirs.phase_ns).collect();
    let Some(length) = both.first().map(|(ours, _)| ours.phase_ns) else { return Vec::new() };
    let most = both.iter().map(|(ours, theirs)| ours.phases.len().max(theirs.phases.len())).max();
    let mean = |phases: &[ReplayPhase], index: usize| Some(phases.get(index)?.response_mean_ns? as f64);
    let case = |index: usize| {
        let pairs: Vec<(f64, f64)> = both
            .iter()
            .filter_map(|(ours, theirs)| Some((mean(&ours.phases, index)?, mean(&theirs.phases, index)?)))
            .collect();
        let sample = Sample::paired(&pairs, Metric::LATENCY_MEAN)?;
        let base_ns = (pairs.iter().map(|(_, base)| base.ln()).sum::<f64>() / pairs.len() as f64).exp();
        let from_ns = length.saturating_mul(index as u64);
        Some(PhaseCase { target, from_ns, to_ns: from_ns.saturating_add(length), base_ns, sample })
    };
    (0..most.unwrap_or(0)).filter_map(case).collect()
}
