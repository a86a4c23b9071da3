//! Records through a buffer of the program's own, as C's fwrite and fread have it in glibc.
//!
//! The buffer is as long as the filesystem's preferred I/O (st_blksize), mostly 4 KiB. What is counted are the system calls: a
//! record that is shorter than the buffer often takes none. Of a longer one, the whole blocks go past it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::MetadataExt;

use super::Routine;
use super::meter::{Meter, Over};
use super::output::Output;
use super::place::{Place, trouble};
use super::record::Record;
use crate::error::EngineError;
use crate::request::{Direction, Io};

/// A buffer for a file.
fn buffer(file: &File) -> Result<Vec<u8>, EngineError> {
    let facts = file.metadata().map_err(trouble("asking for the length of a buffer"))?;
    Ok(vec![0; usize::try_from(facts.blksize()).unwrap_or(4096).max(1)])
}

/// Writes a new file, in every pass anew.
struct StdioWrite {
    output: Output,
    record: Record,
    buffer: Vec<u8>,
    /// Bytes of it that wait to be written.
    used: usize,
    records: u64,
    passes: u64,
}

pub(super) fn write(place: &mut Place) -> Result<Box<dyn Routine>, EngineError> {
    let (mut output, record) = (Output::create(place, "stdio")?, Record::new(place)?);
    let buffer = buffer(output.file())?;
    let (records, passes) = (place.records(), place.passes());
    Ok(Box::new(StdioWrite { output, record, buffer, used: 0, records, passes }))
}

impl StdioWrite {
    /// As fwrite(3): into the buffer, and if it is full, out with it and with the whole blocks that follow.
    fn put(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        let bytes = self.record.bytes();
        let fits = bytes.len().min(self.buffer.len() - self.used);
        let (first, rest) = bytes.split_at(fits);
        self.buffer[self.used..self.used + fits].copy_from_slice(first);
        self.used += fits;
        if rest.is_empty() {
            return ControlFlow::Continue(());
        }
        self.output.write(meter, &self.buffer)?;
        let (blocks, rest) = rest.split_at(rest.len() / self.buffer.len() * self.buffer.len());
        if !blocks.is_empty() {
            self.output.write(meter, blocks)?;
        }
        self.buffer[..rest.len()].copy_from_slice(rest);
        self.used = rest.len();
        ControlFlow::Continue(())
    }

    /// As fflush(3).
    fn flush(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        let waiting = &self.buffer[..std::mem::take(&mut self.used)];
        if waiting.is_empty() { ControlFlow::Continue(()) } else { self.output.write(meter, waiting) }
    }
}

impl Routine for StdioWrite {
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        for pass in 0..self.passes {
            if pass > 0 {
                self.output.truncate(meter)?;
            }
            for _ in 0..self.records {
                self.record.refresh();
                self.put(meter)?;
            }
            self.flush(meter)?;
            self.output.end(meter)?;
        }
        ControlFlow::Continue(())
    }
}

/// Reads a worker's stretch of the area.
struct StdioRead {
    file: File,
    record: Record,
    buffer: Vec<u8>,
    /// What of it was read and not yet asked for.
    ready: Range<usize>,
    stretch: Range<u64>,
    /// Where the next read goes.
    offset: u64,
    /// Where the whole area ends, which may be the end of the file.
    area_end: u64,
    passes: u64,
}

pub(super) fn read(place: &mut Place) -> Result<Box<dyn Routine>, EngineError> {
    let (record, stretch, passes) = (Record::new(place)?, place.stretch(), place.passes());
    let file = place.target()?;
    let buffer = buffer(&file)?;
    let (offset, area_end) = (stretch.start, place.workload.offset.0 + place.size);
    Ok(Box::new(StdioRead { file, record, buffer, ready: 0..0, stretch, offset, area_end, passes }))
}

impl StdioRead {
    /// As fread(3): what is in the buffer, then the whole blocks of what is missing, then a new buffer.
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

/// One read(2) at the file's place, which it moves on. What cannot be read whole counts as failed, and is passed over.
fn call(
    meter: &mut Meter,
    at: &mut u64,
    bytes: usize,
    read: impl FnOnce() -> std::io::Result<usize>,
) -> ControlFlow<Over> {
    // A record is at most 64 MiB long.
    let length = u32::try_from(bytes).unwrap_or(u32::MAX);
    meter.io(Io { direction: Direction::Read, offset: *at, length }, read)?;
    *at += bytes as u64;
    ControlFlow::Continue(())
}

impl Routine for StdioRead {
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        let records = (self.stretch.end - self.stretch.start) / self.record.bytes().len() as u64;
        for _ in 0..self.passes {
            let start = self.stretch.start;
            let io = Io { direction: Direction::Read, offset: start, length: 0 };
            meter.aside(io, || self.file.seek(SeekFrom::Start(start)))?;
            (self.offset, self.ready) = (start, 0..0);
            for _ in 0..records {
                self.get(meter)?;
            }
        }
        ControlFlow::Continue(())
    }
}
