//! Builds targets, layer by layer, and says before anything is touched what cannot be built.
//!
//! One file for each kind of layer: [`existing`] for what is there already, [`device`], [`lvm`], [`raw`], [`qcow2`]. The [`Builder`] puts
//! them on one another as a target's description asks, and yields a [`Built`].

pub mod device;
pub mod existing;
pub mod lvm;
pub mod preflight;
pub mod qcow2;
pub mod raw;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use iotax_model::Plan;
use iotax_model::exit::Exit;
use iotax_model::target::{Format, Snapshot, TargetSpec};
use iotax_model::units::Bytes;

use crate::guest::image::ImageError;
use crate::ledger::{Entry, Ledger, LedgerError};
use crate::program::ProgramError;
use device::Permission;
use lvm::Volumes;

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
    /// Another tool failed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The machine is not any more what it was when the plan was checked.
    #[error(transparent)]
    Refusal(#[from] Refusal),
}

impl BuildError {
    fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| Self::File { path: path.to_owned(), source }
    }
}

/// A target's storage, ready to be filled or read.
#[derive(Debug)]
pub struct Built {
    /// The file or device.
    pub path: PathBuf,
    /// Where the target's area begins in it.
    pub offset: Bytes,
    /// What is in it.
    pub format: Format,
    /// Length of the area as the workload sees it.
    pub size: Bytes,
    /// Whether iotax made it or was told to overwrite it.
    pub writable: bool,
    /// Whether a layer that iotax made holds the device too, so that it cannot be claimed for this target alone.
    pub shared: bool,
    /// How to undo it; absent for what existed.
    pub entry: Option<Entry>,
    /// A snapshot is wanted on top of it once it is filled.
    pub snapshot: Option<Snapshot>,
    /// The volume beneath it, if that is to have snapshots.
    pub origin: Option<lvm::Origin>,
}

impl Built {
    /// Whether a snapshot is taken before each measurement.
    #[must_use]
    pub const fn has_snapshot(&self) -> bool {
        self.snapshot.is_some() || self.origin.is_some()
    }
}

/// Builds the targets of one run. What several of them share (a folder, a volume group) is made once.
#[derive(Debug)]
pub struct Builder {
    tag: String,
    size: Bytes,
    permission: Permission,
    volumes: Volumes,
    /// Folders of iotax's own, by the directory that they are in.
    folders: BTreeMap<PathBuf, PathBuf>,
}

impl Builder {
    /// For the targets of a plan. `tag` stands in the name of everything that is made.
    #[must_use]
    pub fn new(tag: &str, plan: &Plan, permission: Permission) -> Self {
        Self {
            tag: tag.to_owned(),
            size: plan.size(),
            permission,
            volumes: Volumes::new(tag, plan),
            folders: BTreeMap::new(),
        }
    }

    /// Builds one target. The description must have passed the plan's check and [`preflight::check`].
    pub fn build(&mut self, spec: &TargetSpec, ledger: &mut Ledger) -> Result<Built, BuildError> {
        if let Some(path) = &spec.path {
            return if path.exists() { existing::open(path) } else { raw::build_at(path, self.size, ledger) };
        }
        if let Some(volume) = self.volumes.build(spec, self.permission.signature, ledger)? {
            return Ok(Built {
                path: volume.path,
                offset: volume.offset,
                format: Format::Raw,
                size: volume.size.min(self.size),
                writable: true,
                shared: volume.shared,
                entry: None,
                snapshot: None,
                origin: volume.origin,
            });
        }
        if let Some(path) = &spec.device {
            let block = device::whole(path)?;
            return Ok(Built {
                path: block.path,
                offset: block.offset,
                format: Format::Raw,
                size: block.size.min(self.size),
                writable: self.permission.overwrite.contains(path),
                shared: false,
                entry: None,
                snapshot: None,
                origin: None,
            });
        }
        let (Some(file), Some(dir)) = (&spec.file, spec.file.as_ref().and_then(|file| file.dir.as_ref()))
        else {
            unreachable!("Plan::check refuses a target without a bottom");
        };
        let stem = self.folder(dir, ledger)?.join(&spec.name);
        match file.format {
            Format::Raw => {
                raw::build_in(&stem.with_added_extension("raw"), self.size, file.preallocation, ledger)
            }
            Format::Qcow2 => qcow2::build(&stem.with_added_extension("qcow2"), self.size, file, ledger),
        }
    }

    /// The folder of iotax's own in a directory.
    fn folder(&mut self, dir: &Path, ledger: &mut Ledger) -> Result<PathBuf, BuildError> {
        if let Some(folder) = self.folders.get(dir) {
            return Ok(folder.clone());
        }
        let absolute = std::path::absolute(dir).map_err(BuildError::file(dir))?;
        let folder = absolute.join(format!("iotax-{}", self.tag));
        ledger.make_directory(&folder)?;
        self.folders.insert(dir.to_owned(), folder.clone());
        Ok(folder)
    }
}
