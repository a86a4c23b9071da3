//! Block devices, volumes, filesystems and loop devices.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// Allocation of a logical volume.
    LvKind, "kind" {
        /// Fully allocated on creation.
        Thick = "thick",
        /// Allocated from a thin pool on write.
        Thin = "thin",
    }
}

/// A logical volume that iotax creates and removes, in a new group on the target's `device` or in an existing group with free space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LvmSpec {
    /// An existing volume group [default: a new one on the target's `device`]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vg: Option<String>,
    /// Allocation of the volume.
    pub kind: LvKind,
    /// Take a snapshot, renewed before each measurement, so that writes copy on write.
    pub snapshot: bool,
}

impl Default for LvmSpec {
    fn default() -> Self {
        Self { vg: None, kind: LvKind::Thick, snapshot: false }
    }
}

words! {
    /// A filesystem that iotax makes.
    FsType, "type" {
        /// ext4.
        Ext4 = "ext4",
        /// XFS.
        Xfs = "xfs",
        /// Btrfs.
        Btrfs = "btrfs",
    }
}

/// A filesystem created on the target's device or volume, mounted for the run and removed afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesystemSpec {
    /// Filesystem type.
    #[serde(rename = "type")]
    pub kind: FsType,
    /// Mount options as for mount(8) after `-o`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mount_options: Option<String>,
    /// btrfs: overwrite files in place (chattr +C).
    #[serde(default)]
    pub nodatacow: bool,
}

/// A loop device over the target's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoopSpec {
    /// Bypass the host's page cache.
    pub direct_io: bool,
}

impl Default for LoopSpec {
    fn default() -> Self {
        Self { direct_io: true }
    }
}
