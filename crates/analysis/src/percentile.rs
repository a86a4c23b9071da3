//! Latency percentiles with their uncertainty.

use iotax_model::Histogram;
use iotax_model::histogram::RELATIVE_ERROR;
use iotax_model::record::Measurement;

use crate::stats::paired::{Differences, Interval};
use crate::stats::rank::ranks;
use crate::stats::{ALPHA, Estimate};

/// Returns the quantile `q` in nanoseconds; `None` if fewer than ten values lie beyond it.
#[must_use]
pub fn percentile(latency: &Histogram, q: f64) -> Option<f64> {
    (latency.count() >= needed(q)).then(|| latency.quantile(q)).flatten()
}

/// Minimum number of values beyond a percentile; with fewer, the percentile is mostly chance and not reported.
const BEYOND: f64 = 10.0;

/// Quantiles in reports and JSON, ascending.
pub const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// A percentile of the service times of a workload on a target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentile {
    /// The quantile, 0 to 1.
    pub q: f64,
    /// Number of I/Os in all rounds.
    pub ios: u64,
    /// The percentile with its intervals; absent with fewer I/Os than [`needed`].
    pub value: Option<PercentileValue>,
}

/// A percentile with its intervals, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PercentileValue {
    /// Percentile of the I/Os of all rounds.
    pub ns: f64,
    /// 95% interval by order statistics, as if all I/Os were independent. I/Os are correlated, so the real uncertainty is larger. A longer
    /// measurement narrows this interval.
    pub of_ios: Interval,
    /// Student's t interval at 95% of the logarithms of the rounds' own percentiles: the range to expect in another run. Absent for fewer
    /// than two rounds, or if a round has too few I/Os.
    pub over_rounds: Option<Interval>,
    /// Geometric mean of the rounds' own percentiles, which lies within `over_rounds`; `ns` need not. Absent where `over_rounds` is.
    pub mean_of_rounds: Option<f64>,
}

impl Percentile {
    /// Computes a percentile over all rounds; `latency` holds the service times of all measurements.
    pub fn of(q: f64, latency: &Histogram, measurements: &[&Measurement]) -> Self {
        let value = percentile(latency, q).and_then(|ns| {
            let (mean_of_rounds, over_rounds) = over_rounds(q, measurements).unzip();
            Some(PercentileValue { ns, of_ios: of_ios(latency, q)?, over_rounds, mean_of_rounds })
        });
        Self { q, ios: latency.count(), value }
    }
}

/// Returns the number of I/Os that the quantile `q` needs, so that ten lie beyond it.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "far below 2^53 for any percentile with a name"
)]
pub fn needed(q: f64) -> u64 {
    // The small difference makes up for rounding: 1 - 0.9999 is not exact.
    ((BEYOND - 1e-6) / (1.0 - q)).ceil() as u64
}

/// Names a quantile: `p99.9`.
#[must_use]
pub fn name(q: f64) -> String {
    let digits = format!("{:.4}", q * 100.0);
    format!("p{}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// Converts the ranks of the 95% interval to values, each end extended by the histogram's error; `None` with too few I/Os.
fn of_ios(latency: &Histogram, q: f64) -> Option<Interval> {
    let (low, high) = ranks(latency.count(), q, ALPHA)?;
    let (min, max) = (latency.min()? as f64, latency.max()? as f64);
    // A position halfway between two ranks is safe from rounding.
    let at = |rank: u64| latency.quantile((rank as f64 - 0.5) / latency.count() as f64);
    Some(Interval {
        low: (at(low)? * (1.0 - RELATIVE_ERROR)).max(min),
        high: (at(high)? * (1.0 + RELATIVE_ERROR)).min(max),
    })
}

/// Returns the geometric mean of the rounds' percentiles in nanoseconds, with its 95% interval; `None` for fewer than two rounds, or if a
/// round has too few I/Os.
fn over_rounds(q: f64, measurements: &[&Measurement]) -> Option<(f64, Interval)> {
    let of_round = |m: &&Measurement| percentile(&m.outcome.tallies.latency(), q).map(f64::ln);
    let logs = measurements.iter().map(of_round).collect::<Option<Vec<_>>>()?;
    let mean = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
    Some((mean.exp(), Differences::new(logs)?.interval(ALPHA)?.map(f64::exp)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::record::{Outcome, Tallies, Tally};

    fn measurement(latency: Histogram) -> Measurement {
        let read = Tally { ios: latency.count(), bytes: 0, latency, response: None };
        Measurement {
            target: "a".into(),
            workload: "w".into(),
            round: 1,
            order: 1,
            outcome: Outcome {
                tallies: Tallies { read: Some(read), ..Tallies::default() },
                ..Outcome::default()
            },
            ..Measurement::default()
        }
    }

    /// Returns a histogram of 1 us, 2 us, ... `n` us.
    fn rising(n: u64) -> Histogram {
        let mut latency = Histogram::new();
        (1..=n).for_each(|us| latency.add(us * 1000));
        latency
    }

    #[test]
    fn names_and_needs() {
        let found: Vec<_> = QUANTILES.iter().map(|q| (name(*q), needed(*q))).collect();
        let wanted = [("p50", 20), ("p90", 100), ("p99", 1000), ("p99.9", 10_000), ("p99.99", 100_000)];
        assert_eq!(found, wanted.map(|(name, n)| (name.to_owned(), n)));
        // The documented number must be the limit itself.
        for q in QUANTILES {
            let of = |n| {
                let mut latency = Histogram::new();
                latency.add_many(1000, n);
                Percentile::of(q, &latency, &[]).value.is_some()
            };
            assert!(of(needed(q)) && !of(needed(q) - 1), "{q}");
        }
    }

    #[test]
    fn ranks_become_values() {
        let median = Percentile::of(0.5, &rising(100), &[]).value.expect("enough");
        // From the 40th to the 61st, within the histogram's error.
        assert!(median.of_ios.low <= 40_000.0 && median.of_ios.low > 39_600.0, "{median:?}");
        assert!(median.of_ios.high >= 61_000.0 && median.of_ios.high < 61_600.0, "{median:?}");
        assert_eq!(median.over_rounds, None);
    }

    #[test]
    fn rounds_say_more_than_ios() {
        let rounds: Vec<Measurement> = [100, 130, 80, 110]
            .into_iter()
            .map(|percent| {
                let mut latency = Histogram::new();
                rising(1000).bars().for_each(|(ns, _, n)| latency.add_many(ns * percent / 100, n));
                measurement(latency)
            })
            .collect();
        let mut all = Histogram::new();
        rounds.iter().for_each(|m| all.merge(&m.outcome.tallies.latency()));
        let rounds: Vec<&Measurement> = rounds.iter().collect();
        let value = Percentile::of(0.5, &all, &rounds).value.expect("enough");
        let over = value.over_rounds.expect("four rounds");
        assert!((over.low..over.high).contains(&value.mean_of_rounds.expect("as the interval")), "{value:?}");
        assert!(over.high - over.low > 2.0 * (value.of_ios.high - value.of_ios.low), "{value:?}");
        // One round with too few I/Os leaves the p99 of all without an interval over rounds.
        let few = measurement(rising(50));
        let rounds = [rounds[0], rounds[1], &few];
        let value = Percentile::of(0.99, &all, &rounds).value.expect("enough together");
        assert_eq!(value.over_rounds, None);
    }
}
