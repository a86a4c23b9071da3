//! Finds and stops the md arrays that iotax creates.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::threads;
use serde::{Deserialize, Serialize};

use crate::host_info::{boot_id, text};
use crate::kernel_file;
use crate::lock::ProcessLock;
use crate::losetup::Attached;
use crate::program::Program;

/// The tool that creates and stops md arrays.
pub(crate) const MDADM: Program = Program { name: "mdadm", package: "mdadm" };

/// Directory in /sys that lists whole disks, without partitions.
const DISKS: &str = "/sys/block";
/// Maximum time for another program that opens devices to close one, and for udev to stop assembling the array again.
const PATIENCE: Duration = Duration::from_secs(10);

/// An md array that iotax created over loop devices, as recorded in the undo log. Identified by its UUID or, while it is still being
/// created, by its members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatedArray {
    /// UUID of the array, which iotax passed to mdadm.
    pub uuid: String,
    /// The loop devices that are the array's members.
    pub members: Vec<Attached>,
}

impl CreatedArray {
    /// If the array runs, stops it and wipes the superblocks of its members: otherwise udev would assemble it again.
    pub(crate) fn stop(&self, lock: &ProcessLock) -> io::Result<()> {
        kernel_file::check_mounted(Path::new(DISKS))?;
        let deadline = Instant::now() + PATIENCE;
        let members = self.member_nodes()?;
        let mut failure = None;
        while let Some(array) = self.running_array(&members)? {
            if Instant::now() > deadline {
                return Err(
                    failure.unwrap_or_else(|| io::Error::other(format!("{} comes back", array.display())))
                );
            }
            if let Err(error) = lock.run(MDADM, ["--stop".as_ref(), array.as_os_str()]) {
                failure = Some(io::Error::other(error));
                threads::sleep(Duration::from_millis(100));
                continue;
            }
            for member in &members {
                // A member that mdadm did not reach has no superblock.
                let _ = lock.run(MDADM, ["--zero-superblock", member]);
            }
        }
        Ok(())
    }

    /// Returns the device nodes of the members' loop devices. Leaves out members attached before a reboot, which detached them.
    fn member_nodes(&self) -> io::Result<Vec<String>> {
        let now = boot_id();
        let of_this_boot = self.members.iter().filter(|member| now.is_some() && member.boot_id == now);
        of_this_boot.map(Attached::nodes).collect::<io::Result<Vec<_>>>().map(|nodes| nodes.concat())
    }

    /// Finds the device node of the running array by its members or its UUID; `None` if it does not run.
    fn running_array(&self, members: &[String]) -> io::Result<Option<PathBuf>> {
        let arrays = arrays(Path::new(DISKS))?;
        let ours = arrays.into_iter().find(|name| {
            let has = |member: &String| {
                let member = member.trim_start_matches("/dev/");
                Path::new(DISKS).join(name).join("slaves").join(member).exists()
            };
            members.iter().any(has) || is_same(&self.uuid, &uuid_of(name).unwrap_or_default())
        });
        Ok(ours.map(|name| node(&name)))
    }
}

/// Returns the path of the device node of an array with this kernel name.
fn node(name: &str) -> PathBuf {
    Path::new("/dev").join(name)
}

/// Returns the kernel names of all md arrays.
fn arrays(disks: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(disks)?.filter_map(|entry| {
        let path = entry.ok()?.path();
        path.join("md").is_dir().then(|| path.file_name()?.to_str().map(str::to_owned)).flatten()
    });
    Ok(names.collect())
}

/// Returns the device node of an unused array number, from 127 downward as mdadm chooses it; `None` if all are in use.
pub(crate) fn free_node() -> Option<PathBuf> {
    const HIGHEST: u32 = 127;
    let is_free = |node: &PathBuf| {
        let name = node.file_name().unwrap_or_default();
        !node.exists() && !Path::new(DISKS).join(name).exists()
    };
    (0..=HIGHEST).rev().map(|number| node(&format!("md{number}"))).find(is_free)
}

/// Returns the UUID of a running array, from `mdadm --detail`; `None` if mdadm reports none.
fn uuid_of(name: &str) -> Option<String> {
    let said = MDADM.run(["--detail".as_ref(), "--export".as_ref(), node(name).as_os_str()]).ok()?;
    let said = String::from_utf8_lossy(&said).into_owned();
    said.lines().find_map(|line| line.strip_prefix("MD_UUID=").map(str::to_owned))
}

/// Returns whether two UUIDs have the same hexadecimal digits; mdadm and iotax group them differently.
fn is_same(one: &str, other: &str) -> bool {
    let digits = |text: &str| text.chars().filter(char::is_ascii_hexdigit).collect::<String>().to_lowercase();
    !other.is_empty() && digits(one) == digits(other)
}

/// Returns whether the kernel supports a RAID level such as `raid5`: loaded, built in or as a module. /proc and /lib are below `root`.
pub(crate) fn has_level(root: &Path, level: &str) -> bool {
    let loaded = text(&root.join("proc/mdstat")).unwrap_or_default();
    if loaded.contains(&format!("[{level}]")) {
        return true;
    }
    let module = if level == "raid5" { "raid456" } else { level };
    let release = text(&root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
    let modules = root.join("lib/modules").join(release);
    let has = |file: &str, name: &str| {
        let listed = fs::read_to_string(modules.join(file)).unwrap_or_default();
        listed.lines().any(|line| {
            let path = line.split(':').next().unwrap_or_default();
            path.rsplit('/').next().is_some_and(|file| file.split('.').next() == Some(name))
        })
    };
    ["modules.dep", "modules.builtin"].iter().any(|file| has(file, module))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_the_same_in_both_forms() {
        let ours = "0F0e0d0c-0b0a-4908-8706-050403020100";
        assert!(is_same(ours, "0f0e0d0c:0b0a4908:87060504:03020100"));
        assert!(!is_same(ours, "1f0e0d0c:0b0a4908:87060504:03020100"));
        assert!(!is_same(ours, ""));
    }

    #[test]
    fn a_level_is_loaded_or_a_module_of_this_kernel() {
        let temp = tempfile::tempdir().expect("temp dir");
        let put = |path: &str, content: &str| {
            let path = temp.path().join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(path, content).expect("written");
        };
        put("proc/sys/kernel/osrelease", "6.1.0-test\n");
        assert!(!has_level(temp.path(), "raid1"));
        put("proc/mdstat", "Personalities : [raid1] [linear]\nunused devices: <none>\n");
        put(
            "lib/modules/6.1.0-test/modules.dep",
            "kernel/drivers/md/raid456.ko.xz: kernel/drivers/md/md-mod.ko.xz\n",
        );
        put("lib/modules/6.1.0-test/modules.builtin", "kernel/drivers/md/raid0.ko\n");
        let found = ["raid0", "raid1", "raid5", "raid10"].map(|level| has_level(temp.path(), level));
        assert_eq!(found, [true, true, true, false]);
    }

    #[test]
    fn arrays_are_disks_with_settings_of_mds() {
        let temp = tempfile::tempdir().expect("temp dir");
        for name in ["md127/md", "md_home/md", "sda/device"] {
            fs::create_dir_all(temp.path().join(name)).expect("made");
        }
        let mut found = arrays(temp.path()).expect("read");
        found.sort();
        assert_eq!(found, ["md127", "md_home"]);
    }
}
