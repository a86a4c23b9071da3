//! Checks the first and last MiB of a device before a run, and zeroes them after iotax has overwritten the device.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::threads;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{RecordedDisk, signature};

/// Bytes at either end of a device that must be zero before iotax overwrites it: archives, databases and unknown formats have data there.
pub const ZEROED_END: u64 = 1 << 20;

/// Maximum time for an exiting process to release a device or mount.
const PATIENCE: Duration = Duration::from_secs(10);

/// A device that iotax overwrites, as recorded in the undo log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverwrittenDevice {
    /// Path of the kernel's own device node.
    pub node: PathBuf,
    /// The disk that had that node when iotax claimed it; `None` if it could not be identified.
    pub disk: Option<Box<RecordedDisk>>,
}

impl OverwrittenDevice {
    pub(crate) fn new(node: PathBuf) -> Self {
        Self { disk: RecordedDisk::of(&node).map(Box::new), node }
    }

    /// Zeroes the ends of the device if it is still the same disk. Otherwise, as after a reboot, fails unless the ends are already zero or
    /// the device carries a new signature.
    pub(crate) fn blank(&self) -> io::Result<()> {
        if self.disk.as_ref().is_some_and(|disk| disk.is_at(&self.node)) {
            return blank(&self.node);
        }
        let is_done = || {
            let device = File::open(&self.node)?;
            io::Result::Ok(content(&device)?.is_none() || has_signature(&device)?)
        };
        if is_done().is_ok_and(|is_done| is_done) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{} is not known to be the disk that was measured; what was written to that is on it still",
            self.node.display()
        )))
    }
}

/// Zeroes both ends of a device, so that the next run finds it empty. Does nothing to a device with a signature: someone has started to use
/// the device again.
pub(crate) fn blank(node: &Path) -> io::Result<()> {
    let exclusive = i32::try_from(OFlags::EXCL.bits()).unwrap_or_default();
    let mut opened = None;
    until_free(|| {
        opened = Some(File::options().read(true).write(true).custom_flags(exclusive).open(node)?);
        Ok(())
    })
    .map_err(|error| io::Error::new(error.kind(), format!("it is in use ({error})")))?;
    let Some(device) = opened else { return Ok(()) };
    if has_signature(&device)? {
        return Ok(());
    }
    for (start, length) in ends(&device)? {
        device.write_all_at(&vec![0; length], start)?;
    }
    device.sync_all()
}

fn has_signature(device: &File) -> io::Result<bool> {
    Ok(!signature::read(device).map_err(io::Error::other)?.is_empty())
}

/// Returns the byte offset of the first non-zero byte in the first or last MiB of a device; `None` if all are zero.
pub(super) fn content(device: &File) -> io::Result<Option<u64>> {
    for (start, length) in ends(device)? {
        let mut there = vec![0; length];
        device.read_exact_at(&mut there, start)?;
        if let Some(at) = there.iter().position(|byte| *byte != 0) {
            return Ok(Some(start + at as u64));
        }
    }
    Ok(None)
}

/// Returns the offset and length of the first and the last MiB; on a small device the two ranges are adjacent or shorter.
fn ends(mut device: &File) -> io::Result<[(u64, usize); 2]> {
    let length = device.seek(SeekFrom::End(0))?;
    let first = length.min(ZEROED_END);
    let last = (length - first).min(ZEROED_END);
    let size = |bytes: u64| usize::try_from(bytes).map_err(io::Error::other);
    Ok([(0, size(first)?), (length - last, size(last)?)])
}

/// Retries an action for up to 10 s while it fails with EBUSY.
pub(crate) fn until_free(mut attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) && Instant::now() < deadline => {
                threads::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_at_either_end_is_seen_and_what_is_between_is_not() {
        let file = tempfile::tempfile().expect("a file");
        for (length, at, is_found) in [
            (4 * ZEROED_END, 0, true),
            (4 * ZEROED_END, ZEROED_END - 1, true),
            (4 * ZEROED_END, ZEROED_END, false),
            (4 * ZEROED_END, 3 * ZEROED_END - 1, false),
            (4 * ZEROED_END, 3 * ZEROED_END, true),
            (4 * ZEROED_END, 4 * ZEROED_END - 1, true),
            (ZEROED_END + 4096, ZEROED_END, true),
            (4096, 4095, true),
        ] {
            file.set_len(0).and_then(|()| file.set_len(length)).expect("blank");
            assert_eq!(content(&file).expect("read"), None);
            file.write_all_at(&[1], at).expect("written");
            assert_eq!(content(&file).expect("read"), is_found.then_some(at), "{length} {at}");
        }
    }
}
