//! A lock held by all processes of a run: tools that change this machine, and guests.
//!
//! The lock is a flock(2) on a file that every process inherits. A free lock shows that all of them have exited, including those that
//! outlived the run's own process.

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

/// A run's process lock, and the interrupt that ends its tools.
#[derive(Debug, Clone)]
pub struct ProcessLock {
    path: PathBuf,
    file: Arc<File>,
    stop: Interrupt,
}

impl ProcessLock {
    /// Takes the lock; creates its file if missing. `None` if a process holds it.
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

    /// Makes this interrupt end the tools that hold the lock.
    pub(crate) fn set_interrupt(&mut self, stop: &Interrupt) {
        self.stop = Interrupt::clone(stop);
    }

    /// The same lock without an interrupt, for cleanup.
    pub(crate) fn without_interrupt(&self) -> Self {
        Self { stop: Interrupt::default(), ..self.clone() }
    }

    /// The interrupt in effect.
    pub(crate) const fn stop(&self) -> &Interrupt {
        &self.stop
    }

    /// A handle for stdin, stdout or stderr of a process that must hold the lock.
    pub fn stdio(&self) -> io::Result<Stdio> {
        self.file.try_clone().map(Into::into)
    }

    /// Runs a tool with the lock as its stdin.
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
