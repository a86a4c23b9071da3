//! The JSON of curves: latency against offered load.

use iotax_model::Histogram;
use serde_json::Value;

use super::{filled, number, object};
use iotax_analysis::curve::{Curve, Curves, Located, Point, curves};
use iotax_analysis::percentile::percentile;
use iotax_model::Run;

/// The curves of a run; absent for a run of none.
pub(super) fn all(run: &Run) -> Option<Value> {
    let one = |curves: &Curves<'_>| -> Vec<Value> {
        let work = curves.work;
        curves.targets.iter().map(|found| curve(&work.name, found)).collect()
    };
    filled(curves(run).iter().flat_map(one).collect())
}

fn curve(workload: &str, curve: &Curve<'_>) -> Value {
    let knee = curve.knee.as_ref().map(|knee| {
        object([("power", knee.power.as_ref().map(located)), ("double", knee.double.as_ref().map(located))])
    });
    object([
        ("target", Some(curve.target.into())),
        ("workload", Some(workload.into())),
        ("points", Some(curve.points.iter().map(point).collect())),
        ("closed_loop", curve.closed.as_ref().map(located)),
        ("capacity", curve.capacity.as_ref().map(located)),
        ("knee", knee),
    ])
}

fn point(point: &Point<'_>) -> Value {
    object([
        ("workload", Some(point.workload.name.as_str().into())),
        ("offered", number(Some(point.offered))),
        ("achieved", number(point.achieved)),
        ("due", Some(point.due.into())),
        ("completed", Some(point.completed.into())),
        ("sustained", Some(point.is_sustained().into())),
        ("service_ns", number(point.service_ns)),
        ("response_ns", Some(times(&point.response))),
        ("cpu_per_io", number(point.cpu_per_io)),
    ])
}

fn times(response: &Histogram) -> Value {
    object([
        ("mean", number(response.mean())),
        ("p50", number(percentile(response, 0.5))),
        ("p90", number(percentile(response, 0.9))),
        ("p99", number(percentile(response, 0.99))),
        ("p99_9", number(percentile(response, 0.999))),
        ("max", number(response.max().map(|max| max as f64))),
    ])
}

/// An estimate and its 95% interval.
pub(super) fn located(located: &Located) -> Value {
    object([
        ("estimate", number(Some(located.at))),
        ("low", number(located.interval.map(|ends| ends.low))),
        ("high", number(located.interval.map(|ends| ends.high))),
    ])
}
