//! Virtio block devices that a program serves over a socket (vhost-user-blk). Their queues are driven from here, as a guest's driver drives
//! them. fio has this as libblkio, and so it is named in workloads.
#![expect(unsafe_code, reason = "memory that the device reads and writes behind the compiler's back")]

mod device;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use virtio_driver::{EventFd, QueueNotifier};

pub(crate) use self::device::{DEEPEST, Device, SECTOR};
use self::device::{Queue, Request};
use super::{Backend, Completion, Io, Setup};
use crate::buffers::{Buffers, Slot};
use crate::clock;
use crate::error::EngineError;
use crate::request::Direction;

/// The time that a device has to answer what is in flight when a backend is dropped.
const LAST_WAIT_NS: u64 = 15_000_000_000;

/// See the module.
pub(crate) struct Virtio {
    device: Arc<Device>,
    number: usize,
    /// Absent once it is given back.
    queue: Option<Queue>,
    notifier: Box<dyn QueueNotifier>,
    completions: Arc<EventFd>,
    buffers: Buffers,
    /// The file of the buffers, by which the device is told to forget them.
    _memory: OwnedFd,
    /// What is in flight, by slot.
    pending: Box<[Option<(Slot, Io)>]>,
    in_flight: usize,
    /// True if the device was not told of the last requests.
    is_behind: bool,
    /// True if the queue is looked at without a pause.
    polls: bool,
    /// True if each write is followed by a flush.
    flushes: bool,
    done: Vec<Completion>,
}

impl Backend for Virtio {
    fn open(setup: Setup) -> Result<(Self, Vec<Slot>), EngineError> {
        if setup.depth > DEEPEST {
            return Err(EngineError::QueueDepth { iodepth: setup.depth, most: DEEPEST });
        }
        let device =
            Device::at(&setup.file).map_err(EngineError::system("connecting to the virtio device"))?;
        let (buffers, slots, memory) = Buffers::shared(setup.depth, setup.slot_bytes)
            .map_err(EngineError::system(format!("mapping {} buffers to share", setup.depth)))?;
        let (address, bytes) = buffers.mapped();
        let (number, queue) =
            device.take().map_err(EngineError::system("taking a queue of the virtio device"))?;
        if let Err(error) = device.share(address, bytes, &memory) {
            device.give_back(number, queue);
            return Err(EngineError::System { doing: "sharing memory with the virtio device".into(), error });
        }
        let backend = Self {
            number,
            queue: Some(queue),
            notifier: device.notifier(number),
            completions: device.completions(number),
            buffers,
            _memory: memory,
            pending: slots.iter().map(|_| None).collect(),
            in_flight: 0,
            is_behind: false,
            polls: setup.options.hipri,
            flushes: setup.options.sync,
            done: Vec::with_capacity(slots.len()),
            device,
        };
        Ok((backend, slots))
    }

    #[inline]
    fn buffer(&mut self, slot: &mut Slot) -> &mut [u8] {
        self.buffers.slice(slot)
    }

    #[inline]
    fn queue(&mut self, slot: Slot, io: Io) {
        let number = slot.index();
        let request = Request { slot: number, makes_durable: false };
        let (address, length) = (self.buffers.address(&slot), io.length as usize);
        let Some(queue) = &mut self.queue else { return };
        let queued = match io.direction {
            // SAFETY: the buffer is mapped until the backend is dropped, which waits for what is in flight; the slot is given away until then.
            Direction::Read => unsafe { queue.read_raw(io.offset, address, length, request) },
            // SAFETY: as above.
            Direction::Write => unsafe { queue.write_raw(io.offset, address, length, request) },
            Direction::Trim => queue.discard(io.offset, io.length.into(), request),
            Direction::Sync | Direction::DataSync => queue.flush(request),
        };
        if queued.is_err() {
            // Not in whole sectors: a queue has room for all slots.
            self.done.push(Completion { slot, result: -libc::EINVAL });
            return;
        }
        self.pending[number] = Some((slot, io));
        self.in_flight += 1;
        self.is_behind = true;
    }

