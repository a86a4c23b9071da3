//! The JSON of demands: each on each target.

use iotax_analysis::Judgement;
use iotax_analysis::demands::{DemandOnTarget, demands};
use iotax_model::Run;
use serde_json::Value;

use super::{number, object};
use crate::demands::{why, word};

/// The demands of a run; absent for a plan without any.
pub(super) fn all(run: &Run, judgement: &Judgement) -> Option<Value> {
    let all = demands(run, judgement);
    (!all.is_empty()).then(|| all.iter().map(one).collect())
}

fn one(demand: &DemandOnTarget<'_>) -> Value {
    object([
        ("target", Some(demand.target.into())),
        ("workload", Some(demand.workload.into())),
        ("keep", Some(demand.demand.keep.to_string().into())),
        ("source", demand.demand.source.as_deref().map(Value::from)),
        ("figure", number(demand.figure)),
        ("low_95", number(demand.interval.map(|interval| interval.low))),
        ("high_95", number(demand.interval.map(|interval| interval.high))),
        ("limit", number(Some(demand.limit))),
        ("room", number(demand.room())),
        ("kept", Some(word(demand.kept).into())),
        ("reason", why(demand).map(Value::from)),
    ])
}
