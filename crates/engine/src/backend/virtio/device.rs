//! The connection to a virtio block device that another process serves.

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

/// Sector size of virtio block requests in bytes.
pub(crate) const SECTOR: u64 = 512;
/// Time to wait for the server's answer. A server that serves one connection at a time answers only when the previous client has left.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 4 } else { 15 });

/// A queue of the device. Each request in it carries its slot's number.
pub(super) type Queue = VirtioBlkQueue<'static, Request>;

/// The data that identifies a request in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    /// Number of the request's slot.
    pub(super) slot: usize,
    /// True for a flush that follows a write to make it durable.
    pub(super) makes_durable: bool,
}

/// A virtio device at a socket. All workers of this process share one connection.
pub(crate) struct Device {
    /// Capacity of the device in bytes.
    pub(crate) length: u64,
    /// True if the device supports discard.
    pub(crate) discards: bool,
    /// True if the device supports write zeroes.
    pub(crate) writes_zeroes: bool,
    /// Maximum number of I/Os in flight in one queue.
    pub(crate) depth: u32,
    queues: usize,
    /// The queues not in use, each with its number. They lie in memory of `transport`.
    free: Mutex<Vec<(usize, Queue)>>,
    transport: Mutex<Box<VirtioBlkTransport>>,
    /// A pidfd of the process that serves the device; `None` if the kernel does not report it.
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

/// The identity of a socket (filesystem device and inode) and the device connected there.
type Known = ((u64, u64), Weak<Device>);

/// The virtio devices that this process is connected to.
static CONNECTED: Mutex<Vec<Known>> = Mutex::new(Vec::new());

impl Device {
    /// Returns the device at a socket that is open with O_PATH. Connects to it unless this process is already
    /// connected. A new connection has queues of `entries` entries; `None` means the maximum.
    pub(crate) fn at(socket: &File, entries: Option<u16>) -> io::Result<Arc<Self>> {
        let found = socket.metadata()?;
        let identity = (found.dev(), found.ino());
        let mut connected = held(&CONNECTED);
        connected.retain(|(_, device)| device.strong_count() > 0);
        let known = connected.iter().find(|(known, _)| *known == identity);
        if let Some(device) = known.and_then(|(_, device)| device.upgrade()) {
            return Ok(device);
        }
        // A socket's own path may be longer than the 107 bytes that a socket address holds.
        let entries = entries.unwrap_or(VirtioSpec::ENTRIES);
        let device = Arc::new(Self::connect(format!("/proc/self/fd/{}", socket.as_raw_fd()), entries)?);
        connected.push((identity, Arc::downgrade(&device)));
        Ok(device)
    }

    fn connect(path: String, entries: u16) -> io::Result<Self> {
        // The library waits for answers without a timeout, and so does a connection that the server does not accept: both on another thread.
        let (sender, receiver) = mpsc::channel();
        threads::spawn("virtio", move || drop(sender.send(Self::set_up(&path, entries))))?;
        match receiver.recv_timeout(PATIENCE) {
            Ok(device) => device,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the server of the device has not answered in {} s", PATIENCE.as_secs()),
            )),
        }
    }

    fn set_up(path: &str, entries: u16) -> io::Result<Self> {
        // This first connection identifies the server's process, because the library does not expose its own descriptor.
        let probe = UnixStream::connect(path)?;
        let pid = rustix::net::sockopt::socket_peercred(&probe).ok().map(|found| found.pid);
        let server = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        drop(probe);
        let wanted = VirtioBlkFeatureFlags::FLUSH
            | VirtioBlkFeatureFlags::MQ
            | VirtioBlkFeatureFlags::DISCARD
            | VirtioBlkFeatureFlags::WRITE_ZEROES;
        let ring = VirtioFeatureFlags::VERSION_1 | VirtioFeatureFlags::RING_EVENT_IDX;
        let mut transport: Box<VirtioBlkTransport> =
            Box::new(VhostUser::new(path, wanted.bits() | ring.bits())?);
        let config = transport.get_config()?;
        let features = VirtioBlkFeatureFlags::from_bits_truncate(transport.get_features());
        let count = virtio_driver::virtio_blk_max_queues(&*transport)?;
        let queues = VirtioBlkQueue::setup_queues(&mut *transport, count, entries)?;
        Ok(Self {
            length: u64::from(config.capacity).saturating_mul(SECTOR),
            discards: features.contains(VirtioBlkFeatureFlags::DISCARD),
            writes_zeroes: features.contains(VirtioBlkFeatureFlags::WRITE_ZEROES),
            depth: VirtioSpec::depth_of(entries),
            queues: count,
            free: Mutex::new(queues.into_iter().enumerate().rev().collect()),
            transport: Mutex::new(transport),
            server,
        })
    }

    /// Takes a queue that no worker uses. Fails if all are in use.
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

    /// Gives back a queue that has no I/O in flight.
    pub(super) fn give_back(&self, number: usize, queue: Queue) {
        held(&self.free).push((number, queue));
    }

    /// Returns the notifier that signals new requests in a queue to the device.
    pub(super) fn notifier(&self, number: usize) -> Box<dyn QueueNotifier> {
        held(&self.transport).get_submission_notifier(number)
    }

    /// Returns the event descriptor that becomes readable when the device has completed requests in a queue.
    pub(super) fn completions(&self, number: usize) -> Arc<EventFd> {
        held(&self.transport).get_completion_fd(number)
    }

    /// Returns a descriptor that becomes readable when the serving process ends; `None` if unknown.
    pub(super) fn server(&self) -> Option<BorrowedFd<'_>> {
        self.server.as_ref().map(AsFd::as_fd)
    }

    /// Gives the device access to `bytes` bytes at `address`, which are mapped from the memory file `memory`.
    pub(super) fn share(&self, address: usize, bytes: usize, memory: &OwnedFd) -> io::Result<()> {
        held(&self.transport).map_mem_region(address, bytes, memory.as_raw_fd(), 0).map(drop)
    }

    /// Takes back the device's access to memory.
    pub(super) fn unshare(&self, address: usize, bytes: usize) -> io::Result<()> {
        held(&self.transport).unmap_mem_region(address, bytes)
    }
}

/// Locks a mutex even if a thread panicked while holding it. The protected state is never half changed, so it is still valid.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
