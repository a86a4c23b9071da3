//! The context of Linux native asynchronous I/O (linux/aio_abi.h) and its completion ring.
#![expect(unsafe_code, reason = "the kernel is told addresses and shares a ring")]

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// A control block: `struct iocb`. Unused fields are 0.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct ControlBlock {
    /// Value that the kernel copies into the completion event.
    pub(super) data: u64,
    /// The fields `aio_key` and `aio_rw_flags`: the flags are in the upper half.
    pub(super) key_and_flags: u64,
    pub(super) opcode: u16,
    pub(super) priority: i16,
    pub(super) file: u32,
    pub(super) buffer: u64,
    /// Length of the I/O in bytes.
    pub(super) length: u64,
    /// Offset of the I/O in bytes.
    pub(super) offset: u64,
    pub(super) reserved: u64,
    pub(super) flags: u32,
    pub(super) event_file: u32,
}

/// `IOCB_FLAG_IOPRIO`: the priority field is valid.
pub(super) const HAS_PRIORITY: u32 = 2;

/// `RWF_DSYNC` in the upper half of [`ControlBlock::key_and_flags`].
pub(super) const DURABLY: u64 = (libc::RWF_DSYNC as u64) << 32;

/// `IOCB_CMD_PREAD`, the opcode of a read.
pub(super) const PREAD: u16 = 0;
pub(super) const PWRITE: u16 = 1;
pub(super) const FSYNC: u16 = 2;
pub(super) const FDSYNC: u16 = 3;

/// A completion event: `struct io_event`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) data: u64,
    /// Address of the control block of the completed I/O.
    pub(super) block: u64,
    /// Number of bytes moved, or a negative errno.
    pub(super) result: i64,
    pub(super) result2: i64,
}

/// The start of the completion ring: `struct aio_ring` of the kernel's fs/aio.c. The events follow. The layout is undocumented, but has a magic
/// number and has not changed since Linux 2.6.
#[repr(C)]
struct Ring {
    id: u32,
    slots: u32,
    /// Index of the next event to take; moved by this process.
    head: AtomicU32,
    /// Index of the next free entry; moved by the kernel.
    tail: AtomicU32,
    magic: u32,
    compatible_features: u32,
    incompatible_features: u32,
    header_bytes: u32,
}

const MAGIC: u32 = 0xa10a_10a1;

/// A kernel context for I/Os in flight. The kernel maps its ring of completion events into this process, and that address identifies the
/// context. Taking events from the mapped ring saves a system call: a third of the cost of a cached read at queue depth 1.
#[derive(Debug)]
pub(in crate::backend) struct Context {
    ring: NonNull<Ring>,
    /// Number of entries in the ring; 0 if its format is unknown, so that events are only taken by system calls.
    slots: u32,
}

impl Context {
    /// Creates a context for up to `depth` I/Os in flight.
    pub(in crate::backend) fn new(depth: u32) -> io::Result<Self> {
        let mut name: libc::c_ulong = 0;
        // SAFETY: io_setup reads the depth and writes a name to the address given.
        answer(unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut name) })?;
        let address = usize::try_from(name).map_err(|_| io::ErrorKind::InvalidData)?;
        let ring = NonNull::new(ptr::with_exposed_provenance_mut::<Ring>(address))
            .ok_or(io::ErrorKind::InvalidData)?;
        let mut context = Self { ring, slots: 0 };
        let Ring { slots, magic, incompatible_features, header_bytes, .. } = *context.ring();
        if magic == MAGIC && incompatible_features == 0 && header_bytes as usize == size_of::<Ring>() {
            context.slots = slots;
        }
        Ok(context)
    }

    #[inline]
    fn ring(&self) -> &Ring {
        // SAFETY: mapped by io_setup until drop; what changes meanwhile is atomic.
        unsafe { self.ring.as_ref() }
    }

    #[inline]
    fn name(&self) -> libc::c_ulong {
        self.ring.as_ptr().expose_provenance() as libc::c_ulong
    }

    /// Submits I/Os. Returns the number that the kernel accepted, at least one.
    ///
    /// # Safety
    /// The control blocks are valid, and the memory that they point to stays valid until the I/O's event arrives.
    #[inline]
    pub(super) unsafe fn submit(&self, blocks: &[NonNull<ControlBlock>]) -> io::Result<usize> {
        // SAFETY: the call reads `blocks.len()` addresses of control blocks; the caller guarantees the rest.
        answer(unsafe { libc::syscall(libc::SYS_io_submit, self.name(), blocks.len(), blocks.as_ptr()) })
    }

    /// Returns whether the ring contains an event; false if its format is unknown.
    #[inline]
    pub(super) fn has_event(&self) -> bool {
        let ring = self.ring();
        self.slots > 0 && ring.head.load(Ordering::Relaxed) != ring.tail.load(Ordering::Acquire)
    }

    /// Takes an event from the ring; `None` if the ring is empty or its format is unknown.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Event> {
        if !self.has_event() {
            return None;
        }
        let head = self.ring().head.load(Ordering::Relaxed) % self.slots;
        // SAFETY: the events begin where the header ends, in the same mapping.
        let events = unsafe { self.ring.add(1) }.cast::<Event>();
        // SAFETY: head is below the number of places.
        let slot = unsafe { events.add(head as usize) };
        // SAFETY: the kernel wrote this event before it moved the tail beyond it, and will not reuse the place before
        // the head has moved.
        let event = unsafe { slot.read() };
        self.ring().head.store((head + 1) % self.slots, Ordering::Release);
        Some(event)
    }

    /// Waits at most `wait_ns` nanoseconds for an event, and adds the available events to `events` up to its capacity.
    pub(super) fn wait(&self, wait_ns: u64, events: &mut Vec<Event>) -> io::Result<()> {
        if wait_ns == 0 && self.slots > 0 {
            // The ring already shows every event.
            return Ok(());
        }
        let timeout = libc::timespec {
            tv_sec: (wait_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (wait_ns % 1_000_000_000).cast_signed(),
        };
        let room = events.spare_capacity_mut();
        // SAFETY: io_getevents writes at most as many events as there is room for.
        let count = answer(unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.name(),
                1,
                room.len(),
                room.as_mut_ptr(),
                &raw const timeout,
            )
        })?;
        // SAFETY: the call wrote this many events.
        unsafe { events.set_len(events.len() + count) };
        Ok(())
    }
}

impl Drop for Context {
    /// Destroys the context, which waits for the I/Os in flight.
    fn drop(&mut self) {
        // SAFETY: the name is that of io_setup; no reference into the ring is alive.
        let destroyed = unsafe { libc::syscall(libc::SYS_io_destroy, self.name()) };
        debug_assert_eq!(destroyed, 0);
    }
}

fn answer(value: libc::c_long) -> io::Result<usize> {
    usize::try_from(value).map_err(|_| io::Error::last_os_error())
}
