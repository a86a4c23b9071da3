//! Files and directories that the kernel currently refers to or that have unflushed writes, by their inode numbers on disk.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags, Stat, openat, statat};

use super::file::{Power, VolatileFile};

/// Inode number of the root directory in FUSE.
const ROOT: u64 = 1;

/// A file or directory on disk, opened with O_PATH only. While it is open, its inode number is not reused, even if it is renamed or
/// removed.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) descriptor: OwnedFd,
    file: OnceLock<VolatileFile>,
}

#[derive(Debug)]
struct Known {
    inode: Arc<Inode>,
    /// Number of references that the kernel holds (FUSE lookups).
    lookups: u64,
}

/// All files and directories that the kernel refers to or that have unflushed writes, by inode number.
#[derive(Debug)]
pub(super) struct Inodes(Mutex<HashMap<u64, Known>>);

impl Inode {
    const fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor, file: OnceLock::new() }
    }

    /// Returns a path in /proc to the file or directory, valid even if it is renamed.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.descriptor.as_raw_fd()))
    }

    pub(super) fn stat(&self) -> io::Result<Stat> {
        Ok(statat(&self.descriptor, "", AtFlags::EMPTY_PATH)?)
    }

    /// Opens a regular file for reading and writing, on first use.
    pub(super) fn file(&self) -> io::Result<&VolatileFile> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        // If two threads open the file at the same time, the first handle is kept.
        let below = File::options().read(true).write(true).open(self.path())?;
        Ok(self.file.get_or_init(|| VolatileFile::new(below)))
    }

    /// Returns the regular file, if it has been opened by [`Self::file`]; `None` otherwise.
    pub(super) fn used(&self) -> Option<&VolatileFile> {
        self.file.get()
    }
}

impl Inodes {
    pub(super) fn new(root: OwnedFd) -> Self {
        let root = Known { inode: Arc::new(Inode::new(root)), lookups: 1 };
        Self(Mutex::new(HashMap::from([(ROOT, root)])))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, number: u64) -> io::Result<Arc<Inode>> {
        let known = self.lock().get(&number).map(|known| Arc::clone(&known.inode));
        known.ok_or_else(|| rustix::io::Errno::STALE.into())
    }

    /// Opens the entry `name` of a directory and counts a reference of the kernel to it.
    pub(super) fn look_up(&self, directory: &Inode, name: &std::ffi::OsStr) -> io::Result<Arc<Inode>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = Inode::new(openat(&directory.descriptor, name, flags, Mode::empty())?);
        let number = found.stat()?.st_ino;
        let mut all = self.lock();
        let known = all.entry(number).or_insert_with(|| Known { inode: Arc::new(found), lookups: 0 });
        known.lookups += 1;
        Ok(Arc::clone(&known.inode))
    }

    /// Releases references of the kernel. Without any left, the file is closed, unless it has unflushed writes and still exists.
    pub(super) fn forget(&self, number: u64, lookups: u64, power: &Power) {
        let mut all = self.lock();
        let Some(known) = all.get_mut(&number) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups > 0 || number == ROOT {
            return;
        }
        if let Some(file) = known.inode.used() {
            if known.inode.stat().is_ok_and(|stat| stat.st_nlink == 0) {
                file.discard(power);
            }
            if !file.is_clean() {
                return;
            }
        }
        all.remove(&number);
    }

    /// Returns all files and directories in the table, sorted by inode number.
    pub(super) fn all(&self) -> Vec<Arc<Inode>> {
        let all = self.lock();
        let mut numbers: Vec<&u64> = all.keys().collect();
        numbers.sort_unstable();
        numbers.into_iter().map(|number| Arc::clone(&all[number].inode)).collect()
    }
}
