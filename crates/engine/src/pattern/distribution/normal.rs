//! Normally distributed blocks around the middle of the area.

use iotax_load::random::SplitMix64;
use rand_distr::{Distribution as _, StandardNormal};

/// Normal distribution of blocks around the middle of the area; a draw outside of the area is repeated.
#[derive(Debug, Clone)]
pub(in crate::pattern) struct Normal {
    count: f64,
    deviation: f64,
}

impl Normal {
    /// Creates the distribution for `count` blocks, at least 1. The standard deviation is `percent` percent of `count`, above 0.
    pub(super) fn new(count: u64, percent: f64) -> Self {
        Self { count: count as f64, deviation: count as f64 * percent / 100.0 }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to below the count")]
    pub(super) fn next(&self, random: &mut SplitMix64) -> u64 {
        loop {
            let normal: f64 = StandardNormal.sample(random);
            let position = self.count / 2.0 + normal * self.deviation;
            if position >= 0.0 && position < self.count {
                return position as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{follows, random};
    use super::*;
    use statrs::distribution::{ContinuousCDF, Normal as Theory};

    #[test]
    fn draws_follow_the_law_cut_at_the_edges() {
        let count = 1_u64 << 40;
        for percent in [0.1, 10.0, 30.0, 100.0] {
            let normal = Normal::new(count, percent);
            let theory = Theory::new(0.5, percent / 100.0).expect("a distribution");
            let (low, high) = (theory.cdf(0.0), theory.cdf(1.0));
            let mut random = random(5);
            follows(|x| (theory.cdf(x / count as f64) - low) / (high - low), || normal.next(&mut random));
        }
    }

    #[test]
    fn few_blocks_are_all_that_there_are() {
        let mut random = random(6);
        for count in 1..5 {
            let normal = Normal::new(count, 50.0);
            assert!((0..1000).all(|_| normal.next(&mut random) < count));
        }
    }
}
