//! The interface for showing a run's progress.

use iotax_model::record::Sample;
use iotax_model::units::Bytes;

/// The current cell, or several in one window.
#[derive(Debug, Clone)]
pub(crate) struct Step<'a> {
    pub(crate) round: u32,
    /// The number of the last round before the next look, or of the last round of the run.
    pub(crate) rounds: u32,
    /// Number of the first of these cells within the run, from 1.
    pub(crate) cell: usize,
    /// Number of cells up to the end of `rounds`.
    pub(crate) cells: usize,
    /// Maximum number of cells, if no further comparison is decided.
    pub(crate) at_most: usize,
    /// The numbers of undecided comparisons and of all; `None` unless rounds are added until all are decided.
    pub(crate) open: Option<(usize, usize)>,
    /// The names of the targets.
    pub(crate) target: String,
    pub(crate) workload: &'a str,
}

/// Receives the progress of a run.
pub(crate) trait Progress {
    /// A step that takes a while begins.
    fn phase(&mut self, what: &str);
    /// `done` of `total` bytes of a target are filled.
    fn filled(&mut self, target: &str, done: Bytes, total: Bytes);
    /// A cell's measurement begins.
    fn cell(&mut self, step: Step<'_>);
    /// An interval of the measurement, with the age of the oldest I/O in flight at its end.
    fn interval(&mut self, iops: f64, oldest_ns: Option<u64>);
    /// An interval of one of several agents, by its name.
    fn sample(&mut self, name: &str, sample: &Sample);
    /// A message for the user, shown at once.
    fn note(&mut self, text: &str);
    /// The result of a look at all measurements so far.
    fn look(&mut self, text: &str);
}
