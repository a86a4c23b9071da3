//! The guest's disk, found by its serial number, and the filesystem on it.

use std::ffi::CStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use iotax_model::guest_abi;
use iotax_model::target::GuestFs;
use iotax_model::threads;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use super::LOOK_AGAIN;

/// Time limit for the kernel to release the filesystem after the agent has ended.
const LET_GO: Duration = Duration::from_secs(5);

/// Returns the device node of the disk with this serial number, `None` if there is none. `blocks` is /sys/block.
pub(super) fn with_serial(blocks: &Path, serial: &str) -> Option<PathBuf> {
    fs::read_dir(blocks).ok()?.flatten().find_map(|entry| {
        (self::serial(&entry.path())? == serial).then(|| Path::new("/dev").join(entry.file_name()))
    })
}

/// Returns a disk's serial number, `None` if it has none. It is an attribute of the disk (virtio-blk) or of the controller (NVMe), or vital
/// product data page 0x80 after a header of four bytes (SCSI, ATA).
fn serial(block: &Path) -> Option<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    ["serial", "device/serial"]
        .iter()
        .find_map(|attribute| fs::read(block.join(attribute)).ok())
        .map(|bytes| text(&bytes))
        .or_else(|| fs::read(block.join("device/vpd_pg80")).ok()?.get(4..).map(text))
}

/// Returns the path to measure: the disk itself or, if the kernel parameters ask for a filesystem, a file on it. Creates or mounts that
/// filesystem first.
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
    let file = Path::new(guest_abi::MOUNT_POINT).join("measured");
    if made.is_some() {
        let size = value(guest_abi::SIZE_PARAMETER).and_then(|size| size.parse().ok());
        let size =
            size.with_context(|| format!("no {} among the kernel's parameters", guest_abi::SIZE_PARAMETER))?;
        let created = File::create_new(&file).and_then(|file| file.set_len(size));
        created.with_context(|| format!("{} could not be created", file.display()))?;
    }
    Ok(file)
}

/// Makes a filesystem with default settings, except for discard, which would undo preallocation, and lazy initialization, which would write during
/// measurements.
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
            Err(Errno::BUSY) if Instant::now() < end => threads::sleep(LOOK_AGAIN),
            done => return done.with_context(|| format!("{}: cannot be unmounted", guest_abi::MOUNT_POINT)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_known_by_its_serial_on_every_bus() {
        let root = tempfile::tempdir().expect("a directory");
        let put = |path: &str, content: &[u8]| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("has one")).expect("made");
            fs::write(path, content).expect("written");
        };
        put("vda/serial", b"virtio\n");
        put("nvme0n1/device/serial", b"nvme                \n");
        put("sda/device/vpd_pg80", b"\0\x80\0\x04scsi");
        put("sdb/device/vpd_pg80", b"\0\x80\0\x14                 ata");
        put("loop0/size", b"0\n");
        for (serial, node) in [("virtio", "vda"), ("nvme", "nvme0n1"), ("scsi", "sda"), ("ata", "sdb")] {
            assert_eq!(with_serial(root.path(), serial), Some(Path::new("/dev").join(node)));
        }
        assert_eq!(with_serial(root.path(), "other"), None);
        assert_eq!(with_serial(&root.path().join("none"), "virtio"), None);
    }

    #[test]
    fn without_a_word_of_a_filesystem_the_disk_itself_is_measured() {
        let disk = Path::new("/dev/vda");
        assert_eq!(measured(disk, "console=ttyS0 quiet").expect("nothing to do"), disk);
        let error = measured(disk, "iotax.mount=zfs").expect_err("unknown").to_string();
        assert!(error.contains("zfs") && error.contains("ext4"), "{error}");
    }
}
