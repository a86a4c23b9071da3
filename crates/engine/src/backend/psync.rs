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
    fn submit(&mut self, _wait_ns: u64) -> io::Result<()> {
        for (mut slot, io) in self.queued.drain(..) {
            let buffer = &mut self.buffers.slice(&mut slot)[..io.length as usize];
            let moved = match io.direction {
                Direction::Read => self.file.read_at(buffer, io.offset),
                Direction::Write => self.file.write_at(buffer, io.offset),
                Direction::Trim => super::trim(&self.file, io),
                Direction::Sync => self.file.sync_all().map(|()| 0),
                Direction::DataSync => self.file.sync_data().map(|()| 0),
            };
            self.done.push(Completion { slot, result: super::result_of(moved) });
        }
        Ok(())
    }

    #[inline]
    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }

    fn note(&self) -> Option<&str> {
        None
    }
}
