//! JSON of a steady state.

use iotax_analysis::SteadyState;
use iotax_analysis::steady_state::{CellSteadiness, SteadyWindow};
use iotax_model::Run;
use schemars::JsonSchema;
use serde::Serialize;

/// The steady state that rounds were added for, by SNIA's rule. Figures and comparisons are those of its window.
#[derive(Serialize, JsonSchema)]
pub(super) struct SteadyStateEntry<'a> {
    /// True if every cell that can be measured is in a steady state.
    reached: bool,
    /// The first round of the window.
    first_round: u32,
    /// The last round of the window.
    last_round: u32,
    cells: Vec<CellSteadinessEntry<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct CellSteadinessEntry<'a> {
    target: &'a str,
    workload: &'a str,
    /// The figure that is followed.
    metric: &'static str,
    steady: bool,
    /// The window; absent if one of its rounds has no value.
    window: Option<SteadyWindow>,
    /// The first round at whose end the rule held.
    first: Option<u32>,
    /// The value of each round, from the first on.
    values: Vec<RoundValue>,
}

#[derive(Serialize, JsonSchema)]
struct RoundValue {
    round: u32,
    value: f64,
}

pub(super) fn entry(run: &Run) -> Option<SteadyStateEntry<'_>> {
    let state = SteadyState::of(run)?;
    let cell = |cell: CellSteadiness| CellSteadinessEntry {
        target: &run.plan.targets[cell.cell.target].name,
        workload: &run.plan.workloads[cell.cell.workload].name,
        metric: cell.metric.word(),
        steady: cell.is_steady(),
        window: cell.window,
        first: cell.first,
        values: cell
            .values
            .iter()
            .map(|(round, value)| RoundValue { round: *round, value: *value })
            .collect(),
    };
    Some(SteadyStateEntry {
        reached: state.is_reached(),
        first_round: run.first_measured_round(),
        last_round: state.rounds(),
        cells: state.cells().into_iter().map(cell).collect(),
    })
}
