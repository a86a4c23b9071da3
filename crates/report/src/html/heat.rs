//! Shows the distribution of latencies over time: a heat map of I/Os by interval and latency.

use iotax_model::record::{Measurement, Sample};
use iotax_model::units::human;

use super::chart::{Cell, Chart, Plot};
use super::clock::Clock;
use super::colours;
use super::timeline::span;
use iotax_model::Run;

/// Number of latency bins per factor of ten.
const PER_DECADE: f64 = 12.0;

/// Maximum number of latency bins; a wider range of latencies gets wider bins.
const MOST_BINS: f64 = 40.0;

/// Number of leading columns, which identify an interval: target, round, start, end.
const WHEN: usize = 4;

/// Latency bins of equal width on a logarithmic scale.
struct Bins {
    least_ns: f64,
    /// Ratio of a bin's upper edge to its lower edge.
    factor: f64,
    count: usize,
}

impl Bins {
    /// Creates bins that cover all latencies; `None` without I/O.
    fn of(measurements: &[&Measurement]) -> Option<Self> {
        let all = || measurements.iter().flat_map(|m| &m.samples).map(|s: &Sample| s.tallies.latency());
        let least = all().filter_map(|l| l.min()).min()?.max(1) as f64;
        let most = (all().filter_map(|l| l.max()).max()? as f64 + 1.0).max(least * 1.1);
        let count = ((most / least).log10() * PER_DECADE).ceil().clamp(1.0, MOST_BINS);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and MOST_BINS"
        )]
        let bins = Self { least_ns: least, factor: (most / least).powf(1.0 / count), count: count as usize };
        Some(bins)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, then at most count"
    )]
    fn bin(&self, ns: f64) -> usize {
        let steps = (ns / self.least_ns).ln() / self.factor.ln();
        (steps.max(0.0) as usize).min(self.count - 1)
    }

    /// Returns the edges of the bins in microseconds: one more than there are bins.
    fn edges(&self) -> Vec<f64> {
        (0..=self.count).map(|edge| self.least_ns * self.factor.powf(edge as f64) / 1e3).collect()
    }
}

/// Builds the latency heat map; `None` without I/O.
pub(super) fn heat(run: &Run, clock: &Clock<'_>) -> Option<Chart> {
    let bins = Bins::of(&clock.measurements)?;
    let mut rows = Vec::new();
    for m in &clock.measurements {
        for samples in m.samples.chunks(clock.joined) {
            let Some((from, to)) = span(samples.iter().map(|s| (s.at_ns, s.duration_ns))) else { continue };
            let mut counts = vec![0_u64; bins.count];
            for sample in samples {
                for (edge, width, count) in sample.tallies.latency().bars() {
                    counts[bins.bin(edge as f64 + (width - 1) as f64 / 2.0)] += count;
                }
            }
            let mut row: Vec<Cell> = vec![m.target.as_str().into(), m.round.into(), from.into(), to.into()];
            // 0 is known here, but empty cells read better in so large a table.
            row.extend(counts.into_iter().map(|n| if n == 0 { Cell::Unknown } else { Cell::Count(n) }));
            rows.push(row);
        }
    }
    let edges = bins.edges();
    let mut columns: Vec<String> = ["target", "round", "from_s", "to_s"].map(Into::into).into();
    columns.extend(edges[..bins.count].iter().map(|edge| format!("from_{}_us", Cell::from(*edge))));
    let (least, most) = (edges[0], edges[bins.count]);
    let range = [least, most].map(|us| human::time(us * 1e3)).join(" to ");
    Some(Chart {
        key: "heat".into(),
        title: "Latencies over time".into(),
        note: format!(
            "I/Os by interval and latency, both logarithmic; {}; an empty place had none",
            clock.note()
        ),
        message: format!("All I/Os took {range}"),
        columns,
        colours: colours(run, &rows),
        rows,
        plot: Plot::Heat { series: 0, across: clock.across(1, 2, 3), first: WHEN, edges },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_has_its_bin() {
        let bins = Bins { least_ns: 1_000.0, factor: 10.0, count: 3 };
        for (ns, expected) in [(999.0, 0), (1_000.0, 0), (9_999.0, 0), (10_001.0, 1), (5e5, 2), (2e6, 2)] {
            assert_eq!(bins.bin(ns), expected, "{ns}");
        }
        let edges = bins.edges();
        assert_eq!(edges.len(), 4);
        assert!((edges[3] - 1_000.0).abs() < 1e-9, "{edges:?}");
    }
}
