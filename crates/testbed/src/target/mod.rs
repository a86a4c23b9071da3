//! Builds targets, layer by layer, and says before anything is touched what cannot be built.
//!
//! One file for each kind of layer: [`existing`] for what is there already, [`lvm`], [`filesystem`], [`raw`],
//! [`qcow2`], [`loop_device`]. [`inspect`] looks at what stands before it is measured. The [`Builder`] puts them on one another as a target's description asks, and yields a [`Built`].

mod builder;
pub mod existing;
pub mod filesystem;
pub mod inspect;
pub mod loop_device;
pub mod lvm;
pub mod preflight;
pub mod qcow2;
pub mod raw;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use iotax_model::target::{Format, Snapshot};
use iotax_model::units::Bytes;
use iotax_model::warning::Warning;
use iotax_model::wire::Identity;

use crate::device::Claim;
use crate::undo::Entry;
pub use builder::Builder;

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
    /// Whether the device is held already, by the claim or by a layer that iotax made, so that no agent can claim it.
    pub shared: bool,
    /// What stands there, so that nothing else that comes to have its name is measured; absent: iotax chose the name, and
    /// nobody else may make names there.
    pub identity: Option<Identity>,
    /// Keeps what has a name of the user's open: no other file or disk gets its identity.
    pub held: Option<File>,
    /// Holds a device that was there for as long as the target stands.
    pub claim: Option<Arc<Claim>>,
    /// How to undo it; absent for what existed.
    pub entry: Option<Entry>,
    /// A snapshot is wanted on top of it once it is filled.
    pub snapshot: Option<Snapshot>,
    /// The volume beneath it, if that is to have snapshots.
    pub origin: Option<lvm::Origin>,
    /// What was not to be had as asked; it names no target.
    pub warnings: Vec<Warning>,
}

impl Built {
    /// What is there already, as it is: only to be read, with nothing to undo.
    #[must_use]
    pub const fn found(path: PathBuf, size: Bytes) -> Self {
        Self {
            path,
            offset: Bytes(0),
            format: Format::Raw,
            size,
            writable: false,
            shared: false,
            identity: None,
            held: None,
            claim: None,
            entry: None,
            snapshot: None,
            origin: None,
            warnings: Vec::new(),
        }
    }

    /// Whether a snapshot is taken before each measurement.
    #[must_use]
    pub const fn has_snapshot(&self) -> bool {
        self.snapshot.is_some() || self.origin.is_some()
    }
}
