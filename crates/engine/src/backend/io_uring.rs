//! Linux io_uring: a ring for each worker, with its file and buffers registered.
#![expect(unsafe_code, reason = "the kernel is told addresses, and returns slots by number")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, squeue, types};

use super::{Backend, Completion, Io, Setup};
use crate::buffers::{Buffers, Slot};
use crate::error::EngineError;
use crate::pattern::Direction;

const SECOND: u64 = 1_000_000_000;
/// The longest stretch that can be registered as one buffer (1 GiB, see io_uring_register(2)).
const LONGEST_REGISTERED: usize = 1 << 30;

/// How I/O names its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// By address: registering was refused.
    Plain,
    /// As a part of one registered stretch: the kernel's table of buffers stays in one cache line.
    OneStretch,
    /// As a registered buffer for each slot: together they are too long for one.
    BySlot,
}

/// See the module.
pub(crate) struct Uring {
    ring: IoUring,
    buffers: Buffers,
    memory: Memory,
    file: File,
    in_flight: u32,
    /// What was done without the ring.
    at_once: Vec<Completion>,
    note: Option<String>,
}

impl Backend for Uring {
    fn open(setup: Setup) -> Result<(Self, Vec<Slot>), EngineError> {
        let (buffers, slots) = super::buffers(&setup)?;
        let ring = ring(setup.depth)?;
        // The ring keeps a reference of its own to the file.
        ring.submitter().register_files(&[setup.file.as_raw_fd()]).map_err(|error| EngineError::System {
            doing: "registering the file with io_uring".into(),
            error,
        })?;
        let (memory, note) = register(&ring, &buffers, &slots);
        Ok((Self { ring, buffers, memory, file: setup.file, in_flight: 0, at_once: Vec::new(), note }, slots))
    }

    #[inline]
    fn buffer(&mut self, slot: &mut Slot) -> &mut [u8] {
        self.buffers.slice(slot)
    }

    #[inline]
    fn queue(&mut self, slot: Slot, io: Io) {
        if io.direction == Direction::Trim {
            // The kernel begins no discard of a device without waiting (before Linux 6.12), so it is done here.
            let result = super::result_of(super::trim(&self.file, io));
            self.at_once.push(Completion { slot, result });
            return;
        }
        let entry = self.entry(&slot, io).user_data(slot.number().into());
        self.in_flight += 1;
        self.push(&entry);
    }

    #[inline]
    fn begin(&mut self) -> io::Result<()> {
        Self::entered(self.ring.submit())
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "less than a second")]
    fn submit(&mut self, wait_ns: u64) -> io::Result<()> {
        if wait_ns == 0 || !self.at_once.is_empty() {
            // Without an argument, which costs. The ring's flag tells of completions that are still to be worked off.
            return self.begin();
        }
        let wait = types::Timespec::new().sec(wait_ns / SECOND).nsec((wait_ns % SECOND) as u32);
        Self::entered(self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&wait)))
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "user data is a slot's number")]
    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.at_once);
        for entry in self.ring.completion() {
            self.in_flight -= 1;
            // SAFETY: the number was taken from the slot that queue consumed, and an I/O completes once.
            let slot = unsafe { Slot::returned(entry.user_data() as u32) };
            done.push(Completion { slot, result: entry.result() });
        }
    }

    fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }
}

impl Uring {
    /// What entering the kernel came to.
    #[inline]
    fn entered(result: io::Result<usize>) -> io::Result<()> {
        match result {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // The time is up; a signal came; short of memory or of room for completions, so that the rest is submitted
                // once some are reaped.
                Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a depth is at most 4096")]
    fn entry(&self, slot: &Slot, io: Io) -> squeue::Entry {
        let file = types::Fixed(0);
        let address = self.buffers.address(slot);
        match io.direction {
            Direction::Sync => return opcode::Fsync::new(file).build(),
            Direction::DataSync => {
                return opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build();
            }
            Direction::Read | Direction::Write | Direction::Trim => {}
        }
        let index = match self.memory {
            Memory::Plain => {
                return match io.direction {
                    Direction::Read => opcode::Read::new(file, address, io.length).offset(io.offset).build(),
                    Direction::Write => {
                        opcode::Write::new(file, address, io.length).offset(io.offset).build()
                    }
                    Direction::Trim | Direction::Sync | Direction::DataSync => {
                        unreachable!("trims are done at once, flushes have returned")
                    }
                };
            }
            Memory::OneStretch => 0,
            Memory::BySlot => slot.number() as u16,
        };
        match io.direction {
            Direction::Read => {
                opcode::ReadFixed::new(file, address, io.length, index).offset(io.offset).build()
            }
            Direction::Write => {
                opcode::WriteFixed::new(file, address, io.length, index).offset(io.offset).build()
            }
            Direction::Trim | Direction::Sync | Direction::DataSync => {
                unreachable!("trims are done at once, flushes have returned")
            }
        }
    }

    #[inline]
    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the entry's buffer is the slot's, which its owner gave away until the completion; it lives in self, which
        // waits in drop for what is in flight.
        let pushed = unsafe { self.ring.submission().push(entry) };
        assert!(pushed.is_ok(), "the ring has a place for every slot");
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight > 0 {
            if self.submit(u64::MAX).is_err() {
                // Better lost than written to by the kernel in another's hands.
                self.buffers.leak();
                return;
            }
            self.reap(&mut done);
        }
    }
}

/// A ring for one thread, whose completions are worked off when that thread asks for them (Linux 6.1), else a plain one.
fn ring(entries: u32) -> Result<IoUring, EngineError> {
    let refuse = |error| refusal(error, entries);
    match IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(entries) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries).map_err(refuse),
        ring => ring.map_err(refuse),
    }
}

fn refusal(error: io::Error, entries: u32) -> EngineError {
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM) => EngineError::NoIoUring { error },
        _ => EngineError::System { doing: format!("setting up an io_uring of {entries} entries"), error },
    }
}

fn register(ring: &IoUring, buffers: &Buffers, slots: &[Slot]) -> (Memory, Option<String>) {
    let total = buffers.slot_bytes() * slots.len();
    let stretch = |slot: &Slot, iov_len| libc::iovec { iov_base: buffers.address(slot).cast(), iov_len };
    let (memory, table) = if total <= LONGEST_REGISTERED {
        (Memory::OneStretch, slots.iter().take(1).map(|slot| stretch(slot, total)).collect::<Vec<_>>())
    } else {
        (Memory::BySlot, slots.iter().map(|slot| stretch(slot, buffers.slot_bytes())).collect())
    };
    // SAFETY: the stretches are parts of the mapping, which outlives every I/O of this ring.
    match unsafe { ring.submitter().register_buffers(&table) } {
        Ok(()) => (memory, None),
        Err(error) => {
            let note = format!(
                "io_uring works with unregistered buffers, at some more CPU per I/O: registering was refused \
                 ({error}; see ulimit -l)"
            );
            (Memory::Plain, Some(note))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_io_uring_is_missing_or_forbidden_the_way_out_is_named() {
        for errno in [libc::ENOSYS, libc::EPERM] {
            let error = refusal(io::Error::from_raw_os_error(errno), 8).to_string();
            assert!(error.contains("io_uring_disabled") && error.contains("--ioengine psync"), "{error}");
        }
        let error = refusal(io::Error::from_raw_os_error(libc::ENOMEM), 8).to_string();
        assert!(!error.contains("psync") && error.contains("8 entries"), "{error}");
    }
}
