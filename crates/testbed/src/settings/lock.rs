//! One run at a time for each file of the kernel.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Where the locks are. Not the files themselves: each network namespace has a /sys of its own, whose locks the others do not see.
const LOCKS: &str = "run/iotax";

/// A locked file of the kernel; released when dropped.
#[derive(Debug)]
pub(super) struct SettingLock {
    path: PathBuf,
    _locked: File,
}

impl SettingLock {
    /// Locks a file of the kernel for this process. Fails if another one has it.
    pub(super) fn take(root: &Path, file: &Path) -> io::Result<Self> {
        let dir = root.join(LOCKS);
        let path = dir.join(file.strip_prefix(root).unwrap_or(file).to_string_lossy().replace('/', "!"));
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        loop {
            DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
            let mut options = OpenOptions::new();
            let opened = options.create(true).append(true).mode(0o600).custom_flags(flags).open(&path);
            let locked = match opened {
                Ok(opened) => opened,
                // Another run has just removed the directory with its last lock.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            match locked.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::other(
                        "another iotax is trying values of it; wait until that ends",
                    ));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // It may have been removed between opening and locking.
            let inode = locked.metadata()?.ino();
            if fs::metadata(&path).is_ok_and(|there| there.ino() == inode) {
                return Ok(Self { path, _locked: locked });
            }
        }
    }
}

impl Drop for SettingLock {
    fn drop(&mut self) {
        // While it is locked: nobody else removes it, and who waits for it looks again.
        let _ = fs::remove_file(&self.path);
        let _ = self.path.parent().map(fs::remove_dir);
    }
}
