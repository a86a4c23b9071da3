//! ZFS pools: the disks and properties of any pool, and the removal of pools that iotax created.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::threads;
use serde::{Deserialize, Serialize};

use crate::host_info::text;
use crate::kernel_file;
use crate::lock::ProcessLock;
use crate::program::Program;

/// The tool that creates and destroys pools.
pub(crate) const ZPOOL: Program = Program { name: "zpool", package: "zfsutils-linux" };
/// The tool that creates volumes and shows properties.
pub(crate) const ZFS: Program = Program { name: "zfs", package: "zfsutils-linux" };
/// The tool of udev's rules that prints the name of the volume behind a device node.
pub(crate) const ZVOL_ID: Program = Program { name: "zvol_id", package: "zfsutils-linux" };

/// Type of ZFS filesystems in the mount table and in /proc/filesystems.
pub(crate) const FILESYSTEM: &str = "zfs";
/// Directory of ZFS's counters, with a subdirectory for each imported pool.
pub(crate) const COUNTERS: &str = "/proc/spl/kstat/zfs";
/// Directory of udev's links to volumes: the path of a link below it is the name of the volume.
const LINKS: &str = "/dev/zvol";
/// Directory in /sys that lists whole disks, without partitions.
const DISKS: &str = "/sys/block";
/// Prefix of the kernel names of volumes. A number follows.
const NODE: &str = "zd";
/// Maximum time for a tool that only reads.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum time for another program that opens devices, such as udev, to close a volume.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);

/// A pool that iotax created, as recorded in the undo log. It is not in ZFS's cache file, so that no reboot imports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatedPool {
    /// Name of the pool, which contains the run's tag.
    pub name: String,
    /// Path of the pool's only disk when iotax created the pool.
    pub device: PathBuf,
    /// GUID of the pool as a decimal number; `None` while zpool(8) creates the pool.
    pub guid: Option<String>,
}

impl CreatedPool {
    /// Returns the pool with the GUID that zpool(8) gave to it.
    pub(crate) fn identified(&self) -> io::Result<Self> {
        let guid = guid(&self.name)
            .ok_or_else(|| io::Error::other(format!("zpool get guid {}: it names no number", self.name)))?;
        Ok(Self { guid: Some(guid), ..self.clone() })
    }

    /// Destroys the pool; does nothing if it is not imported. Retries for up to 10 s while a volume is in use. Fails immediately for a pool
    /// that is not the one that iotax created, and for a pool that waits for its disk, because zpool(8) would wait too.
    pub(crate) fn destroy(&self, lock: &ProcessLock) -> io::Result<()> {
        kernel_file::check_mounted(Path::new(COUNTERS))?;
        let deadline = Instant::now() + PATIENCE;
        while Path::new(COUNTERS).join(&self.name).exists() {
            check_answers(&self.name)?;
            self.check_own()?;
            match lock.run(ZPOOL, ["destroy", "-f", &self.name]) {
                Err(error) if Instant::now() > deadline => return Err(io::Error::other(error)),
                Err(_) => threads::sleep(POLL),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Rejects a pool of this name with another GUID or, if the GUID was not recorded, on another disk.
    fn check_own(&self) -> io::Result<()> {
        let is_own = if let Some(recorded) = &self.guid {
            guid(&self.name).as_ref() == Some(recorded)
        } else {
            let same = |disk: &PathBuf| fs::canonicalize(disk).ok() == fs::canonicalize(&self.device).ok();
            matches!(disks(Path::new("/"), &self.name).as_slice(), [disk] if same(disk))
        };
        if is_own {
            return Ok(());
        }
        Err(io::Error::other("another pool has this name now; left alone"))
    }
}

/// Returns the GUID of an imported pool; `None` if zpool(8) shows none.
fn guid(pool: &str) -> Option<String> {
    let shown = ZPOOL.query(["get", "-H", "-p", "-o", "value", "guid", pool], QUERY_TIMEOUT).ok()?;
    let guid = String::from_utf8_lossy(&shown).trim().to_owned();
    guid.parse::<u64>().is_ok().then_some(guid)
}

/// Returns whether a pool waits for a disk that failed. Every access to it would block.
pub(crate) fn is_suspended(pool: &str) -> bool {
    text(&Path::new(COUNTERS).join(pool).join("state")).as_deref() == Some("SUSPENDED")
}

/// Fails if a pool waits for a disk that failed.
pub(crate) fn check_answers(pool: &str) -> io::Result<()> {
    if !is_suspended(pool) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "its disk failed, and everything would wait for it; run zpool clear {pool} once the disk is back, then iotax clean"
    )))
}

/// Returns the name of the pool that holds a dataset, volume or snapshot.
pub(crate) fn pool_of(dataset: &str) -> &str {
    dataset.split(['/', '@']).next().unwrap_or(dataset)
}

/// Returns the paths of a pool's disks and files, with those of its log, cache and special devices; empty if zpool(8) does not show them.
pub(crate) fn disks(root: &Path, pool: &str) -> Vec<PathBuf> {
    if is_suspended(pool) {
        return Vec::new();
    }
    let listed =
        ZPOOL.query_at(root, &["list", "-v", "-H", "-P", "-L", pool], QUERY_TIMEOUT).unwrap_or_default();
    disks_in(&listed)
}

