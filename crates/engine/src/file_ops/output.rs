//! A file that a test writes, with the flushes that the workload asks for.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;

use iotax_load::error::EngineError;
use iotax_load::request::{Io, IoKind};
use iotax_model::workload::Workload;

use super::meter::{Meter, Over};
use super::setup::WorkerSetup;
use crate::open::Access;

/// A file that is written sequentially through the meter and flushed as the workload asks (`fsync`, `fdatasync`, `end_fsync`).
pub(super) struct Output {
    file: File,
    /// Offset in bytes of the next write.
    offset: u64,
    flush: IoKind,
    /// Number of writes before each flush; `until_flush` counts down.
    every: u64,
    until_flush: u64,
    end_fsync: bool,
}

impl Output {
    /// Creates a file for a worker in the test's directory; `stem` is the first part of its name.
    pub(super) fn create(setup: &WorkerSetup, stem: &str) -> Result<Self, EngineError> {
        let path = setup.directory()?.join(format!("{stem}.{}", setup.number));
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .custom_flags(Access::of(&setup.workload).flags())
            .open(&path)
            .map_err(EngineError::system(format!("making {}", path.display())))?;
        Ok(Self::over(file, &setup.workload))
    }

    /// Wraps an existing file to be overwritten from its start.
    pub(super) fn over(file: File, workload: &Workload) -> Self {
        let (flush, every) = match (workload.fsync, workload.fdatasync) {
            (Some(writes), _) => (IoKind::Sync, writes),
            (None, Some(writes)) => (IoKind::DataSync, writes),
            (None, None) => (IoKind::Sync, u64::MAX),
        };
        Self { file, offset: 0, flush, every, until_flush: every, end_fsync: workload.end_fsync }
    }

    /// Returns the file, to read from it.
    pub(super) const fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Returns the file, at the end of the writes.
    pub(super) fn into_file(self) -> File {
        self.file
    }

    /// Truncates the file to 0 bytes and seeks to its start; neither counts as an operation.
    pub(super) fn truncate(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        meter.aside(self.io(0), || self.file.set_len(0))?;
        self.rewind(meter, 0)
    }

    /// Seeks to `offset` by lseek(2), which does not count as an operation.
    pub(super) fn rewind(&mut self, meter: &mut Meter, offset: u64) -> ControlFlow<Over> {
        self.offset = offset;
        meter.aside(self.io(0), || self.file.seek(SeekFrom::Start(offset)))?;
        ControlFlow::Continue(())
    }

    /// Writes at the current position by write(2), and flushes if enough writes have been made.
    #[inline]
    pub(super) fn write(&mut self, meter: &mut Meter, bytes: &[u8]) -> ControlFlow<Over> {
        let io = self.io(bytes.len());
        self.offset += bytes.len() as u64;
        if !meter.io(io, || self.file.write(bytes))? {
            // The next write goes to the offset that it would have had.
            self.rewind(meter, self.offset)?;
        }
        self.until_flush -= 1;
        if self.until_flush == 0 {
            self.until_flush = self.every;
            self.sync(meter, self.flush)?;
        }
        ControlFlow::Continue(())
    }

    /// Flushes the file at the end if the workload asks for it (`end_fsync`).
    pub(super) fn end(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        if self.end_fsync { self.sync(meter, IoKind::Sync) } else { ControlFlow::Continue(()) }
    }

    fn sync(&self, meter: &mut Meter, direction: IoKind) -> ControlFlow<Over> {
        let io = Io { direction, offset: 0, length: 0 };
        meter.io(io, || {
            match direction {
                IoKind::DataSync => self.file.sync_data(),
                _ => self.file.sync_all(),
            }
            .map(|()| 0)
        })?;
        ControlFlow::Continue(())
    }

    fn io(&self, bytes: usize) -> Io {
        // A record is at most 64 MiB long.
        let length = u32::try_from(bytes).unwrap_or(u32::MAX);
        Io { direction: IoKind::Write, offset: self.offset, length }
    }
}
