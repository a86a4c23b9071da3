//! Which disk it is that has a name.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use iotax_model::wire::DiskId;

use super::node::sequence;
use crate::host_info::boot_id;

/// A disk, or a part of one, as the running kernel tells it from every other that may come to have its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedDisk {
    /// The kernel's: the rest means nothing to another.
    boot_id: Option<String>,
    disk: DiskId,
}

impl RecordedDisk {
    /// Of the disk at a path; absent if there is none.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok().filter(|found| found.file_type().is_block_device())?;
        let number = found.rdev();
        Some(Self { boot_id: boot_id(), disk: DiskId { number, sequence: sequence(number) } })
    }

    /// Whether it is this disk that is at a path. False after a restart of the machine: nobody can tell.
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
