//! Checks whether a block device is in use, from /proc and /sys below a root path.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::loops::{self, Below, Loop};
use super::node::{names, number_text};
use crate::holders::{self, BackingFile};
use crate::host_info::text;
use crate::stack::{self, mount};

/// A device that shares bytes with the checked device: the device itself, one of its partitions, or the disk that it is a partition of.
#[derive(Debug, PartialEq, Eq)]
struct Relative {
    /// The device's directory in /sys.
    directory: PathBuf,
    /// Kernel name, such as `sda1`.
    name: String,
    /// Device number as `major:minor`.
    number: String,
}

impl Relative {
    /// Returns the length in bytes; `None` if it cannot be read.
    fn length(&self) -> Option<u64> {
        text(&self.directory.join("size"))?.parse::<u64>().ok()?.checked_mul(512)
    }
}

/// The devices and files that share bytes with a device.
#[derive(Debug, Default)]
pub(super) struct SharedBytes {
    /// Device numbers (`rdev`) of the device, its partitions or disk, and the devices in `below`.
    pub(super) devices: Vec<u64>,
    /// Backing files of loop devices in the device's stack.
    pub(super) files: Vec<BackingFile>,
    /// Device numbers of block devices that loop devices in the stack use as backing files.
    pub(super) below: Vec<u64>,
}

/// Checks that nothing uses the device `number` (`major:minor`): no mount, swap, holder or loop device. Also rejects a read-only device and
/// the device of the running system. The error says what uses the device, and names the remedy.
pub fn check(root: &Path, number: &str) -> Result<(), String> {
    check_with(root, number, &loops::attached(root)?)
}

/// Checks a device as [`check`] does, with a list of the attached loop devices.
fn check_with(root: &Path, number: &str, loops: &[Loop]) -> Result<(), String> {
    let directory = find(root, number)?;
    let family = family(&directory);
    // A partition next to the system's is fine; only the system's own must not be touched.
    let own = |name: &&String| {
        family.iter().any(|relative| relative.name == **name && relative.directory.starts_with(&directory))
    };
    if let Some(name) = stack::of_path(root, Path::new("/")).unwrap_or_default().disks.iter().rfind(own) {
        return Err(format!("the running system is on it (/ stands on {name}); name another device"));
    }
    in_use(root, &family)?;
    let (below, others) = split(&directory, loops);
    looped(root, &family, &others)?;
    if text(&directory.join("ro")).is_some_and(|flag| flag != "0") {
        return Err("it is read-only; make it writable (blockdev --setrw) or name another device".to_owned());
    }
    check_below(root, &below, &others)?;
    perhaps_looped(root, &family, &others)
}

/// Checks for mounts, swap and holders listed in /sys on the device, its partitions or its disk.
fn in_use(root: &Path, family: &[Relative]) -> Result<(), String> {
    mounted(root, family)?;
    swapped(root, family)?;
    for relative in family {
        let holders = names(&relative.directory.join("holders"));
        if let Some(holder) = holders.first() {
            return Err(format!(
                "{} is held by {}; take that apart first (lsblk shows it)",
                relative.name,
                title(&relative.directory.join("holders"), holder)
            ));
        }
    }
    Ok(())
}

/// Checks that nothing else uses the backing devices of loop devices in the stack, because the kernel does not claim a loop device's
/// backing device.
fn check_below(root: &Path, below: &[Loop], others: &[Loop]) -> Result<(), String> {
    for device in below {
        if let Some(other) = others.iter().find(|other| device.shares(other)) {
            return Err(format!(
                "{other} stands on the same file as {}, {}, which it calls {}; detach that first (losetup --detach /dev/{other})",
                device.name,
                device.path,
                other.path,
                other = other.name
            ));
        }
        if let Below::Device(number) = device.below {
            let number = number_text(number);
            let name = find(root, &number)?.file_name().unwrap_or_default().to_string_lossy().into_owned();
            check_with(root, &number, others)
                .map_err(|reason| format!("it stands on {name}, and {reason}"))?;
        }
    }
    Ok(())
}

/// Collects the devices and files that share bytes with the device `number` (`major:minor`).
pub(super) fn shared(root: &Path, number: &str) -> Result<SharedBytes, String> {
    let mut shared = SharedBytes::default();
    add_shared(root, number, &loops::attached(root)?, &mut shared)?;
    Ok(shared)
}

fn add_shared(root: &Path, number: &str, loops: &[Loop], shared: &mut SharedBytes) -> Result<(), String> {
    let parse = |number: &str| {
        let (major, minor) = number.split_once(':')?;
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    };
    let directory = find(root, number)?;
    shared.devices.extend(family(&directory).iter().filter_map(|relative| parse(&relative.number)));
    let (below, others) = split(&directory, loops);
    for device in below {
        match device.below {
            Below::Device(number) => {
                shared.below.push(number);
                add_shared(root, &number_text(number), &others, shared)?;
            }
            Below::File | Below::Unknown => shared.files.extend(device.file),
        }
    }
    Ok(())
}

/// Returns the device's directory in /sys, by its number (`major:minor`).
fn find(root: &Path, number: &str) -> Result<PathBuf, String> {
    fs::canonicalize(root.join("sys/dev/block").join(number)).map_err(|_| {
        format!("the kernel has no device {number} any more; was it unplugged? Name one that lsblk lists")
    })
}

/// Splits loop devices into those in this device's own stack and all others.
fn split(directory: &Path, loops: &[Loop]) -> (Vec<Loop>, Vec<Loop>) {
    let mut names: Vec<String> = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for relative in family(&directory) {
            waiting.extend(
                self::names(&relative.directory.join("slaves"))
                    .iter()
                    .filter_map(|slave| fs::canonicalize(relative.directory.join("slaves").join(slave)).ok()),
            );
            names.push(relative.name);
        }
    }
    loops.iter().cloned().partition(|device| names.contains(&device.name))
}

