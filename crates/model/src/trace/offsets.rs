//! Maps the offsets of a trace onto a target of another size.

mod blocks;

use self::blocks::{TouchedBlocks, TouchedRuns};
use super::{LONGEST, ReplayOffsets, TracedIo, TracedOperation};

/// Unit in bytes of the mapping.
const BLOCK: u64 = 4096;

/// The mapping of a trace's offsets onto a target, as `replay_offsets` asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OffsetMap {
    /// Offsets stay as they are; the target wraps those beyond its end.
    Wrap,
    /// The blocks from the first to the last I/O are scaled down to the target's blocks.
    Compress {
        /// Number of the first block that the trace reads or writes.
        first: u64,
        /// Number of the block after the last that the trace reads or writes.
        end: u64,
    },
    /// The blocks that the trace reads or writes follow one another, in their order.
    WorkingSet(TouchedBlocks),
}

/// Builder of an [`OffsetMap`], fed event by event.
#[derive(Debug)]
pub struct OffsetMapBuilder {
    offsets: ReplayOffsets,
    first: u64,
    end: u64,
    runs: TouchedRuns,
}

impl OffsetMapBuilder {
    /// Creates a builder that has seen no I/O.
    #[must_use]
    pub fn new(offsets: ReplayOffsets) -> Self {
        Self { offsets, first: u64::MAX, end: 0, runs: TouchedRuns::default() }
    }

    /// Adds an I/O of the trace. Trims and flushes touch no data, and reads and writes longer than 64 MiB are not replayed: these do not count.
    ///
    /// # Errors
    /// The trace touches more separate areas than a working set may have.
    pub fn add(&mut self, event: &TracedIo) -> Result<(), String> {
        let is_data = matches!(event.operation, TracedOperation::Read | TracedOperation::Write);
        if !is_data || event.length == 0 || event.length > LONGEST {
            return Ok(());
        }
        let (first, end) = blocks_of(event.offset, event.length);
        self.first = self.first.min(first);
        self.end = self.end.max(end);
        match self.offsets {
            ReplayOffsets::WorkingSet => self.runs.add(first, end),
            ReplayOffsets::Wrap | ReplayOffsets::Compress => Ok(()),
        }
    }

    /// Returns the mapping of the trace that was added.
    #[must_use]
    pub fn finish(self) -> OffsetMap {
        match self.offsets {
            ReplayOffsets::Wrap => OffsetMap::Wrap,
            ReplayOffsets::Compress => OffsetMap::Compress { first: self.first.min(self.end), end: self.end },
            ReplayOffsets::WorkingSet => OffsetMap::WorkingSet(self.runs.finish()),
        }
    }
}

impl OffsetMap {
    /// Reads a trace to its end and returns the mapping that `offsets` asks for.
    ///
    /// # Errors
    /// An event cannot be read, or the trace touches more separate areas than a working set may have.
    pub fn read(
        offsets: ReplayOffsets,
        events: impl Iterator<Item = Result<TracedIo, String>>,
    ) -> Result<Self, String> {
        let mut builder = OffsetMapBuilder::new(offsets);
        for event in events {
            builder.add(&event?)?;
        }
        Ok(builder.finish())
    }

    /// Returns the bytes that the trace needs on a target in which no offset is scaled down or wrapped; `reach` is the highest end of its I/Os.
    #[must_use]
    pub fn size(&self, reach: u64) -> u64 {
        let blocks = match self {
            Self::Wrap => return reach,
            Self::Compress { first, end } => end - first,
            Self::WorkingSet(blocks) => blocks.count(),
        };
        blocks.saturating_mul(BLOCK)
    }

    /// Returns offset and length in bytes of an I/O on a target of `size` bytes. The I/O may end beyond the target; the caller has to wrap it.
    /// Only trims get shorter, to the blocks that the mapping keeps: `None` if it keeps none.
    #[must_use]
    pub fn map_offset(
        &self,
        operation: TracedOperation,
        (offset, length): (u64, u64),
        size: u64,
    ) -> Option<(u64, u64)> {
        match self {
            Self::Wrap => Some((offset, length)),
            Self::Compress { first, end } if operation == TracedOperation::Trim => {
                // Both ends are scaled, so that no more is trimmed than its share.
                let (from, to) = blocks_of(offset, length);
                let (from, to) = (from.max(*first), to.min(*end));
                let scaled = |block: u64| compressed(block.saturating_mul(BLOCK), (*first, *end), size);
                let is_whole = end - first <= size / BLOCK && offset / BLOCK == from;
                let start = scaled(from) + if is_whole { offset % BLOCK } else { 0 };
                let kept = if from < to { scaled(to).saturating_sub(start) } else { 0 };
                (kept > 0).then_some((start, length.min(kept)))
            }
            Self::Compress { first, end } => Some((compressed(offset, (*first, *end), size), length)),
            Self::WorkingSet(blocks) if operation == TracedOperation::Trim => {
                let (from, to) = blocks_of(offset, length);
                let within = if blocks.contains(from) { offset % BLOCK } else { 0 };
                let start = blocks.before(from) * BLOCK + within;
                let kept = (blocks.before(to) * BLOCK).saturating_sub(start);
                (kept > 0).then_some((start, length.min(kept)))
            }
            Self::WorkingSet(blocks) => {
                Some((blocks.before(offset / BLOCK) * BLOCK + offset % BLOCK, length))
            }
        }
    }
}

/// Scales an offset from the blocks `first..end` to a target of `size` bytes. A target that has room for all of them keeps distances as they are.
fn compressed(offset: u64, (first, end): (u64, u64), size: u64) -> u64 {
    let (span, room) = (end - first, size / BLOCK);
    let block = (offset / BLOCK).saturating_sub(first);
    if span <= room {
        return block * BLOCK + offset % BLOCK;
    }
    // At most the number of blocks of the target times the block of an offset: below 2^104.
    let scaled = u128::from(block) * u128::from(room) / u128::from(span);
    u64::try_from(scaled).unwrap_or(u64::MAX).saturating_mul(BLOCK)
}

/// Returns the number of the first block of an I/O, and that of the block after its last.
const fn blocks_of(offset: u64, length: u64) -> (u64, u64) {
    (offset / BLOCK, offset.saturating_add(length).div_ceil(BLOCK))
}

#[cfg(test)]
mod tests;
