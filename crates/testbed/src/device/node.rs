//! Identifies block devices by number and disk sequence number, and finds the kernel's nodes for them.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use iotax_model::wire::DiskId;
use rustix::fs::OFlags;

use crate::host_info::text;
use crate::refusal::Refusal;

/// Identifies the block device at a path; fails for any other file.
pub(super) fn disk_at(path: &Path) -> Result<DiskId, Refusal> {
    let found = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Refusal::input(format!("{}: no such device; name one that lsblk lists", path.display()))
        }
        _ => Refusal::environment(format!("{}: {error}", path.display())),
    })?;
    if !found.file_type().is_block_device() {
        return Err(Refusal::input(format!(
            "{}: not a block device; a file or directory is given as path = \"...\" or file = {{ dir = \"...\" }}",
            path.display()
        )));
    }
    Ok(DiskId { number: found.rdev(), sequence: sequence(found.rdev()) })
}

/// Identifies the block device of an open file. The result stays valid while the file is open.
pub(crate) fn disk_of(file: &File) -> io::Result<DiskId> {
    let number = file.metadata()?.rdev();
    Ok(DiskId { number, sequence: sequence(number) })
}

/// Returns the sequence number of a disk, which the kernel does not reuse before a reboot; for a partition, that of its disk. `None` if it
/// is unknown, as on older kernels.
pub(super) fn sequence(number: u64) -> Option<u64> {
    let block_dir = Path::new("/sys/dev/block").join(number_text(number));
    // A partition has the number of its disk.
    let disk = || text(&fs::canonicalize(&block_dir).ok()?.parent()?.join("diskseq"));
    text(&block_dir.join("diskseq")).or_else(disk)?.parse().ok()
}

/// Returns the path in /dev of the kernel's own node for a device number, as opposed to links created by udev or the user.
pub(crate) fn kernel_node(number: u64) -> Result<PathBuf, String> {
    let shown = number_text(number);
    let description =
        fs::read_to_string(Path::new("/sys/dev/block").join(&shown).join("uevent")).map_err(|_| {
            format!("the kernel has no device {shown} any more; was it unplugged? Name one that lsblk lists")
        })?;
    let name = description.lines().find_map(|line| line.strip_prefix("DEVNAME=")).unwrap_or_default();
    let node = Path::new("/dev").join(name);
    let is_its = |found: fs::Metadata| found.file_type().is_block_device() && found.rdev() == number;
    if fs::symlink_metadata(&node).is_ok_and(is_its) {
        return Ok(node);
    }
    Err(format!(
        "the kernel calls it {name}, and {} is not its node; make that (mknod {} b {}) or start udev",
        node.display(),
        node.display(),
        shown.replace(':', " ")
    ))
}

/// Opens a device for reading. With `exclusive`, uses O_EXCL and fails if the device is already claimed. Fails if the node no longer has
/// this number.
pub(super) fn open(node: &Path, number: u64, exclusive: bool) -> io::Result<File> {
    let flags = if exclusive { OFlags::NOFOLLOW | OFlags::EXCL } else { OFlags::NOFOLLOW };
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(node)?;
    let found = file.metadata()?;
    if !found.file_type().is_block_device() || found.rdev() != number {
        return Err(io::Error::other("another device has just appeared under this name; name it again"));
    }
    Ok(file)
}

/// Returns a path in /proc for an open file, for tools that take paths. It leads to the same file after a rename.
pub(crate) fn by_descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))
}

/// Formats a device number as /sys and the mount table do: `8:1`.
pub(crate) fn number_text(number: u64) -> String {
    format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number))
}

/// Returns the sorted names of a directory's entries; empty if the directory cannot be read.
pub(super) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
