//! Finds the position at which a series divides: E-divisive's energy statistic on ranks.
//!
//! Matteson and James (A Nonparametric Approach for Multiple Change Point Analysis of Multivariate Data, JASA 109, 2014) divide a series
//! where the energy distance between both sides is largest, and test by permutation whether that exceeds chance. Hunter (Fleming et al.,
//! Hunter: Using Change Point Detection to Hunt for Performance Regressions, ICPE 2023; now Apache Otava) replaces the permutations by a
//! t-test, which is quick and repeatable but sensitive to single outliers. Here the statistic is computed on ranks. The ranks of
//! exchangeable noise are a random order whatever its distribution, so critical values come from a table, and an outlier counts as one
//! rank.

/// Minimum number of runs on each side of a change.
pub const LEAST_SIDE: usize = 4;

/// Probability of a false change each time a series is examined. Chosen so that fewer than 5% of series ever give a false alarm if they are
/// examined after every run, up to 100 runs.
pub const LEVEL: f64 = 0.002;

/// Maximum number of values that are examined at once.
pub(super) const LONGEST: usize = 1000;

/// Critical values by the number of runs: the statistic that one random order in 500 ([`LEVEL`]) exceeds. Simulated with 600,000 orders up
/// to 40 runs, 200,000 up to 128, and 10,000 for 1,000. With fewer runs than in the first entry even the rarest order is more frequent than
/// that.
const CRITICAL: &[(usize, f64)] = &[
    (14, 1.857),
    (15, 1.944),
    (16, 2.022),
    (18, 2.055),
    (20, 2.115),
    (22, 2.191),
    (25, 2.270),
    (28, 2.336),
    (32, 2.414),
    (36, 2.473),
    (40, 2.518),
    (50, 2.625),
    (64, 2.679),
    (80, 2.760),
    (100, 2.817),
    (128, 2.894),
    (160, 2.950),
    (200, 2.990),
    (256, 3.051),
    (320, 3.118),
    (400, 3.145),
    (512, 3.153),
    (700, 3.187),
    (1000, 3.268),
];

/// Minimum number of runs in which a change can be found.
pub const LEAST_RUNS: usize = CRITICAL[0].0;

/// Returns the critical value for `n` runs, interpolated linearly over the logarithm of `n`; `None` for fewer than [`LEAST_RUNS`].
pub(super) fn critical(n: usize) -> Option<f64> {
    let above = CRITICAL.iter().position(|(known, _)| *known >= n);
    match above {
        Some(0) => (CRITICAL[0].0 == n).then_some(CRITICAL[0].1),
        Some(i) => {
            let ((low, from), (high, to)) = (CRITICAL[i - 1], CRITICAL[i]);
            let share = (n as f64 / low as f64).ln() / (high as f64 / low as f64).ln();
            Some(from + share * (to - from))
        }
        None => CRITICAL.last().map(|(_, value)| *value),
    }
}

/// Returns the rank of each value, divided by the number of values plus 1; equal values get their mean rank.
pub(super) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    for equal in order.chunk_by(|a, b| values[*a].total_cmp(&values[*b]).is_eq()) {
        let rank = from as f64 + f64::midpoint(equal.len() as f64, 1.0);
        for i in equal {
            ranks[*i] = rank / (values.len() as f64 + 1.0);
        }
        from += equal.len();
    }
    ranks
}

/// A position where a series may divide.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Division {
    /// Number of values before the position.
    pub(super) at: usize,
    /// The scaled energy distance between both sides.
    pub(super) energy: f64,
}

/// Returns the position with the largest energy distance between both sides, with at least [`LEAST_SIDE`] values on each; `None` with too
/// few values. Takes quadratic time.
pub(super) fn best_division(ranks: &[f64]) -> Option<Division> {
    let n = ranks.len();
    let distance_to =
        |others: &[f64], from: f64| others.iter().map(|other| (from - other).abs()).sum::<f64>();
    let all: Vec<f64> = ranks.iter().map(|rank| distance_to(ranks, *rank)).collect();
    let total = all.iter().sum::<f64>() / 2.0;
    let (mut left, mut right) = (0.0, total);
    let mut best: Option<Division> = None;
    for i in 0..n {
        let to_left = distance_to(&ranks[..i], ranks[i]);
        left += to_left;
        right -= all[i] - to_left;
        let at = i + 1;
        if at < LEAST_SIDE || n - at < LEAST_SIDE {
            continue;
        }
        let (m, k) = (at as f64, (n - at) as f64);
        let across = 2.0 * (total - left - right) / (m * k);
        let within = left / (m * (m - 1.0) / 2.0) + right / (k * (k - 1.0) / 2.0);
        let energy = m * k / (m + k) * (across - within);
        if best.is_none_or(|best| energy > best.energy) {
            best = Some(Division { at, energy });
        }
    }
    best
}

/// Returns the position that divides the newest [`LONGEST`] values best, as an index into `values`; `None` if the energy distance does not
/// exceed the critical value, or with too few values.
pub(super) fn division(values: &[f64]) -> Option<usize> {
    let skipped = values.len().saturating_sub(LONGEST);
    let values = &values[skipped..];
    let critical = critical(values.len())?;
    let found = best_division(&ranks(values))?;
    (found.energy > critical).then_some(skipped + found.at)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn equal_values_share_a_rank() {
        assert_eq!(ranks(&[30.0, 10.0, 20.0]), [0.75, 0.25, 0.5]);
        assert_eq!(ranks(&[1.0, 1.0, 2.0]), [0.375, 0.375, 0.75]);
        assert_eq!(division(&[1.0; 50]), None, "nothing differs");
    }

    #[test]
    fn the_statistic_is_the_definition() {
        let values = [0.3, 0.1, 0.2, 0.15, 0.9, 0.8, 0.7, 0.85, 0.95];
        let found = best_division(&values).expect("long enough");
        assert_eq!(found.at, 4);
        let mean = |pairs: Vec<f64>| pairs.iter().sum::<f64>() / pairs.len() as f64;
        let (left, right) = values.split_at(4);
        let across = mean(left.iter().flat_map(|x| right.iter().map(move |y| (x - y).abs())).collect());
        let within = |side: &[f64]| {
            let pairs = (0..side.len()).flat_map(|i| (0..i).map(move |k| (i, k)));
            mean(pairs.map(|(i, k)| (side[i] - side[k]).abs()).collect())
        };
        let energy = 20.0 / 9.0 * (2.0 * across - within(left) - within(right));
        assert!((found.energy - energy).abs() < 1e-12, "{found:?} {energy}");
    }

    #[test]
    fn as_many_random_orders_exceed_the_critical_value_as_the_level_says() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(20);
        for (n, draws) in [(14_usize, 40_000_u32), (30, 40_000), (70, 20_000)] {
            let mut order = ranks(&(0..n).map(|i| i as f64).collect::<Vec<_>>());
            let above = (0..draws).filter(|_| {
                for i in (1..n).rev() {
                    order.swap(i, random.random_range(0..=i));
                }
                best_division(&order).expect("long enough").energy > critical(n).expect("long enough")
            });
            let share = above.count() as f64 / f64::from(draws);
            assert!((LEVEL * 0.4..LEVEL * 1.4).contains(&share), "{n} runs: {share}");
        }
        assert_eq!(critical(LEAST_RUNS - 1), None);
    }
}
