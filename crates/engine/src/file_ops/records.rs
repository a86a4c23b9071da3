//! Sequential passes over a file, record by record.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::{ControlFlow, Range};

use iotax_load::error::EngineError;
use iotax_load::request::{Io, IoKind};

use super::Routine;
use super::meter::{Meter, Over};
use super::output::Output;
use super::record::Record;
use super::setup::WorkerSetup;
use super::stdio::WriteBuffer;

/// Describes the I/O that reads or writes one record at `offset`.
fn io(direction: IoKind, offset: u64, bytes: &[u8]) -> Io {
    // A record is at most 64 MiB long.
    Io { direction, offset, length: u32::try_from(bytes.len()).unwrap_or(u32::MAX) }
}

/// The test that writes a new file in every pass.
struct WriteNew {
    output: Output,
    /// User-space buffer as in C's fwrite; `None` if each record is written by its own system call.
    buffer: Option<WriteBuffer>,
    record: Record,
    records: u64,
    passes: u64,
}

pub(super) fn write_new(setup: &mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError> {
    WriteNew::boxed(setup, Output::create(setup, "new")?, None)
}

pub(super) fn stdio_write(setup: &mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError> {
    let mut output = Output::create(setup, "stdio")?;
    let buffer = WriteBuffer::new(output.file())?;
    WriteNew::boxed(setup, output, Some(buffer))
}

impl WriteNew {
    fn boxed(
        setup: &WorkerSetup,
        output: Output,
        buffer: Option<WriteBuffer>,
    ) -> Result<Box<dyn Routine>, EngineError> {
        let (record, records, passes) = (Record::new(setup)?, setup.records(), setup.passes());
        Ok(Box::new(Self { output, buffer, record, records, passes }))
    }
}

impl Routine for WriteNew {
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        for pass in 0..self.passes {
            if pass > 0 {
                self.output.truncate(meter)?;
            }
            for _ in 0..self.records {
                self.record.refresh();
                let bytes = self.record.bytes();
                match &mut self.buffer {
                    Some(buffer) => buffer.put(&mut self.output, bytes, meter)?,
                    None => self.output.write(meter, bytes)?,
                }
            }
            if let Some(buffer) = &mut self.buffer {
                buffer.flush(&mut self.output, meter)?;
            }
            self.output.end(meter)?;
        }
        ControlFlow::Continue(())
    }
}

/// The test that reads each record of a worker's part, changes one byte, seeks back and rewrites the record, like bonnie++.
struct Rewrite {
    output: Output,
    record: Record,
    stretch: Range<u64>,
    passes: u64,
}

pub(super) fn rewrite(setup: &mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError> {
    let (record, stretch, passes) = (Record::new(setup)?, setup.stretch(), setup.passes());
    let output = Output::over(setup.target()?, &setup.workload);
    Ok(Box::new(Rewrite { output, record, stretch, passes }))
}

impl Routine for Rewrite {
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        for _ in 0..self.passes {
            let step = self.record.bytes().len();
            self.output.rewind(meter, self.stretch.start)?;
            for offset in self.stretch.clone().step_by(step) {
                let bytes = self.record.bytes();
                let is_read = meter.io(io(IoKind::Read, offset, bytes), || self.output.file().read(bytes))?;
                if is_read {
                    bytes[0] = bytes[0].wrapping_sub(1);
                    self.output.rewind(meter, offset)?;
                    self.output.write(meter, bytes)?;
                } else {
                    self.output.rewind(meter, offset + step as u64)?;
                }
            }
            self.output.end(meter)?;
        }
        ControlFlow::Continue(())
    }
}

/// The test that copies one file of a worker to another again and again, like UnixBench's file copy. The source is written before the window,
/// so it is probably in the page cache.
struct Copy {
    input: File,
    output: Output,
    record: Record,
    records: u64,
    passes: u64,
}

pub(super) fn copy(setup: &mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError> {
    let mut record = Record::new(setup)?;
    let mut input = Output::create(setup, "from")?;
    for _ in 0..setup.records() {
        record.refresh();
        input
            .file()
            .write_all(record.bytes())
            .map_err(EngineError::system("writing the file that is to be copied"))?;
    }
    let output = Output::create(setup, "to")?;
    let (records, passes) = (setup.records(), setup.passes());
    Ok(Box::new(Copy { input: input.into_file(), output, record, records, passes }))
}

impl Routine for Copy {
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        for _ in 0..self.passes {
            let bytes = self.record.bytes();
            let read = |offset| io(IoKind::Read, offset, bytes);
            meter.aside(read(0), || self.input.seek(SeekFrom::Start(0)))?;
            self.output.rewind(meter, 0)?;
            for number in 0..self.records {
                let bytes = self.record.bytes();
                let offset = number * bytes.len() as u64;
                let is_read = meter.io(io(IoKind::Read, offset, bytes), || self.input.read(bytes))?;
                if is_read {
                    self.output.write(meter, bytes)?;
                }
            }
            self.output.end(meter)?;
        }
        ControlFlow::Continue(())
    }
}
