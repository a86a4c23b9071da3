//! pread and pwrite, one at a time.

use std::fs::File;
use std::io;

use iotax_load::error::EngineError;
use rustix::io::{pread, pwrite};

use super::Options;
use super::calls::{OneByOne, Transfer};

/// The psync backend of one worker.
pub(crate) type Psync = OneByOne<Positioned>;

/// pread and pwrite as direct system calls. In the C library both are cancellation points, which makes each call slower.
#[derive(Debug)]
pub(crate) struct Positioned;

impl Transfer for Positioned {
    fn new(_file: &File, _options: &Options) -> Result<Self, EngineError> {
        Ok(Self)
    }

    #[inline]
    fn read(&mut self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(pread(file, buffer, offset)?)
    }

    #[inline]
    fn write(&mut self, file: &File, buffer: &[u8], offset: u64) -> io::Result<usize> {
        Ok(pwrite(file, buffer, offset)?)
    }
}
