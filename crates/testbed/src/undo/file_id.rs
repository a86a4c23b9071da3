//! The identity of a file behind its name.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

/// What tells a file or directory from every other that may come to have its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileId {
    /// As stat(2) has it. After a restart of the machine, for some filesystems after each mount, it may be another.
    pub device: u64,
    /// As stat(2) has it. It may be a later file's once this one is removed.
    pub inode: u64,
    /// When the file was made, in nanoseconds since 1970: another for a later file with the same inode. Absent where the
    /// filesystem does not keep it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub born_ns: Option<u64>,
}

impl FileId {
    /// Of the file that these are of.
    #[must_use]
    pub fn of(metadata: &fs::Metadata) -> Self {
        let born = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let born_ns = born.and_then(|time| u64::try_from(time.as_nanos()).ok());
        Self { device: metadata.dev(), inode: metadata.ino(), born_ns }
    }

    /// Whether they are of the same file.
    pub(super) fn is(self, other: Self) -> bool {
        let same = match (self.born_ns, other.born_ns) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => self.device == other.device,
        };
        same && self.inode == other.inode
    }
}
