//! I/O backends. A new backend needs a file here and a line in the worker's `run` function.

mod calls;
mod choose;
mod io_uring;
mod libaio;
mod mmap;
mod null;
mod priority;
mod psync;
mod pvsync2;
mod space;
mod virtio;

use std::fs::File;
use std::io;

use iotax_load::buffers::{Buffers, Slot};
use iotax_load::error::EngineError;
use iotax_load::request::{Completion, Io};
use iotax_load::workers::Note;
use iotax_model::units::Bytes;
use iotax_model::workload::{Memory, SyncMode, Workload};
use rustix::fs::FallocateFlags;

pub(crate) use self::choose::{Choice, choose};
pub(crate) use self::io_uring::Uring;
pub(crate) use self::libaio::Libaio;
pub(crate) use self::mmap::Mmap;
pub(crate) use self::null::Null;
use self::priority::{Priorities, PriorityShare};
pub(crate) use self::psync::Psync;
pub(crate) use self::pvsync2::Pvsync2;
pub(crate) use self::space::{Falloc, Ftruncate};
pub(crate) use self::virtio::{Device, SECTOR as VIRTIO_SECTOR, Virtio, flush as flush_virtio};

/// The fallocate(2) flags that punch a hole and keep the file's length.
pub(crate) const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// The file, depth, buffer size and options with which a backend is opened.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) file: File,
    /// Maximum number of I/Os in flight.
    pub(crate) depth: u32,
    /// Size in bytes of a slot's buffer: the largest I/O.
    pub(crate) slot_bytes: usize,
    pub(crate) options: Options,
}

/// The workload's keys, other than the engine, that change how an I/O is done.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) hipri: bool,
    /// True if a virtio device writes zeroes in place of each trim.
    pub(crate) zeroes_on_trim: bool,
    /// True if each write is durable when it completes: the file is open with O_SYNC or O_DSYNC, or `rwf_dsync` is set.
    pub(crate) sync: bool,
    /// True if each write asks for durability with RWF_DSYNC.
    pub(crate) rwf_dsync: bool,
    pub(crate) nowait: bool,
    pub(crate) sqthread_poll: bool,
    pub(crate) sqthread_poll_cpu: Option<u32>,
    pub(crate) mem: Memory,
    pub(crate) priority: Option<PriorityShare>,
}

impl Options {
    pub(crate) fn new(workload: &Workload) -> Self {
        let Workload { hipri, nowait, sqthread_poll, sqthread_poll_cpu, mem, .. } = *workload;
        let priority = PriorityShare::new(workload);
        let sync = workload.sync != SyncMode::None;
        let rwf_dsync = workload.sync == SyncMode::RwfDSync;
        let zeroes_on_trim = workload.libblkio_write_zeroes_on_trim;
        Self {
            hipri,
            zeroes_on_trim,
            sync,
            rwf_dsync,
            nowait,
            sqthread_poll,
            sqthread_poll_cpu,
            mem,
            priority,
        }
    }
}

/// The I/O engine of one worker, used on the thread that opened it. Each I/O takes a slot, and its completion returns the slot. Dropping a
/// backend waits for the I/O in flight, on a virtio device for at most 15 s.
pub(crate) trait Backend: Sized {
    /// Opens the backend and returns its slots, as many as the queue depth. The caller passes a slot with each I/O.
    fn open(setup: Setup) -> Result<(Self, Vec<Slot>), EngineError>;

    /// Returns the buffer of a slot.
    fn buffer(&mut self, slot: &mut Slot) -> &mut [u8];

    /// Prepares an I/O on the slot's buffer. The I/O starts with the next [`Self::begin`] or [`Self::submit`].
    fn queue(&mut self, slot: Slot, io: Io);

    /// Starts queued I/Os without waiting. Does nothing in backends that do the I/O within [`Self::submit`].
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Starts queued I/Os and waits up to `wait_ns` nanoseconds for a completion; 0 does not wait. May return early. Backends that do the I/O
    /// within this call do not wait after that.
    fn submit(&mut self, wait_ns: u64) -> io::Result<()>;

    /// Moves completions to `done`, which must have the capacity for all slots.
    fn reap(&mut self, done: &mut Vec<Completion>);

    /// Returns a note if I/O was done differently than requested, else `None`.
    fn note(&self) -> Option<Note> {
        None
    }
}

