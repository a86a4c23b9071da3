//! Linux io_uring, with one ring per worker on which the worker's file and buffers are registered.
#![expect(unsafe_code, reason = "the kernel is told addresses, and returns slots by number")]

mod ring;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{Submitter, cqueue, opcode, squeue, types};
use iotax_load::buffers::{Buffers, Slot};
use iotax_load::error::{EngineError, OpenRefusal};
use iotax_load::request::IoKind;

pub(super) use self::ring::Ring;
use super::calls::{by_call, is_device};
use super::{Backend, Completion, Io, Note, PUNCH, Priorities, Setup};

/// Maximum length in bytes of one registered buffer (1 GiB, see io_uring_register(2)).
const LONGEST_REGISTERED: usize = 1 << 30;

/// The way in which an I/O names its buffer to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// The buffer is named by its address, because the kernel refused to register the buffers.
    Plain,
    /// The buffer is part of one registered range that holds all buffers. The kernel's table of buffers then has one entry, which stays in
    /// a CPU cache line.
    OneStretch,
    /// Each slot has its own registered buffer, because a single range would exceed 1 GiB.
    BySlot,
}

/// The method used for discards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trim {
    /// A hole punched in a file through the ring.
    Hole,
    /// A discard command sent to the device through the ring (Linux 6.12 and later).
    Command,
    /// A blocking system call, because the ring cannot do discards here.
    Call,
}

/// The io_uring backend of one worker.
pub(crate) struct Uring {
    ring: Ring,
    file: File,
    is_device: bool,
    buffers: Buffers,
    memory: Memory,
    trim: Trim,
    /// True if the ring accepts only reads and writes, as one that polls the device does.
    transfers_only: bool,
    in_flight: u32,
    /// Queued I/Os that the ring does not accept. They are done by blocking calls at the next submission.
    aside: Vec<(Slot, Io)>,
    /// Completions of I/Os that were done by blocking calls.
    done: Vec<Completion>,
    note: Option<Note>,
    priorities: Priorities,
}

impl Backend for Uring {
    fn open(setup: Setup) -> Result<(Self, Vec<Slot>), EngineError> {
        let (buffers, slots) = super::buffers(&setup)?;
        let ring = Ring::new(setup.depth, &setup.options)?;
        ring.submitter()
            .register_files(&[setup.file.as_raw_fd()])
            .map_err(EngineError::system("registering the file with io_uring"))?;
        let (memory, note) = register(ring.submitter(), &buffers, &slots);
        let is_device = is_device(&setup.file);
        let mut uring = Self {
            ring,
            file: setup.file,
            is_device,
            buffers,
            memory,
            trim: if is_device { Trim::Command } else { Trim::Hole },
            transfers_only: setup.options.hipri,
            in_flight: 0,
            aside: Vec::with_capacity(slots.len()),
            done: Vec::with_capacity(slots.len()),
            note,
            priorities: Priorities::new(setup.options.priority),
        };
        if setup.options.hipri {
            uring.probe_polling(&slots)?;
        } else if is_device {
            uring.probe_discard()?;
        }
        Ok((uring, slots))
    }

    #[inline]
    fn buffer(&mut self, slot: &mut Slot) -> &mut [u8] {
        self.buffers.slice(slot)
    }

    #[inline]
    fn queue(&mut self, slot: Slot, io: Io) {
        let (address, tag) = (self.buffers.address(&slot), tag(&slot, io));
        // Each arm pushes its own entry: an entry shared by several arms is built in memory and copied, which stalls the CPU.
        match (io.direction, self.registered(&slot)) {
            (IoKind::Read, Some(index)) => {
                let priority = self.priorities.next(io);
                let read = opcode::ReadFixed::new(FILE, address, io.length, index)
                    .offset(io.offset)
                    .ioprio(priority);
                self.push(&read.build().user_data(tag));
            }
            (IoKind::Write, Some(index)) => {
                let priority = self.priorities.next(io);
                let write = opcode::WriteFixed::new(FILE, address, io.length, index)
                    .offset(io.offset)
                    .ioprio(priority);
                self.push(&write.build().user_data(tag));
            }
            _ => self.queue_other(slot, io),
        }
    }

