//! Describes the steady state: whether it was reached, after how many rounds, and which cell varies most.

use iotax_analysis::SteadyState;
use iotax_analysis::steady_state::CellSteadiness;
use iotax_model::Run;
use iotax_model::plan::{STEADY_RANGE, STEADY_SLOPE, STEADY_WINDOW};

use crate::figure::{counted, share};

/// Returns a sentence on the steady state with the cell that varies most; empty for runs that do not wait for a steady state.
pub(crate) fn sentences(run: &Run) -> Vec<String> {
    let Some(state) = SteadyState::of(run) else { return Vec::new() };
    let rounds = state.rounds();
    let (range, slope) = (share(STEADY_RANGE), share(STEADY_SLOPE));
    if rounds < STEADY_WINDOW {
        return vec![format!(
            "Steady state: unknown; {} measured, and SNIA's rule asks for {STEADY_WINDOW}.",
            counted(rounds, "round")
        )];
    }
    let cells = state.cells();
    let open: Vec<&CellSteadiness> = cells.iter().filter(|cell| !cell.is_steady()).collect();
    let widest = |cells: &[&CellSteadiness]| {
        let width = |cell: &&CellSteadiness| cell.window.map_or(f64::INFINITY, |window| window.range);
        cells.iter().copied().max_by(|a, b| width(a).total_cmp(&width(b))).map(|cell| words(run, cell))
    };
    if open.is_empty() {
        let widest = widest(&cells.iter().collect::<Vec<_>>()).unwrap_or_default();
        return vec![format!(
            "Steady by SNIA's rule after {}: the last {STEADY_WINDOW}, which the figures are made of, range over at most {range} of their \
             mean and their trend over {slope}; widest: {widest}.",
            counted(rounds, "round")
        )];
    }
    vec![format!(
        "NOT steady after {}: {} of {}; the last {STEADY_WINDOW}, which the figures are made of, may range over {range} of their mean and \
         their trend over {slope}; widest: {}.",
        counted(rounds, "round"),
        open.len(),
        counted(cells.len() as u64, "cell"),
        widest(&open).unwrap_or_default()
    )]
}

/// Describes the variation of a cell over the last rounds: `raw, randwrite-4k: range 34%, trend -12%`.
fn words(run: &Run, cell: &CellSteadiness) -> String {
    let target = &run.plan.targets[cell.cell.target].name;
    let workload = &run.plan.workloads[cell.cell.workload].name;
    let widths = cell.window.map_or_else(
        || "a round is missing".to_owned(),
        |window| {
            let sign = if window.slope < 0.0 { "-" } else { "" };
            format!("range {}, trend {sign}{}", share(window.range), share(window.slope.abs()))
        },
    );
    format!("{target}, {workload}: {widths}")
}
