//! Errors while building targets and networks.

use std::path::{Path, PathBuf};

use crate::guest::image::ImageError;
use crate::program::ProgramError;
use crate::refusal::Refusal;
use crate::undo::UndoLogError;

/// An error while building a target or a network path.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A system call on a file, directory or device failed.
    #[error("{path}: {source}")]
    File {
        /// Path of the file, directory or device.
        path: PathBuf,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The undo log could not be written, or a file or directory could not be created through it.
    #[error(transparent)]
    UndoLog(#[from] UndoLogError),
    /// qemu-img could not create or read an image.
    #[error(transparent)]
    ChainImage(#[from] ImageError),
    /// A system tool other than qemu-img failed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The machine cannot build the target, for example because it has changed since the plan was checked.
    #[error(transparent)]
    Refusal(#[from] Refusal),
}

impl BuildError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| Self::File { path: path.to_owned(), source }
    }
}