    #[inline]
    fn begin(&mut self) -> io::Result<()> {
        self.do_aside();
        self.ring.begin()
    }

    #[inline]
    fn submit(&mut self, wait_ns: u64) -> io::Result<()> {
        self.do_aside();
        if self.done.is_empty() { self.ring.submit(wait_ns) } else { self.ring.begin() }
    }

    #[inline]
    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
        for entry in self.ring.completions() {
            self.in_flight -= 1;
            done.push(completion(&entry));
        }
    }

    fn note(&self) -> Option<Note> {
        self.note.clone()
    }
}

/// Returns the user data of an I/O. The lower half is the slot's number. The upper half is the byte count to report if the kernel returns
/// 0, as it does for a successful trim.
#[inline]
fn tag(slot: &Slot, io: Io) -> u64 {
    let moved_by_0 = if io.direction == IoKind::Trim { io.length } else { 0 };
    u64::from(slot.number()) | u64::from(moved_by_0) << 32
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the tag is made of two halves")]
fn completion(entry: &cqueue::Entry) -> Completion {
    let (number, moved_by_0) = (entry.user_data() as u32, (entry.user_data() >> 32) as u32);
    // SAFETY: the number was taken from the slot that queue consumed, and an I/O completes once.
    let slot = unsafe { Slot::returned(number) };
    let result = if entry.result() == 0 { moved_by_0.cast_signed() } else { entry.result() };
    Completion { slot, result }
}

impl Uring {
    /// Returns the index of the registered buffer that contains a slot's buffer; `None` if no buffers are registered.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a depth is at most 4096")]
    const fn registered(&self, slot: &Slot) -> Option<u16> {
        match self.memory {
            Memory::Plain => None,
            Memory::OneStretch => Some(0),
            Memory::BySlot => Some(slot.number() as u16),
        }
    }

    /// Queues an I/O other than a read or write on a registered buffer.
    #[cold]
    #[inline(never)]
    fn queue_other(&mut self, slot: Slot, io: Io) {
        let is_transfer = io.direction == IoKind::Read || io.direction.is_write();
        let by_call = self.transfers_only || (io.direction == IoKind::Trim && self.trim == Trim::Call);
        if by_call && !is_transfer {
            return self.aside.push((slot, io));
        }
        let entry = self.plain(&slot, io).user_data(tag(&slot, io));
        self.push(&entry);
    }

    /// Builds the ring entry of an I/O without a registered buffer. A sync is not ordered after earlier writes: it covers those that are
    /// complete when it starts.
    fn plain(&mut self, slot: &Slot, io: Io) -> squeue::Entry {
        let address = self.buffers.address(slot);
        match io.direction {
            IoKind::Read => {
                let read = opcode::Read::new(FILE, address, io.length).offset(io.offset);
                read.ioprio(self.priorities.next(io)).build()
            }
            IoKind::Write | IoKind::DurableWrite => {
                let flags = if io.direction == IoKind::DurableWrite { libc::RWF_DSYNC } else { 0 };
                let write = opcode::Write::new(FILE, address, io.length).offset(io.offset).rw_flags(flags);
                write.ioprio(self.priorities.next(io)).build()
            }
            IoKind::Sync => opcode::Fsync::new(FILE).build(),
            IoKind::DataSync => opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build(),
            // A length of 0 extends to the end of the file.
            IoKind::RangeSync(flags) => opcode::SyncFileRange::new(FILE, 0).flags(flags).build(),
            IoKind::Trim if self.trim == Trim::Command => discard(io.offset, io.length.into()),
            IoKind::Trim => opcode::Fallocate::new(FILE, io.length.into())
                .offset(io.offset)
                .mode(PUNCH.bits().cast_signed())
                .build(),
        }
    }

    #[inline]
    fn push(&mut self, entry: &squeue::Entry) {
        self.in_flight += 1;
        // SAFETY: the entry's buffer is the slot's, which the caller gave up until the completion. The buffer
        // lives in self, whose drop waits for the I/O in flight.
        unsafe { self.ring.push(entry) };
    }

    #[inline]
    fn do_aside(&mut self) {
        for (slot, io) in self.aside.drain(..) {
            self.done.push(Completion { slot, result: by_call(&self.file, self.is_device, io) });
        }
    }

    /// Tests with one read if the device's completions can be polled. Fails if not.
    fn probe_polling(&mut self, slots: &[Slot]) -> Result<(), EngineError> {
        #[expect(clippy::cast_possible_truncation, reason = "bs is at most 64 MiB")]
        let io = Io { direction: IoKind::Read, offset: 0, length: self.buffers.slot_bytes() as u32 };
        let entry = self.plain(&slots[0], io);
        let result = self.probe(&entry)?;
        if result == -libc::EOPNOTSUPP || result == -libc::EINVAL {
            let answer = io::Error::from_raw_os_error(-result);
            return Err(EngineError::Target {
                path: path_of(&self.file),
                reason: OpenRefusal::NoPolling(format!("the kernel says {answer}")),
            });
        }
        Ok(())
    }

    /// Tests if the kernel supports discards through the ring: sends one of 0 bytes, which fails in any case, but with a different error if
    /// unsupported.
    fn probe_discard(&mut self) -> Result<(), EngineError> {
        if self.probe(&discard(0, 0))? == -libc::EOPNOTSUPP {
            self.trim = Trim::Call;
        }
        Ok(())
    }

    /// Submits one entry while nothing else is in flight, waits for its completion, and returns the result.
    fn probe(&mut self, entry: &squeue::Entry) -> Result<i32, EngineError> {
        self.push(entry);
        loop {
            self.ring.submit(u64::MAX).map_err(EngineError::system("trying what the target can do"))?;
            if let Some(done) = self.ring.completions().next() {
                self.in_flight = 0;
                return Ok(done.result());
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight > 0 {
            if self.submit(u64::MAX).is_err() {
                // Leaked, because the kernel may still write to the buffers.
                self.buffers.leak();
                return;
            }
            self.reap(&mut done);
        }
    }
}

/// Returns the path of an open file for a message; `the target` if unknown.
fn path_of(file: &File) -> String {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .map_or_else(|_| "the target".into(), |path| path.display().to_string())
}

/// Builds the ring entry of a discard command (`BLOCK_URING_CMD_DISCARD` of linux/blkdev.h).
fn discard(offset: u64, length: u64) -> squeue::Entry {
    let mut data = [0; 16];
    data[..8].copy_from_slice(&length.to_ne_bytes());
    opcode::UringCmd16::new(FILE, BLOCK_DISCARD).addr(Some(offset)).cmd(data).build()
}

const BLOCK_DISCARD: u32 = 0x1200;
/// Index of the worker's file among the ring's registered files.
const FILE: types::Fixed = types::Fixed(0);

fn register(submitter: &Submitter<'_>, buffers: &Buffers, slots: &[Slot]) -> (Memory, Option<Note>) {
    let total = buffers.slot_bytes() * slots.len();
    let stretch = |slot: &Slot, iov_len| libc::iovec { iov_base: buffers.address(slot).cast(), iov_len };
    let (memory, table) = if total <= LONGEST_REGISTERED {
        (Memory::OneStretch, slots.iter().take(1).map(|slot| stretch(slot, total)).collect::<Vec<_>>())
    } else {
        (Memory::BySlot, slots.iter().map(|slot| stretch(slot, buffers.slot_bytes())).collect())
    };
    // SAFETY: the buffers are parts of the mapping, which outlives every I/O of this ring.
    match unsafe { submitter.register_buffers(&table) } {
        Ok(()) => (memory, None),
        Err(error) => {
            let words = format!(
                "io_uring works with unregistered buffers, at some more CPU per I/O: registering was refused \
                 ({error}; see ulimit -l)"
            );
            (Memory::Plain, Some(Note { ios: None, words }))
        }
    }
}
