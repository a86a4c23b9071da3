//! What the QEMU of this machine can do, asked of itself before a guest is built that it would refuse.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use iotax_model::target::{Aio, GuestSpec};
use serde_json::{Value, json};

use super::qmp::{self, Qmp, QmpError};
use super::{GuestError, disk, find_qemu, qemu_version};
use crate::target::Refusal;

/// Keys of a device that are not properties of its own.
const COMMON: [&str; 3] = ["driver", "id", "bus"];

/// A QEMU that runs no guest and answers questions.
pub struct Able {
    version: String,
    machines: BTreeSet<String>,
    /// The properties of each driver that was asked for; absent: there is no such driver.
    drivers: BTreeMap<String, Option<BTreeSet<String>>>,
    /// Why it has no io_uring; absent: it has, or was not asked for.
    no_io_uring: Option<String>,
}

/// Ends the process with the questions.
struct Asked(Child);

impl Drop for Asked {
    fn drop(&mut self) {
        // It holds nothing, and may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Able {
    /// Starts QEMU without a machine, asks it what these guests need to know, and ends it. `marker` appears in its command
    /// line.
    pub fn ask<'a>(specs: impl IntoIterator<Item = &'a GuestSpec>, marker: &str) -> Result<Self, GuestError> {
        let program = find_qemu()?;
        let io = |source| GuestError::Io { path: program.clone(), source };
        let (ours, theirs) = UnixStream::pair().map_err(io)?;
        let output = theirs.try_clone().map_err(io)?;
        let _asked = Command::new(&program)
            .args(["-name", marker])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-machine", "none", "-qmp", "stdio"])
            .stdin(OwnedFd::from(theirs))
            .stdout(OwnedFd::from(output))
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map(Asked)
            .map_err(io)?;
        let refused = |source| GuestError::Qmp { source, last_words: String::new() };
        let mut qmp = Qmp::start(ours, qmp::DEADLINE).map_err(refused)?;
        let machines =
            names(&qmp.execute("query-machines", &json!({})).map_err(refused)?, &["name", "alias"]);
        let mut able =
            Self { version: qemu_version()?, machines, drivers: BTreeMap::new(), no_io_uring: None };
        for spec in specs {
            for device in disk::devices(spec) {
                let driver = device["driver"].as_str().unwrap_or_default();
                if !able.drivers.contains_key(driver) {
                    let properties = properties(&mut qmp, driver).map_err(refused)?;
                    able.drivers.insert(driver.to_owned(), properties);
                }
            }
            if spec.aio == Aio::IoUring && able.no_io_uring.is_none() {
                able.no_io_uring = no_io_uring(&mut qmp).map_err(refused)?;
            }
        }
        Ok(able)
    }

    /// QEMU's version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Refuses a guest that this QEMU cannot be, with the reason. The guest must be one of those that were asked for.
    pub fn check(&self, spec: &GuestSpec) -> Result<(), Refusal> {
        let (version, machine) = (&self.version, spec.machine_type().word());
        let refuse = |reason: String| Err(Refusal::environment(format!("QEMU {version} {reason}")));
        if !self.machines.contains(machine) {
            return refuse(format!("has no machine {machine:?}; leave machine out or take another QEMU"));
        }
        if let (Aio::IoUring, Some(reason)) = (spec.aio, &self.no_io_uring) {
            return refuse(format!("cannot use aio = \"io_uring\" here ({reason}); use aio = \"threads\""));
        }
        for device in disk::devices(spec) {
            let driver = device["driver"].as_str().unwrap_or_default();
            let Some(properties) = self.drivers.get(driver).and_then(Option::as_ref) else {
                return refuse(format!("has no device {driver:?}, which bus = {:?} needs", spec.bus.word()));
            };
            let keys = device.as_object().into_iter().flat_map(serde_json::Map::keys);
            let unknown =
                keys.map(String::as_str).find(|key| !COMMON.contains(key) && !properties.contains(*key));
            if let Some(key) = unknown {
                let threads = spec.iothreads();
                return refuse(match key {
                    "iothread-vq-mapping" => format!(
                        "gives the disk of bus = {:?} one thread, not {threads}; QEMU 9.0 gives virtio-blk several, 10.0 \
                         virtio-scsi too",
                        spec.bus.word()
                    ),
                    _ => format!("knows no property {key:?} of {driver}; a newer one does"),
                });
            }
        }
        Ok(())
    }
}

