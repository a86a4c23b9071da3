//! Reads blocks of a target with several reads in flight.

use std::io;

use iotax_load::buffers::Slot;
use iotax_load::error::EngineError;
use iotax_load::request::{Completion, Io, IoKind};

use crate::backend::Backend;
use crate::open::Target;
use crate::transfer::{self, Transfer};

/// Bytes of one read; more only if a single block is longer.
const CHUNK: u64 = 1 << 20;
/// Number of reads kept in flight.
const DEPTH: u32 = 8;

/// Callback that receives the offset and content of each block; the content is `None` if the block cannot be read.
pub(super) type Check<'a> = &'a mut dyn FnMut(u64, Option<&[u8]>);

/// Reads blocks of `block` bytes at ascending offsets and passes each to `check`, in any order.
pub(super) fn scan(
    target: &Target,
    block: u64,
    offsets: impl Iterator<Item = u64>,
    check: Check<'_>,
) -> Result<(), EngineError> {
    let unread = |error| EngineError::System { doing: "reading back what was written".into(), error };
    let longest = (CHUNK - CHUNK % block).max(block);
    let slot_bytes = usize::try_from(longest).unwrap_or(usize::MAX);
    let reads = Reads { block, longest, offsets: offsets.peekable(), again: Vec::new() };
    transfer::perform(target, DEPTH, slot_bytes, Scan { reads, check })?.map_err(unread)
}

/// The reads to do, and the callback that receives each block.
struct Scan<'a, I: Iterator<Item = u64>> {
    reads: Reads<I>,
    check: Check<'a>,
}

/// The reads that are not started yet.
struct Reads<I: Iterator<Item = u64>> {
    block: u64,
    longest: u64,
    offsets: std::iter::Peekable<I>,
    /// Offsets of the blocks of a failed longer read, which are then read one by one.
    again: Vec<u64>,
}

impl<I: Iterator<Item = u64>> Reads<I> {
    /// Returns the next read, of as many adjacent blocks as fit; `None` if all are done.
    fn next(&mut self) -> Option<Io> {
        let (offset, mut length) = match self.again.pop() {
            Some(offset) => return Some(read(offset, self.block)),
            None => (self.offsets.next()?, self.block),
        };
        while length < self.longest && self.offsets.next_if_eq(&(offset + length)).is_some() {
            length += self.block;
        }
        Some(read(offset, length))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "at most 64 MiB, the longest block")]
const fn read(offset: u64, length: u64) -> Io {
    Io { direction: IoKind::Read, offset, length: length as u32 }
}

impl<I: Iterator<Item = u64>> Transfer for Scan<'_, I> {
    fn perform<B: Backend>(self, mut backend: B, mut free: Vec<Slot>) -> io::Result<()> {
        let Self { mut reads, check } = self;
        let slots = free.len();
        let mut pending = vec![read(0, 0); slots];
        let mut done = Vec::with_capacity(slots);
        loop {
            while let Some(slot) = free.pop() {
                let Some(io) = reads.next() else {
                    free.push(slot);
                    break;
                };
                pending[slot.index()] = io;
                backend.queue(slot, io);
            }
            if free.len() == slots {
                return Ok(());
            }
            backend.submit(u64::MAX)?;
            backend.reap(&mut done);
            for Completion { mut slot, result } in done.drain(..) {
                let io = pending[slot.index()];
                let blocks = (io.offset..).step_by(usize::try_from(reads.block).unwrap_or(usize::MAX));
                if result.cast_unsigned() == io.length {
                    let content = &backend.buffer(&mut slot)[..io.length as usize];
                    let contents = content.chunks(usize::try_from(reads.block).unwrap_or(usize::MAX));
                    blocks.zip(contents).for_each(|(offset, content)| check(offset, Some(content)));
                } else if u64::from(io.length) > reads.block {
                    reads
                        .again
                        .extend(blocks.take_while(|offset| *offset < io.offset + u64::from(io.length)));
                } else {
                    check(io.offset, None);
                }
                free.push(slot);
            }
        }
    }
}
