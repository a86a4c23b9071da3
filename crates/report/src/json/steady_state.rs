//! JSON of a steady state.

use iotax_analysis::SteadyState;
use iotax_analysis::steady_state::{CellSteadiness, SteadyWindow};
use iotax_model::Run;
use schemars::JsonSchema;
use serde::Serialize;

/// The steady state that the run waited for, by SNIA's rule. Figures and comparisons use only the rounds of its window.
#[derive(Serialize, JsonSchema)]
pub(super) struct SteadyStateEntry<'a> {
    /// True if every cell that was measured in the window is in a steady state; cells last measured before the window are ignored. False
    /// before five rounds.
    reached: bool,
    /// First round of the window, which has five rounds.
    first_round: u32,
    /// Last round of the window.
    last_round: u32,
    cells: Vec<CellSteadinessEntry<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct CellSteadinessEntry<'a> {
    target: &'a str,
    workload: &'a str,
    /// Id of the metric that the rule is applied to.
    metric: &'static str,
    steady: bool,
    /// Mean, range and slope of the window's values; absent if a round of the window has no value, or if the mean is not positive.
    window: Option<SteadyWindow>,
    /// First round after which the rule was met; absent if it was never met.
    first: Option<u32>,
    /// Values by round, in order of rounds.
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
