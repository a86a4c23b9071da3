//! Describes the phases of a replayed trace in which targets differ.

use iotax_analysis::phases::{PhaseRatio, PhasedComparison, phased_comparisons};
use iotax_analysis::stats::verdict::Verdict;
use iotax_model::Run;
use iotax_model::units::human;
use iotax_model::units::human::listed;

use crate::figure::counted;

/// Returns a sentence per target with the phases in which its mean response time differs from the baseline's.
pub(crate) fn sentences(run: &Run) -> Vec<String> {
    phased_comparisons(run).iter().map(|compared| sentence(run, compared)).collect()
}

fn sentence(run: &Run, compared: &PhasedComparison<'_>) -> String {
    let PhasedComparison { workload, target, phases } = compared;
    let differ: Vec<&PhaseRatio> = phases
        .iter()
        .filter(|phase| matches!(phase.ratio.verdict, Verdict::Slower | Verdict::Faster))
        .collect();
    let same = phases.iter().filter(|phase| phase.ratio.verdict == Verdict::Same).count();
    let open = phases.len() - differ.len() - same;
    let phase_texts: Vec<String> = differ.iter().map(|phase| phase_text(phase)).collect();
    let all = counted(phases.len() as u64, "phase");
    let mut parts = Vec::new();
    match phase_texts.len() {
        0 => parts.push("no difference is shown".to_owned()),
        _ => parts.push(format!("it differs in {} of them: {}", phase_texts.len(), listed(&phase_texts))),
    }
    if same > 0 {
        parts.push(format!("the same in {same}"));
    }
    if open > 0 {
        parts.push(format!("not decided in {open}"));
    }
    let baseline = &run.plan.baseline;
    format!(
        "{target} against {baseline} in the {all} of {workload}, by mean response time: {}.",
        parts.join("; ")
    )
}

/// Describes a phase with its ratio and confidence interval: `from 6 s to 8 s slower, 1.90x [1.50, 2.40]`.
fn phase_text(phase: &PhaseRatio) -> String {
    let time = |ns: u64| human::duration(ns as f64 / 1e9);
    let ratio = &phase.ratio;
    let interval = ratio.interval.map(|interval| format!(" [{:.2}, {:.2}]", interval.low, interval.high));
    format!(
        "from {} to {} {}, {:.2}x{}",
        time(phase.from_ns),
        time(phase.to_ns),
        ratio.verdict.word(),
        ratio.mean,
        interval.unwrap_or_default()
    )
}
