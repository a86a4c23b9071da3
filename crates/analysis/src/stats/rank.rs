//! Confidence intervals of quantiles by order statistics.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, Normal};

/// Minimum number of values beyond the quantile for a normal distribution to approximate the binomial one.
const MANY: f64 = 10_000.0;

/// Returns the ranks (from 1) of the two values between which the `q` quantile lies with confidence `1 - alpha` or more. The `n` values
/// must be independent: the number of them below the quantile is then binomial, whatever their distribution (Conover, Practical
/// Nonparametric Statistics, 3rd edition, 1999, section 3.2). `None` if a rank would lie outside of the sample.
#[must_use]
pub fn ranks(n: u64, q: f64, alpha: f64) -> Option<(u64, u64)> {
    let (low, high) = if n as f64 * q.min(1.0 - q) > MANY {
        let below = Normal::new(n as f64 * q, (n as f64 * q * (1.0 - q)).sqrt()).ok()?;
        (rank(below.inverse_cdf(alpha / 2.0).floor()), rank(below.inverse_cdf(1.0 - alpha / 2.0).ceil()))
    } else {
        let below = Binomial::new(q, n).ok()?;
        (below.inverse_cdf(alpha / 2.0), below.inverse_cdf(1.0 - alpha / 2.0))
    };
    let (low, high) = (low, high + 1);
    (low >= 1 && high <= n).then_some((low, high))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "far above 0 and below the count of I/Os"
)]
fn rank(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks ranks against published tables. Six values are the smallest sample with a 95% interval of its median, from the first to the
    /// last value. With 20 values the interval is from the 6th to the 15th.
    #[test]
    fn ranks_are_those_of_tables() {
        assert_eq!(ranks(5, 0.5, 0.05), None);
        assert_eq!(ranks(6, 0.5, 0.05), Some((1, 6)));
        assert_eq!(ranks(20, 0.5, 0.05), Some((6, 15)));
    }

    #[test]
    fn they_hold_the_quantile_as_often_as_asked_and_hardly_more() {
        for (n, q) in [(50_u64, 0.5), (1000, 0.99), (10_000, 0.999), (400_000, 0.99)] {
            let below = Binomial::new(q, n).expect("a share");
            let (low, high) = ranks(n, q, 0.05).expect("enough");
            let held = below.cdf(high - 1) - below.cdf(low - 1);
            assert!((0.95..0.985).contains(&held), "{n} {q}: {low} {high} {held}");
        }
    }

    #[test]
    fn both_ways_to_count_agree() {
        let (n, q) = (2_000_000, 0.99);
        let below = Binomial::new(q, n).expect("a share");
        let (low, high) = ranks(n, q, 0.05).expect("enough");
        assert!(low.abs_diff(below.inverse_cdf(0.025)) <= 2 && high.abs_diff(below.inverse_cdf(0.975)) <= 3);
    }
}
