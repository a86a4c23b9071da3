//! NVMe/TCP within this machine: the kernel's target (nvmet), configured through configfs, and connections of the kernel's initiator to it.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::threads;
use serde::{Deserialize, Serialize};

use crate::host_info::text;

/// Directory of the NVMe target in configfs.
pub(crate) const TARGET: &str = "/sys/kernel/config/nvmet";
/// The device to which connection parameters are written to connect.
pub(crate) const FABRICS: &str = "/dev/nvme-fabrics";
/// Prefix of subsystem and host NQNs that end with a UUID, from the NVMe specification.
pub(crate) const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:";
/// Directory in /sys that exists if the nvmet module is loaded.
const MODULE: &str = "/sys/module/nvmet";
/// Directory of NVMe controllers in /sys, which includes connections.
const CONTROLLERS: &str = "/sys/class/nvme";
const DEVICES: &str = "/sys/class/block";
/// Seconds after which I/O fails if the target is lost.
const LOSS: u32 = 10;
/// Maximum time for a namespace's device to appear, or for a connection to end, which happens only after its I/O has failed.
const PATIENCE: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(20);

/// A subsystem of the kernel's NVMe target that iotax created, with its port and the only host that may connect. Recorded in the undo log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvmeTarget {
    /// NQN of the subsystem.
    pub nqn: String,
    /// NQN of the host that may connect, which is kept secret.
    pub host: String,
    /// Number of the port in configfs.
    pub port: u16,
    /// TCP address of the port, on loopback.
    pub address: SocketAddr,
}

impl NvmeTarget {
    fn subsystem(&self) -> PathBuf {
        Path::new(TARGET).join("subsystems").join(&self.nqn)
    }

    fn host_directory(&self) -> PathBuf {
        Path::new(TARGET).join("hosts").join(&self.host)
    }

    fn namespace(&self) -> PathBuf {
        self.subsystem().join("namespaces/1")
    }

    fn port_directory(&self) -> PathBuf {
        port_directory(self.port)
    }

    /// Returns the UUID of the subsystem's only namespace, which is part of the NQN.
    pub(crate) fn uuid(&self) -> &str {
        self.nqn.strip_prefix(NQN).unwrap_or_default()
    }

    /// Exports a file or block device as the subsystem's namespace.
    ///
    /// # Errors
    /// A step fails; the path is the file or directory of that step.
    pub(crate) fn serve(&self, stored: &Path) -> Result<(), (PathBuf, io::Error)> {
        let (subsystem, namespace, port) = (self.subsystem(), self.namespace(), self.port_directory());
        let make = |path: &Path| fs::create_dir(path).map_err(|error| (path.to_owned(), error));
        let set = |path: PathBuf, value: &str| fs::write(&path, value).map_err(|error| (path, error));
        let link = |to: &Path, path: PathBuf| symlink(to, &path).map_err(|error| (path, error));
        make(&self.host_directory())?;
        make(&subsystem)?;
        link(&self.host_directory(), subsystem.join("allowed_hosts").join(&self.host))?;
        make(&namespace)?;
        set(namespace.join("device_path"), &stored.to_string_lossy())?;
        set(namespace.join("device_uuid"), self.uuid())?;
        set(namespace.join("enable"), "1")?;
        make(&port)?;
        set(port.join("addr_trtype"), "tcp")?;
        set(port.join("addr_adrfam"), "ipv4")?;
        set(port.join("addr_traddr"), &self.address.ip().to_string())?;
        set(port.join("addr_trsvcid"), &self.address.port().to_string())?;
        link(&subsystem, port.join("subsystems").join(&self.nqn))
    }

