//! The identity of a disk, independent of its name.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use iotax_model::wire::DiskId;

use super::node::sequence;
use crate::host_info::boot_id;

/// A disk or partition, identified within one boot of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedDisk {
    /// The boot id under which `disk` is valid.
    boot_id: Option<String>,
    disk: DiskId,
}

impl RecordedDisk {
    /// The disk at a path; `None` if the path is no disk.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok().filter(|found| found.file_type().is_block_device())?;
        let number = found.rdev();
        Some(Self { boot_id: boot_id(), disk: DiskId { number, sequence: sequence(number) } })
    }

    /// Returns whether this disk is at a path. False after a reboot, because the identity is then unknown.
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
