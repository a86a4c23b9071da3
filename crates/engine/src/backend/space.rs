//! Changes a file's allocation and length without writing data (fallocate and ftruncate), one call at a time.

use std::fs::File;
use std::io;

use iotax_load::error::EngineError;
use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use rustix::io::Errno;

use super::Options;
use super::calls::{OneByOne, Transfer};

/// The falloc backend: a write allocates its range, a trim punches a hole.
pub(crate) type Falloc = OneByOne<Allocation>;

/// The ftruncate backend: a write sets the file's length to its offset.
pub(crate) type Ftruncate = OneByOne<Length>;

/// Transfers that allocate the range of a write by fallocate(2), and punch a hole for a trim.
#[derive(Debug)]
pub(crate) struct Allocation;

/// Transfers that set the file's length to the offset of a write by ftruncate(2).
#[derive(Debug)]
pub(crate) struct Length;

impl Transfer for Allocation {
    fn new(_file: &File, _options: &Options) -> Result<Self, EngineError> {
        Ok(Self)
    }

    fn read(&mut self, _file: &File, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
        Err(Errno::INVAL.into())
    }

    fn write(&mut self, file: &File, buffer: &[u8], offset: u64) -> io::Result<usize> {
        fallocate(file, FallocateFlags::empty(), offset, buffer.len() as u64)?;
        Ok(buffer.len())
    }
}

impl Transfer for Length {
    fn new(_file: &File, _options: &Options) -> Result<Self, EngineError> {
        Ok(Self)
    }

    fn read(&mut self, _file: &File, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
        Err(Errno::INVAL.into())
    }

    fn write(&mut self, file: &File, buffer: &[u8], offset: u64) -> io::Result<usize> {
        ftruncate(file, offset)?;
        Ok(buffer.len())
    }
}
