//! Ways to hand I/O to the kernel. A further one is a file here and a line in [`run`].

mod io_uring;
mod null;
mod psync;

use std::fs::File;
use std::io;

use iotax_model::units::Bytes;
use iotax_model::workload::IoEngine;
use rustix::fs::{FallocateFlags, fallocate};

pub(crate) use self::io_uring::Uring;
pub(crate) use self::null::Null;
pub(crate) use self::psync::Psync;
use crate::buffers::{Buffers, Slot};
use crate::error::EngineError;
use crate::pattern::Direction;
use crate::worker::{self, Finish, Task};

/// What a backend is to work on.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) file: File,
    /// I/Os that may be in flight at once.
    pub(crate) depth: u32,
    /// Bytes of the largest I/O.
    pub(crate) slot_bytes: usize,
}

/// One I/O to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Io {
    pub(crate) direction: Direction,
    /// In bytes; 0 for a flush.
    pub(crate) offset: u64,
    /// In bytes, at most the slot's; 0 for a flush.
    pub(crate) length: u32,
}

/// One I/O that is done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) slot: Slot,
    /// Bytes moved or discarded, 0 for a flush, or an errno below zero.
    pub(crate) result: i32,
}

/// Does I/O for one worker, on the thread that opened it. A slot is given with each I/O and comes back with its completion;
/// dropping a backend waits for what is in flight.
pub(crate) trait Backend: Sized {
    /// Opens it; the slots, as many as the depth, are the caller's to give.
    fn open(setup: Setup) -> Result<(Self, Vec<Slot>), EngineError>;

    /// The buffer of a slot.
    fn buffer(&mut self, slot: &mut Slot) -> &mut [u8];

    /// Prepares an I/O on the slot's buffer. It begins with the next [`Self::submit`].
    fn queue(&mut self, slot: Slot, io: Io);

    /// Begins what is queued, without waiting. For backends whose I/O is done by the end of [`Self::submit`] this is without
    /// effect.
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Begins what is queued and waits until an I/O is done, or until so many nanoseconds have passed; with 0 it does not
    /// wait. May return early. Backends whose I/O is done by the end of this call do not wait beyond it.
    fn submit(&mut self, wait_ns: u64) -> io::Result<()>;

    /// Moves what is done to `done`, which has room for all slots.
    fn reap(&mut self, done: &mut Vec<Completion>);

    /// What is done otherwise than asked, in words.
    fn note(&self) -> Option<&str>;
}

/// The buffers of a setup.
fn buffers(setup: &Setup) -> Result<(Buffers, Vec<Slot>), EngineError> {
    Buffers::new(setup.depth, setup.slot_bytes).map_err(|error| EngineError::System {
        doing: format!("mapping {} buffers of {}", setup.depth, Bytes(setup.slot_bytes as u64)),
        error,
    })
}

/// The kernel's form of a result. The system calls behind a file give no errors but its own.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "an I/O is at most 64 MiB long"
)]
fn result_of(moved: io::Result<usize>) -> i32 {
    match moved {
        Ok(bytes) => bytes as i32,
        Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
    }
}

/// Discards a range: its blocks are given back to the filesystem or the device. The bytes discarded.
fn trim(file: &File, io: Io) -> io::Result<usize> {
    let length = u64::from(io.length);
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, io.offset, length)?;
    Ok(io.length as usize)
}

/// Does a worker's task with the backend of that name.
pub(crate) fn run(engine: IoEngine, task: Task) -> Result<Finish, EngineError> {
    match engine {
        IoEngine::IoUring => worker::work::<Uring>(task),
        IoEngine::Psync => worker::work::<Psync>(task),
        IoEngine::Null => worker::work::<Null>(task),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// Writes eight blocks of their own content through a backend, a few at a time, and reads them back through it.
    fn writes_and_reads_what_was_asked<B: Backend>(depth: u32) {
        let file = tempfile::tempfile().expect("file");
        let setup = Setup { file: file.try_clone().expect("duplicated"), depth, slot_bytes: 4096 };
        let (mut backend, mut free) = B::open(setup).expect("opened");
        let mut done = Vec::with_capacity(depth as usize);
        for direction in [Direction::Write, Direction::Read] {
            let mut of_slot = vec![0_u8; depth as usize];
            let (mut next, mut finished) = (0_u8, 0);
            while finished < 8 {
                while let Some(mut slot) = if next < 8 { free.pop() } else { None } {
                    let content = if direction == Direction::Write { next + 1 } else { 0 };
                    backend.buffer(&mut slot).fill(content);
                    of_slot[slot.index()] = next;
                    backend.queue(slot, Io { direction, offset: u64::from(next) * 4096, length: 4096 });
                    next += 1;
                }
                backend.submit(u64::MAX).expect("submitted");
                backend.reap(&mut done);
                for Completion { mut slot, result } in done.drain(..) {
                    assert_eq!(result, 4096);
                    let block = of_slot[slot.index()];
                    assert!(backend.buffer(&mut slot).iter().all(|byte| *byte == block + 1));
                    finished += 1;
                    free.push(slot);
                }
            }
        }
        assert_eq!(free.len(), depth as usize, "every slot came back");
        let mut content = vec![0; 8 * 4096];
        file.read_exact_at(&mut content, 0).expect("written");
        assert!(content.chunks(4096).zip(1..).all(|(block, n)| block.iter().all(|byte| *byte == n)));
    }

    /// Reads beyond the end, and writes to a file that is open for reading only.
    fn reports_what_the_kernel_says<B: Backend>() {
        let file = tempfile::NamedTempFile::new().expect("file");
        file.as_file().set_len(5000).expect("sized");
        let setup = Setup { file: File::open(file.path()).expect("opened"), depth: 1, slot_bytes: 4096 };
        let (mut backend, mut free) = B::open(setup).expect("opened");
        let mut done = Vec::with_capacity(1);
        for (direction, offset, result) in
            [(Direction::Read, 4096, 904), (Direction::Read, 8192, 0), (Direction::Write, 0, -libc::EBADF)]
        {
            let slot = free.pop().expect("free");
            backend.queue(slot, Io { direction, offset, length: 4096 });
            while done.is_empty() {
                backend.submit(u64::MAX).expect("submitted");
                backend.reap(&mut done);
            }
            let completion = done.pop().expect("one");
            assert_eq!(completion.result, result, "{direction:?} at {offset}");
            free.push(completion.slot);
        }
    }

    fn uring_is_missing() -> bool {
        let file = tempfile::tempfile().expect("file");
        match Uring::open(Setup { file, depth: 1, slot_bytes: 512 }) {
            Err(EngineError::NoIoUring { error }) => {
                eprintln!("skipped: no io_uring here: {error}");
                true
            }
            _ => false,
        }
    }

    #[test]
    fn psync_does_what_was_asked() {
        writes_and_reads_what_was_asked::<Psync>(1);
        reports_what_the_kernel_says::<Psync>();
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
    }

    #[test]
    fn a_wait_without_io_ends() {
        if uring_is_missing() {
            return;
        }
        let file = tempfile::tempfile().expect("file");
        let (mut backend, _slots) = Uring::open(Setup { file, depth: 1, slot_bytes: 512 }).expect("opened");
        let begin = crate::clock::now();
        backend.submit(30_000_000).expect("waited");
        assert!(crate::clock::now() - begin >= 30_000_000);
        let mut done = Vec::new();
        backend.reap(&mut done);
        assert_eq!(done, []);
    }
}
