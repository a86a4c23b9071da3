//! Access patterns, which determine the offset, length and direction of each I/O.

mod blocks;
mod distribution;
mod hundred;
mod mix;
mod order;
mod permutation;
mod sizes;
mod walk;
mod zones;

use iotax_load::random::{Purpose, SplitMix64};
use iotax_load::request::{Io, IoKind};
use iotax_model::units::Bytes;
use iotax_model::workload::{SyncFileRange, Workload};

use self::mix::Mix;
use self::order::Order;
pub(crate) use self::permutation::Permutation;
use self::sizes::Sizes;

/// Generator of one worker's I/Os, in order.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    mix: Mix,
    sizes: Sizes,
    order: Order,
    /// The flushes and the end of the sequence; `None` if the sequence neither flushes nor ends.
    bounds: Option<Bounds>,
}

/// The flushes between I/Os and the end of a worker's sequence; `u64::MAX` means never.
#[derive(Debug, Clone)]
struct Bounds {
    /// Bytes left to move until the sequence ends.
    bytes: u64,
    /// Number of writes left until the next flush.
    writes: u64,
    flush_every: u64,
    flush: IoKind,
}

impl Pattern {
    /// Creates the pattern of worker number `job`, from 0, over `size` bytes from the workload's offset. Sequential workers divide the
    /// area, unless `offset_increment` gives each its own; each random worker covers the whole area in a different order. With zones, every
    /// worker goes through all zones. The part of every worker must hold the longest I/O.
    pub(crate) fn new(workload: &Workload, size: Bytes, job: u32, seed: u64) -> Self {
        let stream = |purpose| SplitMix64::new(seed, purpose, job.into());
        let order = Order::new(workload, size, job, seed);
        Self {
            mix: Mix::new(workload, stream(Purpose::Mix)),
            sizes: Sizes::new(workload, stream(Purpose::Sizes)),
            bounds: Bounds::new(workload, order.bytes()),
            order,
        }
    }

    /// Returns the number of bytes that one pass over the area moves: the length of the worker's area or, with a stride, one longest I/O
    /// for each stride.
    pub(crate) fn pass_bytes(&self, workload: &Workload) -> u64 {
        let area = self.order.bytes();
        match workload.stride.map(|stride| stride.0.unsigned_abs()) {
            Some(stride) if stride > 0 => (area / stride).max(1) * workload.max_bs().0,
            _ => area,
        }
    }

    /// Returns the next I/O; `None` at the end of the sequence.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "left to itself the compiler calls it, for 2 ns more per I/O")]
    pub(crate) fn next(&mut self) -> Option<Io> {
        if let Some(bounds) = &mut self.bounds {
            match bounds.step() {
                Step::Go => {}
                Step::Flush => return Some(Io { direction: bounds.flush, offset: 0, length: 0 }),
                Step::Done => return None,
            }
        }
        let direction = self.mix.next();
        let size = self.sizes.next(direction);
        let offset = self.order.next(size);
        let length = match &mut self.bounds {
            None => size.length,
            Some(bounds) => bounds.take(direction, size.length),
        };
        Some(Io { direction, offset, length })
    }
}

/// The next step of a sequence: an I/O, a flush, or its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Go,
    Flush,
    Done,
}

impl Bounds {
    /// Creates the flushes and the end for a worker whose area has `area` bytes; `None` if the sequence neither flushes nor ends.
    fn new(workload: &Workload, area: u64) -> Option<Self> {
        let (flush, flush_every) = match (workload.fsync, workload.fdatasync, workload.sync_file_range) {
            (Some(writes), ..) => (IoKind::Sync, writes),
            (None, Some(writes), _) => (IoKind::DataSync, writes),
            (None, None, Some(range)) => (IoKind::RangeSync(range_flags(range)), range.writes),
            (None, None, None) => (IoKind::Sync, u64::MAX),
        };
        let bytes = match (workload.io_size, workload.loops) {
            (None, None) => u64::MAX,
            (bytes, loops) => bytes.map_or(area, |bytes| bytes.0).saturating_mul(loops.unwrap_or(1)),
        };
        (bytes.min(flush_every) < u64::MAX).then_some(Self { bytes, writes: flush_every, flush_every, flush })
    }

    fn step(&mut self) -> Step {
        if self.writes == 0 {
            self.writes = self.flush_every;
            return Step::Flush;
        }
        if self.bytes == 0 { Step::Done } else { Step::Go }
    }

    /// Counts an I/O. Returns its length, shortened to the bytes left in the sequence.
    fn take(&mut self, direction: IoKind, length: u32) -> u32 {
        let length = u32::try_from(self.bytes).map_or(length, |left| left.min(length));
        self.bytes -= u64::from(length);
        self.writes -= u64::from(direction == IoKind::Write);
        length
    }
}

/// Converts the workload's `sync_file_range` to the flags of the system call.
fn range_flags(range: SyncFileRange) -> u32 {
    [
        (range.wait_before, libc::SYNC_FILE_RANGE_WAIT_BEFORE),
        (range.write, libc::SYNC_FILE_RANGE_WRITE),
        (range.wait_after, libc::SYNC_FILE_RANGE_WAIT_AFTER),
    ]
    .into_iter()
    .filter_map(|(is_set, flag)| is_set.then_some(flag))
    .fold(0, |flags, flag| flags | flag)
}

#[cfg(test)]
mod tests;
