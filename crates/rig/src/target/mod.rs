//! Builds targets' files and says before anything is touched what cannot be built.
//!
//! One file for each kind of target: [`existing`], [`raw`], [`qcow2`]. All of them yield a [`Built`].

pub mod existing;
pub mod preflight;
pub mod qcow2;
pub mod raw;

use std::path::{Path, PathBuf};

use iotax_model::exit::Exit;
use iotax_model::target::{Format, Snapshot, TargetSpec};
use iotax_model::units::Bytes;

use crate::guest::image::ImageError;
use crate::ledger::{Entry, Ledger, LedgerError};

/// Something that cannot be done here, said before anything was touched.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// [`Exit::Usage`] for bad input, [`Exit::Environment`] for what the machine refuses.
    pub exit: Exit,
    message: String,
}

impl Refusal {
    /// The input is at fault.
    pub fn input(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: message.into() }
    }

    /// The machine is at fault.
    pub fn environment(message: impl Into<String>) -> Self {
        Self { exit: Exit::Environment, message: message.into() }
    }
}

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
    /// The ledger could not be kept, so nothing was done.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// qemu-img failed.
    #[error(transparent)]
    Image(#[from] ImageError),
}

impl BuildError {
    fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| Self::File { path: path.to_owned(), source }
    }
}

/// A target's file, ready to be filled or read.
#[derive(Debug)]
pub struct Built {
    /// The file or device.
    pub path: PathBuf,
    /// What is in it.
    pub format: Format,
    /// Its length as the workload sees it.
    pub size: Bytes,
    /// Whether iotax made it and may write it.
    pub writable: bool,
    /// How to undo it; absent for what existed.
    pub entry: Option<Entry>,
    /// A snapshot is wanted on top of it once it is filled.
    pub snapshot: Option<Snapshot>,
}

/// Builds a target's file of `size` bytes. New files in a directory go into `folder`, which iotax made there.
pub fn build(
    spec: &TargetSpec,
    size: Bytes,
    folder: impl Fn(&Path) -> PathBuf,
    ledger: &mut Ledger,
) -> Result<Built, BuildError> {
    match (&spec.path, &spec.file) {
        (Some(path), _) if path.exists() => existing::open(path),
        (Some(path), _) => raw::build_at(path, size, ledger),
        (None, Some(file)) => {
            let stem = folder(&file.dir).join(&spec.name);
            match file.format {
                Format::Raw => {
                    raw::build_in(&stem.with_added_extension("raw"), size, file.preallocation, ledger)
                }
                Format::Qcow2 => qcow2::build(&stem.with_added_extension("qcow2"), size, file, ledger),
            }
        }
        (None, None) => unreachable!("Plan::check refuses a target without path and file"),
    }
}
