//! Errors of building targets and networks.

use std::path::{Path, PathBuf};

use crate::guest::image::ImageError;
use crate::program::ProgramError;
use crate::refusal::Refusal;
use crate::undo::UndoLogError;

/// A target that could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A system call on its file failed.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The undo log could not be kept, so nothing was done.
    #[error(transparent)]
    UndoLog(#[from] UndoLogError),
    /// qemu-img failed.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Another tool failed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The machine is not any more what it was when the plan was checked.
    #[error(transparent)]
    Refusal(#[from] Refusal),
}

impl BuildError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| Self::File { path: path.to_owned(), source }
    }
}
