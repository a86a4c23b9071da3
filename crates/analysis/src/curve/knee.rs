//! The load at which latency begins to rise, by two definitions.
//!
//! The *knee* is the load of the greatest power, which is throughput divided by response time: below the knee more load costs little time,
//! above it the time outweighs the gain (L. Kleinrock, "Power and deterministic rules of thumb for probabilistic problems in computer
//! communications", ICC 1979). It needs no threshold. The *double* is the load at which the mean response time is twice that at the lowest
//! rate, a rule of thumb of capacity planning. For one server with random arrivals and service times (M/M/1) both are at half the capacity;
//! with a constant service time (M/D/1) the knee is at 2 - sqrt(2) = 0.586 of the capacity, the double at 2/3.
//!
//! Response times are interpolated between rates, so both may lie between measured rates. Intervals are percentiles of a bootstrap over
//! the rounds (B. Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7, 1979).

use std::collections::BTreeSet;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use schemars::JsonSchema;
use serde::Serialize;

use super::RatePoint;
use crate::stats::paired::Interval;

/// Minimum number of sustained rates that can show a bend.
const FEWEST: usize = 4;
/// Number of bootstrap samples of the rounds.
const DRAWS: usize = 999;
/// Minimum number of rounds for a bootstrap over rounds.
const FEWEST_ROUNDS: usize = 3;
/// Mean response time at the *double*, as a multiple of that at the lowest rate.
const DOUBLE: f64 = 2.0;

/// The load at which latency begins to rise, by two definitions.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Knee {
    /// The load of the greatest power; absent if power still grows at the highest rate that was sustained.
    pub power: Option<Located>,
    /// The load at which the mean response time is twice that at the lowest rate; absent if it never is.
    pub double: Option<Located>,
}

/// A load in I/Os per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Located {
    /// Estimate of the load over all rounds, in I/Os per second.
    #[serde(rename = "estimate")]
    pub at: f64,
    /// 95% interval of the load; absent if it cannot be computed, for example with too few rounds.
    #[serde(flatten)]
    pub interval: Option<Interval>,
}

