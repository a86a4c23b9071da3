//! Copies from and to a memory-mapped file, one I/O at a time. Measures the cost for a program that maps its data, page faults included. A
//! sync is an msync(2) of the whole mapping.
#![expect(unsafe_code, reason = "memory that is a file's")]

mod fault;

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ptr::{self, NonNull};

use iotax_load::error::EngineError;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use rustix::param::page_size;

use self::fault::Watch;
use super::Options;
use super::calls::{OneByOne, Transfer};

/// The mmap backend of one worker.
pub(crate) type Mmap = OneByOne<Mapping>;

/// The mapping of a whole file or device.
#[derive(Debug)]
pub(crate) struct Mapping {
    memory: NonNull<u8>,
    length: usize,
    protection: ProtFlags,
    watch: Watch,
    /// True if pages replaced after a fault could not be mapped again; every later I/O then fails.
    torn: bool,
}

impl Transfer for Mapping {
    fn new(file: &File, _options: &Options) -> Result<Self, EngineError> {
        Self::map(file).map_err(EngineError::system("mapping the target"))
    }

    #[inline]
    fn read(&mut self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let (address, length) = self.locate(offset, buffer.len());
        // SAFETY: `length` bytes are mapped at `address`; the buffer is no shorter and lies outside the
        // mapping. Others may change the file meanwhile, as with any read: the bytes are only copied. If the
        // file has lost a page, the fault handler replaces that page.
        unsafe { ptr::copy_nonoverlapping(address, buffer.as_mut_ptr(), length) };
        self.moved(file, offset, length)
    }

    #[inline]
    fn write(&mut self, file: &File, buffer: &[u8], offset: u64) -> io::Result<usize> {
        if !self.protection.contains(ProtFlags::WRITE) {
            return Err(Errno::BADF.into());
        }
        let (address, length) = self.locate(offset, buffer.len());
        // SAFETY: as in read, and the mapping may be written.
        unsafe { ptr::copy_nonoverlapping(buffer.as_ptr(), address, length) };
        self.moved(file, offset, length)
    }

    fn sync(&mut self, _file: &File, _data_only: bool) -> io::Result<()> {
        // SAFETY: the range is the whole mapping, whose content does not change.
        Ok(unsafe { msync(self.memory.as_ptr().cast(), self.length, MsyncFlags::SYNC) }?)
    }
}

impl Mapping {
    fn map(mut file: &File) -> io::Result<Self> {
        let length =
            usize::try_from(file.seek(SeekFrom::End(0))?).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let writable = fcntl_getfl(file)?.contains(OFlags::RDWR);
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice affects no other memory.
        let memory = unsafe { mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, file, 0) }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let watch = Watch::over(memory, length)?;
        Ok(Self { memory, length, protection, watch, torn: false })
    }

    /// Returns the address of `offset` in the mapping, and the number of bytes mapped from there, at most `wanted`.
    #[inline]
    fn locate(&self, offset: u64, wanted: usize) -> (*mut u8, usize) {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(self.length);
        // SAFETY: the address lies within the mapping or at its end.
        let address = unsafe { self.memory.add(offset) };
        (address.as_ptr(), wanted.min(self.length - offset))
    }

    /// Returns the number of bytes copied, or an error if a page fault failed during the copy.
    #[inline]
    fn moved(&mut self, file: &File, offset: u64, length: usize) -> io::Result<usize> {
        if self.watch.faulted() || self.torn { self.mend(file, offset, length) } else { Ok(length) }
    }

    /// Maps the file's pages again after a fault replaced them. Returns a short byte count if the file has shrunk; else EIO, because the kernel
    /// gives no reason for the fault.
    #[cold]
    fn mend(&mut self, mut file: &File, offset: u64, length: usize) -> io::Result<usize> {
        let page = page_size();
        let (address, _) = self.locate(offset, 0);
        let within = address.addr() % page;
        let first = address.wrapping_sub(within);
        // After a failed remapping the old pages stay lost, so nothing here can be relied on any more.
        if self.torn {
            return Err(Errno::IO.into());
        }
        self.torn = true;
        // SAFETY: these pages are part of the mapping, and no reference to them is alive.
        unsafe {
            mmap(
                first.cast(),
                length + within,
                self.protection,
                MapFlags::SHARED | MapFlags::FIXED,
                file,
                offset - within as u64,
            )
        }?;
        self.torn = false;
        let end = file.seek(SeekFrom::End(0))?;
        let there = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
        if there < length { Ok(there) } else { Err(Errno::IO.into()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by map with this length, and no reference to it is alive.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), self.length) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}
