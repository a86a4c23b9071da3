//! Summarizes a workload on a target over all its rounds.

use iotax_model::Histogram;
use iotax_model::record::{Measurement, Tallies};

use crate::cell_means::CellMeans;
use crate::effects::mean;
use crate::metric::{Metric, OverRounds, stated};
use crate::percentile::{Percentile, QUANTILES, percentile};
use crate::stats::median;

/// Figures of a workload on a target over all its rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Number of measured rounds.
    pub rounds: u32,
    /// All known figures, each summarized over the rounds by its metric's [`OverRounds`].
    pub figures: Vec<(Metric, f64)>,
    /// Service times of all rounds in nanoseconds: reads, writes, trims and metadata operations together.
    pub latency: Histogram,
    /// The [`QUANTILES`] with their intervals; a quantile with too few I/Os has no value.
    pub percentiles: Vec<Percentile>,
    /// I/O counts and times of all rounds.
    pub tallies: Tallies,
    /// Time that rates are divided by, summed over all windows, in nanoseconds.
    pub rate_ns: u64,
}

impl Summary {
    /// Summarizes all rounds of a workload on a target; `None` without measurements.
    pub(crate) fn new(
        figures: &[Metric],
        workload: &str,
        target: &str,
        measurements: &[&Measurement],
        means: &CellMeans<'_>,
    ) -> Option<Self> {
        if measurements.is_empty() {
            return None;
        }
        let mut tallies = Tallies::default();
        measurements.iter().for_each(|m| tallies.merge(&m.outcome.tallies));
        let latency = tallies.latency();
        Some(Self {
            rounds: u32::try_from(measurements.len()).unwrap_or(u32::MAX),
            figures: figures
                .iter()
                .filter_map(|f| {
                    let mean = means.get(workload, target, *f);
                    Some((*f, mean.or_else(|| over_rounds(*f, &latency, measurements))?))
                })
                .collect(),
            percentiles: QUANTILES.iter().map(|q| Percentile::of(*q, &latency, measurements)).collect(),
            latency,
            tallies,
            rate_ns: measurements.iter().map(|m| m.outcome.rate_ns()).sum(),
        })
    }

    /// Returns a figure over all rounds; `None` if unknown.
    #[must_use]
    pub fn of(&self, metric: Metric) -> Option<f64> {
        self.figures.iter().find(|(known, _)| *known == metric).map(|(_, value)| *value)
    }
}

/// Summarizes a figure that has no geometric mean over the rounds; `None` if unknown. A value stated by an import's source takes
/// precedence.
fn over_rounds(metric: Metric, latency: &Histogram, measurements: &[&Measurement]) -> Option<f64> {
    let known = |value: &dyn Fn(&Measurement) -> Option<f64>| -> Vec<f64> {
        measurements.iter().filter_map(|m| value(m)).collect()
    };
    let known_rates = known(&|m| stated(m, metric));
    let stated = median(&known_rates);
    let ours = || match metric.definition().over_rounds {
        OverRounds::GeometricMean | OverRounds::Median => median(&known(&|m| metric.value(m))),
        OverRounds::Sum => {
            Some(known(&|m| metric.value(m))).filter(|all| !all.is_empty()).map(|all| all.iter().sum())
        }
        OverRounds::PooledQuantile(q) => percentile(latency, q),
    };
    stated.or_else(ours)
}

/// Returns the relative scatter of positive values: `exp(sd) - 1` for the standard deviation of their logarithms.
/// `None` for fewer than two values.
#[must_use]
pub fn scatter(values: &[f64]) -> Option<f64> {
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let centre = mean(&logs)?;
    let squares: f64 = logs.iter().map(|log| (log - centre).powi(2)).sum();
    (logs.len() > 1).then(|| (squares / (logs.len() - 1) as f64).sqrt().exp_m1())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scatter_is_relative_and_needs_two_values() {
        assert_eq!((scatter(&[]), scatter(&[5.0])), (None, None));
        assert_eq!(scatter(&[7.0, 7.0, 7.0]), Some(0.0));
        let by = scatter(&[90.0, 100.0, 110.0]).expect("three");
        assert!((by - 0.106).abs() < 0.001, "{by}");
        assert!((scatter(&[9e3, 1e4, 1.1e4]).expect("three") - by).abs() < 1e-9, "in any unit");
    }

    #[test]
    fn a_percentile_needs_ten_values_beyond_it() {
        let mut latency = Histogram::new();
        latency.add_many(1000, 100_000);
        assert!(percentile(&latency, 0.9999).is_some());
        let mut fewer = Histogram::new();
        fewer.add_many(1000, 999);
        assert_eq!(percentile(&fewer, 0.99), None);
        assert!(percentile(&fewer, 0.5).is_some());
    }
}
