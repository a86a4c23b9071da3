//! What the kernel does with a block device already, by /proc and /sys below a root path.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::facts::text;
use crate::stack::{self, mount};

/// A device, a partition of it, or the disk it is a partition of: what happens to one of these happens to all.
#[derive(Debug, PartialEq, Eq)]
struct Relative {
    /// Its directory in /sys.
    directory: PathBuf,
    /// The kernel's name for it.
    name: String,
    /// `major:minor`.
    number: String,
}

/// Says why the device with this number (`major:minor`) must not be written, and what to do about it.
pub fn check(root: &Path, number: &str) -> Result<(), String> {
    let Ok(directory) = fs::canonicalize(root.join("sys/dev/block").join(number)) else {
        return Err(format!(
            "the kernel has no device {number} any more; was it unplugged? Name one that lsblk lists"
        ));
    };
    let family = family(&directory);
    // A partition beside the system's may be used: it is what the system stands on that must not be touched.
    let own = |name: &&String| {
        family.iter().any(|relative| relative.name == **name && relative.directory.starts_with(&directory))
    };
    if let Some(name) = stack::of_path(root, Path::new("/")).unwrap_or_default().disks.iter().rfind(own) {
        return Err(format!("the running system is on it (/ stands on {name}); name another device"));
    }
    mounted(root, &family)?;
    swapped(root, &family)?;
    for relative in &family {
        let holders = names(&relative.directory.join("holders"));
        if let Some(holder) = holders.first() {
            return Err(format!(
                "{} is held by {}; take that apart first (lsblk shows it)",
                relative.name,
                title(&relative.directory.join("holders"), holder)
            ));
        }
    }
    looped(root, &family)?;
    if text(&directory.join("ro")).is_some_and(|flag| flag != "0") {
        return Err("it is read-only; make it writable (blockdev --setrw) or name another device".to_owned());
    }
    Ok(())
}

/// The device itself comes first.
fn family(directory: &Path) -> Vec<Relative> {
    let relative = |directory: PathBuf| {
        // Where a device's name has a slash, its directory has an exclamation mark.
        let name = directory.file_name()?.to_string_lossy().replace('!', "/");
        Some(Relative { number: text(&directory.join("dev"))?, name, directory })
    };
    let is_partition = |directory: &Path| directory.join("partition").exists();
    let disk = directory.parent().filter(|_| is_partition(directory)).map(Path::to_owned);
    let partitions =
        names(directory).into_iter().map(|name| directory.join(name)).filter(|path| is_partition(path));
    [directory.to_owned()].into_iter().chain(partitions).chain(disk).filter_map(relative).collect()
}

/// The names of a directory's entries in their order; none if it cannot be read.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A holder such as `dm-0 (vg-home)`.
fn title(holders: &Path, name: &str) -> String {
    match text(&holders.join(name).join("dm/name")) {
        Some(mapped) => format!("{name} ({mapped})"),
        None => name.to_owned(),
    }
}

/// The relative that a path such as `/dev/sda1` or `/dev/disk/by-label/home` names.
fn named<'a>(root: &Path, path: &str, family: &'a [Relative]) -> Option<&'a Relative> {
    let path = root.join(path.strip_prefix("/dev/").map(|rest| format!("dev/{rest}"))?);
    if let Ok(found) = fs::metadata(&path)
        && found.file_type().is_block_device()
    {
        let number = super::number_text(found.rdev());
        return family.iter().find(|relative| relative.number == number);
    }
    let place = fs::canonicalize(&path).unwrap_or(path);
    let name = place.strip_prefix(root.join("dev")).ok().or(place.file_name().map(Path::new))?;
    family.iter().find(|relative| Path::new(&relative.name) == name)
}

fn mounted(root: &Path, family: &[Relative]) -> Result<(), String> {
    let mounts = mount::table(root).map_err(|error| {
        format!("the mount table cannot be read ({error}), so it is not known whether it is mounted")
    })?;
    for mount in &mounts {
        let device = family.iter().find(|relative| relative.number == mount.number);
        // A log or journal of its own: logdev=/dev/sdb1.
        let apart =
            || mount.options.split(',').find_map(|option| named(root, option.split_once('=')?.1, family));
        if let Some(relative) = device.or_else(|| named(root, &mount.source, family)).or_else(apart) {
            let point = mount.point.display();
            return Err(format!(
                "{} is mounted on {point}; unmount it first (umount {point})",
                relative.name
            ));
        }
    }
    // A member of a mounted btrfs need not be the one that the mount table names.
    let filesystems = root.join("sys/fs/btrfs");
    for filesystem in names(&filesystems) {
        let members = names(&filesystems.join(&filesystem).join("devices"));
        if let Some(relative) = family.iter().find(|relative| members.contains(&relative.name)) {
            return Err(format!(
                "{} belongs to the btrfs filesystem {filesystem}, which is mounted; unmount it first",
                relative.name
            ));
        }
    }
    Ok(())
}

fn swapped(root: &Path, family: &[Relative]) -> Result<(), String> {
    let table = fs::read_to_string(root.join("proc/swaps")).unwrap_or_default();
    // Below a line of titles: the device, its kind, sizes.
    for line in table.lines().skip(1) {
        let path = line.split_whitespace().next().unwrap_or_default();
        if let Some(relative) = named(root, path, family) {
            return Err(format!("{} is in use as swap; free it first (swapoff {path})", relative.name));
        }
    }
    Ok(())
}

/// A loop device over another device is no holder of it.
fn looped(root: &Path, family: &[Relative]) -> Result<(), String> {
    let devices = root.join("sys/class/block");
    for name in names(&devices).iter().filter(|name| name.starts_with("loop")) {
        let beneath = text(&devices.join(name).join("loop/backing_file")).unwrap_or_default();
        if let Some(relative) = named(root, &beneath, family) {
            return Err(format!(
                "{} is beneath {name}; detach that first (losetup --detach /dev/{name})",
                relative.name
            ));
        }
    }
    Ok(())
}

/// The numbers of a device and its relatives, as `rdev` has them.
pub(super) fn numbers(root: &Path, number: &str) -> Vec<u64> {
    let directory = fs::canonicalize(root.join("sys/dev/block").join(number));
    let family = directory.map(|directory| family(&directory)).unwrap_or_default();
    let parse = |number: &str| {
        let (major, minor) = number.split_once(':')?;
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    };
    family.iter().filter_map(|relative| parse(&relative.number)).collect()
}
