//! Time axis of a workload's charts: rounds are side by side, and adjacent intervals are merged if there are too many.

use iotax_model::record::Measurement;

use super::chart::Rounds;

/// Measurements of a workload on a common time axis.
pub(super) struct Clock<'a> {
    /// Measurements sorted by target in the plan's order, then by round.
    pub(super) measurements: Vec<&'a Measurement>,
    /// Number of consecutive intervals that are merged into one.
    pub(super) joined: usize,
    rounds: Vec<u32>,
    /// Seconds between the starts of two rounds on the axis: 5% more than the longest round.
    pitch: f64,
}

impl<'a> Clock<'a> {
    /// Merges consecutive intervals so that about `most` remain in total; each measurement keeps at least one.
    pub(super) fn new(mut measurements: Vec<&'a Measurement>, targets: &[&str], most: usize) -> Self {
        let index_of = |m: &Measurement| targets.iter().position(|target| *target == m.target);
        measurements.sort_by_key(|m| (index_of(m), m.round));
        let mut rounds: Vec<u32> = measurements.iter().map(|m| m.round).collect();
        rounds.sort_unstable();
        rounds.dedup();
        let ends = measurements
            .iter()
            .flat_map(|m| m.samples.iter().map(|s| s.at_ns).chain(m.host_samples.iter().map(|h| h.at_ns)));
        let longest = ends.max().unwrap_or(1).max(1);
        let intervals: usize = measurements.iter().map(|m| m.samples.len().max(m.host_samples.len())).sum();
        Self {
            joined: intervals.div_ceil(most.max(1)).max(1),
            pitch: longest as f64 / 1e9 * 1.05,
            measurements,
            rounds,
        }
    }

    /// Returns the time axis of a table, given the indices of its columns for round, start and end.
    pub(super) fn across(&self, round: usize, from: usize, to: usize) -> Rounds {
        Rounds { round, from, to, order: self.rounds.clone(), pitch: self.pitch }
    }

    /// Describes the time resolution, for the captions of charts.
    pub(super) fn note(&self) -> String {
        match self.joined {
            1 => "interval by interval".into(),
            n => format!("{n} intervals joined into one, because there are many"),
        }
    }
}
