//! Builds targets, layer by layer, and checks beforehand that they can be built.
//!
//! There is one module per kind of layer, named as in `iotax_model::target`; `layer` holds their common interface. [`Builder`] builds a
//! target from the bottom up; [`inspect`] examines it before it is measured.

mod builder;
mod cache;
mod cgroup;
pub mod counters;
mod delay;
mod device;
pub mod existing;
pub mod existing_image;
mod export;
mod file;
pub mod filesystem;
mod filter;
mod found_files;
pub mod fuse;
mod ground;
pub mod image;
pub mod image_file;
pub mod inspect;
mod integrity;
mod iscsi;
mod layer;
mod loop_device;
mod luks;
pub mod lvm;
mod md;
mod nbd;
mod nbd_client;
mod nbd_export;
mod needs;
mod nfs;
mod nine_p;
mod node;
mod nvme_tcp;
pub mod origin;
mod overlay;
pub mod preflight;
mod purge;
pub mod raw;
mod rbd;
mod scratch;
mod share;
mod shared_directory;
mod side_by_side;
mod sizes;
mod tmpfs;
pub mod virtio;
mod virtiofs;
mod volatile;
mod xen;
pub mod zfs;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iotax_model::target::{Format, Snapshot};
use iotax_model::units::Bytes;
use iotax_model::warning::Warning;
use iotax_model::wire::Identity;

use crate::cgroup::IoLimit;
use crate::device::DeviceClaim;
use crate::export::StorageDaemon;
use crate::undo::UndoEntry;
use counters::Counters;

pub use builder::Builder;
pub use export::ExportedImage;
pub use found_files::FoundFiles;
pub use layer::recorded;
pub use scratch::{ScratchDisk, attach_disk, attach_port, scratch_size};
pub use volatile::{Survivor, Volatile};

/// The storage of a target, ready to be filled or measured.
#[derive(Debug)]
pub struct Built {
    /// Path of the file, device or socket to measure.
    pub path: PathBuf,
    /// Byte offset of the area to measure.
    pub offset: Bytes,
    /// The image format of the storage; raw unless it is an image.
    pub format: Format,
    /// Paths of the other files that are part of the image.
    pub companions: Vec<PathBuf>,
    /// Length of the area to measure in bytes, as the workload sees it.
    pub size: Bytes,
    /// True if workloads may write to the storage: iotax created it, or may overwrite it.
    pub writable: bool,
    /// True if this run already holds the device open, so that an agent must not claim it exclusively.
    pub shared: bool,
    /// Identity that an agent must find at the path, so that no other file or device is measured; `None` if nobody else can replace it.
    pub identity: Option<Identity>,
    /// Open handle to the file, so that its inode number is not reused; `None` if it need not be kept open.
    pub held: Option<File>,
    /// The exclusive claim of the device, held as long as the target exists; `None` if no device is claimed.
    pub claim: Option<Arc<DeviceClaim>>,
    /// The undo log's entry of the file or image; `None` if it existed before the run, and for other storage.
    pub entry: Option<UndoEntry>,
    /// The type of snapshot to take once the target is filled; `None` for no snapshot.
    pub snapshot: Option<Snapshot>,
    /// The logical volume below the target, to take snapshots of; `None` without snapshots.
    pub origin: Option<origin::Origin>,
    /// Warnings about settings that did not take effect.
    pub warnings: Vec<Warning>,
    /// The image that iotax exports at `path` through its own daemons; `None` without an export.
    pub exported: Option<Box<ExportedImage>>,
    /// The daemons that export a directory below the target.
    pub servers: Vec<StorageDaemon>,
    /// The volatile directory below the target, whose power can be cut; `None` without such a layer.
    pub volatile: Option<Box<Volatile>>,
    /// The counters of the target's layers that keep some, from the bottom up.
    pub counters: Vec<Arc<dyn Counters>>,
    /// The I/O limit to set on the processes that generate the load; `None` for no limit.
    pub limit: Option<IoLimit>,
    /// Outcome of the purge of the user's device below; `None` if no purge was tried.
    pub purged: Option<String>,
}

impl Built {
    /// Returns the description of read-only storage without undo log entry, snapshots and exports; callers change what differs.
    const fn at(path: PathBuf, format: Format, size: Bytes) -> Self {
        Self {
            path,
            offset: Bytes(0),
            format,
            companions: Vec::new(),
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
            exported: None,
            servers: Vec::new(),
            volatile: None,
            counters: Vec::new(),
            limit: None,
            purged: None,
        }
    }

    /// Returns the path and format of the file or device that holds the data on this machine; for an export, those of the exported image.
    /// `None` if a server outside of iotax holds the data.
    #[must_use]
    pub fn stored(&self) -> Option<(&Path, Format)> {
        match &self.exported {
            None => Some((&self.path, self.format)),
            Some(image) => image.stored.as_ref().map(|(path, format)| (path.as_path(), *format)),
        }
    }

    /// Returns the daemons that serve the target.
    pub fn daemons(&self) -> impl Iterator<Item = &StorageDaemon> {
        self.exported.iter().flat_map(|image| &image.daemons).chain(&self.servers)
    }

    /// Returns the files and devices on this machine whose page cache may hold the target's data.
    #[must_use]
    pub fn cached(&self) -> Vec<PathBuf> {
        let image = self.exported.iter().filter_map(|image| image.stored.clone()).map(|(path, _)| path);
        let of_export = self.exported.iter().flat_map(|image| image.companions(self.size));
        let image = image.chain(of_export).chain(self.companions.clone());
        let has_pages = self.exported.as_ref().is_none_or(|image| image.is_file);
        let shown = Some(self.path.clone()).filter(|_| has_pages);
        image.chain(shown).collect()
    }

    /// Describes the same storage for another target, without undo log entry, snapshots, exports and limits, which only the first target
    /// manages.
    #[must_use]
    pub fn for_another(&self) -> Self {
        Self {
            writable: self.writable,
            shared: self.shared,
            offset: self.offset,
            identity: self.identity,
            claim: self.claim.clone(),
            ..Self::at(self.path.clone(), self.format, self.size)
        }
    }

    /// Returns whether a new snapshot is taken before each measurement.
    #[must_use]
    pub fn has_snapshot(&self) -> bool {
        let is_exported_with_one = match &self.exported {
            Some(image) => image.has_snapshot(),
            None => false,
        };
        self.snapshot.is_some() || self.origin.is_some() || is_exported_with_one
    }
}
