//! What the conductor tells whoever watches it.

use iotax_model::record::Sample;
use iotax_model::units::Bytes;

/// The cell that is measured now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) round: u32,
    /// The last round, or that of the next look.
    pub(crate) rounds: u32,
    /// Within the run, from 1.
    pub(crate) cell: usize,
    /// Up to the end of that round.
    pub(crate) cells: usize,
    /// Up to the last round that there may be.
    pub(crate) at_most: usize,
    /// How many comparisons are open, of how many; absent where the number of rounds is fixed.
    pub(crate) open: Option<(usize, usize)>,
    pub(crate) target: &'a str,
    pub(crate) workload: &'a str,
}

/// Watches a run.
pub(crate) trait Progress {
    /// Something that takes a while begins.
    fn phase(&mut self, what: &str);
    /// So much of a target is filled.
    fn filled(&mut self, target: &str, done: Bytes, total: Bytes);
    /// A cell's measurement begins.
    fn cell(&mut self, step: Step<'_>);
    /// One interval of it, and how long the oldest I/O in flight had been there at its end.
    fn interval(&mut self, iops: f64, oldest_ns: Option<u64>);
    /// One interval of one of those that are measured at the same time, by its name.
    fn sample(&mut self, name: &str, sample: &Sample);
    /// Something the reader should know at once.
    fn note(&mut self, text: &str);
    /// What a look at all measurements so far came to.
    fn look(&mut self, text: &str);
}
