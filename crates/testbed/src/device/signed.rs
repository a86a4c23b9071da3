//! Devices that carry a signature with a UUID that iotax chose, such as a filesystem or a LUKS header.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use super::{RecordedDisk, WIPEFS, blank, by_descriptor, signature, until_free};
use crate::lock::ProcessLock;

/// A device with a signature that iotax wrote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignedDevice<'a> {
    /// Path of the device node when iotax wrote the signature.
    pub(crate) device: &'a Path,
    /// The disk that had that device node when iotax wrote the signature; `None` if it could not be identified.
    pub(crate) disk: Option<&'a RecordedDisk>,
    /// The signature's type as wipefs(8) calls it: `ext4`, `crypto_LUKS`.
    pub(crate) kind: &'a str,
    /// The UUID in the signature.
    pub(crate) uuid: &'a str,
}

impl SignedDevice<'_> {
    /// Wipes the signature and zeroes the ends of the device that carries the UUID. Does nothing if the original disk no longer carries it.
    /// Fails if that disk cannot be found, or if the device is in use.
    pub(crate) fn wipe(&self, lock: &ProcessLock) -> io::Result<()> {
        let Some(device) = self.locate()? else { return Ok(()) };
        // Use the device whose signature was read, whatever its name refers to now.
        let device_path = by_descriptor(&device);
        until_free(|| {
            let flags = i32::try_from(OFlags::EXCL.bits()).unwrap_or_default();
            File::options().read(true).custom_flags(flags).open(&device_path).map(drop)
        })
        .map_err(|error| io::Error::new(error.kind(), format!("it is in use ({error})")))?;
        let only = ["--all", "--types", self.kind];
        let words = only.iter().map(AsRef::as_ref).chain([device_path.as_os_str()]);
        lock.run(WIPEFS, words).map_err(io::Error::other)?;
        blank(&device_path)
    }

    /// Finds and opens the device that carries the UUID, which may have another name after a reboot. `None` if the original disk no longer
    /// carries it. Fails if the disk cannot be found.
    fn locate(&self) -> io::Result<Option<File>> {
        let by_uuid = Path::new("/dev/disk/by-uuid").join(self.uuid);
        for device in [self.device, &by_uuid] {
            let is_device = fs::metadata(device).is_ok_and(|found| found.file_type().is_block_device());
            if !is_device {
                continue;
            }
            let device = File::open(device)?;
            if self.is_on(&device)? {
                return Ok(Some(device));
            }
        }
        if self.disk.is_some_and(|disk| disk.is_at(self.device)) {
            return Ok(None);
        }
        Err(io::Error::other(format!(
            "no device here has the UUID {}, and {} is not known to be the one that it was made on; plug that in again",
            self.uuid,
            self.device.display()
        )))
    }

    pub(crate) fn is_on(&self, device: &File) -> io::Result<bool> {
        let found = signature::read(device).map_err(io::Error::other)?;
        Ok(found
            .iter()
            .any(|signature| signature.kind == self.kind && signature.uuid.as_deref() == Some(self.uuid)))
    }
}
