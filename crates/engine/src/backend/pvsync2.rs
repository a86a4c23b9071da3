//! preadv2 and pwritev2, one at a time: pread and pwrite with flags for each I/O.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};

use iotax_load::error::EngineError;
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};

use super::calls::{OneByOne, Transfer};
use super::{Note, Options};

/// The pvsync2 backend of one worker.
pub(crate) type Pvsync2 = OneByOne<Flagged>;

/// Reads and writes with preadv2 and pwritev2.
#[derive(Debug)]
pub(crate) struct Flagged {
    flags: ReadWriteFlags,
    /// Flags that only writes have, such as RWF_DSYNC.
    of_writes: ReadWriteFlags,
    /// Number of I/Os that were repeated without RWF_NOWAIT.
    waited: u64,
}

impl Transfer for Flagged {
    fn new(_file: &File, options: &Options) -> Result<Self, EngineError> {
        let mut flags = ReadWriteFlags::empty();
        flags.set(ReadWriteFlags::HIPRI, options.hipri);
        flags.set(ReadWriteFlags::NOWAIT, options.nowait);
        let of_writes = if options.rwf_dsync { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        Ok(Self { flags, of_writes, waited: 0 })
    }

    #[inline]
    fn read(&mut self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = buffer.len();
        self.patiently(wanted, |flags| preadv2(file, &mut [IoSliceMut::new(buffer)], offset, flags))
    }

    #[inline]
    fn write(&mut self, file: &File, buffer: &[u8], offset: u64) -> io::Result<usize> {
        let more = self.of_writes;
        self.patiently(buffer.len(), |flags| pwritev2(file, &[IoSlice::new(buffer)], offset, flags | more))
    }

    fn write_durably(&mut self, file: &File, buffer: &[u8], offset: u64) -> io::Result<usize> {
        let durable = |flags| pwritev2(file, &[IoSlice::new(buffer)], offset, flags | ReadWriteFlags::DSYNC);
        self.patiently(buffer.len(), durable)
    }

    fn note(&self) -> Option<Note> {
        if self.waited > 0 {
            let words = "could not be done, or not wholly, without waiting (RWF_NOWAIT); each was done again by a plain \
                         call, and both calls are in its service time";
            return Some(Note { ios: Some(self.waited), words: words.into() });
        }
        let words = "hipri is a hint to preadv2 and pwritev2 (RWF_HIPRI), which recent kernels pass over; with \
                     ioengine = io_uring the device is polled";
        self.flags.contains(ReadWriteFlags::HIPRI).then(|| Note { ios: None, words: words.into() })
    }
}

impl Flagged {
    /// Makes the call with the flags. If RWF_NOWAIT is set and the call would block, moved only a part, or does not support the flag,
    /// repeats it without RWF_NOWAIT.
    #[inline]
    fn patiently(
        &mut self,
        wanted: usize,
        mut call: impl FnMut(ReadWriteFlags) -> rustix::io::Result<usize>,
    ) -> io::Result<usize> {
        let moved = call(self.flags);
        let done = match moved {
            Ok(bytes) => bytes == wanted,
            Err(error) => !matches!(error, Errno::AGAIN | Errno::OPNOTSUPP),
        };
        if done || !self.flags.contains(ReadWriteFlags::NOWAIT) {
            return Ok(moved?);
        }
        self.waited += 1;
        Ok(call(self.flags.difference(ReadWriteFlags::NOWAIT))?)
    }
}
