//! Marks rows of tables whose figures need care (lost, emulated, unusable), and explains failures in one line.

use iotax_model::units::human::listed;
use iotax_model::{CellKey, Workload};

use super::figure::{grouped, share};
use iotax_analysis::{Failure, Judgement};
use iotax_model::Run;

/// Mark of a target that was lost during the run. The run continued without it.
pub(super) const LOST: &str = "lost";

/// Returns the marks of a target's row for a workload: `unusable`, `lost`, `emulated`; empty for a normal row.
pub(super) fn marks(run: &Run, judgement: &Judgement, workload: &str, target: &str) -> Vec<&'static str> {
    [
        (judgement.is_unusable(run, CellKey { workload, target }), "unusable"),
        (is_lost(run, target), LOST),
        (is_emulated(run, target), "emulated"),
    ]
    .into_iter()
    .filter_map(|(is_so, word)| is_so.then_some(word))
    .collect()
}

/// Returns whether the CPU of the target's guest, or of its Xen domain's host, was emulated (TCG).
pub(super) fn is_emulated(run: &Run, target: &str) -> bool {
    run.targets.iter().any(|t| t.name == target && t.emulated)
}

/// Returns whether the target was lost during the run.
pub(super) fn is_lost(run: &Run, target: &str) -> bool {
    run.targets.iter().any(|t| t.name == target && t.lost.is_some())
}

/// Describes failed measurements of a workload, one line per target.
pub(super) fn failures(run: &Run, judgement: &Judgement, workload: &Workload) -> Vec<String> {
    let failures = judgement.on(&workload.name, |cell| cell.failure.as_ref());
    failures.map(|(target, failure)| line(run, workload, target, failure)).collect()
}

fn line(run: &Run, workload: &Workload, target: &str, failure: &Failure) -> String {
    let ios = failure.ios;
    let here = run.of_cell(CellKey { workload: &workload.name, target });
    let which = match (failure.measurements as usize, here.clone().count()) {
        (failed, all) if all > 1 => format!(" ({failed} of {all} measurements)"),
        _ => String::new(),
    };
    if workload.kind.is_network() || !ios.is_too_many() {
        return format!("{target}: unusable{which}: {}", failure.reason);
    }
    let mut errors: Vec<String> = Vec::new();
    for error in here.flat_map(|m| &m.outcome.errors) {
        if !errors.contains(&error.error) {
            errors.push(error.error.clone());
        }
    }
    format!(
        "{target}: unusable{which}: {} of {} I/Os failed ({}; {}); the figures are of the ones that succeeded.",
        grouped(ios.ios),
        grouped(ios.of),
        share(ios.share()),
        listed(&errors)
    )
}
