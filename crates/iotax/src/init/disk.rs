//! The guest's disk, and the filesystem on it.

use std::ffi::CStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use iotax_model::guest_abi;
use iotax_model::target::GuestFs;
use iotax_model::threads;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use super::POLL;

/// Time limit for the kernel to release the filesystem after the agent has ended.
const LET_GO: Duration = Duration::from_secs(5);

/// Returns the path to measure: the disk itself or, if the kernel parameters ask for a filesystem, a file on it. Mounts that filesystem,
/// and creates it first if they ask for a new one.
pub(super) fn measured(disk: &Path, parameters: &str) -> Result<PathBuf> {
    let value = |key: &str| parameters.split_whitespace().find_map(|word| word.strip_prefix(key));
    let (made, there) = (value(guest_abi::MKFS_PARAMETER), value(guest_abi::MOUNT_PARAMETER));
    let Some(kind) = made.or(there) else { return Ok(disk.to_owned()) };
    let kind: GuestFs = kind.parse().map_err(anyhow::Error::msg)?;
    if made.is_some() {
        make(kind, disk)?;
    }
    rustix::mount::mount(disk, guest_abi::MOUNT_POINT, kind.word(), MountFlags::empty(), None::<&CStr>)
        .with_context(|| format!("{} could not be mounted as {kind}", disk.display()))?;
    let file = Path::new(guest_abi::MOUNT_POINT).join(guest_abi::MEASURED_FILE);
    if made.is_some() {
        let size = value(guest_abi::SIZE_PARAMETER).and_then(|size| size.parse().ok());
        let size =
            size.with_context(|| format!("no {} among the kernel's parameters", guest_abi::SIZE_PARAMETER))?;
        let created = File::create_new(&file).and_then(|file| file.set_len(size));
        created.with_context(|| format!("{} could not be created", file.display()))?;
    }
    Ok(file)
}

/// Makes a filesystem with default settings, except for discard, which would undo preallocation, and lazy initialization, which would write
/// during measurements.
fn make(kind: GuestFs, disk: &Path) -> Result<()> {
    let arguments: &[&str] = match kind {
        GuestFs::Ext4 => {
            &["-q", "-F", "-t", "ext4", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]
        }
        GuestFs::Xfs => &["-q", "-f", "-K"],
    };
    let output = Command::new(guest_abi::MKFS)
        .args(arguments)
        .arg(disk)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{} could not be started", guest_abi::MKFS))?;
    // The first line is the error; usage may follow.
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or_default();
    ensure!(output.status.success(), "mkfs of {kind} on {}: {}: {said}", disk.display(), output.status);
    Ok(())
}

/// Unmounts the filesystem. Retries for up to 5 s while the kernel releases the ended agent's files.
pub(super) fn leave() -> Result<()> {
    let end = Instant::now() + LET_GO;
    loop {
        match rustix::mount::unmount(guest_abi::MOUNT_POINT, UnmountFlags::empty()) {
            Err(Errno::BUSY) if Instant::now() < end => threads::sleep(POLL),
            done => return done.with_context(|| format!("{}: cannot be unmounted", guest_abi::MOUNT_POINT)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_word_of_a_filesystem_the_disk_itself_is_measured() {
        let disk = Path::new("/dev/vda");
        assert_eq!(measured(disk, "console=ttyS0 quiet").expect("nothing to do"), disk);
        let error = measured(disk, "iotax.mount=zfs").expect_err("unknown").to_string();
        assert!(error.contains("zfs") && error.contains("ext4"), "{error}");
    }
}