/// Finds the knee of points in ascending order of rate; `None` for fewer than four sustained rates, or if no I/O completed at one of the
/// rates used.
pub(super) fn of(points: &[RatePoint<'_>]) -> Option<Knee> {
    let courses = Courses::of(points).filter(|courses| courses.sustained >= FEWEST)?;
    Some(Knee { power: courses.located(power), double: courses.located(double) })
}

/// Mean response time by load, over all rounds and over each bootstrap sample of the rounds.
pub(super) struct Courses {
    /// Number of sustained rates. In `known`, the first rate that was not sustained may follow them; it only shows that power falls.
    sustained: usize,
    known: Vec<(f64, f64)>,
    drawn: Vec<Vec<(f64, f64)>>,
    draws: usize,
}

impl Courses {
    /// Collects the points up to the one after the highest sustained rate, in ascending order of rate. Leaves out lower rates that were not
    /// sustained: higher rates were, so something else interfered. `None` if a collected point has no I/O.
    pub(super) fn of(points: &[RatePoint<'_>]) -> Option<Self> {
        let beyond = points.iter().rposition(RatePoint::is_sustained).map_or(0, |last| last + 1);
        let mut kept: Vec<&RatePoint<'_>> =
            points[..beyond].iter().filter(|point| point.is_sustained()).collect();
        let sustained = kept.len();
        kept.extend(points.get(beyond));
        let points = kept;
        let rounds: BTreeSet<u32> =
            points[..sustained].iter().flat_map(|point| &point.rounds).map(|one| one.number).collect();
        let rounds: Vec<u32> = rounds.into_iter().collect();
        let course = |drawn: &[u32]| -> Option<Vec<(f64, f64)>> {
            points.iter().map(|point| Some((point.offered, mean_over(point, drawn)?))).collect()
        };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(rounds.len() as u64);
        let draws = if rounds.len() < FEWEST_ROUNDS { 0 } else { DRAWS };
        let one = |_| {
            let drawn: Vec<u32> =
                rounds.iter().map(|_| rounds[random.random_range(0..rounds.len())]).collect();
            course(&drawn)
        };
        Some(Self { sustained, known: course(&rounds)?, drawn: (0..draws).filter_map(one).collect(), draws })
    }

    /// Applies `find` to the response times of all rounds for the estimate, and to the bootstrap samples for its interval. `None` if the
    /// response times of all rounds give no result.
    fn located(&self, find: impl Fn(&[(f64, f64)]) -> Option<f64>) -> Option<Located> {
        let at = find(&self.known)?;
        let found: Vec<f64> = self.drawn.iter().filter_map(|course| find(course)).collect();
        Some(Located { at, interval: middle(found, self.draws) })
    }

    /// Returns the load, between sustained rates, at which the mean response time first reaches `response_ns`; `None` if it never does.
    pub(super) fn load_at(&self, response_ns: f64) -> Option<Located> {
        self.located(|course| reached(&course[..self.sustained], response_ns))
    }
}

/// Returns the mean response time of a point in nanoseconds over `rounds`, which may repeat; `None` without an I/O.
fn mean_over(point: &RatePoint<'_>, rounds: &[u32]) -> Option<f64> {
    let (mut ios, mut ns) = (0, 0);
    for round in rounds {
        if let Some(one) = point.rounds.iter().find(|one| one.number == *round) {
            ios += one.ios;
            ns += one.response_ns;
        }
    }
    (ios > 0).then(|| ns as f64 / ios as f64)
}

/// Returns the load of the greatest power: the top of the parabola through the logarithms at the best rate and its neighbours. `None` if
/// the best rate is the last.
fn power(course: &[(f64, f64)]) -> Option<f64> {
    let logs: Vec<(f64, f64)> = course.iter().map(|(rate, ns)| (rate.ln(), (rate / ns).ln())).collect();
    let best = (0..logs.len()).max_by(|a, b| logs[*a].1.total_cmp(&logs[*b].1))?;
    if best + 1 == logs.len() {
        return None;
    }
    if best == 0 {
        return Some(course[0].0);
    }
    let [(x0, y0), (x1, y1), (x2, y2)] = [logs[best - 1], logs[best], logs[best + 1]];
    let (left, right) = ((y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1));
    let bend = (right - left) / (x2 - x0);
    let top = if bend < 0.0 { f64::midpoint(x0, x1) - left / (2.0 * bend) } else { x1 };
    Some(top.clamp(x0, x2).exp())
}

/// Returns the load at which the mean response time first reaches twice that at the lowest rate; `None` if it never does.
fn double(course: &[(f64, f64)]) -> Option<f64> {
    reached(course, DOUBLE * course.first()?.1)
}

/// Returns the load at which the mean response time first reaches a limit from below, interpolated between rates; `None` if it never does.
fn reached(course: &[(f64, f64)], limit: f64) -> Option<f64> {
    let pair = course.windows(2).find(|pair| pair[1].1 >= limit)?;
    let [(low, below), (high, above)] = [pair[0], pair[1]];
    (below < limit).then(|| low + (high - low) * (limit - below) / (above - below))
}

/// Returns the middle 95% of the bootstrap results; `None` without bootstrap samples, or if more than 5% of them gave no result.
fn middle(mut found: Vec<f64>, draws: usize) -> Option<Interval> {
    if draws == 0 || found.len() * 20 < draws * 19 {
        return None;
    }
    found.sort_by(f64::total_cmp);
    let outside = found.len() / 40;
    Some(Interval { low: found[outside], high: found[found.len() - 1 - outside] })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns load and mean response time of a server with a service time of 1 s, at these shares of its capacity,
    /// with `random` or constant service times.
    fn server(random: bool, shares: &[f64]) -> Vec<(f64, f64)> {
        let wait = |load: f64| load / (1.0 - load) * if random { 1.0 } else { 0.5 };
        shares.iter().map(|load| (*load, 1.0 + wait(*load))).collect()
    }

    #[test]
    fn both_are_where_theory_has_them() {
        let shares = [0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97];
        for (random, top, twice) in [(true, 0.5, 0.505), (false, 2.0 - 2.0_f64.sqrt(), 0.669)] {
            let course = server(random, &shares);
            let (found, doubled) = (power(&course).expect("a top"), double(&course).expect("reached"));
            assert!((found - top).abs() < 0.02, "{random}: {found}");
            assert!((doubled - twice).abs() < 0.01, "{random}: {doubled}");
        }
    }

    #[test]
    fn what_was_not_reached_is_not_said() {
        let course = server(true, &[0.01, 0.1, 0.2, 0.3]);
        assert_eq!((power(&course), double(&course)), (None, None));
        assert_eq!(reached(&course, 0.5), None, "above it from the beginning");
    }

    #[test]
    fn the_middle_leaves_out_a_fortieth_at_each_end() {
        let found: Vec<f64> = (0..1000_u32).map(f64::from).collect();
        let interval = middle(found.clone(), 1000).expect("enough");
        assert_eq!((interval.low, interval.high), (25.0, 974.0));
        assert_eq!(middle(found, 1100), None);
    }
}
