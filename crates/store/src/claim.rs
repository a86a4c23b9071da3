//! Claims on runs: a socket without a file, which the kernel releases when its process ends, however it ends.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// Held by the process that works on a run, until it is dropped or the process ends.
#[derive(Debug)]
pub struct Claim {
    _socket: UnixDatagram,
}

/// Claims a run of the store in a file.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if a process has it, or the error of inspecting the file.
pub(super) fn claim(store: &Path, run: i64) -> io::Result<Claim> {
    Ok(Claim { _socket: UnixDatagram::bind_addr(&address(store, run)?)? })
}

/// Returns whether a process of this machine works on the run. Connecting a datagram socket sends nothing, so it leaves no trace.
pub(super) fn is_claimed(store: &Path, run: i64) -> bool {
    let asked = || UnixDatagram::unbound()?.connect_addr(&address(store, run)?);
    asked().is_ok()
}

/// Address from the file itself, whatever its name.
fn address(store: &Path, run: i64) -> io::Result<SocketAddr> {
    let store = std::fs::metadata(store)?;
    SocketAddr::from_abstract_name(format!("iotax-run-{}-{}-{run}", store.dev(), store.ino()))
}
