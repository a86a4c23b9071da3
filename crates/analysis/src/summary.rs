//! A cell over all its rounds.

use iotax_model::Histogram;
use iotax_model::record::{Measurement, Tallies};

use crate::metric::{Metric, OverRounds, stated};
use crate::percentile::{Percentile, QUANTILES, percentile};
use crate::stats::median;

/// A cell over all its rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The workload's name.
    pub workload: String,
    /// The target's name.
    pub target: String,
    /// Rounds in which it was measured.
    pub rounds: u32,
    /// Every known figure, summarized over the rounds as its definition says.
    pub figures: Vec<(Metric, f64)>,
    /// Service times of all rounds and directions together.
    pub latency: Histogram,
    /// [`QUANTILES`] of them with their intervals; those with too few I/Os say so.
    pub percentiles: Vec<Percentile>,
    /// I/Os of all rounds.
    pub tallies: Tallies,
    /// Lengths of all windows together, by the agent's clock.
    pub duration_ns: u64,
}

impl Summary {
    /// Summarizes one cell's measurements; `None` if there are none.
    pub fn new(
        figures: &[Metric],
        workload: &str,
        target: &str,
        measurements: &[&Measurement],
    ) -> Option<Self> {
        if measurements.is_empty() {
            return None;
        }
        let mut tallies = Tallies::default();
        measurements.iter().for_each(|m| tallies.merge(&m.outcome.tallies));
        let latency = tallies.latency();
        Some(Self {
            workload: workload.into(),
            target: target.into(),
            rounds: u32::try_from(measurements.len()).unwrap_or(u32::MAX),
            figures: figures
                .iter()
                .filter_map(|f| Some((*f, over_rounds(*f, &latency, measurements)?)))
                .collect(),
            percentiles: QUANTILES.iter().map(|q| Percentile::of(*q, &latency, measurements)).collect(),
            latency,
            tallies,
            duration_ns: measurements.iter().map(|m| m.outcome.duration_ns).sum(),
        })
    }

    /// A figure over all rounds, if it is known.
    #[must_use]
    pub fn of(&self, metric: Metric) -> Option<f64> {
        self.figures.iter().find(|(known, _)| *known == metric).map(|(_, value)| *value)
    }
}

/// A figure of several rounds as one number. What the source of an import states goes first.
fn over_rounds(metric: Metric, latency: &Histogram, measurements: &[&Measurement]) -> Option<f64> {
    let known = |value: &dyn Fn(&Measurement) -> Option<f64>| -> Vec<f64> {
        measurements.iter().filter_map(|m| value(m)).collect()
    };
    let told = known(&|m| stated(m, metric));
    let stated = match metric.definition().over_rounds {
        // Of an import each round counts alike: its source may not tell the number of I/Os.
        OverRounds::PooledMean => (!told.is_empty()).then(|| told.iter().sum::<f64>() / told.len() as f64),
        _ => median(&told),
    };
    let ours = || match metric.definition().over_rounds {
        OverRounds::Median => median(&known(&|m| metric.value(m))),
        OverRounds::Sum => {
            Some(known(&|m| metric.value(m))).filter(|all| !all.is_empty()).map(|all| all.iter().sum())
        }
        OverRounds::PooledMean => latency.mean(),
        OverRounds::PooledQuantile(q) => percentile(latency, q),
    };
    stated.or_else(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

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
