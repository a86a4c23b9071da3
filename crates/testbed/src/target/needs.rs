//! The space that new files need.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use iotax_model::Plan;

use crate::host_info::{self, FilesystemSpace};
use crate::refusal::Refusal;

/// The space that a plan's new files need, by directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes per directory.
    pub space: BTreeMap<PathBuf, u64>,
    /// Directories in which workloads create files next to a target.
    shared: BTreeSet<PathBuf>,
}

/// The space that new files need on one filesystem, and the space available there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// A directory on the filesystem.
    pub dir: PathBuf,
    /// The filesystem's device number.
    pub device: u64,
    /// Bytes that are needed.
    pub need: u64,
    /// The filesystem's available and total bytes.
    pub space: FilesystemSpace,
}

impl Needs {
    /// The total bytes needed in all directories.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.space.values().sum()
    }

    /// The bytes needed on each filesystem, and those available.
    ///
    /// # Errors
    /// The filesystem of a directory cannot be queried.
    pub fn rooms(&self) -> Result<Vec<Room>, Refusal> {
        let mut rooms: BTreeMap<u64, Room> = BTreeMap::new();
        for (dir, need) in &self.space {
            let device = fs::metadata(dir).map_err(|error| unusable(dir, &error))?.dev();
            if let Some(room) = rooms.get_mut(&device) {
                room.need += need;
                continue;
            }
            let room = Room { dir: dir.clone(), device, need: *need, space: free_space(dir)? };
            rooms.insert(device, room);
        }
        Ok(rooms.into_values().collect())
    }

    /// Adds the files that workloads create next to a target; once per directory, because targets are measured one at a time.
    pub(super) fn beside(&mut self, dir: &Path, plan: &Plan) {
        let files = plan.space().files.0;
        if files > 0 && self.shared.insert(dir.to_owned()) {
            *self.space.entry(dir.to_owned()).or_default() += files;
        }
    }
}

pub(super) fn free_space(dir: &Path) -> Result<FilesystemSpace, Refusal> {
    host_info::free_space(dir).map_err(|error| Refusal::environment(error.to_string()))
}

pub(super) fn unusable(dir: &Path, error: &std::io::Error) -> Refusal {
    Refusal::environment(format!("{}: {error}", dir.display()))
}
