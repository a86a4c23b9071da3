//! pread and pwrite, one at a time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::{Backend, Completion, Io, Setup};
use crate::buffers::{Buffers, Slot};
use crate::error::EngineError;
use crate::pattern::Direction;

/// See the module.
#[derive(Debug)]
pub(crate) struct Psync {
    file: File,
    buffers: Buffers,
    queued: Vec<(Slot, Io)>,
    done: Vec<Completion>,
}

impl Backend for Psync {
    fn open(setup: Setup) -> Result<(Self, Vec<Slot>), EngineError> {
        let (buffers, slots) = super::buffers(&setup)?;
        let room = slots.len();
        let psync = Self {
            file: setup.file,
            buffers,
            queued: Vec::with_capacity(room),
            done: Vec::with_capacity(room),
        };
        Ok((psync, slots))
    }

    #[inline]
    fn buffer(&mut self, slot: &mut Slot) -> &mut [u8] {
        self.buffers.slice(slot)
    }

    #[inline]
    fn queue(&mut self, slot: Slot, io: Io) {
        self.queued.push((slot, io));
    }

    #[inline]
    fn submit(&mut self) -> io::Result<()> {
        for (mut slot, io) in self.queued.drain(..) {
            let buffer = &mut self.buffers.slice(&mut slot)[..io.length as usize];
            let moved = match io.direction {
                Direction::Read => self.file.read_at(buffer, io.offset),
                Direction::Write => self.file.write_at(buffer, io.offset),
            };
            self.done.push(Completion { slot, result: result_of(moved) });
        }
        Ok(())
    }

    #[inline]
    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }

    fn alarm(&mut self, _after_ns: u64) {}

    fn note(&self) -> Option<&str> {
        None
    }
}

/// The kernel's form of a result. The system calls behind a file give no errors but its own.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "an I/O is at most 64 MiB long"
)]
fn result_of(moved: io::Result<usize>) -> i32 {
    match moved {
        Ok(bytes) => bytes as i32,
        Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
    }
}