    /// Removes the subsystem, its port, namespace and host; a missing one is no error. A port that another program has taken over stays.
    /// Fails if configfs is not mounted here.
    pub(crate) fn remove(&self) -> io::Result<()> {
        if !Path::new(TARGET).exists() {
            if Path::new(MODULE).exists() {
                return Err(io::Error::other(format!(
                    "{TARGET} is not mounted here; clean again where it is"
                )));
            }
            return Ok(());
        }
        let (subsystem, port) = (self.subsystem(), self.port_directory());
        gone(fs::remove_file(port.join("subsystems").join(&self.nqn)))?;
        if self.is_own_port() {
            gone(fs::remove_dir(&port))?;
        }
        gone(fs::remove_dir(self.namespace()))?;
        gone(fs::remove_file(subsystem.join("allowed_hosts").join(&self.host)))?;
        gone(fs::remove_dir(&subsystem))?;
        gone(fs::remove_dir(self.host_directory()))
    }

    /// Returns whether the port with this number is still the run's: it exports nothing and has the run's TCP port or none. Another program
    /// may have reused the number.
    fn is_own_port(&self) -> bool {
        let port = self.port_directory();
        let serves = fs::read_dir(port.join("subsystems")).is_ok_and(|mut served| served.next().is_some());
        let service = text(&port.join("addr_trsvcid"));
        !serves && service.is_none_or(|service| service == self.address.port().to_string())
    }
}

/// Turns the error of a removal into success if the file was already missing.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn port_directory(number: u16) -> PathBuf {
    Path::new(TARGET).join("ports").join(number.to_string())
}

/// Returns an unused port number in configfs; `None` if all are in use.
pub(crate) fn free_port() -> Option<u16> {
    (1..=u16::MAX).rev().find(|number| !port_directory(*number).exists())
}

/// A connection to a subsystem that iotax created, as recorded in the undo log. It does not survive a reboot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvmeConnection {
    /// NQN of the subsystem.
    pub nqn: String,
}

impl NvmeConnection {
    /// Disconnects and waits up to 1 minute until the connection is gone; does nothing if there is none.
    pub(crate) fn end(&self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while let Some(controller) = self.controller()? {
            // The controller may already be disappearing.
            let asked = gone(fs::write(controller.join("delete_controller"), "1"));
            if Instant::now() > deadline {
                let words = format!("{} does not end", controller.display());
                return Err(asked.err().unwrap_or_else(|| io::Error::other(words)));
            }
            threads::sleep(POLL);
        }
        Ok(())
    }

    /// Returns the directory in /sys of the connection's controller; `None` if there is no connection.
    fn controller(&self) -> io::Result<Option<PathBuf>> {
        let all = match fs::read_dir(CONTROLLERS) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            all => all?,
        };
        let mut all = all.flatten().map(|entry| entry.path());
        Ok(all.find(|controller| text(&controller.join("subsysnqn")).as_deref() == Some(&self.nqn)))
    }
}

/// Connects to a target, as nvme(1) does. A lost connection is retried for [`LOSS`] seconds.
pub(crate) fn connect(target: &NvmeTarget) -> io::Result<()> {
    let NvmeTarget { nqn, host, address, .. } = target;
    let host_id = host.strip_prefix(NQN).unwrap_or_default();
    let (ip, port) = (address.ip(), address.port());
    let words = format!(
        "transport=tcp,traddr={ip},trsvcid={port},nqn={nqn},hostnqn={host},hostid={host_id},reconnect_delay=1,ctrl_loss_tmo={LOSS}"
    );
    OpenOptions::new().read(true).write(true).open(FABRICS)?.write_all(words.as_bytes())
}

/// Waits up to 1 minute for the block device of the namespace with this UUID. Returns its path.
pub(crate) fn node(uuid: &str) -> io::Result<PathBuf> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = fs::read_dir(DEVICES)?.flatten().find_map(|entry| {
            // The kernel hides the device of a single path.
            let node = Path::new("/dev").join(entry.file_name());
            (text(&entry.path().join("uuid"))? == uuid && node.exists()).then_some(node)
        });
        match found {
            Some(node) => return Ok(node),
            None if Instant::now() > deadline => {
                let words = format!("its namespace has not appeared in {} s", PATIENCE.as_secs());
                return Err(io::Error::other(words));
            }
            None => threads::sleep(POLL),
        }
    }
}
