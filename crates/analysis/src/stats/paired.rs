//! Differences between two targets, round by round.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use schemars::JsonSchema;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::Estimate;

/// Minimum number of differences for a sign-flip p-value: with five it cannot be below 0.06.
const FLIP_FROM: usize = 6;
/// Largest number of differences for which all sign patterns are enumerated.
const FLIP_EXACT: usize = 16;
/// Number of random sign patterns drawn if there are too many to enumerate; the smallest possible p-value is then 1e-4.
const FLIP_DRAWS: u32 = 10_000;

/// A confidence interval of an estimate, in the estimate's unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[schemars(extend("dependentRequired" = { "low": ["high"], "high": ["low"] }))]
pub struct Interval {
    /// Lower end of the interval, in the estimate's unit.
    pub low: f64,
    /// Upper end of the interval, in the estimate's unit.
    pub high: f64,
}

impl Interval {
    /// Returns the interval with an increasing function applied to both ends.
    #[must_use]
    pub fn map(self, rising: impl Fn(f64) -> f64) -> Self {
        Self { low: rising(self.low), high: rising(self.high) }
    }
}

/// A common estimate of the variance of a family of comparisons; it serves as a prior for the variance of each member.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prior {
    /// Degrees of freedom of the prior.
    pub degrees: f64,
    /// Expected variance: the geometric mean of the members' variances.
    pub variance: f64,
}

/// A sample of values, one per round, such as the differences between two targets; in any unit. Never empty, always finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Differences {
    values: Vec<f64>,
    mean: f64,
    sd: Option<f64>,
    prior: Option<Prior>,
}

impl Differences {
    /// Creates a sample; `None` if it is empty or has a non-finite value.
    #[must_use]
    pub fn new(values: Vec<f64>) -> Option<Self> {
        if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        let sd = (values.len() >= 2).then(|| (squares / (n - 1.0)).sqrt());
        Some(Self { values, mean, sd, prior: None })
    }

    /// Computes the log ratios of (target, baseline) pairs: `exp` of their mean is the ratio of geometric means. `None` without pairs, or
    /// if a figure is not positive.
    #[must_use]
    pub fn of_log_ratios(pairs: &[(f64, f64)]) -> Option<Self> {
        Self::new(pairs.iter().map(|(target, baseline)| (target / baseline).ln()).collect())
    }

    /// Sets the prior for the variance, from the family of comparisons; with `None` the sample's own variance is used.
    #[must_use]
    pub fn with(self, prior: Option<Prior>) -> Self {
        Self { prior, ..self }
    }

    /// Returns the number of differences, one per round.
    #[must_use]
    pub fn n(&self) -> usize {
        self.values.len()
    }

    /// Returns the sample standard deviation of the differences, with n - 1 in the denominator; `None` for a single value.
    #[must_use]
    pub fn sd(&self) -> Option<f64> {
        self.sd
    }

    /// Returns the two-sided sign-flip permutation p-value: the probability of a mean this far from 0 if each
    /// difference could as well have had the other sign (Fisher, The Design of Experiments, 1935, section 21). Exact up
    /// to 16 differences, else from 10,000 patterns drawn with a fixed seed and at least 1e-4. `None` for fewer than 6.
    #[must_use]
    pub fn sign_flip_p(&self) -> Option<f64> {
        let n = self.n();
        if n < FLIP_FROM {
            return None;
        }
        // Sums that are equal but for rounding count as equal.
        let observed = self.values.iter().sum::<f64>().abs() * (1.0 - 1e-12);
        // A sign is a bit: 64 of them lie in a word.
        let flipped = |values: &[f64], word: u64| -> f64 {
            let signed = |(i, v): (usize, &f64)| if word >> i & 1 == 1 { -v } else { *v };
            values.iter().enumerate().map(signed).sum()
        };
        if n <= FLIP_EXACT {
            // The last sign stays: flipping all signs gives the same distance.
            let patterns = 1_u32 << (n - 1);
            let as_far = |pattern: &u32| flipped(&self.values, u64::from(*pattern)).abs() >= observed;
            return Some((0..patterns).filter(as_far).count() as f64 / f64::from(patterns));
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(n as u64);
        let mut draw = || -> f64 { self.values.chunks(64).map(|part| flipped(part, random.random())).sum() };
        let hits = (0..FLIP_DRAWS).filter(|_| draw().abs() >= observed).count();
        // The observed pattern counts too, so p is never 0.
        Some((hits + 1) as f64 / f64::from(FLIP_DRAWS + 1))
    }
}

/// Uses Student's t with n - 1 degrees of freedom plus those of the prior; no interval and no p-value for a single difference.
impl Estimate for Differences {
    fn mean(&self) -> f64 {
        self.mean
    }

    fn interval(&self, alpha: f64) -> Option<Interval> {
        let half = self.half_width(self.n(), alpha)?;
        Some(Interval { low: self.mean - half, high: self.mean + half })
    }

    fn p_value(&self, point: f64) -> Option<f64> {
        let error = self.drawn()? / (self.n() as f64).sqrt();
        let distance = (self.mean - point).abs();
        if error == 0.0 {
            return Some(if distance > 0.0 { 0.0 } else { 1.0 });
        }
        Some(2.0 * self.student(self.n())?.sf(distance / error))
    }

