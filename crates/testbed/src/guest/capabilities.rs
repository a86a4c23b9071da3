//! Queries what this machine's QEMU supports, so that unsupported guests are rejected before anything is built.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use iotax_model::target::{Aio, GuestSpec, MachineType, NetPath, NetworkSpec, Nic, PlannedDevice};
use serde_json::{Value, json};

use super::qmp::{self, Qmp, QmpError};
use super::{GuestError, directory, disk, find_qemu, nic, qemu_version};
use crate::lock::ProcessLock;
use crate::refusal::Refusal;

/// Keys of a device's options that QEMU accepts for every driver.
const COMMON: [&str; 3] = ["driver", "id", "bus"];

/// QEMU's version, machine types and drivers, as reported by QEMU.
pub struct Capabilities {
    version: String,
    machines: BTreeSet<String>,
    /// The properties of each queried device driver; `None` for a driver that QEMU lacks.
    drivers: BTreeMap<String, Option<BTreeSet<String>>>,
    /// The reason why io_uring does not work; `None` if it works or was not queried.
    no_io_uring: Option<String>,
    /// The reason why QEMU has no user-mode network stack; `None` if it has one or was not queried.
    no_slirp: Option<String>,
}

/// A guest to check, and the device through which its I/O is measured.
pub type Wanted<'a> = (&'a GuestSpec, PlannedDevice<'a>);

/// Returns the devices of a guest whose support depends on the QEMU version: disk and controller, network card, or that of a directory.
fn devices((spec, device): Wanted) -> Vec<Value> {
    match device {
        PlannedDevice::Disk => disk::devices(spec),
        PlannedDevice::Card(network) => vec![nic::device(spec, network.nic, 1)],
        PlannedDevice::Directory(protocol) => vec![directory::device(spec, protocol)],
    }
}

/// A QEMU process without a machine, which answers queries. Dropping it kills the process.
struct Asked(Child);

impl Drop for Asked {
    fn drop(&mut self) {
        // The process holds no resources, and may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Capabilities {
    /// Starts QEMU without a machine, queries everything that the guests in `wanted` need, and ends QEMU. `marker` appears in QEMU's
    /// command line. QEMU holds the run's lock through its stderr.
    pub fn ask<'a>(
        wanted: impl IntoIterator<Item = Wanted<'a>>,
        marker: &str,
        lock: &ProcessLock,
    ) -> Result<Self, GuestError> {
        let program = find_qemu()?;
        let io = |source| GuestError::Io { path: program.clone(), source };
        let (ours, theirs) = UnixStream::pair().map_err(io)?;
        let output = theirs.try_clone().map_err(io)?;
        let asked = Command::new(&program)
            .args(["-name", marker])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-machine", "none", "-qmp", "stdio"])
            .stdin(OwnedFd::from(theirs))
            .stdout(OwnedFd::from(output))
            .stderr(lock.stdio().map_err(io)?)
            .process_group(0)
            .spawn()
            .map(Asked)
            .map_err(io)?;
        let refused = |source| match source {
            QmpError::Interrupted => GuestError::Interrupted,
            error => GuestError::Qmp { error, exit_diagnostics: String::new() },
        };
        let mut qmp = Qmp::start(ours, qmp::DEADLINE, asked.0.id(), lock.stop()).map_err(refused)?;
        let machines =
            names(&qmp.execute("query-machines", &json!({})).map_err(refused)?, &["name", "alias"]);
        let (drivers, version) = (BTreeMap::new(), qemu_version()?);
        let mut capabilities = Self { version, machines, drivers, no_io_uring: None, no_slirp: None };
        for (spec, through) in wanted {
            for device in devices((spec, through)) {
                let driver = device["driver"].as_str().unwrap_or_default();
                if !capabilities.drivers.contains_key(driver) {
                    let properties = properties(&mut qmp, driver).map_err(refused)?;
                    capabilities.drivers.insert(driver.to_owned(), properties);
                }
            }
            match through {
                PlannedDevice::Card(network)
                    if network.via == NetPath::User && capabilities.no_slirp.is_none() =>
                {
                    capabilities.no_slirp = no_slirp(&mut qmp).map_err(refused)?;
                }
                PlannedDevice::Disk if spec.aio == Aio::IoUring && capabilities.no_io_uring.is_none() => {
                    capabilities.no_io_uring = no_io_uring(&mut qmp).map_err(refused)?;
                }
                _ => {}
            }
        }
        Ok(capabilities)
    }

