//! Zipf-distributed ranks.

use iotax_load::random::SplitMix64;

/// Zipf distribution of ranks from 0: the n-th rank, from 1, has a probability proportional to n^-theta.
///
/// Ranks are drawn by rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone discrete
/// distributions", ACM TOMACS 6(3), 1996), which needs no table and hardly ever a second attempt. An integral of x^-theta approximates the
/// sum. The integral is inverted at a random point and the result rounded. The point is rejected if it lies in the part of the rank's strip
/// that belongs to the integral but not to the sum.
#[derive(Debug, Clone)]
pub(in crate::pattern) struct Zipf {
    count: f64,
    theta: f64,
    /// The exponent 1 - theta; `root` is its reciprocal.
    power: f64,
    root: f64,
    /// The integral up to the end of the last rank's strip.
    high: f64,
    /// Start of the first rank's strip minus `high`; negative.
    down: f64,
    /// Largest excess of the rounded rank over its point at which the rank is accepted without further computation.
    sure: f64,
}

impl Zipf {
    /// Creates the distribution for `count` ranks, at least 1; `theta` is above 0.
    pub(super) fn new(count: u64, theta: f64) -> Self {
        let (count, power) = (count as f64, 1.0 - theta);
        let mut zipf = Self { count, theta, power, root: power.recip(), high: 0.0, down: 0.0, sure: 0.0 };
        zipf.high = zipf.integral(count + 0.5);
        zipf.down = zipf.integral(1.5) - 1.0 - zipf.high;
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - 2.0_f64.powf(-theta));
        zipf
    }

    /// Returns an antiderivative of x^-theta at `x`: the logarithm if theta is 1, for which the general formula does not exist.
    fn integral(&self, x: f64) -> f64 {
        if self.power == 0.0 { x.ln() } else { x.powf(self.power) * self.root }
    }

    #[inline]
    fn inverse(&self, y: f64) -> f64 {
        if self.power == 0.0 { y.exp() } else { (y * self.power).powf(self.root) }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 1 and the count")]
    pub(super) fn next(&self, random: &mut SplitMix64) -> u64 {
        loop {
            let y = self.high + random.unit() * self.down;
            let x = self.inverse(y);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.sure || y >= self.integral(rank + 0.5) - rank.powf(-self.theta) {
                return rank as u64 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{chi_square_at_most, random};
    use super::*;

    #[test]
    fn ranks_come_as_often_as_the_law_says() {
        for theta in [0.3, 0.99, 1.0, 1.000_001, 1.2, 2.5, 20.0] {
            for count in [1, 2, 50, 1000] {
                let zipf = Zipf::new(count, theta);
                let weights: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-theta)).collect();
                let mut random = random(count);
                chi_square_at_most(&weights, || zipf.next(&mut random));
            }
        }
    }

    #[test]
    fn the_frequent_ranks_of_many_come_as_often_as_the_law_says() {
        let (count, theta, draws) = (1_u64 << 40, 1.1, 400_000);
        let zipf = Zipf::new(count, theta);
        // Euler and Maclaurin: the sum up to 1000 and the integral beyond.
        let sum: f64 = (1..1000).map(|rank| f64::from(rank).powf(-theta)).sum();
        let beyond = ((count as f64 + 0.5).powf(1.0 - theta) - 999.5_f64.powf(1.0 - theta)) / (1.0 - theta);
        let mut random = random(7);
        let mut seen = [0_u32; 3];
        for _ in 0..draws {
            if let Some(seen) = seen.get_mut(usize::try_from(zipf.next(&mut random)).expect("64 bits")) {
                *seen += 1;
            }
        }
        for (rank, seen) in (1..).zip(seen) {
            let share = f64::from(rank).powf(-theta) / (sum + beyond);
            let expected = share * f64::from(draws);
            assert!((f64::from(seen) - expected).abs() < 4.0 * expected.sqrt(), "{rank}: {seen}, {expected}");
        }
    }
}