    #[inline]
    fn begin(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_behind)
            && let Some(queue) = &mut self.queue
            && queue.avail_notif_needed()
        {
            self.notifier.notify()?;
        }
        Ok(())
    }

    #[inline]
    fn submit(&mut self, wait_ns: u64) -> io::Result<()> {
        self.begin()?;
        self.collect()?;
        if !self.done.is_empty() || wait_ns == 0 {
            return Ok(());
        }
        let end = clock::now().saturating_add(wait_ns);
        while self.done.is_empty() {
            let now = clock::now();
            if now >= end {
                break;
            }
            if !self.polls {
                self.wait(end - now)?;
            }
            self.collect()?;
        }
        Ok(())
    }

    #[inline]
    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }
}

impl Virtio {
    /// Takes what the device has completed.
    #[inline]
    fn collect(&mut self) -> io::Result<()> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        let mut again = Vec::new();
        for virtio_driver::Completion { context: request, ret } in queue.completions() {
            let Some((slot, io)) = self.pending[request.slot].take() else { continue };
            if self.flushes && io.direction == Direction::Write && ret == 0 && !request.makes_durable {
                again.push((slot, io));
                continue;
            }
            self.in_flight -= 1;
            let result = if ret == 0 { moved(io) } else { ret };
            self.done.push(Completion { slot, result });
        }
        for (slot, io) in again {
            let request = Request { slot: slot.index(), makes_durable: true };
            queue.flush(request)?;
            self.pending[request.slot] = Some((slot, io));
            self.is_behind = true;
        }
        self.begin()
    }

    /// Waits until the device says that something is done, at most so long.
    fn wait(&mut self, ns: u64) -> io::Result<()> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        queue.set_used_notif_enabled(true);
        if !queue.completions().has_next() {
            let limit = Timespec {
                tv_sec: (ns / 1_000_000_000).cast_signed(),
                tv_nsec: (ns % 1_000_000_000).cast_signed(),
            };
            let done = PollFd::new(&*self.completions, PollFlags::IN);
            let server = self.device.server();
            let ended = match &server {
                Some(server) => waited(&mut [done, PollFd::new(server, PollFlags::IN)], &limit)?,
                None => waited(&mut [done], &limit)?,
            };
            match ended {
                Some(0) => drop(self.completions.read()?),
                Some(_) => {
                    let reason = "the server of the virtio device has ended";
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, reason));
                }
                None => {}
            }
        }
        // Before what is done is taken: then the device is past the place at which it would say so.
        queue.set_used_notif_enabled(false);
        Ok(())
    }
}

/// The first descriptor that there is something to read from.
fn waited(watched: &mut [PollFd<'_>], limit: &Timespec) -> io::Result<Option<usize>> {
    match poll(watched, Some(limit)) {
        Ok(_) => Ok(watched.iter().position(|one| !one.revents().is_empty())),
        Err(rustix::io::Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The bytes that an I/O without an error has moved.
const fn moved(io: Io) -> i32 {
    match io.direction {
        Direction::Read | Direction::Write | Direction::Trim => io.length.cast_signed(),
        Direction::Sync | Direction::DataSync => 0,
    }
}

impl Drop for Virtio {
    fn drop(&mut self) {
        let end = clock::now().saturating_add(LAST_WAIT_NS);
        while self.in_flight > 0 {
            let left = end.saturating_sub(clock::now());
            if left == 0 || self.submit(left).is_err() {
                // The device may still write there.
                self.buffers.leak();
                return;
            }
            self.done.clear();
        }
        let (address, bytes) = self.buffers.mapped();
        if self.device.unshare(address, bytes).is_ok()
            && let Some(queue) = self.queue.take()
        {
            self.device.give_back(self.number, queue);
        }
    }
}
