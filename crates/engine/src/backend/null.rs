//! Completes every I/O immediately without doing it. Shows the engine's own overhead.

use std::io;

use iotax_load::buffers::{Buffers, Slot};
use iotax_load::error::EngineError;

use super::{Backend, Completion, Io, Setup};

/// The null backend of one worker.
#[derive(Debug)]
pub(crate) struct Null {
    buffers: Buffers,
    done: Vec<Completion>,
}

impl Backend for Null {
    fn open(setup: Setup) -> Result<(Self, Vec<Slot>), EngineError> {
        let (buffers, slots) = super::buffers(&setup)?;
        Ok((Self { buffers, done: Vec::with_capacity(slots.len()) }, slots))
    }

    #[inline]
    fn buffer(&mut self, slot: &mut Slot) -> &mut [u8] {
        self.buffers.slice(slot)
    }

    #[inline]
    #[expect(clippy::cast_possible_wrap, reason = "an I/O is at most 64 MiB long")]
    fn queue(&mut self, slot: Slot, io: Io) {
        self.done.push(Completion { slot, result: io.length as i32 });
    }

    #[inline]
    fn submit(&mut self, _wait_ns: u64) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }
}
