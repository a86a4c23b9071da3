//! The files, area and settings of one worker of a test.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use iotax_load::error::EngineError;
use iotax_model::workload::{Test, Workload};

use crate::page_cache::{drop_caches_of_machine, drop_pages};

/// The data with which a test prepares and runs one worker.
#[derive(Debug)]
pub(crate) struct WorkerSetup {
    /// The test that the worker runs.
    pub(crate) test: Test,
    pub(crate) workload: Workload,
    /// Bytes of the target's area, or the total of all workers' data in a directory.
    pub(crate) size: u64,
    /// Seed from which all random choices are derived.
    pub(crate) seed: u64,
    /// Number of the worker, from 0.
    pub(crate) number: u32,
    /// The target, opened for this worker; `None` for a test in a directory.
    pub(super) file: Option<File>,
    /// The directory that the workers of the test share; `None` for a test on the target's area.
    pub(super) directory: Option<PathBuf>,
    /// Directory of PostgreSQL's programs; `None` unless the test needs them.
    pub(crate) postgresql: Option<PathBuf>,
}

impl WorkerSetup {
    /// Takes the open target. Fails for a test that works in a directory.
    pub(crate) fn target(&mut self) -> Result<File, EngineError> {
        self.file.take().ok_or(EngineError::NoArea(self.test))
    }

    /// Returns the directory that the workers share. Fails for a test that works on the target's area.
    pub(crate) fn directory(&self) -> Result<&Path, EngineError> {
        self.directory.as_deref().ok_or(EngineError::NoDirectory(self.test))
    }

    /// Returns the worker's slice of the area as offsets on the target. Slices are whole records of `bs` bytes, in the order of worker numbers.
    pub(crate) fn slice(&self) -> Range<u64> {
        let record = self.workload.bs.0;
        let each = self.size / record / u64::from(self.workload.numjobs) * record;
        let begin = self.workload.offset.0 + each * u64::from(self.number);
        begin..begin + each
    }

    /// Returns the part of the slice that the worker reads or writes: the first `io_size` bytes, or the whole slice if `io_size` is not set.
    pub(crate) fn stretch(&self) -> Range<u64> {
        let Range { start, end } = self.slice();
        start..self.workload.io_size.map_or(end, |bytes| end.min(start + bytes.0))
    }

    /// Returns the number of bytes that the worker reads or writes in one pass.
    pub(crate) fn length(&self) -> u64 {
        let stretch = self.stretch();
        stretch.end - stretch.start
    }

    /// Returns the number of whole records of `bs` bytes in one pass.
    pub(crate) fn records(&self) -> u64 {
        self.length() / self.workload.bs.0
    }

    /// Returns the number of passes: the workload's `loops`; `u64::MAX` if that is not set, so that only `runtime` ends the test.
    pub(crate) fn passes(&self) -> u64 {
        self.workload.loops.unwrap_or(u64::MAX)
    }

    /// Creates the empty directory in which only this worker works; its name is the worker's number.
    pub(crate) fn own_directory(&self) -> Result<OwnDirectory, EngineError> {
        let path = self.directory()?.join(self.number.to_string());
        let made = fs::create_dir(&path).and_then(|()| File::open(&path));
        let root = made.map_err(EngineError::system(format!("making {}", path.display())))?;
        Ok(OwnDirectory { root, path })
    }
}

/// A directory that only one worker uses.
#[derive(Debug)]
pub(crate) struct OwnDirectory {
    /// The open directory. Calls relative to it need no lookup of the full path.
    pub(crate) root: File,
    path: PathBuf,
}

impl OwnDirectory {
    /// Returns the directory's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Flushes the prepared files before the measurement. With `forget`, also drops the machine's caches; if that is not permitted, drops only
    /// the page cache of `files`.
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
