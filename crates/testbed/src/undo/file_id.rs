//! Identifies a file independently of its name.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

/// The identity of a file or directory: inode number, filesystem and birth time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileId {
    /// Device number of the filesystem, from stat(2). May change on a reboot; on some filesystems also on each mount.
    pub device: u64,
    /// Inode number, from stat(2). May be reused after the file is removed.
    pub inode: u64,
    /// Birth time in nanoseconds since 1970, which distinguishes files if the filesystem reuses an inode number. `None` if the filesystem
    /// does not keep birth times.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub born_ns: Option<u64>,
}

impl FileId {
    /// Returns the identity of the file with this metadata.
    #[must_use]
    pub fn of(metadata: &fs::Metadata) -> Self {
        let born = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let born_ns = born.and_then(|time| u64::try_from(time.as_nanos()).ok());
        Self { device: metadata.dev(), inode: metadata.ino(), born_ns }
    }

    /// Returns whether both are the same file: by inode number and birth time or, without birth times, by device and inode number.
    pub(super) fn is(self, other: Self) -> bool {
        let same = match (self.born_ns, other.born_ns) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => self.device == other.device,
        };
        same && self.inode == other.inode
    }
}
