//! The lock that the processes of a run hold as long as they live: tools that change this machine, and guests.
//!
//! It is a file's (flock(2)), and each of them has that file open from the moment it is forked until the kernel has closed its
//! files. So who undoes a run knows that none of them does anything any more, also of those that outlived the run's own process.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use crate::interrupt::Interrupt;
use crate::program::{Program, ProgramError};

/// A run's lock, which is free again when all of its processes have ended, and the interrupt that ends its tools.
#[derive(Debug, Clone)]
pub struct ProcessLock {
    path: PathBuf,
    file: Arc<File>,
    stop: Interrupt,
}

impl ProcessLock {
    /// Takes the lock, whose file is made if it is missing; `None` if a process holds it.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        match file.try_lock() {
            Ok(()) => {
                Ok(Some(Self { path: path.to_owned(), file: Arc::new(file), stop: Interrupt::default() }))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// From now on the tools that hold it are ended when the user interrupts.
    pub(crate) fn heed(&mut self, stop: &Interrupt) {
        self.stop = Interrupt::clone(stop);
    }

    /// The same lock for what goes on after an interrupt.
    pub(crate) fn heedless(&self) -> Self {
        Self { stop: Interrupt::default(), ..self.clone() }
    }

    /// The interrupt that is heeded.
    pub(crate) const fn stop(&self) -> &Interrupt {
        &self.stop
    }

    /// For one of the three streams of a process that is to hold it.
    pub fn stdio(&self) -> io::Result<Stdio> {
        self.file.try_clone().map(Into::into)
    }

    /// Runs a tool that holds it, as its stdin.
    pub(crate) fn run<S: AsRef<OsStr>>(
        &self,
        program: Program,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Vec<u8>, ProgramError> {
        let lock = self.stdio().map_err(|error| ProgramError::Failed {
            command: program.name.to_owned(),
            reason: format!("{}: {error}", self.path.display()),
        })?;
        program.run_with(lock, arguments, &self.stop)
    }
}
