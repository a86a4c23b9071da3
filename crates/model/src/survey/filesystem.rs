//! Facts about a mounted filesystem.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fact::{Fact, Known};

/// A mounted filesystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Filesystem {
    /// The mount point.
    pub point: String,
    /// The filesystem's type, such as `ext4`.
    pub kind: String,
    /// The kernel name of the block device; absent without one.
    pub device: Option<String>,
    /// The options of the mount and of the filesystem, without duplicates.
    pub options: Fact<Vec<String>>,
    /// Total and free space, in bytes and in inodes.
    pub space: Known<Space>,
    /// Number of errors that the filesystem recorded (ext4), or that it recorded for the member device with the most errors (btrfs).
    pub errors: Known<u64>,
    /// Number of member devices of a btrfs that are missing; absent for other filesystems.
    pub missing_devices: Known<u64>,
}

/// Total and free space of a filesystem, in bytes and in inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// The size of the filesystem.
    pub total_bytes: u64,
    /// Free bytes for users without privileges.
    pub available_bytes: u64,
    /// The number of inodes; 0 if they are created as needed.
    pub inodes: u64,
    /// The number of free inodes.
    pub free_inodes: u64,
}

impl Filesystem {
    /// Returns whether a mount option is set in exactly this form, such as `noatime` or `data=ordered`.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.options.value.iter().any(|word| word == option)
    }

    /// Returns the value of the mount option `key=value`; `None` if it is not set.
    #[must_use]
    pub fn option(&self, key: &str) -> Option<&str> {
        self.options.value.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }
}