/// The properties of a driver; absent if there is no such driver.
fn properties(qmp: &mut Qmp, driver: &str) -> Result<Option<BTreeSet<String>>, QmpError> {
    match qmp.execute("device-list-properties", &json!({ "typename": driver })) {
        Ok(answer) => Ok(Some(names(&answer, &["name"]))),
        Err(QmpError::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Why io_uring cannot be used, if it cannot: not built in, or the kernel does not allow it. QEMU tries it on its own program.
fn no_io_uring(qmp: &mut Qmp) -> Result<Option<String>, QmpError> {
    let file = json!({
        "driver": "file",
        "node-name": "tried",
        "filename": "/proc/self/exe",
        "read-only": true,
        "aio": Aio::IoUring.word(),
    });
    match qmp.execute("blockdev-add", &file) {
        Ok(_) => qmp.execute("blockdev-del", &json!({ "node-name": "tried" })).map(|_| None),
        Err(QmpError::Refused { description, .. }) => Ok(Some(description)),
        Err(error) => Err(error),
    }
}

/// What stands under these keys in a list of objects.
fn names(list: &Value, keys: &[&str]) -> BTreeSet<String> {
    let entries = list.as_array().into_iter().flatten();
    let values = entries.flat_map(|entry| keys.iter().filter_map(|key| entry.get(key)?.as_str()));
    values.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::exit::Exit;
    use iotax_model::target::{Bus, MachineType};

    #[test]
    fn what_another_qemu_lacks_is_refused_with_its_version() {
        let properties = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        let able = Able {
            version: "8.2.2".into(),
            machines: ["q35".into()].into(),
            drivers: [
                (
                    "virtio-blk-pci".into(),
                    properties(&["drive", "serial", "write-cache", "iothread", "num-queues"]),
                ),
                ("virtio-scsi-pci".into(), properties(&["iothread"])),
                ("nvme".into(), None),
            ]
            .into(),
            no_io_uring: Some("Unable to use linux io_uring: Operation not permitted".into()),
        };
        let threads = || GuestSpec { aio: Aio::Threads, ..GuestSpec::default() };
        assert!(able.check(&threads()).is_ok());
        for (spec, words) in [
            (
                GuestSpec::default(),
                "QEMU 8.2.2 cannot use aio = \"io_uring\" here (Unable to use linux io_uring",
            ),
            (GuestSpec { machine: Some(MachineType::Microvm), ..threads() }, "has no machine \"microvm\""),
            (GuestSpec { bus: Bus::Nvme, ..threads() }, "has no device \"nvme\", which bus = \"nvme\" needs"),
            (
                GuestSpec { iothread: Some(2), queues: Some(2), ..threads() },
                "gives the disk of bus = \"virtio-blk\" one thread, not 2; QEMU 9.0",
            ),
            (
                GuestSpec { bus: Bus::VirtioScsi, queues: Some(2), ..threads() },
                "\"num_queues\" of virtio-scsi-pci",
            ),
        ] {
            let refusal = able.check(&spec).expect_err(words);
            assert_eq!(refusal.exit, Exit::Environment);
            assert!(refusal.to_string().contains(words), "{refusal}");
        }
    }

    #[test]
    fn the_qemu_of_this_machine_answers() {
        if let Err(reason) = find_qemu() {
            assert!(std::env::var_os("IOTAX_REQUIRE_GUESTS").is_none(), "{reason}");
            eprintln!("skipped: {reason}");
            return;
        }
        let buses = Bus::WORDS.iter().map(|bus| bus.parse().expect("known"));
        let specs: Vec<GuestSpec> = buses.map(|bus| GuestSpec { bus, ..GuestSpec::default() }).collect();
        let able = Able::ask(&specs, "iotax-test-able").expect("answered");
        assert!(able.machines.contains("q35") && able.version().contains('.'), "{:?}", able.machines);
        assert!(able.check(&GuestSpec { aio: Aio::Threads, ..specs[0].clone() }).is_ok());
        let blk = able.drivers["virtio-blk-pci"].as_ref().expect("every QEMU has it");
        assert!(blk.contains("drive") && blk.contains("num-queues"), "{blk:?}");
    }
}