/// Lists the device, its partitions and, for a partition, its disk.
fn family(directory: &Path) -> Vec<Relative> {
    let relative = |directory: PathBuf| {
        // /sys replaces a slash in a device name with an exclamation mark.
        let name = directory.file_name()?.to_string_lossy().replace('!', "/");
        Some(Relative { number: text(&directory.join("dev"))?, name, directory })
    };
    let is_partition = |directory: &Path| directory.join("partition").exists();
    let disk = directory.parent().filter(|_| is_partition(directory)).map(Path::to_owned);
    let partitions =
        names(directory).into_iter().map(|name| directory.join(name)).filter(|path| is_partition(path));
    [directory.to_owned()].into_iter().chain(partitions).chain(disk).filter_map(relative).collect()
}

/// Returns the name of a holder with its device-mapper name, such as `dm-0 (vg-home)`.
fn title(holders: &Path, name: &str) -> String {
    match text(&holders.join(name).join("dm/name")) {
        Some(mapped) => format!("{name} ({mapped})"),
        None => name.to_owned(),
    }
}

/// Returns the device of `family` that a path leads to, such as `/dev/sda1`, `/dev/disk/by-label/home` or
/// `/srv/node`; `None` if it leads to none of them.
fn named<'a>(root: &Path, path: &str, family: &'a [Relative]) -> Option<&'a Relative> {
    let full_path = root.join(path.strip_prefix('/')?);
    if let Ok(found) = fs::metadata(&full_path)
        && found.file_type().is_block_device()
    {
        let number = number_text(found.rdev());
        return family.iter().find(|relative| relative.number == number);
    }
    // The device node may be gone; the rest of the path is then the kernel's name.
    path.strip_prefix("/dev/")?;
    let full_path = fs::canonicalize(&full_path).unwrap_or(full_path);
    let name = full_path.strip_prefix(root.join("dev")).ok().or(full_path.file_name().map(Path::new))?;
    family.iter().find(|relative| Path::new(&relative.name) == name)
}

fn mounted(root: &Path, family: &[Relative]) -> Result<(), String> {
    let mounts = mount::table(&root.join("proc/self")).map_err(|error| {
        format!("the mount table cannot be read ({error}), so it is not known whether it is mounted")
    })?;
    mounted_by(root, &mounts, "", family)?;
    for process in holders::namespaces(root) {
        let namespace_text = format!(" in the mount namespace of {}", holders::title(&process));
        // A process that has just exited has no readable mount table.
        mounted_by(root, &mount::table(&process).unwrap_or_default(), &namespace_text, family)?;
    }
    // The mount table names only one member of a btrfs.
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

/// Checks a mount table for the device. `namespace_text` is added to the error and names the process whose table it is.
fn mounted_by(
    root: &Path,
    mounts: &[mount::Mount],
    namespace_text: &str,
    family: &[Relative],
) -> Result<(), String> {
    for mount in mounts {
        let device = family.iter().find(|relative| relative.number == mount.number);
        // An external log or journal: logdev=/dev/sdb1.
        let apart =
            || mount.options.split(',').find_map(|option| named(root, option.split_once('=')?.1, family));
        if let Some(relative) = device.or_else(|| named(root, &mount.source, family)).or_else(apart) {
            let point = mount.point.display();
            return Err(format!(
                "{} is mounted on {point}{namespace_text}; unmount it first (umount {point})",
                relative.name
            ));
        }
    }
    Ok(())
}

fn swapped(root: &Path, family: &[Relative]) -> Result<(), String> {
    let table = fs::read_to_string(root.join("proc/swaps")).unwrap_or_default();
    // After the header: device, type, sizes.
    for line in table.lines().skip(1) {
        let path = line.split_whitespace().next().unwrap_or_default();
        let path = mount::unescape(path.as_bytes()).to_string_lossy().into_owned();
        if let Some(relative) = named(root, &path, family) {
            return Err(format!("{} is in use as swap; free it first (swapoff {path})", relative.name));
        }
    }
    Ok(())
}

/// Checks for loop devices whose backing file is the device; the kernel does not list them as holders.
fn looped(root: &Path, family: &[Relative], loops: &[Loop]) -> Result<(), String> {
    for above in loops {
        let name = &above.name;
        let below = match above.below {
            Below::Device(number) => {
                let number = number_text(number);
                family.iter().find(|relative| relative.number == number)
            }
            _ => named(root, &above.path, family),
        };
        if let Some(relative) = below {
            return Err(format!(
                "{} is below {name}; detach that first (losetup --detach /dev/{name})",
                relative.name
            ));
        }
    }
    Ok(())
}

/// Checks loop devices whose backing file cannot be found and whose length fits this device. Fails if such a loop device is in use.
fn perhaps_looped(root: &Path, family: &[Relative], loops: &[Loop]) -> Result<(), String> {
    let fits = |above: &&Loop| {
        let suits = |relative: &Relative| relative.length().is_some_and(|length| above.suits(length));
        above.below == Below::Unknown && family.iter().any(suits)
    };
    for above in loops.iter().filter(fits) {
        let name = &above.name;
        let number = text(&root.join("sys/class/block").join(name).join("dev")).unwrap_or_default();
        let used = in_use(root, &self::family(&find(root, &number)?));
        used.map_err(|reason| {
            format!(
                "{name} stands on {}, whose name is gone and which by its length may be this device, and {reason}; then \
                 detach it (losetup --detach /dev/{name})",
                above.path
            )
        })?;
    }
    Ok(())
}
