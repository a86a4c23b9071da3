//! A lock that the processes of a run hold: tools that change the machine, guests and daemons.
//!
//! The lock is a flock(2) on a file that these processes inherit. If the lock is free, all of them have exited, even those that outlived
//! the run's main process.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use crate::interrupt::Interrupt;
use crate::own_file;
use crate::program::{Program, ProgramError};

/// A run's process lock, with the interrupt flag that ends its tools.
#[derive(Debug, Clone)]
pub struct ProcessLock {
    path: PathBuf,
    file: Arc<File>,
    stop: Interrupt,
}

impl ProcessLock {
    /// Takes the lock; creates the file if it is missing. `None` if another process holds the lock.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let file = own_file::open(OpenOptions::new().create(true).append(true).mode(0o600), path)?;
        match file.try_lock() {
            Ok(()) => {
                Ok(Some(Self { path: path.to_owned(), file: Arc::new(file), stop: Interrupt::default() }))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Sets the interrupt flag that ends tools which run with this lock.
    pub(crate) fn set_interrupt(&mut self, stop: &Interrupt) {
        self.stop = Interrupt::clone(stop);
    }

    /// Returns the same lock, for cleanup: an interrupt does not end its tools.
    pub(crate) fn without_interrupt(&self) -> Self {
        Self { stop: Interrupt::default(), ..self.clone() }
    }

    /// Returns the interrupt flag that ends tools.
    pub(crate) const fn stop(&self) -> &Interrupt {
        &self.stop
    }

    /// Returns a duplicate of the lock's file, to be passed as stdin, stdout or stderr to a process that must hold the lock.
    pub fn stdio(&self) -> io::Result<Stdio> {
        self.file.try_clone().map(Into::into)
    }

    /// Runs a tool that holds the lock through its stdin. The interrupt flag ends the tool.
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