    /// Returns QEMU's version, such as `10.0.2`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Rejects a guest that this QEMU cannot run. The guest must be one of those passed to [`Self::ask`].
    pub fn check(&self, (spec, through): Wanted) -> Result<(), Refusal> {
        let (version, machine) = (&self.version, spec.machine_type().word());
        let refuse = |reason: String| Err(Refusal::environment(format!("QEMU {version} {reason}")));
        if !self.machines.contains(machine) {
            return refuse(format!("has no machine {machine:?}; leave machine out or take another QEMU"));
        }
        if let PlannedDevice::Card(network) = through {
            self.check_network(spec, network)?;
        } else if let (PlannedDevice::Disk, Aio::IoUring, Some(reason)) =
            (through, spec.aio, &self.no_io_uring)
        {
            return refuse(format!("cannot use aio = \"io_uring\" here ({reason}); use aio = \"threads\""));
        }
        let wants = match through {
            PlannedDevice::Disk => format!("bus = {:?}", spec.bus.word()),
            PlannedDevice::Card(network) => format!("nic = {:?}", network.nic.word()),
            PlannedDevice::Directory(protocol) => protocol.word().to_owned(),
        };
        for device in devices((spec, through)) {
            let driver = device["driver"].as_str().unwrap_or_default();
            let Some(properties) = self.drivers.get(driver).and_then(Option::as_ref) else {
                return refuse(format!("has no device {driver:?}, which {wants} needs"));
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

    fn check_network(&self, spec: &GuestSpec, network: &NetworkSpec) -> Result<(), Refusal> {
        if spec.machine_type() == MachineType::Microvm && network.nic != Nic::VirtioNet {
            return Err(Refusal::input(format!(
                "machine = \"microvm\" has no PCI, which nic = {:?} needs; it takes virtio-net",
                network.nic.word()
            )));
        }
        match &self.no_slirp {
            Some(reason) if network.via == NetPath::User => Err(Refusal::environment(format!(
                "QEMU {} has no network stack of its own ({reason}); use via = \"passt\" or \"bridge\"",
                self.version
            ))),
            _ => Ok(()),
        }
    }
}

/// Returns the reason why QEMU has no user-mode network stack (slirp), which some builds omit; `None` if it has one.
fn no_slirp(qmp: &mut Qmp) -> Result<Option<String>, QmpError> {
    match qmp.execute("netdev_add", &json!({ "type": "user", "id": "tried" })) {
        Ok(_) => qmp.execute("netdev_del", &json!({ "id": "tried" })).map(|_| None),
        Err(QmpError::Refused { description, .. }) => Ok(Some(description)),
        Err(error) => Err(error),
    }
}

/// Returns the names of a device driver's properties; `None` if QEMU lacks the driver.
fn properties(qmp: &mut Qmp, driver: &str) -> Result<Option<BTreeSet<String>>, QmpError> {
    match qmp.execute("device-list-properties", &json!({ "typename": driver })) {
        Ok(answer) => Ok(Some(names(&answer, &["name"]))),
        Err(QmpError::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the reason why QEMU cannot use io_uring: not built in, or blocked by the kernel; `None` if it works. Tested by opening QEMU's
/// own executable.
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

/// Collects the string values of `keys` from all objects in a list.
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
        let capabilities = Capabilities {
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
            no_slirp: Some("Parameter 'type' does not accept value 'user'".into()),
        };
        let threads = || GuestSpec { aio: Aio::Threads, ..GuestSpec::default() };
        assert!(capabilities.check((&threads(), PlannedDevice::Disk)).is_ok());
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
            let refusal = capabilities.check((&spec, PlannedDevice::Disk)).expect_err(words);
            assert_eq!(refusal.exit, Exit::Environment);
            assert!(refusal.to_string().contains(words), "{refusal}");
        }
    }

    #[test]
    fn a_network_that_another_qemu_lacks_is_refused() {
        let capabilities = Capabilities {
            version: "10.1.0".into(),
            machines: ["q35".into(), "microvm".into()].into(),
            drivers: [("e1000".into(), None)].into(),
            no_io_uring: Some("not asked of a guest without a disk".into()),
            no_slirp: Some("Parameter 'type' does not accept value 'user'".into()),
        };
        let microvm = GuestSpec { machine: Some(MachineType::Microvm), ..GuestSpec::default() };
        let e1000 = |via| NetworkSpec { nic: Nic::E1000, ..NetworkSpec::new(via) };
        for (spec, network, words) in [
            (microvm, e1000(NetPath::Bridge), "has no PCI, which nic = \"e1000\" needs"),
            (GuestSpec::default(), e1000(NetPath::User), "does not accept value 'user'"),
            (GuestSpec::default(), e1000(NetPath::Bridge), "no device \"e1000\", which nic = \"e1000\""),
        ] {
            let refusal =
                capabilities.check((&spec, PlannedDevice::Card(&network))).expect_err(words).to_string();
            assert!(refusal.contains(words), "{refusal}");
        }
    }

    #[test]
    fn the_qemu_of_this_machine_answers() {
        iotax_testkit::require!(program "qemu-system-x86_64");
        let buses = Bus::WORDS.iter().map(|bus| bus.parse().expect("known"));
        let specs: Vec<GuestSpec> = buses.map(|bus| GuestSpec { bus, ..GuestSpec::default() }).collect();
        let user = NetworkSpec::new(NetPath::User);
        let temp = tempfile::tempdir().expect("a directory");
        let lock = ProcessLock::take(&temp.path().join("lock")).expect("a lock").expect("free");
        let capabilities = Capabilities::ask(
            specs
                .iter()
                .map(|spec| (spec, PlannedDevice::Disk))
                .chain([(&specs[0], PlannedDevice::Card(&user))]),
            "iotax-test-able",
            &lock,
        )
        .expect("answered");
        assert!(
            capabilities.machines.contains("q35") && capabilities.version().contains('.'),
            "{:?}",
            capabilities.machines
        );
        assert!(
            capabilities
                .check((&GuestSpec { aio: Aio::Threads, ..specs[0].clone() }, PlannedDevice::Disk))
                .is_ok()
        );
        let nic = capabilities.drivers["virtio-net-pci"].as_ref().expect("every QEMU has it");
        assert!(nic.contains("mq") && nic.contains("vectors"), "{nic:?}");
        let blk = capabilities.drivers["virtio-blk-pci"].as_ref().expect("every QEMU has it");
        assert!(blk.contains("drive") && blk.contains("num-queues"), "{blk:?}");
    }
}
