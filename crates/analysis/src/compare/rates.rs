//! Compares rates that two runs located: knees of curves, and the highest rates that meet conditions.
//!
//! Each rate is an estimate with a 95% interval. The log ratio of two rates is treated as the difference of two independent normal
//! estimates, because the intervals are nearly symmetric in logarithms. Two rates of one run come from the same rounds, so the interval of
//! their ratio is at least as wide as necessary.

use statrs::distribution::{ContinuousCDF, Normal};

use crate::ask::{self, HighestRate};
use crate::curve::{self, Located};
use crate::stats::ALPHA;
use crate::stats::paired::Interval;
use crate::stats::verdict::Verdict;
use iotax_model::Run;

use super::{Account, Missing, TargetPair, Which, WorkloadPair};

/// A rate that a run tried to locate, such as the knee of a curve, in I/Os per second.
#[derive(Debug, Clone, PartialEq)]
pub struct LocatedRate {
    /// The target's name.
    pub target: String,
    /// Name of the workload whose rate was searched: the closed-loop variant if the run has one.
    pub workload: String,
    /// Name of the rate: `knee`, or `highest with p99 <= 0.5ms`.
    pub what: String,
    /// The estimate, with its 95% interval if known; absent if the run could not locate the rate.
    pub rate: Option<Located>,
}

/// A rate that both sides located.
#[derive(Debug, Clone, PartialEq)]
pub struct RateCell {
    /// Index into `Compared::targets`.
    pub target: usize,
    /// Index into `Compared::workloads`.
    pub workload: usize,
    /// Name of the rate: `knee`, or `highest with p99 <= 0.5ms`.
    pub what: String,
    /// A's rate in I/Os per second.
    pub a: f64,
    /// B's rate in I/Os per second.
    pub b: f64,
    /// Ratio of the rate on the side that is not the baseline to the baseline's rate.
    pub ratio: f64,
    /// The interval of the ratio, with an alpha of 0.05 divided by the number of compared rates (Bonferroni); absent if either rate has no
    /// interval.
    pub interval: Option<Interval>,
    /// Faster, slower, same or undecided, at the requested margin.
    pub verdict: Verdict,
}

/// Name of a curve's knee among the located rates.
pub const KNEE: &str = "knee";

/// Returns the name of a search's result, such as `highest with p99 <= 0.5ms`.
#[must_use]
pub fn highest(slo: &[String]) -> String {
    format!("highest with {}", slo.join(" and "))
}

/// Lists the rates that a run tried to locate.
#[must_use]
pub fn of_run(run: &Run) -> Vec<LocatedRate> {
    let mut found = Vec::new();
    let mut add = |target: &str, workload: &str, what: &str, rate: Option<Located>| {
        found.push(LocatedRate {
            target: target.to_owned(),
            workload: workload.to_owned(),
            what: what.to_owned(),
            rate,
        });
    };
    for curves in curve::curves(run) {
        for curve in &curves.targets {
            add(curve.target, &curves.work.name, KNEE, curve.knee.as_ref().and_then(|knee| knee.power));
        }
    }
    let slo: Vec<String> =
        run.plan.ask().into_iter().flat_map(|ask| &ask.slo).map(ToString::to_string).collect();
    for answers in ask::answers(run) {
        for answer in &answers.targets {
            let rate = if let HighestRate::Rate(rate) = answer.found { Some(rate) } else { None };
            add(answer.target, &answers.work.name, &highest(&slo), rate);
        }
    }
    found
}

