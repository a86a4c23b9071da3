//! The last acknowledged write of each block.

use std::sync::atomic::{AtomicU64, Ordering};

use iotax_load::error::EngineError;
use iotax_load::request::Io;
use iotax_model::units::Bytes;

/// Bytes of memory that the table takes per block.
const ENTRY: u64 = size_of::<AtomicU64>() as u64;
/// Flag: a write to the block is in flight.
const BUSY: u64 = 1 << 63;
/// Flag: the last write to the block failed, or the block was trimmed, so its content is unknown.
const UNCERTAIN: u64 = 1 << 62;

/// The verification's knowledge of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// The block was not written in this measurement.
    Unwritten,
    /// The last write is acknowledged; this is its generation.
    Holds(u64),
    /// The last write failed or is still in flight, or the block was trimmed: its content is unknown.
    Uncertain,
}

/// The last write of each block of the area, in eight bytes per block, shared by the workers.
///
/// Only one write of a block is in flight at a time, because after two that overlap in time the block might hold either, or parts of both. A
/// write therefore claims its blocks first, and waits while another write has claimed one. So the last acknowledged write of each block is
/// known, for any pattern and any number of jobs on one area.
#[derive(Debug)]
pub(crate) struct Table {
    /// Offset of the area's first byte.
    start: u64,
    block: u64,
    entries: Box<[AtomicU64]>,
    generation: AtomicU64,
}

impl Table {
    /// Creates the table for the area of `size` bytes from `start`. I/Os cover whole blocks of `block` bytes.
    ///
    /// # Errors
    /// The table would take more than a quarter of this machine's memory.
    pub(crate) fn new(start: Bytes, size: Bytes, block: u64) -> Result<Self, EngineError> {
        let blocks = size.0.div_ceil(block);
        let (asked, memory) = (blocks.saturating_mul(ENTRY), crate::memory());
        if asked > memory / 4 {
            return Err(EngineError::VerifyMemory { size, asked: Bytes(asked), memory: Bytes(memory) });
        }
        let entries = (0..blocks).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { start: start.0, block, entries, generation: AtomicU64::new(0) })
    }

    /// Returns the length of a block in bytes.
    pub(crate) const fn block(&self) -> u64 {
        self.block
    }

    /// Returns the length of a block in bytes, as a `usize`.
    pub(crate) fn block_length(&self) -> usize {
        usize::try_from(self.block).unwrap_or(usize::MAX)
    }

    fn index(&self, offset: u64) -> usize {
        usize::try_from((offset - self.start) / self.block).unwrap_or(usize::MAX)
    }

    /// Returns the table's entries of the blocks that an I/O covers.
    fn of(&self, io: &Io) -> &[AtomicU64] {
        let first = self.index(io.offset);
        &self.entries[first..first + (io.length as usize).div_ceil(self.block_length())]
    }

    /// Claims the blocks of a write and returns the write's generation; `None` if another write has claimed one of the blocks.
    pub(crate) fn claim(&self, io: &Io) -> Option<u64> {
        let blocks = self.of(io);
        for (index, entry) in blocks.iter().enumerate() {
            if entry.fetch_or(BUSY, Ordering::Acquire) & BUSY != 0 {
                for claimed in &blocks[..index] {
                    claimed.fetch_and(!BUSY, Ordering::Release);
                }
                return None;
            }
        }
        // Numbered after the claim, so that the later of two writes to a block has the higher number.
        Some(self.generation.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Ends the claim of a write. `acknowledged` is the write's generation; `None` if it failed or was a trim.
    pub(crate) fn release(&self, io: &Io, acknowledged: Option<u64>) {
        for entry in self.of(io) {
            entry.store(acknowledged.unwrap_or(UNCERTAIN), Ordering::Release);
        }
    }

    /// Reads the entries of an I/O's blocks. If a later call returns the same entries, no write began or ended in between.
    pub(crate) fn entries_of(&self, io: &Io) -> impl Iterator<Item = u64> {
        self.of(io).iter().map(|entry| entry.load(Ordering::Acquire))
    }

    /// Returns what is known of the block at `offset`.
    pub(crate) fn at(&self, offset: u64) -> Known {
        Self::known(self.entries[self.index(offset)].load(Ordering::Acquire))
    }

    /// Decodes a table entry.
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
    use iotax_load::request::IoKind;

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
