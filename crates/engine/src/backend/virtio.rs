//! Virtio block devices that another process serves over a socket (vhost-user-blk). The engine drives the device's queues as a guest's
//! driver does. In workloads this engine is called libblkio, as in fio.
#![expect(unsafe_code, reason = "memory that the device reads and writes behind the compiler's back")]

mod device;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use iotax_load::buffers::{Buffers, Slot};
use iotax_load::clock;
use iotax_load::error::EngineError;
use iotax_load::request::IoKind;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use virtio_driver::{EventFd, QueueNotifier};

pub(crate) use self::device::{Device, SECTOR};
use self::device::{Queue, Request};
use super::{Backend, Completion, Io, Options, Setup};

/// Maximum time in nanoseconds to wait for I/O in flight when a backend is dropped.
const LAST_WAIT_NS: u64 = 15_000_000_000;

/// The virtio backend of one worker.
pub(crate) struct Virtio {
    device: Arc<Device>,
    number: usize,
    /// The queue that this worker uses; `None` once it is given back to the device.
    queue: Option<Queue>,
    notifier: Box<dyn QueueNotifier>,
    completions: Arc<EventFd>,
    buffers: Buffers,
    /// The memory file that holds the buffers. It must stay open until the device has unmapped the buffers.
    _memory: OwnedFd,
    /// The I/O in flight in each slot; `None` for a free slot.
    pending: Box<[Option<(Slot, Io)>]>,
    in_flight: usize,
    /// True if requests were queued since the device was last notified.
    is_behind: bool,
    /// True if the worker polls the queue instead of sleeping until it is notified.
    polls: bool,
    /// True if each trim is a request to write zeroes, which may deallocate the range.
    zeroes_on_trim: bool,
    /// True if each write must be followed by a flush to be durable.
    flushes: bool,
    done: Vec<Completion>,
}

