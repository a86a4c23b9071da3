//! JSON of demands: one entry per demand and target.

use iotax_analysis::Judgement;
use iotax_analysis::demands::{DemandOnTarget, Kept, demands};
use iotax_model::Run;
use schemars::JsonSchema;
use serde::Serialize;

use super::ratio::Interval95;
use crate::demands::why;

/// A limit that the plan demands, with the result of one target. Times are in nanoseconds, rates in I/Os or bytes per second.
#[derive(Serialize, JsonSchema)]
pub(super) struct DemandEntry<'a> {
    target: &'a str,
    workload: &'a str,
    /// The figure and its limit, such as sync p99 <= 10ms.
    keep: String,
    /// The publication that states the limit; absent if the plan names none.
    source: Option<&'a str>,
    /// Geometric mean of the rounds' figures; absent if the figure is unknown.
    figure: Option<f64>,
    #[serde(flatten)]
    interval: Interval95,
    limit: f64,
    /// The limit divided by the figure; for rates, the figure divided by the limit. Below 1, the limit is missed. Absent if the figure is
    /// unknown.
    room: Option<f64>,
    kept: Kept,
    /// Reason why there is no figure, no interval or no decision; absent if nothing is missing. Without a reason, an undecided demand has
    /// its limit within the interval.
    reason: Option<String>,
}

/// Builds an entry per demand and target.
pub(super) fn all<'a>(run: &'a Run, judgement: &Judgement) -> Vec<DemandEntry<'a>> {
    demands(run, judgement).iter().map(one).collect()
}

fn one<'a>(demand: &DemandOnTarget<'a>) -> DemandEntry<'a> {
    DemandEntry {
        target: demand.target,
        workload: demand.workload,
        keep: demand.demand.keep.to_string(),
        source: demand.demand.source.as_deref(),
        figure: demand.figure,
        interval: demand.interval.into(),
        limit: demand.limit,
        room: demand.room(),
        kept: demand.kept,
        reason: why(demand),
    }
}
