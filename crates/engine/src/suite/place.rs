//! What one worker of a test has to work with.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use iotax_model::workload::{Test, Workload};

use crate::error::EngineError;

/// What one worker of a test has to work with.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) workload: Workload,
    /// Bytes of the area, or of what all workers are to write together.
    pub(crate) size: u64,
    /// Decides whatever is random.
    pub(crate) seed: u64,
    /// The worker's, from 0.
    pub(crate) number: u32,
    /// The target, opened for this worker.
    pub(super) file: Option<File>,
    /// Empty but for what the other workers make.
    pub(super) directory: Option<PathBuf>,
}

impl Place {
    /// The target's file or device. Only for tests that work on the target's area.
    pub(crate) fn target(&mut self) -> Result<File, EngineError> {
        self.file.take().ok_or(EngineError::NoTest(self.test()))
    }

    /// The directory to make files in, which all workers share. Only for tests that need one.
    pub(crate) fn directory(&self) -> Result<&Path, EngineError> {
        self.directory.as_deref().ok_or(EngineError::NoDirectory(self.test()))
    }

    /// The worker's part of the area, by offsets from the target's begin: whole records of bs, the first worker's first.
    pub(crate) fn slice(&self) -> Range<u64> {
        let record = self.workload.bs.0;
        let each = self.size / record / u64::from(self.workload.numjobs) * record;
        let begin = self.workload.offset.0 + each * u64::from(self.number);
        begin..begin + each
    }

    /// The part of the worker's slice that it goes through: its first `io_size` bytes if that is given, else all.
    pub(crate) fn stretch(&self) -> Range<u64> {
        let Range { start, end } = self.slice();
        start..self.workload.io_size.map_or(end, |bytes| end.min(start + bytes.0))
    }

    /// How often the work is done.
    pub(crate) fn passes(&self) -> u64 {
        self.workload.loops.unwrap_or(u64::MAX)
    }

    fn test(&self) -> Test {
        self.workload.test.unwrap_or(Test::Foreign)
    }
}

/// An error of the system, with what was tried.
pub(crate) fn trouble(doing: impl Into<String>) -> impl FnOnce(io::Error) -> EngineError {
    let doing = doing.into();
    move |error| EngineError::System { doing, error }
}
