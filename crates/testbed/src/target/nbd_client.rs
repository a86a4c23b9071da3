//! Connects the kernel's NBD client to a server that iotax started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::export::launch;
use super::ground::Ground;
use super::layer::LayerSite;
use crate::build_error::BuildError;
use crate::host_info::text;
use crate::program::Program;
use crate::refusal::Refusal;

const NBD_CLIENT: Program = Program { name: "nbd-client", package: "nbd-client" };
const DEVICES: &str = "/sys/block";
/// Prefix of the kernel names of NBD devices.
const NBD: &str = "nbd";
/// Seconds after which a request without a reply ends the connection, so that its I/O fails.
const TIMEOUT: &str = "30";

/// Fails if this user or kernel cannot connect NBD devices.
pub(super) fn check() -> Result<(), Refusal> {
    if !rustix::process::geteuid().is_root() {
        return Err(Refusal::environment(
            "nbd: only root may connect a device of the kernel's; run iotax as root, or use client = \"qemu\"",
        ));
    }
    NBD_CLIENT.find().map_err(|error| Refusal::environment(error.to_string()))?;
    unused().map(drop)
}

/// Connects an unused NBD device to the server on a socket, and returns the device. The client process has the export's name in its command
/// line, and is added to the daemons of the target's exported image.
pub(super) fn connect(socket: &Path, export: &str, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
    let device = unused()?;
    let node = Path::new("/dev").join(&device);
    let mut command = Command::new(NBD_CLIENT.path()?);
    // With ioctls in place of netlink, the connection lasts as long as the process.
    command.arg("-unix").arg(socket.file_name().unwrap_or_default()).arg(&node);
    command.args(["-nofork", "-nonetlink", "-block-size", "512", "-timeout", TIMEOUT, "-name", export]);
    command.stdout(Stdio::null());
    let read = |file: &str| text(&Path::new(DEVICES).join(&device).join(file));
    // The kernel sets the length last.
    let is_there = || Ok(read("pid").is_some() && read("size").is_some_and(|sectors| sectors != "0"));
    let client = launch(command, NBD_CLIENT.name, socket, at.undo_log, is_there)?;
    // Two clients can choose the same device, and the kernel gives it to one of them.
    if read("pid") != Some(client.pid().to_string()) {
        return Err(Refusal::environment(format!(
            "{}: another program has connected it in the meantime; run iotax again",
            node.display()
        ))
        .into());
    }
    if let Some(image) = at.exported {
        image.add_client(client);
    }
    let ground = Ground::made(node)?;
    at.check_holds(&ground)?;
    Ok(ground)
}

/// Returns the kernel name of the first NBD device without a connection. Fails if there is none.
fn unused() -> Result<PathBuf, Refusal> {
    let refuse = |reason: &str| Refusal::environment(format!("nbd: {reason}; or use client = \"qemu\""));
    let names = fs::read_dir(DEVICES).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut devices: Vec<PathBuf> =
        names.filter(|name| name.to_string_lossy().starts_with(NBD)).map(PathBuf::from).collect();
    if devices.is_empty() {
        return Err(refuse("the kernel has no NBD devices: modprobe nbd"));
    }
    // nbd2 comes before nbd10.
    devices.sort_by_key(|name| (name.as_os_str().len(), name.clone()));
    let is_unused = |name: &PathBuf| !Path::new(DEVICES).join(name).join("pid").exists();
    devices.into_iter().find(is_unused).ok_or_else(|| {
        refuse("every NBD device of the kernel's is connected: disconnect one (nbd-client -d), or load nbd with a larger nbds_max")
    })
}
