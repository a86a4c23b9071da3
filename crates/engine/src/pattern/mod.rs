//! What one worker does: which I/O comes next.

mod distribution;
mod hundred;
mod mix;
mod order;
mod permutation;
mod sizes;

use iotax_model::units::Bytes;
use iotax_model::workload::Workload;

use self::mix::Mix;
use self::order::Order;
pub(crate) use self::permutation::Permutation;
use self::sizes::Sizes;
use crate::backend::Io;
use crate::random::{Purpose, SplitMix64};

/// What an I/O does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
    /// Discards what is there.
    Trim,
    /// Flushes data and metadata, as fsync(2).
    Sync,
    /// Flushes data, as fdatasync(2).
    DataSync,
}

impl Direction {
    /// The word for it in records.
    #[inline]
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
            Self::Sync | Self::DataSync => "sync",
        }
    }
}

/// What one worker does, I/O for I/O.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    mix: Mix,
    sizes: Sizes,
    order: Order,
    /// Bytes until it is done; the largest number stands for ever.
    left: u64,
    flush: Flush,
}

/// A flush after every so many writes.
#[derive(Debug, Clone)]
struct Flush {
    direction: Direction,
    every: u64,
    /// Writes until the next one. Without flushes it starts at the largest number, which no run of writes comes through.
    left: u64,
}

impl Pattern {
    /// The pattern of worker number `job` (from 0) of `workload` on the `size` bytes from its offset on. Sequential workers
    /// divide the area among them; random ones each roam over all of it in an order of their own. The area must hold an
    /// I/O of the longest kind for every worker that gets a slice.
    pub(crate) fn new(workload: &Workload, size: Bytes, job: u32, seed: u64) -> Self {
        let stream = |purpose| SplitMix64::new(seed, purpose, job.into());
        let order = Order::new(workload, size, job, seed);
        let left = match (workload.io_size, workload.loops) {
            (None, None) => u64::MAX,
            (bytes, loops) => bytes.map_or(order.bytes(), |bytes| bytes.0).saturating_mul(loops.unwrap_or(1)),
        };
        Self {
            mix: Mix::new(workload, stream(Purpose::Mix)),
            sizes: Sizes::new(workload, stream(Purpose::Sizes)),
            order,
            left,
            flush: Flush::new(workload),
        }
    }

    /// The next I/O; `None` when all is done.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Io> {
        if self.flush.left == 0 {
            self.flush.left = self.flush.every;
            return Some(Io { direction: self.flush.direction, offset: 0, length: 0 });
        }
        if self.left == 0 {
            return None;
        }
        let direction = self.mix.next();
        let size = self.sizes.next(direction);
        let offset = self.order.next(size);
        let length = u32::try_from(self.left).map_or(size.length, |left| left.min(size.length));
        self.left -= u64::from(length);
        self.flush.left -= u64::from(direction == Direction::Write);
        Some(Io { direction, offset, length })
    }
}

impl Flush {
    fn new(workload: &Workload) -> Self {
        let (direction, every) = match (workload.fsync, workload.fdatasync) {
            (Some(writes), _) => (Direction::Sync, writes),
            (None, Some(writes)) => (Direction::DataSync, writes),
            (None, None) => (Direction::Sync, u64::MAX),
        };
        Self { direction, every, left: every }
    }
}

#[cfg(test)]
mod tests;
