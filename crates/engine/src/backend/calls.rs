//! I/O by blocking system calls, one at a time: the common part of psync, pvsync2, mmap, falloc and ftruncate. Also does trims and syncs
//! for backends whose kernel interface lacks them.
#![expect(unsafe_code, reason = "the crates in use have neither BLKDISCARD nor sync_file_range")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;

use iotax_load::buffers::{Buffers, Slot};
use iotax_load::error::EngineError;
use iotax_load::request::IoKind;
use rustix::fs::fallocate;

use super::{Backend, Completion, Io, Note, Options, PUNCH, Setup};

/// The calls of one backend: read, write and sync.
pub(crate) trait Transfer: Sized {
    /// Prepares reads and writes of this file.
    fn new(file: &File, options: &Options) -> Result<Self, EngineError>;

    /// Reads at `offset` into `buffer` and returns the number of bytes read.
    fn read(&mut self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes `buffer` at `offset` and returns the number of bytes written.
    fn write(&mut self, file: &File, buffer: &[u8], offset: u64) -> io::Result<usize>;

    /// Writes like [`Self::write`], and returns once the data is durable.
    fn write_durably(&mut self, file: &File, buffer: &[u8], offset: u64) -> io::Result<usize> {
        let written = self.write(file, buffer, offset)?;
        self.sync(file, true)?;
        Ok(written)
    }

    /// Flushes written data to stable storage; with `data_only`, like fdatasync(2).
    fn sync(&mut self, file: &File, data_only: bool) -> io::Result<()> {
        if data_only { file.sync_data() } else { file.sync_all() }
    }

    /// Returns a note for the result, see [`Backend::note`].
    fn note(&self) -> Option<Note> {
        None
    }
}

/// A backend that does each queued I/O by a blocking call within [`Backend::submit`].
#[derive(Debug)]
pub(crate) struct OneByOne<T> {
    transfer: T,
    file: File,
    is_device: bool,
    buffers: Buffers,
    queued: Vec<(Slot, Io)>,
    done: Vec<Completion>,
}

impl<T: Transfer> Backend for OneByOne<T> {
    fn open(setup: Setup) -> Result<(Self, Vec<Slot>), EngineError> {
        let (buffers, slots) = super::buffers(&setup)?;
        let room = slots.len();
        let backend = Self {
            transfer: T::new(&setup.file, &setup.options)?,
            is_device: is_device(&setup.file),
            file: setup.file,
            buffers,
            queued: Vec::with_capacity(room),
            done: Vec::with_capacity(room),
        };
        Ok((backend, slots))
    }

    #[inline]
    fn buffer(&mut self, slot: &mut Slot) -> &mut [u8] {
        self.buffers.slice(slot)
    }

    #[inline]
    fn queue(&mut self, slot: Slot, io: Io) {
        self.queued.push((slot, io));
    }

    #[inline]
    fn submit(&mut self, _wait_ns: u64) -> io::Result<()> {
        for (mut slot, io) in self.queued.drain(..) {
            let buffer = self.buffers.slice(&mut slot);
            // Not for a trim, which may be longer than the buffer.
            let data = ..io.length as usize;
            let moved = match io.direction {
                IoKind::Read => self.transfer.read(&self.file, &mut buffer[data], io.offset),
                IoKind::Write => self.transfer.write(&self.file, &buffer[data], io.offset),
                IoKind::DurableWrite => self.transfer.write_durably(&self.file, &buffer[data], io.offset),
                IoKind::Trim => trim(&self.file, self.is_device, io),
                IoKind::Sync => self.transfer.sync(&self.file, false).map(|()| 0),
                IoKind::DataSync => self.transfer.sync(&self.file, true).map(|()| 0),
                IoKind::RangeSync(flags) => sync_range(&self.file, flags),
            };
            self.done.push(Completion { slot, result: result_of(moved) });
        }
        Ok(())
    }

    #[inline]
    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }

    fn note(&self) -> Option<Note> {
        self.transfer.note()
    }
}

/// Discards the range of an I/O: by a discard command on a device, by punching a hole in a file. Returns the number of bytes discarded.
fn trim(file: &File, is_device: bool, io: Io) -> io::Result<usize> {
    let (offset, length) = (io.offset, u64::from(io.length));
    if is_device {
        let range = [offset, length];
        // SAFETY: BLKDISCARD reads two numbers of 64 bits, offset and length in bytes, at the address given.
        let answer = unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, &raw const range) };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
    } else {
        fallocate(file, PUNCH, offset, length)?;
    }
    Ok(io.length as usize)
}

/// Writes back the dirty pages of the whole file by sync_file_range(2) with these flags. Returns 0.
fn sync_range(file: &File, flags: u32) -> io::Result<usize> {
    // SAFETY: the call takes no memory, and the descriptor is open for as long as the file is borrowed.
    let answer = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(0) }
}

/// Does a trim or a sync by a system call. Returns the bytes discarded, 0 for a sync, or a negative errno.
pub(super) fn by_call(file: &File, is_device: bool, io: Io) -> i32 {
    result_of(match io.direction {
        IoKind::Trim => trim(file, is_device, io),
        IoKind::DataSync => file.sync_data().map(|()| 0),
        IoKind::RangeSync(flags) => sync_range(file, flags),
        _ => file.sync_all().map(|()| 0),
    })
}

/// The discard ioctl of linux/fs.h, which the libc crate does not define.
const BLKDISCARD: libc::Ioctl = 0x1277;

/// Returns whether an open file is a block device.
pub(super) fn is_device(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Converts a result to the form that the kernel uses: a byte count, or a negative errno.
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
