//! Attaches devices to running domains, and detaches them.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use iotax_model::threads;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use super::{DomainAddress, VIRSH, is_unknown, text};
use crate::lock::ProcessLock;
use crate::program::ProgramError;

/// Maximum time for the guest to release a device: a guest that is booting does not answer yet.
const RELEASED: Duration = Duration::from_mins(1);
/// Interval at which the request to release a device is repeated, because a guest may miss it.
const ASK_AGAIN: Duration = Duration::from_secs(6);
const POLL: Duration = Duration::from_millis(200);

/// A device that iotax attached to a running domain, identified by an alias that iotax chose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachedDevice {
    /// Address of the domain.
    pub domain: DomainAddress,
    /// Name of the domain, for messages.
    pub name: String,
    /// The device's alias in the domain's XML: `ua-iotax-`, the device's tag and its kind.
    pub alias: String,
}

impl AttachedDevice {
    /// Attaches the device that `xml` describes to the running domain, and not to its definition. The XML must contain the alias. The
    /// device must be recorded in the undo log. virsh holds the run's lock.
    pub(crate) fn attach(&self, xml: &str, lock: &ProcessLock) -> Result<(), ProgramError> {
        let in_memory = || -> io::Result<File> {
            let mut file = File::from(memfd_create("device", MemfdFlags::CLOEXEC)?);
            file.write_all(xml.as_bytes())?;
            Ok(file)
        };
        let file = in_memory().map_err(|error| ProgramError::Failed {
            command: "virsh attach-device".into(),
            reason: error.to_string(),
        })?;
        // virsh reads a file by its name, and its stdin is the lock.
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let command = self.domain.arguments("attach-device", &["--file", &path, "--live"]);
        lock.run(VIRSH, command).map(drop)
    }

    /// Detaches the device and waits up to 1 minute until the guest has released it. Does nothing if the domain or the device is gone.
    pub(crate) fn detach(&self, lock: &ProcessLock) -> io::Result<()> {
        let end = Instant::now() + RELEASED;
        let mut asked: Option<Instant> = None;
        let mut refused = None;
        while self.is_there(lock)? {
            if Instant::now() > end {
                let reason = refused.map_or_else(String::new, |error: ProgramError| format!(": {error}"));
                return Err(io::Error::other(format!(
                    "the guest does not release it within {} s{reason}; it is gone when {} is shut down",
                    RELEASED.as_secs(),
                    self.name
                )));
            }
            if asked.is_none_or(|asked| asked.elapsed() > ASK_AGAIN) {
                let options = ["--alias", &self.alias, "--live"];
                refused = lock.run(VIRSH, self.domain.arguments("detach-device-alias", &options)).err();
                asked = Some(Instant::now());
            } else {
                threads::sleep(POLL);
            }
        }
        Ok(())
    }

    /// Returns whether the domain exists and has the device.
    fn is_there(&self, lock: &ProcessLock) -> io::Result<bool> {
        match lock.run(VIRSH, self.domain.arguments("dumpxml", &[])) {
            Ok(xml) => Ok(text(&xml).contains(&format!("'{}'", self.alias))),
            Err(error) if is_unknown(&error) => Ok(false),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}
