//! Runs virsh: finds domains, attaches devices to running ones, and runs commands in guests through the QEMU guest agent.

mod agent;
mod device;
mod relay;

use serde::{Deserialize, Serialize};

use crate::program::{Program, ProgramError};

pub(crate) use agent::GuestExit;
pub use device::AttachedDevice;
pub use relay::{GuestPort, relay};

pub(crate) const VIRSH: Program = Program { name: "virsh", package: "libvirt-clients" };

/// A domain of one libvirt daemon, which keeps this address when it is renamed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainAddress {
    /// URI of the daemon, as `virsh uri` prints it: `qemu:///system`.
    pub uri: String,
    /// The domain's UUID.
    pub uuid: String,
}

impl DomainAddress {
    /// Finds a domain by its name or UUID, at the daemon that virsh connects to by default.
    ///
    /// # Errors
    /// virsh is missing, reaches no daemon, or finds no such domain.
    pub fn find(domain: &str) -> Result<Self, ProgramError> {
        let uri = text(&VIRSH.run(["uri"])?);
        let uuid = text(&VIRSH.run(["--connect", &uri, "domuuid", "--domain", domain])?);
        Ok(Self { uri, uuid })
    }

    /// Runs a virsh command on the domain, followed by `options`, and returns its stdout.
    fn run(&self, command: &str, options: &[&str]) -> Result<Vec<u8>, ProgramError> {
        VIRSH.run(self.arguments(command, options))
    }

    fn arguments<'a>(&'a self, command: &'a str, options: &[&'a str]) -> Vec<&'a str> {
        let start = ["--connect", &self.uri, command, "--domain", &self.uuid];
        start.into_iter().chain(options.iter().copied()).collect()
    }

    /// Returns whether the daemon runs on this machine, so that its files and sockets are here.
    #[must_use]
    pub fn is_here(&self) -> bool {
        is_local(&self.uri)
    }

    /// Returns whether the domain is off, or no longer exists. False if that is not known.
    pub(crate) fn is_off(&self) -> bool {
        match self.state() {
            Ok(state) => state == "shut off",
            Err(error) => is_unknown(&error),
        }
    }

    /// Returns the domain's state in virsh's words: `running`, `paused`, `shut off`.
    ///
    /// # Errors
    /// There is no such domain, or virsh fails.
    pub fn state(&self) -> Result<String, ProgramError> {
        self.run("domstate", &[]).map(|state| text(&state))
    }

    /// Returns the domain's XML: the live configuration if the domain is running, otherwise its definition.
    ///
    /// # Errors
    /// There is no such domain, or virsh fails.
    pub fn xml(&self) -> Result<String, ProgramError> {
        self.run("dumpxml", &[]).map(|xml| text(&xml))
    }

    /// Returns the path of a volume of a storage pool, as the domain's daemon knows it.
    ///
    /// # Errors
    /// There is no such volume, or virsh fails.
    pub fn volume_path(&self, pool: &str, volume: &str) -> Result<String, ProgramError> {
        let path = VIRSH.run(["--connect", &self.uri, "vol-path", "--pool", pool, "--vol", volume])?;
        Ok(text(&path))
    }
}

/// Returns whether a daemon's URI has no host, such as `qemu:///system`.
pub(crate) fn is_local(uri: &str) -> bool {
    uri.contains(":///") && !uri.starts_with('-')
}

/// Returns whether virsh failed because there is no such domain. A transient domain, which has no stored definition, disappears when it
/// ends.
fn is_unknown(error: &ProgramError) -> bool {
    matches!(error, ProgramError::Failed { reason, .. } if reason.contains("failed to get domain"))
}

/// Returns virsh's output without surrounding white space.
fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).trim().to_owned()
}
