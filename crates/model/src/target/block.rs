//! Block devices and what is made on them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// How a logical volume is allocated.
    LvKind, "kind" {
        /// All of it at once.
        Thick = "thick",
        /// From a pool, as it is written.
        Thin = "thin",
    }
}

/// A logical volume that iotax creates and removes. On the target's `device`, which becomes a physical volume of a new group,
/// or in a group that has room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LvmSpec {
    /// An existing volume group. Absent: a new one on the target's `device`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vg: Option<String>,
    /// How it is allocated.
    pub kind: LvKind,
    /// Whether it has a snapshot; a new one before each measurement, so that writes meet it.
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

/// A filesystem made on the target's device or volume, mounted for the run, and gone with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesystemSpec {
    /// Which.
    #[serde(rename = "type")]
    pub kind: FsType,
    /// As mount(8) takes them after `-o`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mount_options: Option<String>,
    /// btrfs: files are written in place (chattr +C).
    #[serde(default)]
    pub nodatacow: bool,
}

/// A loop device over the target's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoopSpec {
    /// Whether it passes the host's page cache by.
    pub direct_io: bool,
}

impl Default for LoopSpec {
    fn default() -> Self {
        Self { direct_io: true }
    }
}
