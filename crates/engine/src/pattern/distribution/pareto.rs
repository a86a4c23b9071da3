//! Pareto-distributed ranks, in fio's form.

use iotax_load::random::SplitMix64;

/// fio's self-similar distribution of ranks from 0: the first share h of ranks gets the share 1-h of the draws, and so on recursively. The
/// first share x of the ranks then gets x^(ln(1-h) / ln(h)) of the draws.
#[derive(Debug, Clone)]
pub(in crate::pattern) struct Pareto {
    count: u64,
    power: f64,
}

impl Pareto {
    /// Creates the distribution for `count` ranks, at least 1; `h` is between 0 and 1.
    pub(super) fn new(count: u64, h: f64) -> Self {
        Self { count, power: h.ln() / (-h).ln_1p() }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to below the count")]
    pub(super) fn next(&self, random: &mut SplitMix64) -> u64 {
        // The product of large counts could be rounded up to the count.
        ((self.count as f64 * random.unit().powf(self.power)) as u64).min(self.count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{follows, random};
    use super::*;

    #[test]
    fn draws_follow_the_law() {
        for h in [0.01, 0.2, 0.5, 0.9] {
            let pareto = Pareto::new(1 << 40, h);
            let mut random = random(3);
            follows(
                |x| (x / (1_u64 << 40) as f64).powf((1.0 - h).ln() / h.ln()),
                || pareto.next(&mut random),
            );
        }
    }

    #[test]
    fn one_fifth_gets_four_fifths() {
        let pareto = Pareto::new(1000, 0.2);
        let mut random = random(4);
        let hot = (0..100_000).filter(|_| pareto.next(&mut random) < 200).count();
        // 4 sigma of a share of 0.8 in 100,000.
        assert!(hot.abs_diff(80_000) < 506, "{hot}");
        let one = Pareto::new(1, 0.2);
        assert!((0..1000).all(|_| one.next(&mut random) == 0));
    }
}
