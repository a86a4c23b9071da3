//! Estimates from histogram buckets.
//!
//! A percentile is reported as the middle of a histogram bucket. On a quiet machine every round falls into the same bucket, so the rounds
//! do not differ, and Student's t would claim certainty for a figure known only to half a bucket. This error is the same in every round
//! and does not average out, so it is added to the interval in full.

use iotax_model::histogram::RELATIVE_ERROR;

use super::Estimate;
use super::paired::Interval;

/// Returns the largest error of the logarithm of a ratio of two percentiles: each is off by half a histogram bucket, in opposite
/// directions.
#[must_use]
pub fn of_two_percentiles() -> f64 {
    ((1.0 + RELATIVE_ERROR) / (1.0 - RELATIVE_ERROR)).ln()
}

/// An estimate whose mean may have a systematic error in addition to its noise.
#[derive(Debug, Clone, PartialEq)]
pub struct Coarse<E> {
    estimate: E,
    error: f64,
}

impl<E> Coarse<E> {
    /// Creates an estimate with a systematic `error` in the estimate's unit, 0 for none.
    #[must_use]
    pub const fn new(estimate: E, error: f64) -> Self {
        Self { estimate, error }
    }

    /// Replaces the estimate by the result of `change`, and keeps the error.
    pub fn map<F>(self, change: impl FnOnce(E) -> F) -> Coarse<F> {
        Coarse { estimate: change(self.estimate), error: self.error }
    }

    /// Returns the estimate without the systematic error.
    #[must_use]
    pub const fn fine(&self) -> &E {
        &self.estimate
    }
}

impl<E: Estimate> Estimate for Coarse<E> {
    fn mean(&self) -> f64 {
        self.estimate.mean()
    }

    fn interval(&self, alpha: f64) -> Option<Interval> {
        let Interval { low, high } = self.estimate.interval(alpha)?;
        Some(Interval { low: low - self.error, high: high + self.error })
    }

    fn p_value(&self, point: f64) -> Option<f64> {
        let off = point - self.mean();
        // Moves the point towards the mean by the systematic error.
        self.estimate.p_value(self.mean() + off.signum() * (off.abs() - self.error).max(0.0))
    }

    fn rounds(&self) -> usize {
        self.estimate.rounds()
    }

    fn half_width(&self, rounds: usize, alpha: f64) -> Option<f64> {
        Some(self.estimate.half_width(rounds, alpha)? + self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::paired::Differences;
    use crate::stats::verdict::{Verdict, decide};
    use crate::stats::{ALPHA, MARGIN};
    use iotax_model::Histogram;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn the_interval_ends_where_the_p_value_says() {
        let fine = Differences::new(vec![0.010, 0.012, 0.011, 0.013]).expect("finite");
        let coarse = Coarse::new(fine.clone(), 0.004);
        let (narrow, wide) = (fine.interval(0.05).expect("n = 4"), coarse.interval(0.05).expect("n = 4"));
        assert!(
            (narrow.low - wide.low - 0.004).abs() < 1e-12 && (wide.high - narrow.high - 0.004).abs() < 1e-12
        );
        for end in [wide.low, wide.high] {
            assert!((coarse.p_value(end).expect("n = 4") - 0.05).abs() < 1e-6);
        }
        assert_eq!(coarse.p_value(fine.mean() + 0.003), fine.p_value(fine.mean()));
        assert_eq!(Coarse::new(fine.clone(), 0.0).interval(0.05), fine.interval(0.05));
    }

    #[test]
    fn a_quiet_machine_is_no_reason_to_be_certain() {
        let at_the_edge = Differences::new(vec![MARGIN.ln_1p() + 0.003; 3]).expect("finite");
        let say = |sample: &Coarse<Differences>| decide(&[(sample, false)], ALPHA, MARGIN)[0].verdict;
        assert_eq!(say(&Coarse::new(at_the_edge.clone(), 0.0)), Verdict::Slower);
        assert_eq!(say(&Coarse::new(at_the_edge, of_two_percentiles())), Verdict::Undecided);
        let far = Differences::new(vec![0.3; 3]).expect("finite");
        assert_eq!(say(&Coarse::new(far, of_two_percentiles())), Verdict::Slower);
    }

    /// Checks intervals of medians of rounds that hardly differ, read off histograms. Without the systematic error most of them would miss
    /// the truth.
    #[test]
    fn intervals_of_percentiles_hold_the_truth() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut median = |middle: f64| {
            // Noise of a round as small as a quiet device's.
            let middle = middle * (1.0 + 0.001 * (random.random::<f64>() - 0.5));
            let mut latency = Histogram::new();
            for step in 0..200_u32 {
                let value = middle * (0.9 + 0.2 * (f64::from(step) + 0.5) / 200.0);
                latency.add(format!("{value:.0}").parse().expect("a whole number"));
            }
            latency.quantile(0.5).expect("values")
        };
        let (mut held, mut held_fine, rounds) = (0, 0, 400);
        for round in 0..rounds {
            let ratio = 1.0 + 0.1 * f64::from(round) / f64::from(rounds);
            let pairs: Vec<(f64, f64)> =
                (0..3).map(|_| (median(83_000.0 * ratio), median(83_000.0))).collect();
            let fine = Differences::of_log_ratios(&pairs).expect("positive");
            let holds = |interval: Option<Interval>| {
                interval.is_some_and(|i| i.low <= ratio.ln() && ratio.ln() <= i.high)
            };
            held_fine += u32::from(holds(fine.interval(ALPHA)));
            held += u32::from(holds(Coarse::new(fine, of_two_percentiles()).interval(ALPHA)));
        }
        assert!(f64::from(held) >= 0.95 * f64::from(rounds), "{held} of {rounds}");
        assert!(
            f64::from(held_fine) < 0.8 * f64::from(rounds),
            "{held_fine} of {rounds}: the error would not matter"
        );
    }
}
