//! Facts about the setup of a machine and its storage, each with the file or command that shows it.
//!
//! A survey draws no conclusions. Facts that could not be read are absent, and [`Survey::unread`] gives the reasons.

mod disk;
mod fact;
mod filesystem;
mod flushes;
mod guest;
mod image;
mod machine;
mod network;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use disk::{
    Bcache, Disk, DiskKind, LoopFile, Mapped, MapperTarget, PciLink, QueueInterrupt, Raid, Scsi, Wear,
};
pub use fact::{Fact, Known};
pub use filesystem::{Filesystem, Space};
pub use flushes::SwallowedFlushes;
pub use guest::{GuestDisk, GuestNic, GuestSetup};
pub use image::{BrokenChain, Image, ImageFile, ProbedBacking, Qcow2};
pub use machine::{CgroupLimit, MachineSetup, Tcp};
pub use network::{Feature, NetworkInterface, Ring};

/// The setup of a machine, or of the storage below one path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Survey {
    /// The machine itself.
    pub machine: MachineSetup,
    /// Block devices: for the survey of a path, each after the devices below it; for the survey of a machine, in the order of their names.
    pub disks: Vec<Disk>,
    /// Mounted filesystems: those on block devices, or those below the surveyed path.
    pub filesystems: Vec<Filesystem>,
    /// Disk images: at the surveyed path, and those of guests.
    pub images: Vec<Image>,
    /// Guests, running or defined.
    pub guests: Vec<GuestSetup>,
    /// Network interfaces, except the loopback interface; empty for the survey of a path.
    pub interfaces: Vec<NetworkInterface>,
    /// Layers that did not pass on all flushes in the last run of `iotax flush` on this machine.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub swallowed_flushes: Vec<Fact<SwallowedFlushes>>,
    /// Reason why the surveyed path could not be read; absent if it could be read.
    pub subject_unread: Option<String>,
    /// The reasons for absent facts, one sentence each.
    pub unread: Vec<String>,
}

impl Survey {
    /// Finds a block device by its kernel name; `None` if there is no such device.
    #[must_use]
    pub fn disk(&self, name: &str) -> Option<&Disk> {
        self.disks.iter().find(|disk| disk.name == name)
    }

    /// Finds the filesystem that holds an absolute path, by the longest mount point that is a prefix of the path; `None` if no mount point is.
    #[must_use]
    pub fn filesystem_of(&self, path: &str) -> Option<&Filesystem> {
        let holds = |filesystem: &&Filesystem| std::path::Path::new(path).starts_with(&filesystem.point);
        self.filesystems.iter().filter(holds).max_by_key(|filesystem| filesystem.point.len())
    }

    /// Returns the block devices at the bottom of the stack of the device `name`, without duplicates; the device `name` itself if no device
    /// is below it.
    #[must_use]
    pub fn bottoms(&self, name: &str) -> Vec<&Disk> {
        let (mut open, mut seen, mut found) = (vec![name.to_owned()], Vec::new(), Vec::new());
        while let Some(name) = open.pop() {
            if seen.contains(&name) {
                continue;
            }
            if let Some(disk) = self.disk(&name) {
                if disk.below.is_empty() {
                    found.push(disk);
                }
                open.extend(disk.below.iter().cloned());
            }
            seen.push(name);
        }
        found
    }
}
