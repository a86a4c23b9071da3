//! Device-mapper devices that iotax created, and dmsetup(8).

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
use crate::refusal::Refusal;

/// The tool that creates and removes device-mapper devices, and lists the kernel's device-mapper targets.
pub(crate) const DMSETUP: Program = Program { name: "dmsetup", package: "dmsetup" };

/// UUID prefix of device-mapper devices that iotax creates with dmsetup(8).
pub(crate) const OWN: &str = "IOTAX-";
/// Device-mapper targets for which iotax calls dmsetup(8) itself.
const TARGETS: [&str; 3] = ["dm-cache", "dm-writecache", DELAY];
/// Name in UUIDs of the device-mapper target that delays I/O.
pub(crate) const DELAY: &str = "dm-delay";
/// Bytes per sector, the unit of lengths in device-mapper tables.
pub(crate) const SECTOR: u64 = 512;
/// Option that makes dmsetup(8) create device nodes itself if udev does not.
pub(crate) const VERIFY_UDEV: &str = "--verifyudev";
/// Directory in /sys that lists all block devices.
const DEVICES: &str = "/sys/class/block";
/// Maximum time for another program that opens devices, such as udev, to close one.
const PATIENCE: Duration = Duration::from_secs(10);

/// A device-mapper device that iotax created, as recorded in the undo log. It does not survive a reboot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// Name of the device, which contains the run's tag.
    pub name: String,
    /// Device-mapper UUID of the device, which contains the name.
    pub uuid: String,
}

impl Mapping {
    /// Returns the device that cryptsetup(8) creates for the LUKS2 container with this UUID.
    pub(crate) fn of_luks(name: String, uuid: &str) -> Self {
        let uuid = format!("CRYPT-LUKS2-{}-{name}", uuid.replace('-', ""));
        Self { name, uuid }
    }

    /// Returns the device that integritysetup(8) creates; dm-integrity superblocks have no UUID.
    pub(crate) fn of_integrity(name: String) -> Self {
        Self { uuid: format!("CRYPT-INTEGRITY-{name}"), name }
    }

    /// Returns a device that dmsetup(8) creates with the device-mapper target `target`.
    pub(crate) fn of_target(target: &str, name: String) -> Self {
        Self { uuid: format!("{OWN}{target}-{name}"), name }
    }

