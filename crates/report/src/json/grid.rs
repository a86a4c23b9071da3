//! JSON of grids: the load at which each response time is reached, by share of reads.

use iotax_analysis::curve::{Grid, Located, Ray};
use schemars::JsonSchema;
use serde::Serialize;

/// The loads that one target sustains at each response time, by share of reads.
#[derive(Serialize, JsonSchema)]
pub(super) struct GridEntry<'a> {
    target: &'a str,
    /// The highest loads that the target completed, in the closed loop or at an offered rate, by descending share of reads.
    capacity: Vec<MixedLoad<'a>>,
    /// Lines of equal latency, by ascending response time.
    lines: Vec<EqualLatency<'a>>,
}

/// Loads at which the mean response time is the same.
#[derive(Serialize, JsonSchema)]
struct EqualLatency<'a> {
    /// The mean response time at these loads.
    response_ns: f64,
    /// Loads by descending share of reads. A share is left out if it is slower than this response time even at the lowest rate, or faster even at the
    /// highest sustained rate.
    points: Vec<MixedLoad<'a>>,
}

/// A load with a given share of reads.
#[derive(Serialize, JsonSchema)]
struct MixedLoad<'a> {
    workload: &'a str,
    rwmixread: u8,
    /// I/Os per second, reads and writes together.
    load: Located,
}

pub(super) fn grid<'a>(grid: &Grid<'a>) -> GridEntry<'a> {
    let line = |(at, ns): (usize, &f64)| {
        let points = grid.rays.iter().filter_map(|ray| point(ray, ray.loads[at]));
        EqualLatency { response_ns: *ns, points: points.collect() }
    };
    GridEntry {
        target: grid.target,
        capacity: grid.rays.iter().filter_map(|ray| point(ray, ray.capacity)).collect(),
        lines: grid.levels.iter().enumerate().map(line).collect(),
    }
}

fn point<'a>(ray: &Ray<'a>, load: Option<Located>) -> Option<MixedLoad<'a>> {
    Some(MixedLoad { workload: &ray.work.name, rwmixread: ray.work.rwmixread, load: load? })
}