    fn rounds(&self) -> usize {
        self.n()
    }

    fn half_width(&self, rounds: usize, alpha: f64) -> Option<f64> {
        Some(self.student(rounds)?.inverse_cdf(1.0 - alpha / 2.0) * self.drawn()? / (rounds as f64).sqrt())
    }
}

impl Differences {
    /// Returns Student's t distribution for this number of rounds; `None` for fewer than two.
    fn student(&self, rounds: usize) -> Option<StudentsT> {
        let own = rounds.checked_sub(1).filter(|own| *own > 0)? as f64;
        StudentsT::new(0.0, 1.0, own + self.prior.map_or(0.0, |prior| prior.degrees)).ok()
    }

    /// Returns the standard deviation of the differences, shrunk towards the prior if one is set; `None` for a single value.
    fn drawn(&self) -> Option<f64> {
        let sd = self.sd?;
        let Some(Prior { degrees, variance }) = self.prior else { return Some(sd) };
        let own = (self.n() - 1) as f64;
        Some((sd.powi(2).mul_add(own, variance * degrees) / (own + degrees)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_interval_is_students() {
        // t(0.975, 4) = 2.776445; sd of 1..5 = 1.581139.
        let five = Differences::new(vec![1.0, 2.0, 3.0, 4.0, 5.0]).expect("finite");
        let interval = five.interval(0.05).expect("n = 5");
        let half = 2.776_445 * 1.581_139 / 5_f64.sqrt();
        assert!((interval.low - (3.0 - half)).abs() < 1e-5, "{interval:?}");
        assert!((interval.high - (3.0 + half)).abs() < 1e-5, "{interval:?}");
    }

    #[test]
    fn one_alone_has_no_interval() {
        let one = Differences::new(vec![1.0]).expect("finite");
        assert_eq!(
            (one.interval(0.05), one.p_value(0.0), one.sd(), one.sign_flip_p()),
            (None, None, None, None)
        );
        assert_eq!(Differences::new(vec![]), None);
        assert_eq!(Differences::of_log_ratios(&[(1.0, 0.0)]), None);
    }

    #[test]
    fn equal_differences_have_a_point_for_an_interval() {
        let same = Differences::new(vec![0.5; 4]).expect("finite");
        assert_eq!(same.interval(0.05), Some(Interval { low: 0.5, high: 0.5 }));
        assert_eq!((same.p_value(0.0), same.p_value(0.5)), (Some(0.0), Some(1.0)));
    }

    #[test]
    fn sign_flips_are_counted_exactly() {
        // All of one sign: only the observed pattern and its mirror image are as far out, 2 of 64.
        let six = Differences::new(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("finite");
        assert_eq!(six.sign_flip_p(), Some(2.0 / 64.0));
        let zero = Differences::new(vec![0.0; 7]).expect("finite");
        assert_eq!(zero.sign_flip_p(), Some(1.0));
    }

    #[test]
    fn drawn_sign_flips_agree_with_the_t_test() {
        let values: Vec<f64> = (0..20).map(|i| f64::from(i % 7) - 2.5).collect();
        let sample = Differences::new(values).expect("finite");
        let (flip, t) = (sample.sign_flip_p().expect("n = 20"), sample.p_value(0.0).expect("n = 20"));
        assert!((flip - t).abs() < 0.03, "{flip} {t}");
    }

    #[test]
    fn every_drawn_sign_is_a_draw_of_its_own() {
        // Only the last two of each full word count: 2 of the 16 patterns of these four are as far out.
        let values: Vec<f64> = (0..130).map(|i| f64::from(u8::from(i % 64 > 61))).collect();
        assert!((values.iter().sum::<f64>() - 4.0).abs() < 1e-12);
        let four = Differences::new(values).expect("finite").sign_flip_p().expect("n = 130");
        assert!((four - 2.0 / 16.0).abs() < 0.02, "{four}");
        let all = Differences::new(vec![1.0; 130]).expect("finite");
        assert_eq!(all.sign_flip_p(), Some(1.0 / 10_001.0));
    }

    proptest! {
        #[test]
        fn the_p_value_is_where_the_interval_ends(
            values in prop::collection::vec(-1.0_f64..1.0, 2..12), point in -1.0_f64..1.0,
        ) {
            let sample = Differences::new(values).expect("finite");
            let p = sample.p_value(point).expect("n >= 2");
            prop_assume!(p > 1e-6 && p < 0.999);
            let interval = sample.interval(p).expect("n >= 2");
            let nearest = if point < sample.mean() { interval.low } else { interval.high };
            prop_assert!((nearest - point).abs() < 1e-5 * (1.0 + (interval.high - interval.low)), "{nearest} {point}");
        }

        #[test]
        fn swapping_target_and_baseline_mirrors_the_interval(
            pairs in prop::collection::vec((0.1_f64..10.0, 0.1_f64..10.0), 2..9),
        ) {
            let swapped: Vec<_> = pairs.iter().map(|&(a, b)| (b, a)).collect();
            let there = Differences::of_log_ratios(&pairs).expect("positive").interval(0.05).expect("n >= 2");
            let back = Differences::of_log_ratios(&swapped).expect("positive").interval(0.05).expect("n >= 2");
            prop_assert!((there.low + back.high).abs() < 1e-9 && (there.high + back.low).abs() < 1e-9);
        }
    }
}
