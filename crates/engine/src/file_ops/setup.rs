//! The files, area and settings of one worker of a test.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use iotax_model::workload::{Test, Workload};

use crate::error::EngineError;
use crate::page_cache::{drop_caches_of_machine, drop_pages};

/// The files, area and settings of one worker of a test.
#[derive(Debug)]
pub(crate) struct WorkerSetup {
    /// The test that the worker runs.
    pub(crate) test: Test,
    pub(crate) workload: Workload,
    /// Bytes of the area, or of the data of all workers.
    pub(crate) size: u64,
    /// Seed of all random choices.
    pub(crate) seed: u64,
    /// Number of the worker, from 0.
    pub(crate) number: u32,
    /// The target, opened for this worker.
    pub(super) file: Option<File>,
    /// The test's directory, to which only its workers write.
    pub(super) directory: Option<PathBuf>,
}

impl WorkerSetup {
    /// The target's file or device. Only for tests that work on the target's area.
    pub(crate) fn target(&mut self) -> Result<File, EngineError> {
        self.file.take().ok_or(EngineError::NoTest(self.test))
    }

    /// The directory for files, common to all workers. Only for tests that need one.
    pub(crate) fn directory(&self) -> Result<&Path, EngineError> {
        self.directory.as_deref().ok_or(EngineError::NoDirectory(self.test))
    }

    /// The worker's slice of the area as offsets on the target: whole records of bs, in the order of worker numbers.
    pub(crate) fn slice(&self) -> Range<u64> {
        let record = self.workload.bs.0;
        let each = self.size / record / u64::from(self.workload.numjobs) * record;
        let begin = self.workload.offset.0 + each * u64::from(self.number);
        begin..begin + each
    }

    /// The part of the slice that the worker covers: its first `io_size` bytes if set, else all of it.
    pub(crate) fn stretch(&self) -> Range<u64> {
        let Range { start, end } = self.slice();
        start..self.workload.io_size.map_or(end, |bytes| end.min(start + bytes.0))
    }

    /// Bytes that the worker covers in each pass.
    pub(crate) fn length(&self) -> u64 {
        let stretch = self.stretch();
        stretch.end - stretch.start
    }

    /// Number of whole records of bs bytes that the worker covers.
    pub(crate) fn records(&self) -> u64 {
        self.length() / self.workload.bs.0
    }

    /// Number of passes: the workload's `loops`; `u64::MAX` if unset.
    pub(crate) fn passes(&self) -> u64 {
        self.workload.loops.unwrap_or(u64::MAX)
    }

    /// Creates an empty directory for this worker.
    pub(crate) fn own_directory(&self) -> Result<OwnDirectory, EngineError> {
        let path = self.directory()?.join(self.number.to_string());
        let made = fs::create_dir(&path).and_then(|()| File::open(&path));
        let root = made.map_err(EngineError::system(format!("making {}", path.display())))?;
        Ok(OwnDirectory { root, path })
    }
}

/// A directory used by one worker only.
#[derive(Debug)]
pub(crate) struct OwnDirectory {
    /// The open directory, which saves a path lookup in each call.
    pub(crate) root: File,
    path: PathBuf,
}

impl OwnDirectory {
    /// Flushes the created files before the measurement. With `forget`, also drops caches as far as permitted: those of the whole machine,
    /// else only the contents of `files`.
    pub(crate) fn settle<'a>(
        &self,
        forget: bool,
        files: impl Iterator<Item = &'a OsStr>,
    ) -> Result<(), EngineError> {
        let doing = || EngineError::system(format!("flushing what was made in {}", self.path.display()));
        rustix::fs::syncfs(&self.root).map_err(|errno| doing()(errno.into()))?;
        if forget && !drop_caches_of_machine() {
            for name in files {
                let file = File::open(self.path.join(name)).map_err(doing())?;
                // Best effort: a filesystem that ignores the advice keeps its cache.
                let _ = drop_pages(&file);
            }
        }
        Ok(())
    }
}
