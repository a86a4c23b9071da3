//! Runs passt(1), a user-mode network stack, for a guest.

use std::io;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::GuestError;
use super::nic::{HOST_OF_USER, NicBackend, PASST_SOCKET};
use crate::netns::{self, PASST};
use crate::refusal::Refusal;
use iotax_model::threads;

/// Maximum time for passt to create its socket.
const READY: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

/// A passt process that serves one guest. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct Passt(Child);

impl Passt {
    /// Starts passt in the network namespace of the guest's QEMU. passt exits when QEMU does (`--one-off`).
    ///
    /// The options are from passt's manual of 2024. This backend is untested.
    pub(super) fn start(nic: &NicBackend, run_dir: &Path) -> Result<Self, GuestError> {
        let program = PASST.path().map_err(|error| Refusal::environment(error.to_string()))?;
        let socket = run_dir.join(PASST_SOCKET);
        let failed = |source| GuestError::Io { path: program.clone(), source };
        let mut command = netns::command_in(nic.namespace.as_deref(), &program);
        command.args(["--foreground", "--one-off", "--quiet", "--ipv4-only", "--socket"]).arg(&socket);
        let (address, prefix) = nic.address;
        command.args(["--address", &address.to_string(), "--netmask", &prefix.to_string()]);
        let host = HOST_OF_USER.to_string();
        command.args(["--gateway", &host, "--map-host-loopback", &host]);
        if let Some(mtu) = nic.mtu {
            command.args(["--mtu", &mtu.to_string()]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut passt = Self(child.map_err(failed)?);
        let end = Instant::now() + READY;
        while !socket.exists() {
            if let Some(status) = passt.0.try_wait().map_err(failed)? {
                return Err(failed(io::Error::other(format!("it ended with {status}"))));
            }
            if Instant::now() >= end {
                return Err(failed(io::Error::other("it made no socket")));
            }
            threads::sleep(POLL);
        }
        Ok(passt)
    }
}

impl Drop for Passt {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
