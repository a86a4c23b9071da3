//! The last acknowledged write of each block.

use std::sync::atomic::{AtomicU64, Ordering};

use iotax_model::units::Bytes;

use crate::error::EngineError;
use crate::request::Io;

/// Bytes of memory per block.
const ENTRY: u64 = size_of::<AtomicU64>() as u64;
/// Flag: a write to the block is in flight.
const BUSY: u64 = 1 << 63;
/// Flag: the last write to the block failed, so that its content is unknown.
const UNCERTAIN: u64 = 1 << 62;

/// The known state of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Not written yet.
    Unwritten,
    /// Generation of the last write, which was acknowledged.
    Holds(u64),
    /// The last write failed or has not returned.
    Uncertain,
}

/// Eight bytes for each block of the area, shared by the workers.
///
/// A block has one write in flight at a time: two that overlap in time might leave either content, or parts of both. So a write
/// claims its blocks, and waits for claimed ones. Then a block's last acknowledged write is known, for any pattern and any number
/// of jobs on one area.
#[derive(Debug)]
pub(crate) struct Table {
    /// The area's first byte.
    start: u64,
    block: u64,
    entries: Box<[AtomicU64]>,
    generation: AtomicU64,
}

impl Table {
    /// A table for the area of `size` bytes from `start`, in which I/Os cover whole blocks of `block` bytes.
    ///
    /// # Errors
    /// An area for which the table would take more than a quarter of this machine's memory.
    pub(crate) fn new(start: Bytes, size: Bytes, block: u64) -> Result<Self, EngineError> {
        let blocks = size.0.div_ceil(block);
        let (asked, memory) = (blocks.saturating_mul(ENTRY), crate::memory());
        if asked > memory / 4 {
            return Err(EngineError::VerifyMemory { size, asked: Bytes(asked), memory: Bytes(memory) });
        }
        let entries = (0..blocks).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { start: start.0, block, entries, generation: AtomicU64::new(0) })
    }

    /// Bytes of a block.
    pub(crate) const fn block(&self) -> u64 {
        self.block
    }

    /// The block length as a buffer length.
    pub(crate) fn block_length(&self) -> usize {
        usize::try_from(self.block).unwrap_or(usize::MAX)
    }

    fn place(&self, offset: u64) -> usize {
        usize::try_from((offset - self.start) / self.block).unwrap_or(usize::MAX)
    }

    /// The blocks that an I/O touches.
    fn of(&self, io: &Io) -> &[AtomicU64] {
        let first = self.place(io.offset);
        &self.entries[first..first + (io.length as usize).div_ceil(self.block_length())]
    }

    /// Claims the blocks of a write and numbers it; `None` if another write has claimed any of them.
    pub(crate) fn claim(&self, io: &Io) -> Option<u64> {
        let blocks = self.of(io);
        for (place, entry) in blocks.iter().enumerate() {
            if entry.fetch_or(BUSY, Ordering::Acquire) & BUSY != 0 {
                for claimed in &blocks[..place] {
                    claimed.fetch_and(!BUSY, Ordering::Release);
                }
                return None;
            }
        }
        // After the claim: of two writes to a block the later one has the higher number.
        Some(self.generation.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Ends a claimed write; `acknowledged` is its generation, or `None` if it failed.
    pub(crate) fn release(&self, io: &Io, acknowledged: Option<u64>) {
        for entry in self.of(io) {
            entry.store(acknowledged.unwrap_or(UNCERTAIN), Ordering::Release);
        }
    }

    /// The states of the blocks of an I/O, for comparison with their later states.
    pub(crate) fn look(&self, io: &Io) -> impl Iterator<Item = u64> {
        self.of(io).iter().map(|entry| entry.load(Ordering::Acquire))
    }

    /// The state of the block at `offset`.
    pub(crate) fn at(&self, offset: u64) -> Known {
        Self::known(self.entries[self.place(offset)].load(Ordering::Acquire))
    }

    /// Decodes the state of an entry.
    pub(crate) const fn known(state: u64) -> Known {
        match state {
            0 => Known::Unwritten,
            state if state & (BUSY | UNCERTAIN) != 0 => Known::Uncertain,
            generation => Known::Holds(generation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::IoKind;

    fn write(offset: u64, length: u32) -> Io {
        Io { direction: IoKind::Write, offset: 8192 + offset, length }
    }

    #[test]
    fn a_block_has_one_write_in_flight_and_holds_the_last_acknowledged() {
        let table = Table::new(Bytes(8192), Bytes(16384), 4096).expect("small");
        let known = |table: &Table| [8192, 12288, 16384, 20480].map(|offset| table.at(offset));
        let first = table.claim(&write(4096, 4096)).expect("free");
        assert_eq!(table.claim(&write(4096, 4096)), None);
        assert_eq!(table.claim(&write(0, 16384)), None, "one of four is claimed");
        let other = table.claim(&write(0, 4096)).expect("given back after the vain attempt");
        assert!(other > first);
        assert_eq!(known(&table), [Known::Uncertain, Known::Uncertain, Known::Unwritten, Known::Unwritten]);
        table.release(&write(4096, 4096), Some(first));
        table.release(&write(0, 4096), None);
        assert_eq!(
            known(&table),
            [Known::Uncertain, Known::Holds(first), Known::Unwritten, Known::Unwritten]
        );
        let wide = table.claim(&write(0, 16384)).expect("free");
        table.release(&write(0, 16384), Some(wide));
        assert_eq!(known(&table), [Known::Holds(wide); 4]);
    }

    #[test]
    fn an_area_whose_table_does_not_fit_is_refused_with_the_remedy() {
        let error = Table::new(Bytes(0), Bytes(1 << 60), 512).expect_err("refused").to_string();
        assert!(error.contains("1024PiB") && error.contains("lower size"), "{error}");
    }
}
