//! The interface for showing a run's progress.

use iotax_model::record::Sample;
use iotax_model::units::{Bytes, Nanos};

/// The current cell (a target and a workload), or several cells that are measured at the same time.
#[derive(Debug, Clone)]
pub(crate) struct Step<'a> {
    pub(crate) round: u32,
    /// Number of the last round before the next interim look, or of the last round of the run.
    pub(crate) rounds: u32,
    /// Number in the run, from 1, of the current measurement, or of the first of several.
    pub(crate) cell: usize,
    /// Number of measurements up to the end of round `rounds`.
    pub(crate) cells: usize,
    /// Maximum number of measurements in the run, if no further comparison is decided.
    pub(crate) at_most: usize,
    /// The number of undecided comparisons and the number of all comparisons; `None` unless rounds are added until all are decided.
    pub(crate) open: Option<(usize, usize)>,
    /// The names of the targets, separated by commas.
    pub(crate) target: String,
    pub(crate) workload: &'a str,
}

/// Receiver of a run's progress.
pub(crate) trait Progress {
    /// Called when a longer step begins; `what` describes it.
    fn phase(&mut self, what: &str);
    /// Called while a target is filled: `done` of `total` bytes are written.
    fn filled(&mut self, target: &str, done: Bytes, total: Bytes);
    /// Called when the measurement of a cell (a target and a workload) begins, or of several cells at once.
    fn cell(&mut self, step: Step<'_>);
    /// Called after each sampling interval, with its length, the I/Os per second in it and the age in nanoseconds of the oldest I/O in
    /// flight at its end; `None` if no such I/O is reported.
    fn interval(&mut self, length: Nanos, iops: f64, oldest_ns: Option<u64>);
    /// Called with each sample of an agent. `name` is the name of the guest or server.
    fn sample(&mut self, name: &str, sample: &Sample);
    /// Called with a message that the user should see immediately.
    fn note(&mut self, text: &str);
    /// Called with the result of an interim look at all measurements so far.
    fn report_look(&mut self, text: &str);
}