impl Backend for Virtio {
    fn open(setup: Setup) -> Result<(Self, Vec<Slot>), EngineError> {
        let device =
            Device::at(&setup.file, None).map_err(EngineError::system("connecting to the virtio device"))?;
        if setup.depth > device.depth {
            return Err(EngineError::QueueDepth { iodepth: setup.depth, most: device.depth });
        }
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
            zeroes_on_trim: setup.options.zeroes_on_trim,
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
            IoKind::Read => unsafe { queue.read_raw(io.offset, address, length, request) },
            // SAFETY: as above.
            IoKind::Write | IoKind::DurableWrite => unsafe {
                queue.write_raw(io.offset, address, length, request)
            },
            IoKind::Trim if self.zeroes_on_trim => {
                queue.write_zeroes(io.offset, io.length.into(), true, request)
            }
            IoKind::Trim => queue.discard(io.offset, io.length.into(), request),
            // VirtioSpec::refusal keeps sync_file_range away from here.
            IoKind::Sync | IoKind::DataSync | IoKind::RangeSync(_) => queue.flush(request),
        };
        if queued.is_err() {
            // The I/O is not in whole sectors. A full queue is impossible, because a queue has room for all slots.
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
    /// Takes the completions from the device's queue. A write that must be durable is followed by a flush before it completes.
    #[inline]
    fn collect(&mut self) -> io::Result<()> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        let mut again = Vec::new();
        for virtio_driver::Completion { context: request, ret } in queue.completions() {
            let Some((slot, io)) = self.pending[request.slot].take() else { continue };
            let needs_flush =
                io.direction == IoKind::DurableWrite || (self.flushes && io.direction == IoKind::Write);
            if needs_flush && ret == 0 && !request.makes_durable {
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

    /// Waits up to `ns` nanoseconds until the device signals a completion. Fails if the server process has ended.
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
        // Disabled before completions are taken, while the device is past the index at which it would notify.
        queue.set_used_notif_enabled(false);
        Ok(())
    }
}

/// Waits until one of the descriptors is readable and returns its index; `None` after `limit` or an interruption.
fn waited(watched: &mut [PollFd<'_>], limit: &Timespec) -> io::Result<Option<usize>> {
    match poll(watched, Some(limit)) {
        Ok(_) => Ok(watched.iter().position(|one| !one.revents().is_empty())),
        Err(rustix::io::Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the byte count of a successful I/O; 0 for a flush.
const fn moved(io: Io) -> i32 {
    match io.direction {
        IoKind::Read | IoKind::Write | IoKind::DurableWrite | IoKind::Trim => io.length.cast_signed(),
        IoKind::Sync | IoKind::DataSync | IoKind::RangeSync(_) => 0,
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

/// Flushes the virtio device that is served at a socket.
pub(crate) fn flush(socket: File) -> io::Result<()> {
    // A flush moves no data, but a buffer has at least one sector.
    let setup = Setup { file: socket, depth: 1, slot_bytes: 512, options: Options::default() };
    let (mut backend, mut slots) = Virtio::open(setup).map_err(io::Error::other)?;
    let Some(slot) = slots.pop() else { return Ok(()) };
    backend.queue(slot, Io { direction: IoKind::DataSync, offset: 0, length: 0 });
    let mut done = Vec::with_capacity(1);
    while done.is_empty() {
        backend.submit(u64::MAX)?;
        backend.reap(&mut done);
    }
    match done[0].result {
        failed @ ..0 => Err(io::Error::from_raw_os_error(-failed)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    use std::path::PathBuf;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    const BLOCK: u32 = 4096;
    const BLOCKS: u64 = 64;

    /// A virtio device that is backed by a file, and its server.
    struct Lab {
        directory: tempfile::TempDir,
        server: Child,
    }

    impl Drop for Lab {
        fn drop(&mut self) {
            let _ = self.server.kill();
            let _ = self.server.wait();
        }
    }

    impl Lab {
        /// Starts a device with `queues` queues; `None`, with a message, if the server program is missing.
        fn new(queues: u32) -> Option<Self> {
            Self::with(queues, "unmap")
        }

        /// As `new`; the server unmaps or ignores discards.
        fn with(queues: u32, discard: &str) -> Option<Self> {
            iotax_testkit::require!(program "qemu-storage-daemon");
            let directory = tempfile::tempdir().expect("a directory");
            let file = directory.path().join("file");
            fs::write(&file, vec![7; 64 * BLOCK as usize]).expect("written");
            let socket = directory.path().join("socket");
            let node = format!("driver=file,node-name=f,filename={},discard={discard}", file.display());
            let export = format!(
                "type=vhost-user-blk,id=e,node-name=f,writable=on,num-queues={queues},addr.type=unix,addr.path={}",
                socket.display()
            );
            let mut server = Command::new("qemu-storage-daemon");
            let server = server.args(["--blockdev", &node, "--export", &export]).spawn().expect("started");
            let lab = Self { directory, server };
            let end = Instant::now() + Duration::from_secs(10);
            // The file is there before anybody listens on it.
            let path = socket.display().to_string();
            let listens =
                |line: &str| line.ends_with(&path) && line.split_whitespace().nth(3) == Some("00010000");
            let is_ready = || fs::read_to_string("/proc/net/unix").is_ok_and(|all| all.lines().any(listens));
            while !is_ready() {
                assert!(Instant::now() < end, "no socket");
                iotax_model::threads::sleep(Duration::from_millis(5));
            }
            Some(lab)
        }

        fn file(&self) -> PathBuf {
            self.directory.path().join("file")
        }

        fn setup(&self, depth: u32, options: Options) -> Setup {
            let path = self.directory.path().join("socket");
            let file = File::options().read(true).custom_flags(libc::O_PATH).open(path).expect("a socket");
            Setup { file, depth, slot_bytes: BLOCK as usize, options }
        }

        fn open(&self, depth: u32, options: Options) -> (Virtio, Vec<Slot>) {
            Virtio::open(self.setup(depth, options)).expect("opened")
        }
    }

    /// Does one I/O and returns its result.
    fn carry_out(backend: &mut Virtio, free: &mut Vec<Slot>, direction: IoKind, offset: u64) -> i32 {
        let mut done = Vec::with_capacity(1);
        let length = if direction.is_flush() { 0 } else { BLOCK };
        backend.queue(free.pop().expect("free"), Io { direction, offset, length });
        while done.is_empty() {
            backend.submit(u64::MAX).expect("submitted");
            backend.reap(&mut done);
        }
        let Completion { slot, result } = done.pop().expect("one");
        free.push(slot);
        result
    }

    #[test]
    fn what_is_written_is_in_the_file_and_read_again() {
        let Some(lab) = Lab::new(1) else { return };
        for options in [
            Options::default(),
            Options { hipri: true, ..Options::default() },
            Options { sync: true, ..Options::default() },
        ] {
            let (mut backend, mut free) = lab.open(3, options);
            for block in 0..8 {
                let mut slot = free.pop().expect("free");
                backend.buffer(&mut slot).fill(block + 1);
                free.push(slot);
                let offset = u64::from(block) * u64::from(BLOCK);
                let written = carry_out(&mut backend, &mut free, IoKind::Write, offset);
                assert_eq!(written, BLOCK.cast_signed());
            }
            assert_eq!(carry_out(&mut backend, &mut free, IoKind::Sync, 0), 0);
            let content = fs::read(lab.file()).expect("read");
            let blocks = content.chunks(BLOCK as usize).take(8);
            assert!(blocks.zip(1..).all(|(block, n)| block.iter().all(|byte| *byte == n)));
            let durable = carry_out(&mut backend, &mut free, IoKind::DurableWrite, 7 * u64::from(BLOCK));
            assert_eq!(durable, BLOCK.cast_signed());
            let read = carry_out(&mut backend, &mut free, IoKind::Read, 5 * u64::from(BLOCK));
            let mut slot = free.pop().expect("free");
            assert_eq!((read, backend.buffer(&mut slot)[100]), (BLOCK.cast_signed(), 6));
        }
    }

    #[test]
    fn discards_and_zeroes_are_passed_on_and_errors_come_back() {
        // What is not discarded can still be overwritten by zeroes.
        for (discard, zeroes_on_trim, is_zero) in
            [("unmap", false, true), ("ignore", false, false), ("ignore", true, true)]
        {
            let Some(lab) = Lab::with(1, discard) else { return };
            let (mut backend, mut free) = lab.open(1, Options { zeroes_on_trim, ..Options::default() });
            assert!(backend.device.discards && backend.device.writes_zeroes);
            assert_eq!(carry_out(&mut backend, &mut free, IoKind::Trim, 0), BLOCK.cast_signed());
            let mut content = [1; BLOCK as usize];
            File::open(lab.file()).and_then(|file| file.read_exact_at(&mut content, 0)).expect("read");
            assert_eq!(content.iter().all(|byte| *byte == 0), is_zero, "{discard}, {zeroes_on_trim}");
        }
        let Some(lab) = Lab::new(1) else { return };
        let (mut backend, mut free) = lab.open(1, Options::default());
        assert_eq!(backend.device.length, BLOCKS * u64::from(BLOCK));
        let beyond = BLOCKS * u64::from(BLOCK);
        assert_eq!(carry_out(&mut backend, &mut free, IoKind::Read, beyond), -libc::EIO);
        assert_eq!(carry_out(&mut backend, &mut free, IoKind::Write, 100), -libc::EINVAL, "no whole sectors");
    }

    #[test]
    fn a_wait_ends_in_time_and_none_is_none() {
        let Some(lab) = Lab::new(1) else { return };
        let (mut backend, _slots) = lab.open(1, Options::default());
        for wait_ns in [0, 30_000_000] {
            let begin = clock::now();
            backend.submit(wait_ns).expect("waited");
            assert!(clock::now() - begin >= wait_ns && backend.done.is_empty());
        }
    }

    #[test]
    fn each_worker_has_a_queue_and_gives_it_back() {
        let Some(lab) = Lab::new(2) else { return };
        for _ in 0..3 {
            let (mut one, mut free) = lab.open(1, Options::default());
            let two = lab.open(1, Options::default());
            let refused =
                Virtio::open(lab.setup(1, Options::default())).map(drop).expect_err("refused").to_string();
            assert!(refused.contains("has 2 queues, one for each worker"), "{refused}");
            drop(two);
            assert_eq!(carry_out(&mut one, &mut free, IoKind::Read, 0), BLOCK.cast_signed());
        }
    }

    #[test]
    fn a_queue_of_any_size_holds_what_it_promises() {
        for (entries, depth) in [(None, 341), (Some(128), 42), (Some(4), 1)] {
            let Some(lab) = Lab::new(1) else { return };
            let connected = Device::at(&lab.setup(1, Options::default()).file, entries).expect("connected");
            let refused =
                Virtio::open(lab.setup(depth + 1, Options::default())).map(drop).expect_err("refused");
            assert!(refused.to_string().contains(&format!("holds {depth} I/Os")), "{refused}");
            let (mut backend, mut free) = lab.open(depth, Options::default());
            drop(connected);
            let (mut done, mut finished) = (Vec::new(), 0);
            for slot in free.drain(..) {
                let offset = slot.index() as u64 % BLOCKS * u64::from(BLOCK);
                backend.queue(slot, Io { direction: IoKind::Read, offset, length: BLOCK });
            }
            while finished < depth as usize {
                backend.submit(u64::MAX).expect("submitted");
                backend.reap(&mut done);
                finished += done.len();
                assert!(done.drain(..).all(|one| one.result == BLOCK.cast_signed()));
            }
        }
    }

    #[test]
    fn a_server_that_dies_is_an_error_and_not_a_wait() {
        let Some(mut lab) = Lab::new(1) else { return };
        let (mut backend, mut free) = lab.open(1, Options::default());
        // Stops the server, so that it answers nothing more.
        let pid = rustix::process::Pid::from_child(&lab.server);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
        let slot = free.pop().expect("free");
        backend.queue(slot, Io { direction: IoKind::Read, offset: 0, length: BLOCK });
        backend.submit(20_000_000).expect("a wait without an answer");
        lab.server.kill().expect("killed");
        let error = backend.submit(u64::MAX).expect_err("it is gone");
        assert!(error.to_string().contains("has ended"), "{error}");
    }

    /// Checks that connecting to a stopped server ends with an error. Its socket has room for a connection or two that are not accepted;
    /// the next connection blocks.
    #[test]
    fn a_server_that_accepts_no_connection_is_given_up() {
        let Some(lab) = Lab::new(1) else { return };
        let setup = lab.setup(1, Options::default());
        let pid = rustix::process::Pid::from_child(&lab.server);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
        for attempt in 0..3 {
            let error = Device::at(&setup.file, None).map(drop).expect_err("nobody answers");
            assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "attempt {attempt}: {error}");
        }
    }
}
