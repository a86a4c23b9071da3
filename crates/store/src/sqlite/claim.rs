//! Claims on runs: a socket without a file, which the kernel releases when its process ends, however it ends.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// Claims a run of the store in a file.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if a process has it, or the error of inspecting the file.
pub(super) fn claim(store: &Path, run: i64) -> io::Result<UnixDatagram> {
    let store = std::fs::metadata(store)?;
    UnixDatagram::bind_addr(&address(store.dev(), store.ino(), run)?)
}

/// Returns whether a process of this machine works on the run. Connecting a datagram socket sends nothing, so it leaves no trace.
pub(super) fn is_claimed(store: &Path, run: i64) -> bool {
    std::fs::metadata(store).is_ok_and(|store| is_claimed_by_id(store.dev(), store.ino(), run))
}

/// Like [`is_claimed`], for the file with this device and inode.
pub(super) fn is_claimed_by_id(device: u64, inode: u64, run: i64) -> bool {
    let asked = || UnixDatagram::unbound()?.connect_addr(&address(device, inode, run)?);
    asked().is_ok()
}

/// Address from the file itself, whatever its name.
fn address(device: u64, inode: u64, run: i64) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("iotax-run-{device}-{inode}-{run}"))
}
