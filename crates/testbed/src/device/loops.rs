//! Loop devices and their backing files, identified by device and inode numbers because paths may be removed or reused.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::holders::{self, BackingFile};
use crate::host_info::text;
use crate::losetup::{self, Listed};

/// An attached loop device.
#[derive(Debug, Clone)]
pub(super) struct Loop {
    /// Kernel name, such as `loop0`.
    pub(super) name: String,
    /// Path of the backing file, as the kernel shows it.
    pub(super) path: String,
    pub(super) below: Below,
    /// Identity of the backing file; `None` if unknown.
    pub(super) file: Option<BackingFile>,
    /// Byte offset of the device in the backing file. The next field is the device's length in bytes; both are 0 if they cannot be read.
    offset: u64,
    length: u64,
    /// True if a size limit is set, so that the device may be shorter than the backing file.
    limited: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Below {
    /// The backing file is the block device with this number.
    Device(u64),
    File,
    /// The backing file is unknown: its path leads to another file or to no file.
    Unknown,
}

impl Loop {
    /// Returns whether two loop devices overlap in a backing file that is, or may be, the same file.
    pub(super) fn shares(&self, other: &Self) -> bool {
        let end = |device: &Self| device.offset.saturating_add(device.length);
        let is_one = match (self.file, other.file) {
            (Some(one), Some(other)) if one.content.is_some() && other.content.is_some() => one.may_be(other),
            // Without a path, a file can be compared by its length at most.
            (Some(one), Some(another)) => {
                one.number == another.number || (one.is_apart(another) && end(self) == end(other))
            }
            _ => false,
        };
        is_one && self.offset < end(other) && other.offset < end(self)
    }

    /// Returns whether the backing file can have `length` bytes, judging by this device's offset, length and size limit.
    pub(super) fn suits(&self, length: u64) -> bool {
        let end = self.offset.saturating_add(self.length);
        end == length || (self.limited && end < length)
    }
}

/// Lists the attached loop devices. /sys and /proc are below `root`.
pub(super) fn attached(root: &Path) -> Result<Vec<Loop>, String> {
    let devices = root.join("sys/class/block");
    let names = super::node::names(&devices).into_iter().filter(|name| name.starts_with("loop"));
    let found: Vec<(String, String)> = names
        .filter_map(|name| Some((text(&devices.join(&name).join("loop/backing_file"))?, name)))
        .map(|(path, name)| (name, path))
        .collect();
    // losetup reads the live system, not a recorded tree.
    let listed = if found.is_empty() || root != Path::new("/") {
        Vec::new()
    } else {
        losetup::list().map_err(|error| format!("cannot list the backing files of loop devices: {error}"))?
    };
    Ok(found.into_iter().map(|(name, path)| loop_device(root, name, path, &listed)).collect())
}

fn loop_device(root: &Path, name: String, path: String, listed: &[Listed]) -> Loop {
    let directory = root.join("sys/class/block").join(&name);
    let number = |file: &str| text(&directory.join(file)).and_then(|number| number.parse().ok()).unwrap_or(0);
    let node = format!("/dev/{name}");
    let number_of_file = listed.iter().find(|listed| listed.name == node).and_then(Listed::file);
    let (below, file) = below(root, &path, number_of_file);
    Loop {
        below,
        file,
        offset: number("loop/offset"),
        length: number("size") * 512,
        limited: number("loop/sizelimit") > 0,
        name,
        path,
    }
}

/// Finds the backing file by the path that the kernel shows, in this and in other mount namespaces. `file` is its device and inode number,
/// if known.
fn below(root: &Path, path: &str, file: Option<(u64, u64)>) -> (Below, Option<BackingFile>) {
    let relative = path.trim_start_matches('/');
    let elsewhere = || holders::namespaces(root).into_iter().map(|process| process.join("root"));
    let roots = std::iter::once_with(|| vec![PathBuf::from(root)])
        .chain(std::iter::once_with(|| elsewhere().collect()))
        .flatten();
    for base in roots {
        let Ok(found) = fs::metadata(base.join(relative)) else { continue };
        let identity = BackingFile::of(&found);
        if file.is_some_and(|file| file != identity.number) {
            continue;
        }
        if found.file_type().is_block_device() {
            return (Below::Device(found.rdev()), Some(identity));
        }
        return (Below::File, Some(identity));
    }
    (Below::Unknown, file.map(|number| BackingFile { number, content: None }))
}