/// Allocates the buffers for `setup`, with the kind of memory that its options name.
fn buffers(setup: &Setup) -> Result<(Buffers, Vec<Slot>), EngineError> {
    let (memory, bytes) = (setup.options.mem, Bytes(setup.slot_bytes as u64));
    let remedy = match memory {
        Memory::MmapHuge | Memory::ShmHuge => {
            " in reserved huge pages (sysctl vm.nr_hugepages says how many of 2 MiB there are)"
        }
        _ => "",
    };
    Buffers::within(memory, setup.depth, setup.slot_bytes)
        .map_err(EngineError::system(format!("mapping {} buffers of {bytes}{remedy}", setup.depth)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_load::error::OpenRefusal;
    use iotax_load::request::IoKind;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileExt, MetadataExt};

    const BLOCK: u32 = 4096;

    fn setup(file: &File, depth: u32) -> Setup {
        let file = file.try_clone().expect("duplicated");
        Setup { file, depth, slot_bytes: BLOCK as usize, options: Options::default() }
    }

    /// Does one I/O and returns its result.
    fn carry_out(backend: &mut impl Backend, free: &mut Vec<Slot>, io: Io) -> i32 {
        let mut done = Vec::with_capacity(1);
        backend.queue(free.pop().expect("free"), io);
        while done.is_empty() {
            backend.submit(u64::MAX).expect("submitted");
            backend.reap(&mut done);
        }
        let Completion { slot, result } = done.pop().expect("one");
        free.push(slot);
        result
    }

    /// Writes eight different blocks through a backend, a few at a time, and reads them back through it.
    fn writes_and_reads_what_was_asked<B: Backend>(depth: u32) {
        let file = tempfile::tempfile().expect("file");
        file.set_len(8 * u64::from(BLOCK)).expect("sized");
        let (mut backend, mut free) = B::open(setup(&file, depth)).expect("opened");
        let mut done = Vec::with_capacity(depth as usize);
        for direction in [IoKind::Write, IoKind::Read] {
            let mut of_slot = vec![0_u8; depth as usize];
            let (mut next, mut finished) = (0_u8, 0);
            while finished < 8 {
                while let Some(mut slot) = if next < 8 { free.pop() } else { None } {
                    let content = if direction == IoKind::Write { next + 1 } else { 0 };
                    backend.buffer(&mut slot).fill(content);
                    of_slot[slot.index()] = next;
                    let offset = u64::from(next) * u64::from(BLOCK);
                    backend.queue(slot, Io { direction, offset, length: BLOCK });
                    next += 1;
                }
                backend.submit(u64::MAX).expect("submitted");
                backend.reap(&mut done);
                for Completion { mut slot, result } in done.drain(..) {
                    assert_eq!(result, BLOCK.cast_signed());
                    let block = of_slot[slot.index()];
                    assert!(backend.buffer(&mut slot).iter().all(|byte| *byte == block + 1));
                    finished += 1;
                    free.push(slot);
                }
            }
        }
        assert_eq!(free.len(), depth as usize, "every slot came back");
        let mut content = vec![0; 8 * BLOCK as usize];
        file.read_exact_at(&mut content, 0).expect("written");
        let blocks = content.chunks(BLOCK as usize);
        assert!(blocks.zip(1..).all(|(block, n)| block.iter().all(|byte| *byte == n)));
    }

    /// Checks the errors of reads beyond the end, and of writes to a file open for reading only.
    fn reports_what_the_kernel_says<B: Backend>() {
        let file = tempfile::NamedTempFile::new().expect("file");
        file.as_file().set_len(5000).expect("sized");
        let read_only = File::open(file.path()).expect("opened");
        let (mut backend, mut free) = B::open(setup(&read_only, 1)).expect("opened");
        for (direction, offset, result) in
            [(IoKind::Read, 4096, 904), (IoKind::Read, 8192, 0), (IoKind::Write, 0, -libc::EBADF)]
        {
            let said = carry_out(&mut backend, &mut free, Io { direction, offset, length: BLOCK });
            assert_eq!(said, result, "{direction:?} at {offset}");
        }
    }

    #[test]
    fn space_is_allocated_and_freed_without_data() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("file");
        let (mut backend, mut free) = Falloc::open(setup(&file, 1)).expect("opened");
        let io = |direction, block: u64| Io { direction, offset: block * u64::from(BLOCK), length: BLOCK };
        let result = carry_out(&mut backend, &mut free, io(IoKind::Write, 3));
        if result == -libc::EOPNOTSUPP {
            iotax_testkit::skip!("the filesystem here allocates nothing beforehand");
        }
        let found = |file: &File| {
            let found = file.metadata().expect("metadata");
            (found.len() / u64::from(BLOCK), found.blocks() * 512 / u64::from(BLOCK))
        };
        assert_eq!((result, found(&file)), (BLOCK.cast_signed(), (4, 1)));
        assert_eq!(carry_out(&mut backend, &mut free, io(IoKind::Trim, 3)), BLOCK.cast_signed());
        assert_eq!(found(&file), (4, 0));
        assert_eq!(carry_out(&mut backend, &mut free, io(IoKind::Read, 3)), -libc::EINVAL);
    }

    #[test]
    fn a_length_is_set_to_the_offset() {
        let file = tempfile::tempfile().expect("file");
        let (mut backend, mut free) = Ftruncate::open(setup(&file, 1)).expect("opened");
        for offset in [7, 3, 0].map(|block| block * u64::from(BLOCK)) {
            let io = Io { direction: IoKind::Write, offset, length: BLOCK };
            assert_eq!(carry_out(&mut backend, &mut free, io), BLOCK.cast_signed());
            assert_eq!(file.metadata().expect("metadata").len(), offset);
        }
        let io = Io { direction: IoKind::Read, offset: 0, length: BLOCK };
        assert_eq!(carry_out(&mut backend, &mut free, io), -libc::EINVAL);
    }

    /// The system call number of cachestat(2), the same on every architecture.
    const CACHESTAT: libc::c_long = 451;

    /// Returns the number of a file's pages in the cache that are dirty or being written back; `None` before Linux 6.5,
    /// which has no cachestat(2).
    #[expect(unsafe_code, reason = "the crates in use lack cachestat(2)")]
    fn unwritten_pages(file: &File) -> Option<u64> {
        // The range: offset, and length 0 for all. The answer: cached, dirty, in writeback, evicted, recently evicted.
        let (range, mut answer) = ([0_u64; 2], [0_u64; 5]);
        // SAFETY: the kernel reads two numbers and writes five, at the addresses given.
        let done = unsafe {
            let (range, answer) = (range.as_ptr(), answer.as_mut_ptr());
            libc::syscall(CACHESTAT, file.as_raw_fd(), range, answer, 0)
        };
        (done == 0).then_some(answer[1] + answer[2])
    }

    /// Writes a page that stays in the cache, and one that does not.
    fn writes_durably<B: Backend>() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("file");
        file.set_len(4 * u64::from(BLOCK)).expect("sized");
        let (mut backend, mut free) = B::open(setup(&file, 1)).expect("opened");
        for (direction, left) in [(IoKind::DurableWrite, 0), (IoKind::Write, 1)] {
            let write = Io { direction, offset: u64::from(BLOCK), length: BLOCK };
            assert_eq!(carry_out(&mut backend, &mut free, write), BLOCK.cast_signed());
            let Some(unwritten) = unwritten_pages(&file) else {
                iotax_testkit::skip!("the kernel has no cachestat(2)");
            };
            assert_eq!(unwritten, left, "{direction:?}");
        }
    }

    /// Syncs the written data, and makes a hole in it.
    fn syncs_and_trims<B: Backend>() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("file");
        file.write_all_at(&[7; 4 * BLOCK as usize], 0).expect("written");
        let (mut backend, mut free) = B::open(setup(&file, 1)).expect("opened");
        let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        for direction in [IoKind::Sync, IoKind::DataSync, IoKind::RangeSync(flags)] {
            assert_eq!(carry_out(&mut backend, &mut free, Io { direction, offset: 0, length: 0 }), 0);
        }
        let before = file.metadata().expect("metadata");
        // The kernel refuses the unknown flag, so it did see the flags.
        let unknown = Io { direction: IoKind::RangeSync(1 << 20), offset: 0, length: 0 };
        assert_eq!(carry_out(&mut backend, &mut free, unknown), -libc::EINVAL);
        let (direction, offset) = (IoKind::Trim, u64::from(BLOCK));
        let result = carry_out(&mut backend, &mut free, Io { direction, offset, length: BLOCK });
        if result == -libc::EOPNOTSUPP {
            iotax_testkit::skip!("the filesystem here makes no holes");
        }
        assert_eq!(result, BLOCK.cast_signed());
        let after = file.metadata().expect("metadata");
        assert_eq!((after.len(), before.blocks() - after.blocks()), (before.len(), u64::from(BLOCK) / 512));
        let mut content = [0; 4 * BLOCK as usize];
        file.read_exact_at(&mut content, 0).expect("read");
        let zeros = content.chunks(BLOCK as usize).map(|block| block.iter().all(|byte| *byte == 0));
        assert_eq!(zeros.collect::<Vec<_>>(), [false, true, false, false]);
    }

    /// Checks that a wait without I/O in flight ends in time and returns nothing.
    fn waits_as_long_as_told<B: Backend>() {
        let file = tempfile::tempfile().expect("file");
        let (mut backend, _slots) = B::open(setup(&file, 1)).expect("opened");
        let mut done = Vec::new();
        for wait_ns in [0, 30_000_000] {
            let begin = iotax_load::clock::now();
            backend.submit(wait_ns).expect("waited");
            backend.reap(&mut done);
            assert!(iotax_load::clock::now() - begin >= wait_ns);
            assert_eq!(done, []);
        }
    }

    fn uring_is_missing() -> bool {
        let file = tempfile::tempfile().expect("file");
        match Uring::open(setup(&file, 1)) {
            Err(EngineError::NoIoUring { error }) => {
                iotax_testkit::skipped::<()>(format_args!("no io_uring here: {error}"));
                true
            }
            _ => false,
        }
    }

    #[test]
    fn a_durable_write_leaves_no_dirty_page_and_another_one() {
        writes_durably::<Psync>();
        writes_durably::<Pvsync2>();
        writes_durably::<Mmap>();
        writes_durably::<Libaio>();
        if !uring_is_missing() {
            writes_durably::<Uring>();
        }
    }

    #[test]
    fn psync_does_what_was_asked() {
        writes_and_reads_what_was_asked::<Psync>(1);
        reports_what_the_kernel_says::<Psync>();
        syncs_and_trims::<Psync>();
    }

    #[test]
    fn pvsync2_does_what_was_asked() {
        writes_and_reads_what_was_asked::<Pvsync2>(1);
        reports_what_the_kernel_says::<Pvsync2>();
        syncs_and_trims::<Pvsync2>();
    }

    #[test]
    fn mmap_does_what_was_asked() {
        writes_and_reads_what_was_asked::<Mmap>(1);
        syncs_and_trims::<Mmap>();
    }

    #[test]
    fn io_uring_does_what_was_asked() {
        if uring_is_missing() {
            return;
        }
        for depth in [1, 3, 8] {
            writes_and_reads_what_was_asked::<Uring>(depth);
        }
        reports_what_the_kernel_says::<Uring>();
        syncs_and_trims::<Uring>();
        waits_as_long_as_told::<Uring>();
    }

    #[test]
    fn libaio_does_what_was_asked() {
        for depth in [1, 3, 8] {
            writes_and_reads_what_was_asked::<Libaio>(depth);
        }
        reports_what_the_kernel_says::<Libaio>();
        syncs_and_trims::<Libaio>();
        waits_as_long_as_told::<Libaio>();
    }

    #[test]
    fn an_io_that_may_not_wait_is_done_by_waiting_all_the_same_and_counted() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("file");
        file.write_all_at(&[7; BLOCK as usize], 0).expect("written");
        file.sync_all().expect("synced");
        let options = Options { nowait: true, ..Options::default() };
        let (mut backend, mut free) = Pvsync2::open(Setup { options, ..setup(&file, 1) }).expect("opened");
        let read = Io { direction: IoKind::Read, offset: 0, length: BLOCK };
        // In the cache.
        assert_eq!(carry_out(&mut backend, &mut free, read), BLOCK.cast_signed());
        assert_eq!(backend.note(), None);
        // The kernel does not drop a page that another CPU is using, so try again.
        let mut tries = 0..100;
        while backend.note().is_none() && tries.next().is_some() {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("dropped");
            assert_eq!(carry_out(&mut backend, &mut free, read), BLOCK.cast_signed());
        }
        assert!(backend.buffer(&mut free[0]).iter().all(|byte| *byte == 7));
        assert_eq!(backend.note().and_then(|note| note.ios), Some(1));
    }

    #[test]
    fn pages_that_a_mapped_file_has_no_more_are_missed_and_those_it_has_again_are_found() {
        let file = tempfile::NamedTempFile::new().expect("file");
        file.as_file().write_all_at(&[7; 4 * BLOCK as usize], 0).expect("written");
        let (mut backend, mut free) = Mmap::open(setup(file.as_file(), 1)).expect("opened");
        let mut io = |direction, block: u64| {
            let result = carry_out(
                &mut backend,
                &mut free,
                Io { direction, offset: block * u64::from(BLOCK), length: BLOCK },
            );
            (result, backend.buffer(&mut free[0])[0])
        };
        assert_eq!(io(IoKind::Read, 3), (4096, 7));
        assert_eq!(io(IoKind::Read, 4).0, 0, "beyond the mapping");
        file.as_file().set_len(2 * u64::from(BLOCK) + 10).expect("cut");
        assert_eq!(io(IoKind::Read, 1), (4096, 7));
        assert_eq!(io(IoKind::Read, 3), (0, 0));
        assert_eq!(io(IoKind::Write, 3).0, 0);
        assert_eq!(io(IoKind::Read, 1), (4096, 7));
        file.as_file().write_all_at(&[9; 4 * BLOCK as usize], 0).expect("written");
        assert_eq!(io(IoKind::Read, 3), (4096, 9), "no empty page was left in its place");
        let read_only = File::open(file.path()).expect("opened");
        let (mut backend, mut free) = Mmap::open(setup(&read_only, 1)).expect("opened");
        let write = Io { direction: IoKind::Write, offset: 0, length: BLOCK };
        assert_eq!(carry_out(&mut backend, &mut free, write), -libc::EBADF);
    }

    /// Reads with a priority that every user may set, and with an invalid one.
    fn reads_with_priorities<B: Backend>() {
        let file = tempfile::tempfile().expect("file");
        file.set_len(BLOCK.into()).expect("sized");
        let io = Io { direction: IoKind::Read, offset: 0, length: BLOCK };
        for (class, result) in [("2", BLOCK.cast_signed()), ("3", BLOCK.cast_signed()), ("7", -libc::EINVAL)]
        {
            let mut keys = iotax_model::workload::WorkloadKeys::default();
            for (key, text) in [("cmdprio_percentage", "100"), ("cmdprio_class", class), ("cmdprio", "7")] {
                keys.set(key, text).expect("a key");
            }
            let workload = keys.complete(&iotax_model::workload::WorkloadKeys::default());
            let options = Options { priority: PriorityShare::new(&workload), ..Options::default() };
            let (mut backend, mut free) = B::open(Setup { options, ..setup(&file, 1) }).expect("opened");
            assert_eq!(carry_out(&mut backend, &mut free, io), result, "class {class}");
        }
    }

    #[test]
    fn the_kernel_is_told_the_priorities_of_single_ios() {
        reads_with_priorities::<Libaio>();
        if !uring_is_missing() {
            reads_with_priorities::<Uring>();
        }
    }

    #[test]
    fn the_kernel_s_thread_submits_if_asked() {
        if uring_is_missing() {
            return;
        }
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("file");
        file.write_all_at(&vec![7; 8 * BLOCK as usize], 0).expect("written");
        let options = Options { sqthread_poll: true, sqthread_poll_cpu: Some(0), ..Options::default() };
        let (mut backend, mut free) = Uring::open(Setup { options, ..setup(&file, 2) }).expect("opened");
        for block in (0..8).cycle().take(1000) {
            let io = Io { direction: IoKind::Read, offset: block * u64::from(BLOCK), length: BLOCK };
            assert_eq!(carry_out(&mut backend, &mut free, io), BLOCK.cast_signed());
        }
        let threads = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
        let names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
        assert!(names.into_iter().any(|name| name.starts_with("iou-sqp")), "no thread of the kernel's");
    }

    #[test]
    fn polled_io_is_done_or_refused_with_the_remedy_before_any_is_measured() {
        if uring_is_missing() {
            return;
        }
        let options = Options { hipri: true, ..Options::default() };
        let buffered = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("file");
        buffered.write_all_at(&[7; BLOCK as usize], 0).expect("written");
        match Uring::open(Setup { options, ..setup(&buffered, 1) }).err().expect("never polled") {
            error @ EngineError::Target { reason: OpenRefusal::NoPolling(_), .. } => {
                let words = error.to_string();
                assert!(words.contains("direct = true") && words.contains("hipri = false"), "{words}");
            }
            other => panic!("{other}"),
        }
    }
}
