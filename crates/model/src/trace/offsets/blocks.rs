//! The blocks that a trace touches, as runs of neighbours.

use std::collections::BTreeMap;

/// Maximum number of separate runs: 4 million make a replay take 206 MB.
const MOST_RUNS: usize = 1 << 22;

/// Runs of touched blocks while they are collected: the first block of each, with the block after its last.
#[derive(Debug, Default)]
pub(super) struct TouchedRuns(BTreeMap<u64, u64>);

impl TouchedRuns {
    /// Adds the blocks `first..end`, and joins runs that then touch one another.
    pub(super) fn add(&mut self, first: u64, end: u64) -> Result<(), String> {
        let (mut start, mut stop) = (first, end);
        while let Some((&known, &last)) =
            self.0.range(..=stop).next_back().filter(|(_, last)| **last >= start)
        {
            if known <= first && last >= end {
                return Ok(());
            }
            (start, stop) = (start.min(known), stop.max(last));
            self.0.remove(&known);
        }
        self.0.insert(start, stop);
        if self.0.len() > MOST_RUNS {
            return Err(format!(
                "its reads and writes touch more than {MOST_RUNS} separate areas, too many for replay_offsets = working_set; use replay_offsets \
                 = compress"
            ));
        }
        Ok(())
    }

    pub(super) fn finish(self) -> TouchedBlocks {
        let mut count = 0;
        let numbered = |(start, stop): (u64, u64)| {
            let run = TouchedRun { start, before: count };
            count += stop - start;
            run
        };
        let runs = self.0.into_iter().map(numbered).collect();
        TouchedBlocks { runs, count }
    }
}

/// The blocks that a trace touches, numbered in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TouchedBlocks {
    runs: Vec<TouchedRun>,
    count: u64,
}

/// A run of neighbouring touched blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TouchedRun {
    /// Number of its first block.
    start: u64,
    /// Number of touched blocks in front of it.
    before: u64,
}

impl TouchedBlocks {
    /// Returns the number of touched blocks.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of touched blocks in front of a block: the place of a touched block among all of them.
    pub(super) fn before(&self, block: u64) -> u64 {
        match self.run(block) {
            Some((run, length)) => run.before + (block - run.start).min(length),
            None => 0,
        }
    }

    /// Returns whether a block is touched.
    pub(super) fn contains(&self, block: u64) -> bool {
        self.run(block).is_some_and(|(run, length)| block - run.start < length)
    }

    /// Returns the last run that begins at or before a block, with its length in blocks.
    fn run(&self, block: u64) -> Option<(TouchedRun, u64)> {
        let after = self.runs.partition_point(|run| run.start <= block);
        let run = *self.runs.get(after.checked_sub(1)?)?;
        let next = self.runs.get(after).map_or(self.count, |next| next.before);
        Some((run, next - run.before))
    }
}
