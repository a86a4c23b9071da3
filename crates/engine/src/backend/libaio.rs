//! Linux native asynchronous I/O, which fio calls libaio, through plain system calls (see io_submit(2)). Only direct I/O is asynchronous:
//! buffered I/O completes within the submitting call.
#![expect(unsafe_code, reason = "the kernel returns slots by number")]

mod context;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use iotax_load::buffers::{Buffers, Slot};
use iotax_load::error::EngineError;
use iotax_load::request::IoKind;
use rustix::fs::{OFlags, fcntl_getfl};

pub(super) use self::context::Context;
use self::context::{ControlBlock, DURABLY, Event, FDSYNC, FSYNC, HAS_PRIORITY, PREAD, PWRITE};
use super::calls::{by_call, is_device};
use super::{Backend, Completion, Io, Note, Priorities, Setup};

/// Maximum number of I/Os per io_submit call. With more, the kernel plugs the block layer (AIO_PLUG_THRESHOLD in its fs/aio.c): it holds each
/// I/O back until the last one is prepared or one has to wait. Reads that miss the page cache then reach only a twentieth of the rate.
const UNPLUGGED: usize = 2;

/// The libaio backend of one worker.
#[derive(Debug)]
pub(crate) struct Libaio {
    /// The kernel's context. Declared before the buffers so that it is dropped first: dropping it waits for the I/O in flight, which uses
    /// the buffers.
    context: Context,
    file: File,
    is_device: bool,
    is_direct: bool,
    buffers: Buffers,
    /// The kernel's control block of each slot's I/O.
    blocks: Box<[ControlBlock]>,
    /// Control blocks of the I/Os to submit, in order.
    queued: Vec<NonNull<ControlBlock>>,
    /// Queued trims and range syncs, which io_submit cannot do; they are done by blocking calls.
    trims: Vec<(Slot, Io)>,
    done: Vec<Completion>,
    /// Buffer for completion events, reused by every wait.
    events: Vec<Event>,
    in_flight: usize,
    priorities: Priorities,
}

impl Backend for Libaio {
    fn open(setup: Setup) -> Result<(Self, Vec<Slot>), EngineError> {
        let (buffers, slots) = super::buffers(&setup)?;
        let context = Context::new(setup.depth).map_err(EngineError::system(format!(
            "setting up libaio for {} I/Os (the sysctl fs.aio-max-nr bounds those of all processes)",
            setup.depth
        )))?;
        let room = slots.len();
        let block = |slot: &Slot| ControlBlock {
            data: slot.number().into(),
            file: setup.file.as_raw_fd().cast_unsigned(),
            ..ControlBlock::default()
        };
        let backend = Self {
            context,
            is_device: is_device(&setup.file),
            is_direct: fcntl_getfl(&setup.file).is_ok_and(|flags| flags.contains(OFlags::DIRECT)),
            blocks: slots.iter().map(block).collect(),
            file: setup.file,
            buffers,
            queued: Vec::with_capacity(room),
            trims: Vec::with_capacity(room),
            done: Vec::with_capacity(room),
            events: Vec::with_capacity(room),
            in_flight: 0,
            priorities: Priorities::new(setup.options.priority),
        };
        Ok((backend, slots))
    }

    #[inline]
    fn buffer(&mut self, slot: &mut Slot) -> &mut [u8] {
        self.buffers.slice(slot)
    }

    #[inline]
    fn queue(&mut self, slot: Slot, io: Io) {
        let range = (self.buffers.address(&slot).expose_provenance() as u64, io.offset, io.length.into());
        let (opcode, range) = match io.direction {
            IoKind::Read => (PREAD, range),
            IoKind::Write | IoKind::DurableWrite => (PWRITE, range),
            // The kernel refuses a sync with a buffer, offset or length.
            IoKind::Sync => (FSYNC, (0, 0, 0)),
            IoKind::DataSync => (FDSYNC, (0, 0, 0)),
            IoKind::Trim | IoKind::RangeSync(_) => return self.trims.push((slot, io)),
        };
        let priority = if matches!(opcode, PREAD | PWRITE) { self.priorities.next(io) } else { 0 };
        let block = &mut self.blocks[slot.index()];
        (block.opcode, (block.buffer, block.offset, block.length)) = (opcode, range);
        block.key_and_flags = if io.direction == IoKind::DurableWrite { DURABLY } else { 0 };
        (block.priority, block.flags) =
            (priority.cast_signed(), if priority == 0 { 0 } else { HAS_PRIORITY });
        self.queued.push(NonNull::from(block));
    }

    #[inline]
    fn begin(&mut self) -> io::Result<()> {
        for (slot, io) in self.trims.drain(..) {
            self.done.push(Completion { slot, result: by_call(&self.file, self.is_device, io) });
        }
        let mut begun = 0;
        while begun < self.queued.len() {
            let end = self.queued.len().min(begun + UNPLUGGED);
            // SAFETY: the blocks are in self, the buffers they name are their slots', which queue consumed, and the file is
            // open; all outlive the context, which waits in drop for what is in flight.
            match unsafe { self.context.submit(&self.queued[begun..end]) } {
                Ok(count) => {
                    self.in_flight += count;
                    begun += count;
                }
                // The kernel is out of requests: the rest is submitted once some have completed.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && self.in_flight > 0 => break,
                Err(error) => {
                    self.refuse(self.queued[begun], &error);
                    begun += 1;
                }
            }
        }
        self.queued.drain(..begun);
        Ok(())
    }

    #[inline]
    fn submit(&mut self, wait_ns: u64) -> io::Result<()> {
        self.begin()?;
        if self.done.is_empty() && !self.context.has_event() {
            match self.context.wait(wait_ns, &mut self.events) {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    #[inline]
    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
        let before = done.len();
        done.extend(self.events.drain(..).map(completion));
        while let Some(event) = self.context.take() {
            done.push(completion(event));
        }
        self.in_flight -= done.len() - before;
    }

    fn note(&self) -> Option<Note> {
        (!self.is_direct).then(|| Note {
            ios: None,
            words: "libaio is asynchronous for direct I/O only: each of these I/Os was done within the call that submits \
                    it, one after the other, whatever the iodepth"
                .into(),
        })
    }
}

impl Libaio {
    /// Completes an I/O that the kernel refused to take, with the kernel's error as its result.
    #[cold]
    fn refuse(&mut self, block: NonNull<ControlBlock>, error: &io::Error) {
        // SAFETY: it points into self.blocks, of which no reference is alive.
        let number = unsafe { block.as_ref() }.data;
        let result = i64::from(-error.raw_os_error().unwrap_or(libc::EIO));
        self.done.push(completion(Event { data: number, block: 0, result, result2: 0 }));
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a slot's number, and an I/O of at most 64 MiB")]
fn completion(event: Event) -> Completion {
    // SAFETY: the number was taken from the slot that queue consumed, and an I/O completes once.
    let slot = unsafe { Slot::returned(event.data as u32) };
    Completion { slot, result: event.result as i32 }
}
