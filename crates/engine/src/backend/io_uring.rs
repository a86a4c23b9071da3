//! Linux io_uring: a ring for each worker, with its file and buffers registered.
#![expect(unsafe_code, reason = "the kernel is told addresses, and returns slots by number")]

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, squeue, types};

use super::{Backend, Completion, Io, Setup};
use crate::buffers::{Buffers, Slot};
use crate::error::EngineError;
use crate::pattern::Direction;

/// Marks the alarm's completion; slots are numbered from 0.
const ALARM: u64 = u64::MAX;
/// How many alarms may be on their way, for which the ring has places beyond the slots'. One that a completion forestalled
/// is still to come when the next is set.
const ALARMS: u32 = 4;
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
    in_flight: u32,
    alarms: u32,
    /// Read by the kernel when an alarm is submitted.
    alarm: Box<types::Timespec>,
    note: Option<String>,
}

impl Backend for Uring {
    fn open(setup: Setup) -> Result<(Self, Vec<Slot>), EngineError> {
        let (buffers, slots) = super::buffers(&setup)?;
        let ring = ring(setup.depth + ALARMS)?;
        // The ring keeps a reference of its own to the file.
        ring.submitter().register_files(&[setup.file.as_raw_fd()]).map_err(|error| EngineError::System {
            doing: "registering the file with io_uring".into(),
            error,
        })?;
        let (memory, note) = register(&ring, &buffers, &slots);
        Ok((Self { ring, buffers, memory, in_flight: 0, alarms: 0, alarm: Box::default(), note }, slots))
    }

    #[inline]
    fn buffer(&mut self, slot: &mut Slot) -> &mut [u8] {
        self.buffers.slice(slot)
    }

    #[inline]
    fn queue(&mut self, slot: Slot, io: Io) {
        let entry = self.entry(&slot, io).user_data(slot.number().into());
        self.in_flight += 1;
        self.push(&entry);
    }

    #[inline]
    fn begin(&mut self) -> io::Result<()> {
        self.enter(0)
    }

    #[inline]
    fn submit(&mut self) -> io::Result<()> {
        self.enter(1)
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "user data is a slot's number unless it is the alarm's"
    )]
    fn reap(&mut self, done: &mut Vec<Completion>) {
        for entry in self.ring.completion() {
            if entry.user_data() == ALARM {
                self.alarms -= 1;
            } else {
                self.in_flight -= 1;
                // SAFETY: the number was taken from the slot that queue consumed, and an I/O completes once.
                let slot = unsafe { Slot::returned(entry.user_data() as u32) };
                done.push(Completion { slot, result: entry.result() });
            }
        }
    }

    fn alarm(&mut self, after_ns: u64) {
        if self.alarms == ALARMS {
            // The kernel has taken nothing for several intervals; those on their way do as well.
            return;
        }
        self.alarms += 1;
        *self.alarm =
            types::Timespec::new().sec(after_ns / 1_000_000_000).nsec((after_ns % 1_000_000_000) as u32);
        let entry = opcode::Timeout::new(&raw const *self.alarm).build().user_data(ALARM);
        self.push(&entry);
    }

    fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }
}

impl Uring {
    /// Submits what is queued and waits until so many completions are there.
    #[inline]
    fn enter(&mut self, completions: usize) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(completions) {
                Ok(_) => return Ok(()),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // Short of memory or of room for completions: once some are reaped, the rest is submitted.
                    Some(libc::EAGAIN | libc::EBUSY) => return Ok(()),
                    _ => return Err(error),
                },
            }
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a depth is at most 4096")]
    fn entry(&self, slot: &Slot, io: Io) -> squeue::Entry {
        let file = types::Fixed(0);
        let address = self.buffers.address(slot);
        let index = match self.memory {
            Memory::Plain => {
                return match io.direction {
                    Direction::Read => opcode::Read::new(file, address, io.length).offset(io.offset).build(),
                    Direction::Write => {
                        opcode::Write::new(file, address, io.length).offset(io.offset).build()
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
        }
    }

    #[inline]
    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the entry's buffer is the slot's, which its owner gave away until the completion, or the alarm's; both
        // live in self, which waits in drop for what is in flight.
        let pushed = unsafe { self.ring.submission().push(entry) };
        assert!(pushed.is_ok(), "the ring has a place for every slot and every alarm");
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight > 0 {
            if self.submit().is_err() {
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
    match IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries) {
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

    #[test]
    fn alarms_beyond_the_ring_are_left_out() {
        let file = tempfile::tempfile().expect("file");
        let (mut uring, _slots) = match Uring::open(Setup { file, depth: 1, slot_bytes: 512 }) {
            Err(error @ EngineError::NoIoUring { .. }) => return eprintln!("skipped: {error}"),
            opened => opened.expect("opened"),
        };
        for _ in 0..100 {
            uring.alarm(1_000_000);
        }
        let mut done = Vec::new();
        while uring.alarms > 0 {
            uring.submit().expect("waited");
            uring.reap(&mut done);
        }
        assert_eq!(done, []);
    }
}
