//! Formats the results of a grid: the combinations of read and write rates that a target sustains at a given response time.

use iotax_analysis::curve::{Grid, Located, Ray};
use iotax_model::units::human;

use crate::curve::with_interval;
use crate::figure::title;

/// Formats the heading of a grid: `4k random read and write, queue depth 64 on host-file: reads against writes`.
pub(super) fn heading(grid: &Grid<'_>) -> String {
    let title = title(grid.work).replacen(&format!(", {}", shares(&grid.rays[0])), "", 1);
    format!("{title} on {}: reads against writes", grid.target)
}

/// Formats the percentages of reads and writes: `75/25`.
pub(super) fn shares(ray: &Ray<'_>) -> String {
    format!("{}/{}", ray.work.rwmixread, 100_u8.saturating_sub(ray.work.rwmixread))
}

/// Names the target's capacity at each share of reads; `None` if none is known.
pub(super) fn sentence(grid: &Grid<'_>) -> Option<String> {
    let can = |ray: &Ray<'_>| Some(format!("{} IOPS at {}", with_interval(&ray.capacity?), shares(ray)));
    let all: Vec<String> = grid.rays.iter().filter_map(can).collect();
    (!all.is_empty()).then(|| format!("{}: up to {}.", grid.target, all.join(", ")))
}

/// Formats reads and writes per second at a load: `16.5k + 5.50k`.
pub(super) fn apart(ray: &Ray<'_>, load: &Located) -> String {
    let [reads, writes] = [ray.reads(), 1.0 - ray.reads()].map(|share| human::count(share * load.at));
    format!("{reads} + {writes}")
}

/// Legend below the table of loads.
pub(super) const LEGEND: &str = "Reads + writes a second at which the mean response time, from when each I/O was due, reaches the time above. - where it is never reached by a rate that is sustained, or passed by the lowest.";
