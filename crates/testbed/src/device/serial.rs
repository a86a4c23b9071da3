//! Finds a disk by its serial number.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use iotax_model::wire::DiskId;

use super::node::{disk_of, number_text};

/// Returns the device node of the disk with this serial number, `None` if there is none. `blocks` is /sys/block.
#[must_use]
pub fn with_serial(blocks: &Path, serial: &str) -> Option<PathBuf> {
    fs::read_dir(blocks).ok()?.flatten().find_map(|entry| {
        (serial_of(&entry.path())? == serial).then(|| Path::new("/dev").join(entry.file_name()))
    })
}

/// Finds the disk of this machine with a serial number. Returns its device node and its numbers; `None` if there is none.
///
/// # Errors
/// The disk cannot be opened, or another one has taken its place meanwhile.
pub fn find_serial(serial: &str) -> io::Result<Option<(PathBuf, DiskId)>> {
    let Some(path) = with_serial(Path::new("/sys/block"), serial) else { return Ok(None) };
    let at = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let file = File::open(&path).map_err(at)?;
    let disk = disk_of(&file).map_err(at)?;
    // A disk that is open keeps its number, and the node may have led to another one.
    let opened = Path::new("/sys/dev/block").join(number_text(disk.number));
    if serial_of(&opened).as_deref() == Some(serial) {
        return Ok(Some((path, disk)));
    }
    Err(at(io::Error::other(format!("it is not the disk with the serial {serial:?}"))))
}

/// Returns a disk's serial number, `None` if it has none. It is an attribute of the disk (virtio-blk) or of the controller (NVMe), or vital
/// product data page 0x80 after a header of four bytes (SCSI, ATA).
fn serial_of(block: &Path) -> Option<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    ["serial", "device/serial"]
        .iter()
        .find_map(|attribute| fs::read(block.join(attribute)).ok())
        .map(|bytes| text(&bytes))
        .or_else(|| fs::read(block.join("device/vpd_pg80")).ok()?.get(4..).map(text))
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
}
