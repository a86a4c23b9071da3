//! Adds up the space that new files need.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use iotax_model::Plan;
use iotax_model::units::Bytes;

use crate::host_info::{self, FilesystemSpace};
use crate::refusal::Refusal;

/// The space that a plan's new files need in each directory, and notes for the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes that new files need, by directory.
    pub space: BTreeMap<PathBuf, u64>,
    /// Notes for the user on files beyond those that the plan names, a sentence each.
    pub notes: Vec<String>,
    /// Devices of the user that the plan overwrites.
    pub overwritten: Vec<OverwrittenNeed>,
    /// Directories whose files next to a target have already been counted.
    shared: BTreeSet<PathBuf>,
}

/// A device that a plan overwrites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverwrittenNeed {
    /// The path of the device in the plan.
    pub path: PathBuf,
    /// Length of the device.
    pub length: Bytes,
}

/// A filesystem on which new files are created: the space that they need, and the available space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// One of the directories on the filesystem, for messages.
    pub dir: PathBuf,
    /// Device number of the filesystem, from stat(2).
    pub device: u64,
    /// Bytes that the new files need.
    pub need: u64,
    /// Available and total bytes of the filesystem.
    pub space: FilesystemSpace,
}

impl Needs {
    /// Returns the bytes needed in all directories together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.space.values().sum()
    }

    /// Adds up the needed bytes for each filesystem, and reads its available space.
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

    /// Adds the files that workloads create next to a target in `dir`. They are counted once per directory, because targets are measured
    /// one at a time.
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
