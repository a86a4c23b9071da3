//! Chooses the next block of a random pattern.

mod normal;
mod pareto;
mod sequence;
mod zipf;
mod zoned;

use iotax_load::random::{Purpose, SplitMix64};
use iotax_model::workload::{Distribution, Workload};

use self::normal::Normal;
use self::pareto::Pareto;
use self::sequence::Sequence;
use self::zipf::Zipf;
use self::zoned::Zoned;
use super::permutation::{Bijection, Permutation};

/// Generator of block numbers below a count, by the workload's `random_distribution`.
#[derive(Debug, Clone)]
pub(super) enum Draw {
    /// Every block exactly once per pass, in random order.
    Once(Permutation),
    Uniform {
        count: u64,
        random: SplitMix64,
    },
    Zipf {
        ranks: Zipf,
        positions: BlockPositions,
        random: SplitMix64,
    },
    Pareto {
        ranks: Pareto,
        positions: BlockPositions,
        random: SplitMix64,
    },
    Normal {
        blocks: Normal,
        random: SplitMix64,
    },
    Zoned {
        blocks: Zoned,
        random: SplitMix64,
    },
    Sequence(Sequence),
}

/// Mapping from a block's rank by access frequency to its position in the area. It scatters the frequent blocks, in the same way for every
/// job of a workload.
#[derive(Debug, Clone)]
pub(super) struct BlockPositions {
    count: u64,
    bijection: Bijection,
}

impl BlockPositions {
    fn new(count: u64, seed: u64) -> Self {
        Self { count, bijection: Bijection::new(count, &mut SplitMix64::new(seed, Purpose::Permutation, 0)) }
    }

    #[inline]
    fn of(&self, rank: u64) -> u64 {
        self.bijection.scatter(rank, self.count)
    }
}

impl Draw {
    /// Creates the draws of worker number `job` among `count` blocks, at least 1.
    pub(super) fn new(workload: &Workload, count: u64, job: u32, seed: u64) -> Self {
        let random = SplitMix64::new(seed, Purpose::Offsets, job.into());
        let positions = || BlockPositions::new(count, seed);
        match &workload.random_distribution {
            Distribution::Random if workload.norandommap => Self::Uniform { count, random },
            Distribution::Random => Self::Once(Permutation::new(count, random)),
            Distribution::Zipf(theta) => {
                Self::Zipf { ranks: Zipf::new(count, *theta), positions: positions(), random }
            }
            Distribution::Pareto(h) => {
                Self::Pareto { ranks: Pareto::new(count, *h), positions: positions(), random }
            }
            Distribution::Normal(deviation) => {
                Self::Normal { blocks: Normal::new(count, *deviation), random }
            }
            Distribution::Zoned(zones) => Self::Zoned { blocks: Zoned::new(count, zones), random },
            Distribution::Sequence(sequence) => Self::Sequence(Sequence::new(count, sequence)),
            Distribution::ZonedAbs(zones) => {
                let unit = workload.blockalign.unwrap_or(workload.min_bs()).0;
                Self::Zoned { blocks: Zoned::absolute(count, unit, zones), random }
            }
        }
    }

    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        match self {
            Self::Once(permutation) => permutation.next(),
            Self::Uniform { count, random } => random.below(*count),
            _ => self.next_uneven(),
        }
    }

    /// Draws from a distribution that is not uniform; a separate function keeps the code of uniform draws short.
    #[inline(never)]
    fn next_uneven(&mut self) -> u64 {
        match self {
            Self::Once(_) | Self::Uniform { .. } => self.next(),
            Self::Zipf { ranks, positions, random } => positions.of(ranks.next(random)),
            Self::Pareto { ranks, positions, random } => positions.of(ranks.next(random)),
            Self::Normal { blocks, random } => blocks.next(random),
            Self::Zoned { blocks, random } => blocks.next(random),
            Self::Sequence(sequence) => sequence.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::distribution::{ChiSquared, ContinuousCDF};

    /// Number of draws in a test of a distribution.
    const DRAWS: u32 = 100_000;

    pub(super) fn random(number: u64) -> SplitMix64 {
        SplitMix64::new(42, Purpose::Offsets, number)
    }

    /// Checks by Pearson's chi-square test that numbers are drawn in proportion to their weights. Numbers expected less
    /// than ten times are pooled.
    pub(super) fn chi_square_at_most(weights: &[f64], mut draw: impl FnMut() -> u64) {
        let mut seen = vec![0_u32; weights.len()];
        (0..DRAWS).for_each(|_| seen[usize::try_from(draw()).expect("64 bits")] += 1);
        let scale = f64::from(DRAWS) / weights.iter().sum::<f64>();
        let (mut rare_seen, mut rare_expected) = (0.0, 0.0);
        let (mut statistic, mut classes) = (0.0, 0.0);
        let mut class = |seen: f64, expected: f64| {
            statistic += (seen - expected).powi(2) / expected;
            classes += 1.0;
        };
        for (seen, weight) in seen.into_iter().zip(weights) {
            let (seen, expected) = (f64::from(seen), weight * scale);
            if expected < 10.0 {
                rare_seen += seen;
                rare_expected += expected;
            } else {
                class(seen, expected);
            }
        }
        if rare_expected >= 1.0 {
            class(rare_seen, rare_expected);
        } else {
            assert!(rare_seen < 10.0, "{rare_seen} draws where {rare_expected} are expected");
        }
        if classes > 1.0 {
            let theory = ChiSquared::new(classes - 1.0).expect("a distribution");
            let limit = theory.inverse_cdf(0.9999);
            assert!(statistic < limit, "chi square {statistic} of {classes} classes, at most {limit}");
        }
    }

    /// Checks by the Kolmogorov-Smirnov test that a draw is below x with the probability `below(x)`.
    pub(super) fn follows(below: impl Fn(f64) -> f64, mut draw: impl FnMut() -> u64) {
        let mut draws: Vec<u64> = (0..DRAWS).map(|_| draw()).collect();
        draws.sort_unstable();
        let (count, mut lower, mut distance) = (f64::from(DRAWS), 0.0, 0.0_f64);
        for equal in draws.chunk_by(|a, b| a == b) {
            let upper = lower + equal.len() as f64;
            let x = equal[0] as f64;
            distance = distance.max((below(x) - lower / count).abs());
            distance = distance.max((below(x + 1.0) - upper / count).abs());
            lower = upper;
        }
        // Passed by all but one in 10,000 samples of the right distribution.
        let limit = 2.23 / count.sqrt();
        assert!(distance < limit, "distance {distance}, at most {limit}");
    }
}
