//! Read/write mix: the combinations of read and write rates at which a target has equal latency.
//!
//! Each share of reads has its own curve, a ray from the origin in the plane of read rate and write rate. Each ray
//! gives the loads at which the mean response time reaches one of a few levels. The points of one level on all rays
//! form a line of equal latency. So about thirty rates show what would otherwise take a grid of hundreds of rate pairs.

use iotax_model::Workload;

use super::knee::Courses;
use super::{Curve, Curves, Located};

/// Minimum number of shares of reads that form a grid, and that must reach a level.
const FEWEST: usize = 3;
/// Maximum number of response-time levels; the lowest are kept.
const LEVELS: usize = 6;
/// Factors of the response-time levels: each level is such a factor times a power of ten.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

/// Rates of reads and writes at which a target has equal latency.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid<'a> {
    /// The target's name.
    pub target: &'a str,
    /// The workload with the largest share of reads.
    pub work: &'a Workload,
    /// Levels of the mean response time in nanoseconds, ascending; at least three rays reach each.
    pub levels: Vec<f64>,
    /// The rays, by descending share of reads.
    pub rays: Vec<Ray<'a>>,
}

/// The loads at which each level is reached, for one share of reads.
#[derive(Debug, Clone, PartialEq)]
pub struct Ray<'a> {
    /// The workload with this share of reads.
    pub work: &'a Workload,
    /// Capacity in I/Os per second; absent if the run has no closed loop of this workload.
    pub capacity: Option<Located>,
    /// Load that reaches each level, in I/Os per second, reads and writes together. `None` if the response is slower even at the lowest
    /// rate, or still faster at the highest sustained rate.
    pub loads: Vec<Option<Located>>,
}

impl Ray<'_> {
    /// Returns the share of reads among the I/Os, 0 to 1.
    #[must_use]
    pub fn reads(&self) -> f64 {
        f64::from(self.work.rwmixread) / 100.0
    }
}

/// Builds the grids of a run's curves, for each target and workload with at least three shares of reads.
#[must_use]
pub fn grids<'a>(curves: &[Curves<'a>]) -> Vec<Grid<'a>> {
    let mut works: Vec<(Workload, Vec<&Curves<'a>>)> = Vec::new();
    for curves in curves.iter().filter(|curves| curves.work.rw.reads() && curves.work.rw.writes()) {
        let key = Workload { rwmixread: 0, ..super::work(curves.work) };
        match works.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(curves),
            None => works.push((key, vec![curves])),
        }
    }
    let mut found = Vec::new();
    for (_, mut members) in works.into_iter().filter(|(_, members)| members.len() >= FEWEST) {
        members.sort_by_key(|curves| std::cmp::Reverse(curves.work.rwmixread));
        let targets = members[0].targets.iter().map(|curve| curve.target);
        found.extend(targets.filter_map(|target| of_target(target, &members)));
    }
    found
}

fn of_target<'a>(target: &'a str, members: &[&Curves<'a>]) -> Option<Grid<'a>> {
    let of_share = |curves: &&Curves<'a>| -> Option<(&'a Workload, Curve<'a>, Courses)> {
        let curve = curves.targets.iter().find(|curve| curve.target == target)?;
        Some((curves.work, curve.clone(), Courses::of(&curve.points)?))
    };
    let shares: Vec<_> = members.iter().filter_map(of_share).collect();
    let times = shares.iter().flat_map(|(_, curve, _)| &curve.points).filter(|point| point.is_sustained());
    let (low, high) = times
        .filter_map(super::RatePoint::response_mean)
        .fold((f64::MAX, 0.0_f64), |(low, high), ns| (low.min(ns), high.max(ns)));
    let loads = |level: &f64| -> Vec<Option<Located>> {
        shares.iter().map(|(_, _, courses)| courses.load_at(*level)).collect()
    };
    let reached = levels(low, high).into_iter().map(|level| (level, loads(&level)));
    let lines: Vec<(f64, Vec<Option<Located>>)> =
        reached.filter(|(_, loads)| loads.iter().flatten().count() >= FEWEST).take(LEVELS).collect();
    let ray = |(at, (work, curve, _)): (usize, &(&'a Workload, Curve<'a>, Courses))| Ray {
        work,
        capacity: curve.capacity,
        loads: lines.iter().map(|(_, loads)| loads[at]).collect(),
    };
    let rays: Vec<Ray<'a>> = shares.iter().enumerate().map(ray).collect();
    let work = rays.first().map(|ray| ray.work)?;
    (rays.len() >= FEWEST).then(|| Grid {
        target,
        work,
        levels: lines.iter().map(|(level, _)| *level).collect(),
        rays,
    })
}

/// Returns the values 1, 2 and 5 times powers of ten that are above `low` and at most `high`, in nanoseconds.
fn levels(low: f64, high: f64) -> Vec<f64> {
    let all = (0..12).flat_map(|power| STEPS.map(|step| step * 10_f64.powi(power)));
    all.filter(|level| *level > low && *level <= high).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_round_figures() {
        assert_eq!(levels(150_000.0, 2_000_000.0), [200_000.0, 500_000.0, 1_000_000.0, 2_000_000.0]);
        assert!(levels(f64::MAX, 0.0).is_empty());
    }
}
