//! Latencies in fio's form: buckets, percentiles and distribution classes.

use std::collections::BTreeMap;

use iotax_model::Histogram;

/// Percentiles that fio prints by default.
pub(super) const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// log2 of fio's buckets per power of two. iotax has twice as many, so each fio bucket holds two of iotax's.
const BITS: u32 = 6;
/// Midpoint in nanoseconds of fio's last bucket, which also counts everything longer; fio's tools accept no larger value.
const LAST: u64 = 17_112_760_320;

/// Exclusive upper bounds of the latency classes: the same numbers in ns, in us and in ms.
pub(super) const CLASSES: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
/// Exclusive upper bound of the second to last class, in ms. The last class has no bound.
pub(super) const LAST_CLASS: u64 = 2000;

/// Summary of latencies in nanoseconds, as fio gives it. Without latencies all fields are 0, as in fio.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) mean: f64,
    pub(super) stddev: f64,
    pub(super) count: u64,
}

impl Spread {
    pub(super) fn of(histogram: Option<&Histogram>) -> Self {
        let Some(histogram) = histogram else { return Self::default() };
        Self {
            min: histogram.min().unwrap_or_default(),
            max: histogram.max().unwrap_or_default(),
            mean: histogram.mean().unwrap_or_default(),
            stddev: histogram.stddev().unwrap_or_default(),
            count: histogram.count(),
        }
    }

    /// Converts the summary to units of `unit` nanoseconds; minimum and maximum are truncated as in fio.
    pub(super) fn scaled(self, unit: u64) -> Self {
        let mean = self.mean / unit as f64;
        let stddev = self.stddev / unit as f64;
        Self { min: self.min / unit, max: self.max / unit, mean, stddev, count: self.count }
    }
}

/// Counts the latencies in each fio bucket, keyed by the bucket's midpoint in nanoseconds.
pub(super) fn bins(histogram: &Histogram) -> BTreeMap<u64, u64> {
    let mut bins = BTreeMap::new();
    for (edge, _, count) in histogram.bars() {
        *bins.entry(middle_of_bucket(edge)).or_default() += count;
    }
    bins
}

/// Returns the midpoint in nanoseconds of the fio bucket that contains `value`.
fn middle_of_bucket(value: u64) -> u64 {
    if value < 2 << BITS {
        return value;
    }
    let shift = value.ilog2() - BITS;
    ((value >> shift << shift) + (1 << (shift - 1))).min(LAST)
}

/// Returns fio's default percentiles of these latencies: the percentage and the latency in nanoseconds. Empty without latencies.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "latencies are small and positive"
)]
pub(super) fn percentiles(histogram: &Histogram) -> Vec<(f64, u64)> {
    let known = |p: f64| Some((p, histogram.quantile(p / 100.0)?.round() as u64));
    PERCENTILES.into_iter().filter_map(known).collect()
}

/// Shares of I/Os by latency class, in percent; all 0 without I/O.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Shares {
    /// Shares of latencies below 1 us, by the [`CLASSES`] in nanoseconds.
    pub(super) ns: [f64; 10],
    /// Shares of latencies from 1 us to below 1 ms, by the [`CLASSES`] in microseconds.
    pub(super) us: [f64; 10],
    /// Shares of latencies from 1 ms: by the [`CLASSES`] in milliseconds, then below [`LAST_CLASS`], then above.
    pub(super) ms: [f64; 12],
}

impl Shares {
    /// Computes the shares over all histograms together. A bucket that belongs to two classes counts in the class of its midpoint.
    pub(super) fn of<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Self {
        let mut shares = Self::default();
        let mut total = 0;
        for histogram in histograms {
            for (edge, width, count) in histogram.bars() {
                *shares.class(edge + width / 2) += count as f64;
                total += count;
            }
        }
        if total > 0 {
            let all = shares.ns.iter_mut().chain(&mut shares.us).chain(&mut shares.ms);
            all.for_each(|share| *share *= 100.0 / total as f64);
        }
        shares
    }

    fn class(&mut self, ns: u64) -> &mut f64 {
        let below = |value: u64| CLASSES.iter().position(|bound| value < *bound);
        if let Some(class) = below(ns) {
            return &mut self.ns[class];
        }
        if let Some(class) = below(ns / 1_000) {
            return &mut self.us[class];
        }
        let ms = ns / 1_000_000;
        let class = below(ms).unwrap_or(if ms < LAST_CLASS { 10 } else { 11 });
        &mut self.ms[class]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|value| histogram.add(*value));
        histogram
    }

    #[test]
    fn buckets_are_those_that_fio_prints() {
        // Keys of bins as fio 3.33 prints them, and values that it counts there.
        for (key, values) in [
            (110, &[110][..]),
            (171, &[170, 171]),
            (231, &[230, 231]),
            (262, &[260, 263]),
            (8896, &[8832, 8896, 8959]),
            (9408, &[9344, 9471]),
            (366_592, &[364_683, 368_000]),
            (LAST, &[17_100_000_000, 30_000_000_000]),
        ] {
            for value in values {
                let bins: Vec<_> = bins(&histogram(&[*value])).into_iter().collect();
                assert_eq!(bins, [(key, 1)], "{value}");
            }
        }
    }

    #[test]
    fn classes_are_fios() {
        let us = 1_000;
        let ms = 1_000 * us;
        let shares = Shares::of(
            [histogram(&[1, 3, 999, us, 1999, 200 * us]), histogram(&[ms, 1500 * ms, 2500 * ms, 2500 * ms])]
                .iter(),
        );
        let at = |ranks: &[(usize, f64)], of: &[f64]| {
            (0..of.len()).all(|i| {
                let share = ranks.iter().find(|(rank, _)| *rank == i).map_or(0.0, |(_, share)| *share);
                (of[i] - share).abs() < 1e-9
            })
        };
        assert!(at(&[(0, 10.0), (1, 10.0), (9, 10.0)], &shares.ns), "{shares:?}");
        assert!(at(&[(0, 20.0), (6, 10.0)], &shares.us), "{shares:?}");
        assert!(at(&[(0, 10.0), (10, 10.0), (11, 20.0)], &shares.ms), "{shares:?}");
        assert_eq!(Shares::of([].into_iter()), Shares::default());
    }

    proptest! {
        #[test]
        fn a_percentile_lies_in_the_bin_in_which_its_share_is_reached(
            values in prop::collection::vec((0_u32..33, any::<u64>()).prop_map(|(bits, v)| v >> (63 - bits)), 1..300),
        ) {
            let histogram = histogram(&values);
            let bins = bins(&histogram);
            prop_assert_eq!(bins.values().sum::<u64>(), values.len() as u64);
            for (p, value) in percentiles(&histogram) {
                let mut counted = 0;
                let reached = bins.iter().find(|(_, count)| {
                    counted += **count;
                    counted as f64 >= p / 100.0 * values.len() as f64
                });
                let (key, _) = reached.expect("all are reached at 100%");
                prop_assert_eq!(middle_of_bucket(value), *key, "{} at {}", value, p);
            }
        }
    }
}
