//! Errors while building targets and networks.

use std::path::{Path, PathBuf};

use crate::guest::image::ImageError;
use crate::program::ProgramError;
use crate::refusal::Refusal;
use crate::undo::UndoLogError;

/// An error while building a target.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A system call on a file failed.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The undo log could not be written, so nothing was done.
    #[error(transparent)]
    UndoLog(#[from] UndoLogError),
    /// qemu-img failed.
    #[error(transparent)]
    ChainImage(#[from] ImageError),
    /// Another tool failed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The machine has changed since the plan was checked.
    #[error(transparent)]
    Refusal(#[from] Refusal),
}

impl BuildError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| Self::File { path: path.to_owned(), source }
    }
}