/// Compares the rates that both sides located, in the order of workloads and targets. Also lists the rates that a side searched for but did
/// not locate.
pub(super) fn compare(
    (a, b): (&Account, &Account),
    targets: &[TargetPair],
    workloads: &[WorkloadPair],
    baseline: Which,
    margin: f64,
) -> (Vec<RateCell>, Vec<Missing>) {
    let (mut pairs, mut missing) = (Vec::new(), Vec::new());
    for (w, workload) in workloads.iter().enumerate() {
        for (t, target) in targets.iter().enumerate() {
            let ours = a.rates.iter().filter(|one| one.target == target.a && one.workload == workload.a.name);
            for one in ours {
                let is_same = |other: &&LocatedRate| {
                    (&other.target, &other.workload, &other.what) == (&target.b, &workload.b, &one.what)
                };
                let Some(other) = b.rates.iter().find(is_same) else { continue };
                match (one.rate, other.rate) {
                    (Some(rate), Some(their)) => pairs.push((t, w, &one.what, rate, their)),
                    (None, _) => missing.push(unlocated(Which::A, a, one)),
                    (Some(_), None) => missing.push(unlocated(Which::B, b, other)),
                }
            }
        }
    }
    let alpha = ALPHA / pairs.len().max(1) as f64;
    let cell = |(target, workload, what, a, b): (usize, usize, &String, Located, Located)| {
        let (under, over) = if baseline == Which::A { (a, b) } else { (b, a) };
        let (ratio, interval) = ratio(&over, &under, alpha);
        RateCell {
            target,
            workload,
            what: what.clone(),
            a: a.at,
            b: b.at,
            ratio,
            interval,
            verdict: verdict(interval, margin),
        }
    };
    (pairs.into_iter().map(cell).collect(), missing)
}

/// Reports a rate that one side searched for but did not find.
fn unlocated(side: Which, account: &Account, rate: &LocatedRate) -> Missing {
    let LocatedRate { target, workload, what, .. } = rate;
    Missing {
        side,
        target: Some(target.clone()),
        workload: Some(workload.clone()),
        metric: None,
        reason: format!("{what} of {target} on {workload} was not located in {}", account.label),
    }
}

/// Returns the ratio `over` / `under` and its interval at confidence `1 - alpha`; no interval if either estimate has none.
fn ratio(over: &Located, under: &Located, alpha: f64) -> (f64, Option<Interval>) {
    let ratio = over.at / under.at;
    let quantile = |alpha: f64| Normal::standard().inverse_cdf(1.0 - alpha / 2.0);
    // Each end is computed separately, because an interval may be wider on one side.
    let side = |end: f64, of: &Located| (end / of.at).ln().powi(2);
    let interval = over.interval.zip(under.interval).map(|(above, below)| {
        let scale = quantile(alpha) / quantile(ALPHA);
        let down = (side(above.low, over) + side(below.high, under)).sqrt() * scale;
        let up = (side(above.high, over) + side(below.low, under)).sqrt() * scale;
        Interval { low: ratio * (-down).exp(), high: ratio * up.exp() }
    });
    (ratio, interval.filter(|ends| ends.low.is_finite() && ends.high.is_finite()))
}

/// Decides the verdict from the interval of a ratio of rates; a higher rate is better.
fn verdict(interval: Option<Interval>, margin: f64) -> Verdict {
    let edge = 1.0 + margin;
    match interval {
        Some(ends) if ends.low > edge => Verdict::Faster,
        Some(ends) if ends.high < 1.0 / edge => Verdict::Slower,
        Some(ends) if ends.low >= 1.0 / edge && ends.high <= edge => Verdict::Same,
        _ => Verdict::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::normal;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn located(at: f64, low: f64, high: f64) -> Located {
        Located { at, interval: Some(Interval { low, high }) }
    }

    #[test]
    fn the_interval_holds_the_ratio_of_two_estimates_as_often_as_it_says() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let (noise, mut held) = (0.03, 0);
        let mut draw = |truth: f64| {
            let at = truth * (noise * normal(&mut random)).exp();
            located(at, at * (-1.96 * noise).exp(), at * (1.96 * noise).exp())
        };
        for _ in 0..2000 {
            let (_, interval) = ratio(&draw(1300.0), &draw(1000.0), ALPHA);
            let ends = interval.expect("both have one");
            held += i32::from(ends.low <= 1.3 && 1.3 <= ends.high);
        }
        assert!((1870..=1930).contains(&held), "{held} of 2000");
    }

    #[test]
    fn the_verdict_follows_from_the_margin() {
        let base = located(1000.0, 990.0, 1010.0);
        for (other, expected) in [
            (located(900.0, 890.0, 910.0), Verdict::Slower),
            (located(1100.0, 1090.0, 1110.0), Verdict::Faster),
            (located(1001.0, 996.0, 1006.0), Verdict::Same),
            (located(1020.0, 960.0, 1080.0), Verdict::Undecided),
            (Located { at: 500.0, interval: None }, Verdict::Undecided),
        ] {
            assert_eq!(verdict(ratio(&other, &base, ALPHA).1, 0.02), expected, "{other:?}");
        }
    }
}
