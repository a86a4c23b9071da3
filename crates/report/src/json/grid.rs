//! JSON of grids: the load at which each response time is reached, by share of reads.

use iotax_analysis::curve::{Grid, Located, Ray};
use schemars::JsonSchema;
use serde::Serialize;

/// Reads against writes on one target.
#[derive(Serialize, JsonSchema)]
pub(super) struct GridEntry<'a> {
    target: &'a str,
    /// Loads of the closed loop, by descending share of reads.
    capacity: Vec<MixedLoad<'a>>,
    /// Lines of equal latency, by ascending response time.
    lines: Vec<EqualLatency<'a>>,
}

/// Loads of equal latency.
#[derive(Serialize, JsonSchema)]
struct EqualLatency<'a> {
    /// The mean response time that is reached at these loads.
    response_ns: f64,
    /// Loads by descending share of reads. A share is left out if its response is slower even at the lowest rate, or still faster at the
    /// highest sustained rate.
    points: Vec<MixedLoad<'a>>,
}

/// A load at a share of reads.
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
