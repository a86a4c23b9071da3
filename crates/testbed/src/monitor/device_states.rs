//! Watches states of devices and RAIDs in /sys whose changes cause no uevent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::host_info::text;

/// Array states between which the kernel switches because of ordinary writes.
const WRITTEN: [&str; 4] = ["active", "active-idle", "clean", "write-pending"];
const ABSENT: &str = "absent";

/// Last known states of SCSI and NVMe disks, their controllers, md arrays and array members.
#[derive(Debug)]
pub struct DeviceStates {
    /// Kernel names of the watched devices, with their directories in /sys.
    devices: Vec<(String, PathBuf)>,
    last: BTreeMap<String, String>,
}

impl DeviceStates {
    /// Reads the current states of these devices, given by kernel names. /sys is below `root`, `/` on a live system.
    #[must_use]
    pub fn new(root: &Path, devices: &[String]) -> Self {
        let directory = |name: &String| root.join("sys/class/block").join(name.replace('/', "!"));
        let devices = devices.iter().map(|name| (name.clone(), directory(name))).collect();
        let mut states = Self { devices, last: BTreeMap::new() };
        states.last = states.read();
        states
    }

    /// Reads the states again and returns the changes, such as `sdb: running -> offline` or `md0 degraded: 0 -> 1`.
    pub fn changes(&mut self) -> Vec<String> {
        let now = self.read();
        let names: BTreeSet<&String> = self.last.keys().chain(now.keys()).collect();
        let change = |name: &String| {
            let [before, after] =
                [&self.last, &now].map(|states| states.get(name).map_or(ABSENT, String::as_str));
            (before != after).then(|| format!("{name}: {before} -> {after}"))
        };
        let changes = names.into_iter().filter_map(change).collect();
        self.last = now;
        changes
    }

    fn read(&self) -> BTreeMap<String, String> {
        let mut states = BTreeMap::new();
        let mut add = |name: String, file: &Path| states.extend(text(file).map(|state| (name, state)));
        for (name, directory) in &self.devices {
            let (device, md) = (directory.join("device"), directory.join("md"));
            add(name.clone(), &device.join("state"));
            // With native multipath, the disk belongs to a subsystem, which has the controllers, which have the paths.
            for (controller, below) in named(&device, "nvme") {
                add(controller, &below.join("state"));
                for (path, below) in named(&below, "nvme") {
                    add(path, &below.join("ana_state"));
                }
            }
            for file in ["array_state", "degraded", "sync_action"] {
                add(format!("{name} {file}"), &md.join(file));
            }
            for (member, below) in named(&md, "dev-") {
                add(format!("{name} {member}"), &below.join("state"));
            }
        }
        states.into_iter().map(|(name, state)| (name, steady(state))).collect()
    }
}

/// Maps array states that only differ by ordinary writes to one state.
fn steady(state: String) -> String {
    if WRITTEN.contains(&state.as_str()) { WRITTEN[0].to_owned() } else { state }
}

/// Returns the names and paths of a directory's entries whose names begin with `prefix`; empty if the directory cannot be read.
fn named(directory: &Path, prefix: &str) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let entries = entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    entries.filter(|(name, _)| name.starts_with(prefix)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_in_the_files_is_told_once() {
        let root = tempfile::tempdir().expect("a directory");
        let block = root.path().join("sys/class/block");
        let put = |path: &str, content: &str| {
            let path = block.join(path);
            fs::create_dir_all(path.parent().expect("has one")).expect("made");
            fs::write(path, format!("{content}\n")).expect("written");
        };
        put("sdb/device/state", "running");
        put("nvme0n1/device/nvme0/state", "live");
        put("nvme0n1/device/nvme0/nvme0c0n1/ana_state", "optimized");
        put("md0/md/array_state", "clean");
        put("md0/md/degraded", "0");
        put("md0/md/sync_action", "idle");
        put("md0/md/dev-sdb1/state", "in_sync");
        put("sdz/device/state", "running");
        let devices = ["sdb", "nvme0n1", "md0", "vda", "cciss/c0d0"].map(str::to_owned);
        let mut states = DeviceStates::new(root.path(), &devices);
        assert_eq!(states.changes(), [""; 0]);

        put("md0/md/array_state", "active");
        put("sdz/device/state", "offline");
        assert_eq!(states.changes(), [""; 0], "a write, and a device that is not asked for");

        put("sdb/device/state", "transport-offline");
        put("nvme0n1/device/nvme0/state", "connecting");
        put("nvme0n1/device/nvme0/nvme0c0n1/ana_state", "inaccessible");
        put("md0/md/degraded", "1");
        put("md0/md/dev-sdb1/state", "faulty");
        let expected = [
            "md0 degraded: 0 -> 1",
            "md0 dev-sdb1: in_sync -> faulty",
            "nvme0: live -> connecting",
            "nvme0c0n1: optimized -> inaccessible",
            "sdb: running -> transport-offline",
        ];
        assert_eq!(states.changes(), expected);
        assert_eq!(states.changes(), [""; 0]);

        fs::remove_dir_all(block.join("md0/md/dev-sdb1")).expect("removed");
        put("md0/md/dev-sdc1/state", "spare");
        put("cciss!c0d0/device/state", "running");
        let expected = [
            "cciss/c0d0: absent -> running",
            "md0 dev-sdb1: faulty -> absent",
            "md0 dev-sdc1: absent -> spare",
        ];
        assert_eq!(states.changes(), expected);
    }
}
