//! JSON of curves: latency against offered load.

use iotax_analysis::curve::{Curve, Curves, Knee, Located, RatePoint};
use iotax_analysis::percentile::percentile;
use iotax_model::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

/// Latency of one target against the offered load.
#[derive(Serialize, JsonSchema)]
pub(super) struct CurveEntry<'a> {
    target: &'a str,
    /// Name of the same workload in a closed loop; without one, of the workload at the lowest rate.
    workload: &'a str,
    /// The measured rates, in ascending order.
    points: Vec<CurvePoint<'a>>,
    /// I/Os per second in a closed loop; absent if no closed loop of this workload was measured.
    closed_loop: Option<Located>,
    /// The highest number of I/Os per second: that of the closed loop, or of an offered rate at which more completed. Absent without a
    /// closed loop.
    capacity: Option<Located>,
    /// The load at which latency begins to rise, in I/Os per second; absent for fewer than four sustained rates, or if no I/O completed at
    /// one of the rates used.
    knee: Option<&'a Knee>,
}

#[derive(Serialize, JsonSchema)]
struct CurvePoint<'a> {
    workload: &'a str,
    /// I/Os per second that were due.
    offered: f64,
    /// I/Os per second that completed: the geometric mean over the rounds; absent if none completed.
    achieved: Option<f64>,
    /// I/Os that were due in the windows of all rounds.
    due: u64,
    /// I/Os that completed in the windows of all rounds.
    completed: u64,
    /// True if at least 98% of the I/Os due completed in their windows, or all but two per window. If false, the latencies depend on the length of
    /// the queue at the end of the window.
    sustained: bool,
    /// Mean time from submission to completion; absent if no I/O completed.
    service_ns: Option<f64>,
    response_ns: ResponseTimes,
    /// CPU time of the host per I/O in nanoseconds: the geometric mean over the rounds; absent if unknown.
    cpu_per_io: Option<f64>,
}

/// Times from when an I/O was due to its completion, all rounds together. A percentile with fewer than ten I/Os beyond it is absent.
#[derive(Serialize, JsonSchema)]
struct ResponseTimes {
    mean: Option<f64>,
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    p99_9: Option<f64>,
    max: Option<f64>,
}

/// Builds an entry per curve and target of a run.
pub(super) fn all<'a>(curves: &'a [Curves<'a>]) -> Vec<CurveEntry<'a>> {
    let of_work = |curves: &'a Curves<'a>| curves.targets.iter().map(|found| curve(&curves.work.name, found));
    curves.iter().flat_map(of_work).collect()
}

fn curve<'a>(workload: &'a str, curve: &'a Curve<'a>) -> CurveEntry<'a> {
    CurveEntry {
        target: curve.target,
        workload,
        points: curve.points.iter().map(point).collect(),
        closed_loop: curve.closed,
        capacity: curve.capacity,
        knee: curve.knee.as_ref(),
    }
}

fn point<'a>(point: &'a RatePoint<'a>) -> CurvePoint<'a> {
    CurvePoint {
        workload: &point.workload.name,
        offered: point.offered,
        achieved: point.achieved,
        due: point.due,
        completed: point.completed,
        sustained: point.is_sustained(),
        service_ns: point.service_ns,
        response_ns: times(&point.response),
        cpu_per_io: point.cpu_per_io,
    }
}

fn times(response: &Histogram) -> ResponseTimes {
    ResponseTimes {
        mean: response.mean(),
        p50: percentile(response, 0.5),
        p90: percentile(response, 0.9),
        p99: percentile(response, 0.99),
        p99_9: percentile(response, 0.999),
        max: response.max().map(|max| max as f64),
    }
}
