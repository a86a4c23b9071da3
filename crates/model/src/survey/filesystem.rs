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
    /// The type, such as `ext4`.
    pub kind: String,
    /// The kernel name of its device; `None` without a block device.
    pub device: Option<String>,
    /// The distinct options of mount and filesystem.
    pub options: Fact<Vec<String>>,
    /// Its size and what is left.
    pub space: Known<Space>,
    /// Errors that the filesystem or its devices recorded.
    pub errors: Known<u64>,
    /// Member devices of a btrfs that are missing.
    pub missing_devices: Known<u64>,
}

/// The space of a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// Its size.
    pub total_bytes: u64,
    /// Bytes that users without privileges can still write.
    pub available_bytes: u64,
    /// Inodes; 0 if they are made as needed.
    pub inodes: u64,
    /// Inodes left.
    pub free_inodes: u64,
}

impl Filesystem {
    /// Returns whether a mount option is set in exactly this form, such as `noatime` or `data=ordered`.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.options.value.iter().any(|word| word == option)
    }

    /// The value of the mount option `key=value`; `None` if it is not set.
    #[must_use]
    pub fn option(&self, key: &str) -> Option<&str> {
        self.options.value.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }
}