    /// Returns the device-mapper target that the UUID of a device names; `None` if iotax did not create the device with dmsetup(8).
    pub(crate) fn target_of(uuid: &str) -> Option<&'static str> {
        let target = uuid.strip_prefix(OWN)?;
        TARGETS.into_iter().find(|known| target.strip_prefix(known).is_some_and(|rest| rest.starts_with('-')))
    }

    /// Returns the path of the device node in /dev/mapper.
    pub(crate) fn node(&self) -> PathBuf {
        Path::new("/dev/mapper").join(&self.name)
    }

    /// Removes the device; does nothing if it is missing. Retries for up to 10 s.
    pub(crate) fn close(&self, lock: &ProcessLock) -> io::Result<()> {
        kernel_file::check_mounted(Path::new(DEVICES))?;
        let deadline = Instant::now() + PATIENCE;
        while let Some(name) = self.current_name(Path::new(DEVICES))? {
            match lock.run(DMSETUP, ["remove", VERIFY_UDEV, &name]) {
                Err(error) if Instant::now() > deadline => return Err(io::Error::other(error)),
                Err(_) => threads::sleep(Duration::from_millis(100)),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the current name of the device, found by its UUID; `None` if it is missing.
    fn current_name(&self, devices: &Path) -> io::Result<Option<String>> {
        Ok(mapped(devices)?.into_iter().find(|mapping| mapping.uuid == self.uuid).map(|mapping| mapping.name))
    }
}

/// Lists all device-mapper devices.
fn mapped(devices: &Path) -> io::Result<Vec<Mapping>> {
    let all = fs::read_dir(devices)?.filter_map(|entry| {
        let mapped = entry.ok()?.path().join("dm");
        Some(Mapping { name: text(&mapped.join("name"))?, uuid: text(&mapped.join("uuid"))? })
    });
    Ok(all.collect())
}

/// Removes the logical volumes of a group that iotax made and whose device is lost: LVM no longer knows them, and the kernel still maps
/// them. Retries for up to 10 s.
pub(crate) fn remove_volumes(group: &str, lock: &ProcessLock) -> io::Result<()> {
    kernel_file::check_mounted(Path::new(DEVICES))?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let names = volumes(group, Path::new(DEVICES))?;
        if names.is_empty() {
            return remove_links(&Path::new("/dev").join(group));
        }
        // A volume can only be removed after those above it.
        let mut failure = None;
        for name in &names {
            failure = lock.run(DMSETUP, ["remove", VERIFY_UDEV, name]).err().or(failure);
        }
        if let Some(error) = failure.filter(|_| Instant::now() > deadline) {
            return Err(io::Error::other(error));
        }
        threads::sleep(Duration::from_millis(100));
    }
}

/// Removes the links to a group's volumes, which LVM makes in /dev and nobody removes without udev. Does nothing if there are none.
fn remove_links(directory: &Path) -> io::Result<()> {
    let Ok(links) = fs::read_dir(directory) else { return Ok(()) };
    // udev may remove them at the same time.
    let unless_gone = |done: io::Result<()>| match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    for link in links {
        let path = link?.path();
        if path.is_symlink() {
            unless_gone(fs::remove_file(path))?;
        }
    }
    unless_gone(fs::remove_dir(directory))
}

/// Returns the device-mapper names of a group's logical volumes, in which LVM doubles the hyphens of group and volume.
fn volumes(group: &str, devices: &Path) -> io::Result<Vec<String>> {
    let start = format!("{}-", group.replace('-', "--"));
    let is_in = |name: &str| name.strip_prefix(&start).is_some_and(|volume| !volume.starts_with('-'));
    let of_group = mapped(devices)?.into_iter().filter(|mapping| mapping.uuid.starts_with("LVM-"));
    Ok(of_group.map(|mapping| mapping.name).filter(|name| is_in(name)).collect())
}

/// Fails unless this user can create a device-mapper device for `layer` here: checks for root, the program, and the kernel's target
/// `target`, which `module` contains.
pub(crate) fn check(layer: &str, program: Program, target: &str, module: &str) -> Result<(), Refusal> {
    if !rustix::process::geteuid().is_root() {
        return Err(Refusal::environment(format!(
            "{layer}: only root may open a mapping; run iotax as root"
        )));
    }
    for program in [program, DMSETUP] {
        program.find().map_err(|error| Refusal::environment(error.to_string()))?;
    }
    // Loads the target's module, unless the target is built in.
    DMSETUP.run(["target-version", target]).map(drop).map_err(|_| {
        Refusal::environment(format!(
            "this kernel's device mapper has no {target}, which {layer} needs (its module is {module}); leave out targets with {layer}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_known_by_its_uuid_whatever_its_name() {
        let temp = tempfile::tempdir().expect("temp dir");
        let mapping = Mapping::of_luks("iotax-1a2b-t".into(), "0f0e0d0c-0b0a-4908-8706-050403020100");
        assert_eq!(mapping.uuid, "CRYPT-LUKS2-0f0e0d0c0b0a49088706050403020100-iotax-1a2b-t");
        for (device, name, uuid) in [
            ("dm-0", "iotax-1a2b-t", "CRYPT-LUKS2-11111111111111111111111111111111-iotax-1a2b-t"),
            ("dm-1", "renamed", mapping.uuid.as_str()),
            ("dm-2", "vg-home", "LVM-x"),
            ("dm-3", "iotax--1a2b-volume1", "LVM-y"),
            ("dm-4", "iotax--1a2b-volume1--pool_tdata", "LVM-z-tdata"),
            ("dm-5", "iotax--1a2b--1-volume1", "LVM-w"),
            ("dm-6", "iotax--1a2b-luks", "CRYPT-LUKS2-x"),
        ] {
            let mapped = temp.path().join(device).join("dm");
            fs::create_dir_all(&mapped).expect("made");
            fs::write(mapped.join("name"), name).expect("written");
            fs::write(mapped.join("uuid"), format!("{uuid}\n")).expect("written");
        }
        fs::create_dir(temp.path().join("sda")).expect("made");
        assert_eq!(mapping.current_name(temp.path()).expect("read").as_deref(), Some("renamed"));
        let other = Mapping::of_integrity("iotax-1a2b-t".into());
        assert_eq!(other.current_name(temp.path()).expect("read"), None);
        let mut volumes = volumes("iotax-1a2b", temp.path()).expect("read");
        volumes.sort();
        assert_eq!(volumes, ["iotax--1a2b-volume1", "iotax--1a2b-volume1--pool_tdata"]);
        let links = temp.path().join("iotax-1a2b");
        fs::create_dir(&links).expect("made");
        std::os::unix::fs::symlink("/dev/mapper/none", links.join("volume1")).expect("made");
        remove_links(&links).expect("removed");
        remove_links(&links).expect("gone");
        assert!(!links.exists());
    }
}
