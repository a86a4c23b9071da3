//! Statistics: the rules for what counts as a difference.
//!
//! The unit of replication is the measurement, one per round; the seconds inside a measurement are correlated and never treated as
//! independent. [`paired`] compares two targets within rounds, [`unpaired`] compares samples without common rounds, [`quantization`] adds
//! the error of histogram buckets, [`verdict`] decides a family of comparisons together, [`sequential`] allows several interim tests,
//! [`rank`] gives confidence intervals of quantiles, [`steady`] and [`series`] examine the course of one measurement.

pub mod moderated;
pub mod paired;
pub mod quantization;
pub mod rank;
pub mod sequential;
pub mod series;
pub mod steady;
pub mod unpaired;
pub mod verdict;

use paired::Interval;

/// Largest probability of a false statement within one family of comparisons.
pub const ALPHA: f64 = 0.05;

/// The default margin of practical equivalence: ratios from `1 / (1 + MARGIN)` to `1 + MARGIN` count as the same.
pub const MARGIN: f64 = 0.02;

/// An estimated mean with its uncertainty, from which a verdict follows.
pub trait Estimate {
    /// Returns the estimated mean.
    fn mean(&self) -> f64;

    /// Returns the interval at confidence `1 - alpha`; `None` for fewer than two values.
    fn interval(&self, alpha: f64) -> Option<Interval>;

    /// Returns the smallest alpha at which the interval excludes `point`: the two-sided p-value of `mean = point`. `None` if there is no
    /// interval.
    fn p_value(&self, point: f64) -> Option<f64>;

    /// Returns the number of rounds in the estimate; for two independent samples, that of the smaller one.
    fn rounds(&self) -> usize;

    /// Returns half the width of the interval at confidence `1 - alpha` for this number of rounds, if mean and variance stay the same;
    /// `None` with too few rounds.
    fn half_width(&self, rounds: usize, alpha: f64) -> Option<f64>;
}

/// Factor from the median absolute deviation of normal noise to its standard deviation.
pub(crate) const MAD_TO_SD: f64 = 1.4826;

/// Returns the geometric mean of positive values; NaN for an empty slice.
pub(crate) fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

/// Returns the median; `None` for an empty slice.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[sorted.len() / 2 - 1], upper)
    } else {
        upper
    })
}

/// Draws from the standard normal distribution by Marsaglia's polar method, for simulations in unit tests.
#[cfg(test)]
pub(crate) fn normal(random: &mut impl rand::Rng) -> f64 {
    use rand::RngExt as _;
    loop {
        let (x, y) = (random.random::<f64>() * 2.0 - 1.0, random.random::<f64>() * 2.0 - 1.0);
        let s = x * x + y * y;
        if s > 0.0 && s < 1.0 {
            return x * (-2.0 * s.ln() / s).sqrt();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
