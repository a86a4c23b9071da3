//! The connection to a virtio block device.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use iotax_model::target::VirtioSpec;
use iotax_model::threads;
use rustix::fd::AsFd;
use rustix::process::{PidfdFlags, pidfd_open};
use virtio_driver::{
    EventFd, QueueNotifier, VhostUser, VirtioBlkFeatureFlags, VirtioBlkQueue, VirtioBlkTransport,
    VirtioFeatureFlags,
};

/// Entries per queue: the maximum of QEMU's devices.
const ENTRIES: u16 = 1024;
/// Queue entries per request: header, data, status.
const PER_REQUEST: u16 = 3;
/// I/Os that a queue holds.
pub(crate) const DEEPEST: u32 = VirtioSpec::DEEPEST;
const _: () = assert!(DEEPEST * PER_REQUEST as u32 <= ENTRIES as u32);
/// Sector size of requests in bytes.
pub(crate) const SECTOR: u64 = 512;
/// Time to wait for the server's answer: it serves one connection at a time.
const PATIENCE: Duration = Duration::from_secs(15);

/// A device's queue; each request carries its slot's number.
pub(super) type Queue = VirtioBlkQueue<'static, Request>;

/// The handle of a request in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    /// The number of its slot.
    pub(super) slot: usize,
    /// True for the flush that makes a write durable.
    pub(super) makes_durable: bool,
}

/// A device that a program serves at a socket. All workers of this process share the connection.
pub(crate) struct Device {
    /// Capacity in bytes.
    pub(crate) length: u64,
    /// True if it supports discard.
    pub(crate) discards: bool,
    queues: usize,
    /// Unused queues with their numbers, in memory of `transport`.
    free: Mutex<Vec<(usize, Queue)>>,
    transport: Mutex<Box<VirtioBlkTransport>>,
    /// The serving process, if the kernel reports it.
    server: Option<OwnedFd>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("length", &self.length)
            .field("queues", &self.queues)
            .finish_non_exhaustive()
    }
}

/// A device, and the identity of its socket: filesystem device and inode.
type Known = ((u64, u64), Weak<Device>);

/// The devices that this process is connected to.
static CONNECTED: Mutex<Vec<Known>> = Mutex::new(Vec::new());

impl Device {
    /// Returns the device at a socket opened with O_PATH; connects to it if this process is not connected yet.
    pub(crate) fn at(socket: &File) -> io::Result<Arc<Self>> {
        let found = socket.metadata()?;
        let identity = (found.dev(), found.ino());
        let mut connected = held(&CONNECTED);
        connected.retain(|(_, device)| device.strong_count() > 0);
        let known = connected.iter().find(|(known, _)| *known == identity);
        if let Some(device) = known.and_then(|(_, device)| device.upgrade()) {
            return Ok(device);
        }
        // A socket's own path may be longer than the 107 bytes that an address takes.
        let device = Arc::new(Self::connect(format!("/proc/self/fd/{}", socket.as_raw_fd()))?);
        connected.push((identity, Arc::downgrade(&device)));
        Ok(device)
    }

    fn connect(path: String) -> io::Result<Self> {
        // A first connection tells who serves: the other one does not show its descriptor.
        let probe = UnixStream::connect(&path)?;
        let pid = rustix::net::sockopt::socket_peercred(&probe).ok().map(|found| found.pid);
        let server = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        drop(probe);
        // The library waits for answers without end.
        let (sender, receiver) = mpsc::channel();
        threads::spawn("virtio", move || drop(sender.send(Self::set_up(&path, server))))?;
        match receiver.recv_timeout(PATIENCE) {
            Ok(device) => device,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the server of the device has not answered in {} s", PATIENCE.as_secs()),
            )),
        }
    }

    fn set_up(path: &str, server: Option<OwnedFd>) -> io::Result<Self> {
        let wanted =
            VirtioBlkFeatureFlags::FLUSH | VirtioBlkFeatureFlags::MQ | VirtioBlkFeatureFlags::DISCARD;
        let ring = VirtioFeatureFlags::VERSION_1 | VirtioFeatureFlags::RING_EVENT_IDX;
        let mut transport: Box<VirtioBlkTransport> =
            Box::new(VhostUser::new(path, wanted.bits() | ring.bits())?);
        let config = transport.get_config()?;
        let features = VirtioBlkFeatureFlags::from_bits_truncate(transport.get_features());
        let count = virtio_driver::virtio_blk_max_queues(&*transport)?;
        let queues = VirtioBlkQueue::setup_queues(&mut *transport, count, ENTRIES)?;
        Ok(Self {
            length: u64::from(config.capacity).saturating_mul(SECTOR),
            discards: features.contains(VirtioBlkFeatureFlags::DISCARD),
            queues: count,
            free: Mutex::new(queues.into_iter().enumerate().rev().collect()),
            transport: Mutex::new(transport),
            server,
        })
    }

    /// Takes a free queue. Fails if all are in use.
    pub(super) fn take(&self) -> io::Result<(usize, Queue)> {
        held(&self.free).pop().ok_or_else(|| {
            io::Error::other(format!(
                "the device has {}, one for each worker, and all are in use; raise queues of its virtio layer",
                match self.queues {
                    1 => "1 queue".into(),
                    queues => format!("{queues} queues"),
                }
            ))
        })
    }

    /// Returns a queue that has nothing in flight.
    pub(super) fn give_back(&self, number: usize, queue: Queue) {
        held(&self.free).push((number, queue));
    }

    /// Returns the notifier that tells the device of new requests in a queue.
    pub(super) fn notifier(&self, number: usize) -> Box<dyn QueueNotifier> {
        held(&self.transport).get_submission_notifier(number)
    }

    /// Returns the event descriptor that becomes readable when the device has completed requests of a queue.
    pub(super) fn completions(&self, number: usize) -> Arc<EventFd> {
        held(&self.transport).get_completion_fd(number)
    }

    /// A descriptor that becomes readable when the server ends; `None` if unknown.
    pub(super) fn server(&self) -> Option<BorrowedFd<'_>> {
        self.server.as_ref().map(AsFd::as_fd)
    }

    /// Gives the device access to mapped memory of a memory file.
    pub(super) fn share(&self, address: usize, bytes: usize, memory: &OwnedFd) -> io::Result<()> {
        held(&self.transport).map_mem_region(address, bytes, memory.as_raw_fd(), 0).map(drop)
    }

    /// Revokes the device's access to memory.
    pub(super) fn unshare(&self, address: usize, bytes: usize) -> io::Result<()> {
        held(&self.transport).unmap_mem_region(address, bytes)
    }
}

/// Locks a mutex even after a panic: no change takes two steps, so the state is valid.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