/// Parses the paths in the output of `zpool list -v -H -P`: a line for each disk, after the lines of the pool and of mirrors.
fn disks_in(listed: &str) -> Vec<PathBuf> {
    let name = |line: &str| line.split('\t').find(|field| !field.is_empty()).map(str::to_owned);
    listed.lines().filter_map(name).filter(|name| name.starts_with('/')).map(PathBuf::from).collect()
}

/// Returns the properties from the list `names` that a dataset or volume has, such as `recordsize=16K`, in the order of zfs(8)'s output;
/// empty if zfs(8) shows none.
pub(crate) fn properties(root: &Path, dataset: &str, names: &str) -> Vec<String> {
    if is_suspended(pool_of(dataset)) {
        return Vec::new();
    }
    let shown = ZFS.query_at(root, &["get", "-H", "-o", "property,value", names, dataset], QUERY_TIMEOUT);
    let shown = shown.unwrap_or_default();
    let pairs = shown.lines().filter_map(|line| line.split_once('\t'));
    pairs.filter(|(_, value)| *value != "-").map(|(name, value)| format!("{name}={}", value.trim())).collect()
}

/// Returns the name of the volume behind a block device with this kernel name; `None` for other devices.
pub(crate) fn volume(root: &Path, device: &str) -> Option<String> {
    let number = device.strip_prefix(NODE)?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if let Some(linked) = linked_volumes(&root.join(LINKS.trim_start_matches('/'))).remove(device) {
        return Some(linked);
    }
    // Without udev there are no links.
    let shown = ZVOL_ID.query_at(root, &[&format!("/dev/{device}")], QUERY_TIMEOUT)?;
    (!shown.is_empty()).then_some(shown)
}

/// Returns the names of all volumes that udev links to, by the kernel names of their devices.
fn linked_volumes(links: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![links.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            match fs::read_link(&path) {
                Ok(target) => {
                    let device = target.file_name().map(|name| name.to_string_lossy().into_owned());
                    let name = path.strip_prefix(links).ok().map(|name| name.to_string_lossy().into_owned());
                    found.extend(device.zip(name));
                }
                Err(_) => open.extend(path.is_dir().then_some(path)),
            }
        }
    }
    found
}

/// Returns the device node of a volume, for which it waits up to 10 s; `None` if none appears.
pub(crate) fn node(volume_name: &str) -> Option<PathBuf> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(node) = fs::canonicalize(Path::new(LINKS).join(volume_name)) {
            return Some(node);
        }
        let names = fs::read_dir(DISKS).into_iter().flatten().flatten();
        let mut names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let node = names.find(|name| volume(Path::new("/"), name).as_deref() == Some(volume_name));
        if let Some(node) = node.map(|name| Path::new("/dev").join(name)).filter(|node| node.exists()) {
            return Some(node);
        }
        if Instant::now() > deadline {
            return None;
        }
        threads::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn disks_are_the_paths_in_the_list_of_a_pool() {
        let listed = "rpool\t928G\t12G\t916G\t-\t-\t0%\t1%\t1.00x\tONLINE\t-\n\tmirror-0\t928G\t12G\t916G\t-\t-\t0%\t1.29%\t-\tONLINE\n\
                      \t/dev/sda3\t-\t-\t-\t-\t-\t-\t-\t-\tONLINE\n\t\t/dev/sdb3\t-\t-\nlogs\t-\t-\n\t/dev/nvme0n1p1\t16G\n";
        let expected = ["/dev/sda3", "/dev/sdb3", "/dev/nvme0n1p1"].map(PathBuf::from);
        assert_eq!(disks_in(listed), expected);
        assert!(disks_in("").is_empty() && disks_in("cannot open 'x': no such pool").is_empty());
    }

    #[test]
    fn a_volume_is_known_by_udevs_link_to_its_device() {
        let temp = tempfile::tempdir().expect("temp dir");
        let data = temp.path().join("dev/zvol/rpool/data");
        fs::create_dir_all(&data).expect("made");
        for (name, node) in
            [("vm-100-disk-0", "zd0"), ("vm-100-disk-0-part1", "zd0p1"), ("vm-101-disk-0", "zd16")]
        {
            symlink(format!("../../../{node}"), data.join(name)).expect("linked");
        }
        let found = |device: &str| volume(temp.path(), device);
        assert_eq!(found("zd16").as_deref(), Some("rpool/data/vm-101-disk-0"));
        assert_eq!(found("zd0").as_deref(), Some("rpool/data/vm-100-disk-0"));
        for other in ["zd32", "sda", "zd", "zdx", "zd0p1"] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn a_dataset_and_its_snapshots_are_of_one_pool() {
        for dataset in ["rpool", "rpool/data/vm-100-disk-0", "rpool@now", "rpool/data@now"] {
            assert_eq!(pool_of(dataset), "rpool");
        }
    }
}
