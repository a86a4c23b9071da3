//! The interface for showing a run's progress.

use iotax_model::record::Sample;
use iotax_model::units::Bytes;

/// The current cell, or several in one window.
#[derive(Debug, Clone)]
pub(crate) struct Step<'a> {
    pub(crate) round: u32,
    /// The number of the last round, or of the round of the next look.
    pub(crate) rounds: u32,
    /// Number of the first within the run, from 1.
    pub(crate) cell: usize,
    /// Number of cells up to the end of `rounds`.
    pub(crate) cells: usize,
    /// Number of cells if no further comparison is decided.
    pub(crate) at_most: usize,
    /// Open comparisons, and all of them; `None` if the number of rounds is fixed.
    pub(crate) open: Option<(usize, usize)>,
    /// The names of the targets.
    pub(crate) target: String,
    pub(crate) workload: &'a str,
}

/// Watches a run.
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
