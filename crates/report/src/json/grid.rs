//! The JSON of grids: reads against writes.

use serde_json::Value;

use super::curve::located;
use super::{filled, number, object};
use iotax_analysis::curve::{Grid, Ray, curves, grids};
use iotax_model::Run;

/// The grids of a run; absent for a run of none.
pub(super) fn all(run: &Run) -> Option<Value> {
    filled(grids(&curves(run)).iter().map(grid).collect())
}

fn grid(grid: &Grid<'_>) -> Value {
    let line = |(at, ns): (usize, &f64)| {
        let points =
            grid.rays.iter().filter_map(|ray| Some(point(ray, ray.loads[at].as_ref().map(located)?)));
        object([("response_ns", number(Some(*ns))), ("points", Some(points.collect()))])
    };
    let most = grid.rays.iter().filter_map(|ray| Some(point(ray, ray.capacity.as_ref().map(located)?)));
    object([
        ("target", Some(grid.target.into())),
        ("capacity", Some(most.collect())),
        ("lines", Some(grid.levels.iter().enumerate().map(line).collect())),
    ])
}

/// A load, reads and writes together, at a share of reads.
fn point(ray: &Ray<'_>, load: Value) -> Value {
    object([
        ("workload", Some(ray.work.name.as_str().into())),
        ("rwmixread", Some(ray.work.rwmixread.into())),
        ("load", Some(load)),
    ])
}
