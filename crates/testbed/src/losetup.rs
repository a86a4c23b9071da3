//! Lists and detaches loop devices with losetup(8).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::threads;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::holders;
use crate::host_info::{boot_id, text};
use crate::kernel_file;
use crate::lock::ProcessLock;
use crate::program::{Program, ProgramError};

pub(crate) const LOSETUP: Program = Program { name: "losetup", package: "mount" };

/// Maximum time for other processes to close a loop device that is being detached.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum time for which losetup(8) may show no backing file for a loop device that is being detached.
const DETACHING: Duration = Duration::from_secs(1);
/// Directory in /sys that lists all block devices.
const DEVICES: &str = "/sys/class/block";

/// A loop device that iotax attached, as recorded in the undo log. Identified by the backing file's device and inode number: the loop
/// number is unknown before the device is attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attached {
    /// Absolute path of the backing file.
    pub file: PathBuf,
    /// Device number of the backing file's filesystem, from stat(2).
    pub device: u64,
    /// Inode number of the backing file, from stat(2).
    pub inode: u64,
    /// Boot id when iotax attached the device; `None` if it could not be read. Loop devices do not survive a reboot,
    /// and their numbers may differ after it.
    pub boot_id: Option<String>,
}

/// An entry in the output of `losetup --list --json`. A device that is just being detached has no backing file.
#[derive(Deserialize)]
pub(crate) struct Listed {
    pub(crate) name: String,
    /// Inode number of the backing file; `None` without the privilege to query it.
    #[serde(rename = "back-ino")]
    inode: Option<u64>,
    /// Device number of the backing file as `major:minor`, padded with spaces; `None` if it is unknown.
    #[serde(rename = "back-maj:min")]
    device: Option<String>,
}

impl Listed {
    /// Returns the device and inode number of the backing file, as from stat(2); `None` if unknown.
    pub(crate) fn file(&self) -> Option<(u64, u64)> {
        let (major, minor) = self.device.as_ref()?.trim().split_once(':')?;
        Some((rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?), self.inode?))
    }
}

impl Listed {
    /// Returns whether the kernel reports this path as that of the backing file.
    fn is_named(&self, file: &Path) -> bool {
        let name = self.name.trim_start_matches("/dev/");
        let shown = text(&Path::new(DEVICES).join(name).join("loop/backing_file"));
        // The kernel takes a file for deleted once its filesystem answers nothing any more.
        shown.is_some_and(|shown| Path::new(shown.strip_suffix(" (deleted)").unwrap_or(&shown)) == file)
    }
}

#[derive(Deserialize)]
struct Listing {
    loopdevices: Vec<Listed>,
}

/// Lists all attached loop devices.
pub(crate) fn list() -> Result<Vec<Listed>, ProgramError> {
    let said = LOSETUP.run(["--list", "--json", "--output", "NAME,BACK-INO,BACK-MAJ:MIN"])?;
    listed(&said).map_err(|error| ProgramError::Failed {
        command: "losetup --list --json".into(),
        reason: format!("its output is not the expected JSON ({error}): {}", String::from_utf8_lossy(&said)),
    })
}

fn listed(said: &[u8]) -> serde_json::Result<Vec<Listed>> {
    if said.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_slice(said).map(|listing: Listing| listing.loopdevices)
}

impl Attached {
    /// Detaches all loop devices over the backing file and waits until they are free. After a reboot, only checks that there are none.
    pub(crate) fn detach(&self, lock: &ProcessLock) -> io::Result<()> {
        kernel_file::check_mounted(Path::new(DEVICES))?;
        if self.boot_id.is_none() || self.boot_id != boot_id() {
            return self.check_gone();
        }
        for node in self.nodes()? {
            if let Err(error) = lock.run(LOSETUP, ["--detach", &node]) {
                // The device may have detached itself after an earlier detach, which the kernel defers while the device is open.
                if self.nodes()?.contains(&node) {
                    return Err(io::Error::other(error));
                }
            }
        }
        // The kernel detaches an open device when it is closed.
        let deadline = Instant::now() + PATIENCE;
        loop {
            let Some(node) = self.nodes()?.pop() else { return Ok(()) };
            if Instant::now() > deadline {
                let users = fs::metadata(&node)
                    .map(|found| holders::writers(&[found.rdev()], &[]))
                    .unwrap_or_default();
                let users = if users.is_empty() { "somebody".into() } else { users.join(", ") };
                return Err(io::Error::other(format!("{users} has {node} open")));
            }
            threads::sleep(Duration::from_millis(20));
        }
    }

    /// Fails if any loop device over the backing file exists: after a reboot, it may or may not be the recorded one.
    fn check_gone(&self) -> io::Result<()> {
        let Some(node) = self.nodes()?.pop() else { return Ok(()) };
        Err(io::Error::other(format!(
            "{node} may be it, but it is not known to be of this boot; left alone. If it is: losetup --detach {node}; then forget it"
        )))
    }

    /// Returns the paths of all loop devices over the backing file. Fails if it cannot be determined whether a loop device is one of them.
    pub(crate) fn nodes(&self) -> io::Result<Vec<String>> {
        let deadline = Instant::now() + DETACHING;
        let is_hidden = |device: &Listed| device.file().is_none() && device.is_named(&self.file);
        let is_dead = is_dead(&self.file);
        let all = loop {
            let all = list().map_err(io::Error::other)?;
            match all.iter().find(|device| is_hidden(device)) {
                None => break all,
                Some(_) if is_dead => break all,
                Some(hidden) if Instant::now() > deadline => {
                    let words = format!("{} is on a file that cannot be inspected from here", hidden.name);
                    return Err(io::Error::other(words));
                }
                Some(_) => threads::sleep(Duration::from_millis(20)),
            }
        };
        let is_ours = |device: &Listed| self.is_over(device) || (is_dead && is_hidden(device));
        Ok(all.into_iter().filter(is_ours).map(|device| device.name).collect())
    }

    fn is_over(&self, device: &Listed) -> bool {
        device.file() == Some((self.device, self.inode))
    }
}

/// Returns whether a file is on a FUSE filesystem whose daemon has exited, or whose power was cut, so that it can only be identified by its
/// path.
fn is_dead(file: &Path) -> bool {
    let is_unanswered = |errno: i32| [Errno::NOTCONN, Errno::IO].map(Errno::raw_os_error).contains(&errno);
    fs::metadata(file).is_err_and(|error| error.raw_os_error().is_some_and(is_unanswered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_somebody_detaches_meanwhile_is_nobodys() {
        let attached = Attached { file: "/a".into(), device: 65024, inode: 12, boot_id: None };
        let said = br#"{"loopdevices": [
            {"name": "/dev/loop0", "back-ino": null, "back-maj:min": null},
            {"name": "/dev/loop1", "back-ino": 12, "back-maj:min": "254:0  "},
            {"name": "/dev/loop2", "back-ino": 12, "back-maj:min": " 8:1"}]}"#;
        let over: Vec<bool> = listed(said).expect("read").iter().map(|one| attached.is_over(one)).collect();
        assert_eq!(over, [false, true, false]);
        assert!(listed(b"\n").expect("read").is_empty());
    }
}
