//! The useful number of outstanding I/Os on a target.
//!
//! With n outstanding I/Os, a target's IOPS exceed neither n / R, where R is its latency without a queue, nor its
//! ceiling X. The two bounds meet at n* = X R: fewer I/Os cannot reach the ceiling, and with more some must wait (P. J.
//! Denning and J. P. Buzen, "The Operational Analysis of Queueing Network Models", ACM Computing Surveys 10, 1978:
//! asymptotic bounds and the saturation point). The knee is the first depth that nearly reaches the ceiling. Beyond it,
//! by Little's law, latency grows with depth without a gain in IOPS.

use super::{SuiteCell, over_rounds};

/// The depth beyond which more outstanding I/Os only add latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OutstandingKnee {
    /// I/Os outstanding where the bounds meet: ceiling x latency at the smallest depth, the median over the rounds. Fewer cannot reach the
    /// ceiling.
    pub outstanding: f64,
    /// The smallest and the largest `outstanding` of single rounds; absent for fewer than two rounds with figures at every depth.
    pub range: Option<(f64, f64)>,
    /// Latency at the smallest depth in nanoseconds.
    pub least_latency_ns: f64,
    /// The highest IOPS at any depth.
    pub ceiling_iops: f64,
    /// Index of the first point that reaches the share [`REACHED`] of the ceiling. Absent if only the deepest point does, because the
    /// ceiling may then lie beyond the measured depths.
    pub at: Option<usize>,
    /// IOPS and latency at the largest depth, each divided by its value at the knee; absent without a knee.
    pub beyond: Option<(f64, f64)>,
}

/// Minimum share of the ceiling at which a depth counts as reaching it.
pub const REACHED: f64 = 0.9;

/// Minimum number of depths for a knee.
const FEWEST: usize = 3;

/// Finds the knee of points in ascending order of depth; `None` if a figure is unknown, or for fewer than three points.
pub fn of(points: &[SuiteCell<'_>]) -> Option<OutstandingKnee> {
    let pairs: Option<Vec<(f64, f64)>> = points.iter().map(|p| Some((p.iops?, p.latency_ns?))).collect();
    let pairs = pairs.filter(|pairs| pairs.len() >= FEWEST)?;
    let (least_latency_ns, ceiling_iops) = bounds(&pairs)?;
    let each = over_rounds(points, |pairs| bounds(pairs).map(|(ns, iops)| ns * iops / 1e9));
    let outstanding = each.map_or(least_latency_ns * ceiling_iops / 1e9, |each| each.median);
    let range = each.map(|each| each.range);
    let last = points.len() - 1;
    let at = pairs.iter().position(|(iops, _)| *iops >= REACHED * ceiling_iops).filter(|at| *at < last);
    let beyond = at.map(|at| (pairs[last].0 / pairs[at].0, pairs[last].1 / pairs[at].1));
    Some(OutstandingKnee { outstanding, range, least_latency_ns, ceiling_iops, at, beyond })
}

/// Returns the latency of the first point, and the highest IOPS of all points; `None` without points.
fn bounds(pairs: &[(f64, f64)]) -> Option<(f64, f64)> {
    let ceiling = pairs.iter().map(|(iops, _)| *iops).fold(0.0, f64::max);
    pairs.first().map(|(_, ns)| (*ns, ceiling))
}

#[cfg(test)]
mod tests {
    use iotax_model::Suite;
    use iotax_model::suite::SuiteOptions;

    use super::*;

    /// Simulates a target that serves `at_once` I/Os at the same time in 100 us each, at the depths of suite `threads`.
    fn course(at_once: f64, check: impl Fn(Option<OutstandingKnee>, &[SuiteCell<'_>])) {
        let all = (Suite::named("threads").expect("known").workloads)(&SuiteOptions::default());
        let points: Vec<SuiteCell<'_>> = all
            .iter()
            .filter(|w| w.name.starts_with("randread-4k-j1-"))
            .map(|workload| {
                let depth = f64::from(workload.iodepth);
                let iops = depth.min(at_once) * 1e4;
                let latency_ns = depth / iops * 1e9;
                let (more, less) = (iops * 1.1, latency_ns / 1.1);
                SuiteCell {
                    workload,
                    iops: Some(iops),
                    bytes_per_s: None,
                    latency_ns: Some(latency_ns),
                    rounds: vec![(1, iops, latency_ns), (2, more, latency_ns), (3, iops, less)],
                }
            })
            .collect();
        check(of(&points), &points);
    }

    #[test]
    fn the_knee_is_as_many_as_are_served_at_once() {
        course(8.0, |knee, points| {
            let knee = knee.expect("a knee");
            assert!((knee.outstanding - 8.0).abs() < 1e-9, "{knee:?}");
            let (low, high) = knee.range.expect("three rounds");
            assert!((low - 8.0 / 1.1).abs() < 1e-9 && (high - 8.8).abs() < 1e-9, "{knee:?}");
            assert_eq!(points[knee.at.expect("reached")].workload.iodepth, 8);
            let (iops, latency) = knee.beyond.expect("deeper points");
            assert!((iops - 1.0).abs() < 1e-9 && (latency - 8.0).abs() < 1e-9, "{knee:?}");
            assert!((points[3].in_flight().expect("both known") - 8.0).abs() < 1e-9);
        });
    }

    #[test]
    fn a_target_that_wants_more_is_not_said_to_bend() {
        course(64.0, |knee, _| {
            let knee = knee.expect("a ceiling");
            assert!(knee.at.is_none() && knee.beyond.is_none(), "{knee:?}");
        });
    }

    #[test]
    fn what_is_not_known_has_no_knee() {
        course(8.0, |_, points| {
            assert_eq!(of(&points[..2]), None, "two points");
            let mut points = points.to_vec();
            points[2].latency_ns = None;
            assert_eq!(of(&points), None);
        });
    }
}
