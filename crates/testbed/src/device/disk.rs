//! Identifies a disk independently of its name.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use iotax_model::wire::DiskId;

use super::node::sequence;
use crate::host_info::boot_id;

/// A disk or partition, identified by its device number and disk sequence number within one boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedDisk {
    /// Boot id when `disk` was read; `None` if it could not be read. After a reboot, the numbers in `disk` may belong to another disk.
    boot_id: Option<String>,
    disk: DiskId,
}

impl RecordedDisk {
    /// Identifies the block device at a path; `None` for any other file.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok().filter(|found| found.file_type().is_block_device())?;
        let number = found.rdev();
        Some(Self { boot_id: boot_id(), disk: DiskId { number, sequence: sequence(number) } })
    }

    /// Returns whether the path still leads to this disk. False after a reboot, or if the boot is unknown, because the numbers may then
    /// belong to another disk.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        self.boot_id.is_some() && Self::of(path).as_ref() == Some(self)
    }
}

#[cfg(test)]
impl RecordedDisk {
    pub(crate) fn of_another_boot(self) -> Self {
        Self { boot_id: Some("another".into()), ..self }
    }
}
