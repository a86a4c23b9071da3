//! Reads and writes single bytes, each by its own system call, like bonnie++ since version 1.97.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::{ControlFlow, Range};

use iotax_load::error::EngineError;
use iotax_load::request::{Io, IoKind};

use super::Routine;
use super::meter::{Meter, Over};
use super::output::Output;
use super::record::Record;
use super::setup::WorkerSetup;

/// The test that reads a worker's part of the area byte by byte.
struct Getc {
    file: File,
    stretch: Range<u64>,
    passes: u64,
}

pub(super) fn getc(setup: &mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError> {
    let (stretch, passes) = (setup.stretch(), setup.passes());
    Ok(Box::new(Getc { file: setup.target()?, stretch, passes }))
}

impl Routine for Getc {
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        let mut byte = [0];
        for _ in 0..self.passes {
            let io = |offset| Io { direction: IoKind::Read, offset, length: 1 };
            let start = self.stretch.start;
            meter.aside(io(start), || self.file.seek(SeekFrom::Start(start)))?;
            for offset in self.stretch.clone() {
                meter.io(io(offset), || self.file.read(&mut byte))?;
            }
        }
        ControlFlow::Continue(())
    }
}

/// The test that writes a new file byte by byte. The content is generated in records of `bs` bytes.
struct Putc {
    output: Output,
    record: Record,
    length: u64,
    passes: u64,
}

pub(super) fn putc(setup: &mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError> {
    let (output, record) = (Output::create(setup, "putc")?, Record::new(setup)?);
    Ok(Box::new(Putc { output, record, length: setup.length(), passes: setup.passes() }))
}

impl Routine for Putc {
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        for pass in 0..self.passes {
            if pass > 0 {
                self.output.truncate(meter)?;
            }
            let mut left = self.length;
            while left > 0 {
                self.record.refresh();
                for byte in self.record.bytes().chunks(1).take(usize::try_from(left).unwrap_or(usize::MAX)) {
                    self.output.write(meter, byte)?;
                    left -= 1;
                }
            }
            self.output.end(meter)?;
        }
        ControlFlow::Continue(())
    }
}
