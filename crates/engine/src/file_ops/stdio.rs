//! Reads and writes records through a user-space buffer, as glibc's fread and fwrite do.
//!
//! The buffer has the filesystem's preferred I/O length (st_blksize), mostly 4 KiB. Only system calls count: a record shorter than the buffer
//! often needs no call, and the whole blocks of a longer record bypass the buffer.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::MetadataExt;

use iotax_load::error::EngineError;
use iotax_load::request::{Io, IoKind};

use super::Routine;
use super::meter::{Meter, Over};
use super::output::Output;
use super::record::Record;
use super::setup::WorkerSetup;

/// Allocates a buffer of the file's preferred I/O length (st_blksize).
fn buffer(file: &File) -> Result<Vec<u8>, EngineError> {
    let facts = file.metadata().map_err(EngineError::system("asking for the length of a buffer"))?;
    Ok(vec![0; usize::try_from(facts.blksize()).unwrap_or(4096).max(1)])
}

/// The user-space buffer of a file that is being written.
pub(super) struct WriteBuffer {
    bytes: Vec<u8>,
    /// Number of bytes in the buffer that are not written yet.
    used: usize,
}

impl WriteBuffer {
    pub(super) fn new(file: &File) -> Result<Self, EngineError> {
        Ok(Self { bytes: buffer(file)?, used: 0 })
    }

    /// Buffers `bytes` like fwrite(3): fills the buffer; if bytes are left, writes the buffer, then the whole blocks of the rest, and buffers
    /// what remains.
    pub(super) fn put(&mut self, output: &mut Output, bytes: &[u8], meter: &mut Meter) -> ControlFlow<Over> {
        let fits = bytes.len().min(self.bytes.len() - self.used);
        let (first, rest) = bytes.split_at(fits);
        self.bytes[self.used..self.used + fits].copy_from_slice(first);
        self.used += fits;
        if rest.is_empty() {
            return ControlFlow::Continue(());
        }
        output.write(meter, &self.bytes)?;
        let (blocks, rest) = rest.split_at(rest.len() / self.bytes.len() * self.bytes.len());
        if !blocks.is_empty() {
            output.write(meter, blocks)?;
        }
        self.bytes[..rest.len()].copy_from_slice(rest);
        self.used = rest.len();
        ControlFlow::Continue(())
    }

    /// Writes the buffered bytes, like fflush(3).
    pub(super) fn flush(&mut self, output: &mut Output, meter: &mut Meter) -> ControlFlow<Over> {
        let waiting = &self.bytes[..std::mem::take(&mut self.used)];
        if waiting.is_empty() { ControlFlow::Continue(()) } else { output.write(meter, waiting) }
    }
}

/// The test that reads a worker's part of the area through a user-space buffer.
struct StdioRead {
    file: File,
    record: Record,
    buffer: Vec<u8>,
    /// Range of the buffer's bytes that were read from the file but not consumed.
    ready: Range<usize>,
    stretch: Range<u64>,
    /// Offset in bytes of the next read.
    offset: u64,
    /// Offset in bytes at which the area ends. Reads stop there, because the file may end there too.
    area_end: u64,
    passes: u64,
}

pub(super) fn read(setup: &mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError> {
    let (record, stretch, passes) = (Record::new(setup)?, setup.stretch(), setup.passes());
    let file = setup.target()?;
    let buffer = buffer(&file)?;
    let (offset, area_end) = (stretch.start, setup.workload.offset.0 + setup.size);
    Ok(Box::new(StdioRead { file, record, buffer, ready: 0..0, stretch, offset, area_end, passes }))
}

impl StdioRead {
    /// Reads one record like fread(3): takes the buffered bytes, reads whole blocks directly, and refills the buffer for the rest.
    fn get(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        let record = self.record.bytes();
        let (file, at) = (&mut self.file, &mut self.offset);
        let mut filled = 0;
        while filled < record.len() {
            let missing = record.len() - filled;
            if self.ready.is_empty() {
                let blocks = missing / self.buffer.len() * self.buffer.len();
                if blocks > 0 {
                    let into = &mut record[filled..filled + blocks];
                    call(meter, at, into.len(), || file.read(into))?;
                    filled += blocks;
                } else {
                    let left = usize::try_from(self.area_end - *at).unwrap_or(usize::MAX);
                    let into = self.buffer.len().min(left);
                    call(meter, at, into, || file.read(&mut self.buffer[..into]))?;
                    self.ready = 0..into;
                }
            } else {
                let taken = missing.min(self.ready.len());
                let from = self.ready.start..self.ready.start + taken;
                record[filled..filled + taken].copy_from_slice(&self.buffer[from]);
                self.ready.start += taken;
                filled += taken;
            }
        }
        ControlFlow::Continue(())
    }
}

/// Calls read(2) at the file's position. A failed or short read counts as failed; the record then goes on at the next offset.
fn call(
    meter: &mut Meter,
    at: &mut u64,
    bytes: usize,
    read: impl FnOnce() -> std::io::Result<usize>,
) -> ControlFlow<Over> {
    // A record is at most 64 MiB long.
    let length = u32::try_from(bytes).unwrap_or(u32::MAX);
    meter.io(Io { direction: IoKind::Read, offset: *at, length }, read)?;
    *at += bytes as u64;
    ControlFlow::Continue(())
}

impl Routine for StdioRead {
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        let records = (self.stretch.end - self.stretch.start) / self.record.bytes().len() as u64;
        for _ in 0..self.passes {
            let start = self.stretch.start;
            let io = Io { direction: IoKind::Read, offset: start, length: 0 };
            meter.aside(io, || self.file.seek(SeekFrom::Start(start)))?;
            (self.offset, self.ready) = (start, 0..0);
            for _ in 0..records {
                self.get(meter)?;
            }
        }
        ControlFlow::Continue(())
    }
}
