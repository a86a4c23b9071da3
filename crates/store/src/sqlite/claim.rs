//! Claims on runs of a SQLite store: locks on files next to the store, which the kernel releases when the process ends for any reason.
//!
//! Only this user can open such a file, because everyone who can open a file can lock it. A file that a killed process left is not locked,
//! so it claims nothing; the next process that claims a run removes it. Another user, who cannot test the lock, looks for it in
//! /proc/locks.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::threads;
use rustix::fs::{OFlags, statfs};

use super::neighbours;

/// Time for which a claim is retried, because a reader that tests the lock holds it briefly.
const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);

/// The initial PID namespace. In other namespaces, /proc/locks does not list locks of processes outside.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Number of times that /proc/locks is read before a lock counts as missing.
const READINGS: u32 = 3;

/// Filesystem magic numbers of ext4, XFS, tmpfs and btrfs, which are local and have unique inode numbers.
const LOCAL: [i128; 4] = [0xEF53, 0x5846_5342, 0x0102_1994, 0x9123_683E];

/// This process's claim on a run. Dropping it removes the claim's file.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    _file: File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The lock is still held, so no other process can have claimed a file of this name.
        let _ = fs::remove_file(&self.path);
    }
}

/// Claims run `run` of the store at `store`.
///
/// # Errors
/// [`ErrorKind::AddrInUse`] if the run is still claimed, also by this process, after 0.5 s; otherwise an error from creating or locking the
/// file.
pub(super) fn claim(store: &Path, run: i64) -> io::Result<Claim> {
    let path = path(store, run)?;
    sweep(&path);
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(file) = take(&path)? {
            return Ok(Claim { path, _file: file });
        }
        if Instant::now() >= until {
            return Err(ErrorKind::AddrInUse.into());
        }
        threads::sleep(PAUSE);
    }
}

/// Returns whether a process holds the lock of this claim file. A user who may not open the file looks in /proc/locks; if that list may be
/// incomplete, the lock counts as held.
pub(super) fn is_held(path: &Path) -> bool {
    match open(OpenOptions::new().read(true), path) {
        // A shared lock, so that two readers do not take each other for the run's process.
        Ok(file) => matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => may_be_locked(path),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// Returns true if /proc/locks lists a lock of the file, or if that list may be incomplete.
fn may_be_locked(path: &Path) -> bool {
    let is_complete = fs::read_link("/proc/self/ns/pid").is_ok_and(|own| own.as_os_str() == FIRST_NAMESPACE)
        && path.parent().is_some_and(|parent| {
            statfs(parent).is_ok_and(|found| LOCAL.iter().any(|magic| i128::from(found.f_type) == *magic))
        });
    let Ok(file) = fs::symlink_metadata(path) else { return true };
    // A list that changes while it is read may lack a lock.
    let listed = || fs::read_to_string("/proc/locks").map(|locks| names(&locks, file.ino()));
    !is_complete || (0..READINGS).any(|_| listed().unwrap_or(true))
}

/// Returns whether a text in the format of /proc/locks contains this inode. The device number is ignored, because it differs on btrfs.
fn names(locks: &str, inode: u64) -> bool {
    let inode_of = |line: &str| {
        let inode_word = line.split_whitespace().find(|word| word.split(':').count() == 3)?;
        inode_word.rsplit(':').next()?.parse::<u64>().ok()
    };
    locks.lines().any(|line| inode_of(line) == Some(inode))
}

/// Returns the path of a run's claim file: next to the store, after resolving symbolic links.
pub(super) fn path(store: &Path, run: i64) -> io::Result<PathBuf> {
    Ok(neighbours::beside(&store.canonicalize()?, &format!("-claim-{run}")))
}

/// Creates the file if it is missing, and locks it. `None` if another process holds the lock, or has just removed the file.
fn take(path: &Path) -> io::Result<Option<File>> {
    // NFS requires write access for an exclusive lock.
    let file = open(OpenOptions::new().create(true).truncate(false).write(true).mode(0o600), path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let own = file.metadata()?;
    let is_there =
        fs::symlink_metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()));
    Ok(is_there.then_some(file))
}

fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a file")) }
}

/// Removes the claim files of the store's other runs that killed processes left.
fn sweep(claim: &Path) {
    let of = |path: &Path| {
        let (store, run) = path.file_name()?.to_str()?.rsplit_once('-')?;
        run.parse::<u64>().ok().map(|_| store.to_owned())
    };
    let (Some(store), Some(directory)) = (of(claim), claim.parent()) else { return };
    for path in fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path != claim
            && of(&path).as_ref() == Some(&store)
            && let Ok(Some(file)) = take(&path)
        {
            drop(Claim { path, _file: file });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_locks_names_an_inode() {
        let locks = "1: FLOCK  ADVISORY  WRITE 18104 fe:00:5563887 0 EOF\n\
                     2: POSIX  ADVISORY  READ 5433 08:01:7340 128 128\n\
                     2: -> FLOCK  ADVISORY  WRITE 12 08:01:99 0 EOF\n3: LEASE  ACTIVE    READ 7 00:2f:12 0 EOF\n";
        for (inode, is_named) in [(5_563_887, true), (7340, true), (99, true), (128, false), (18104, false)] {
            assert_eq!(names(locks, inode), is_named, "{inode}");
        }
        assert!(!names("", 0));
    }

    #[test]
    fn a_lock_is_seen_without_opening_its_file() {
        let dir = tempfile::TempDir::new_in(env!("CARGO_MANIFEST_DIR")).expect("directory");
        let store = dir.path().join("iotax.db");
        fs::write(&store, "").expect("written");
        let held = claim(&store, 1).expect("free");
        let file = path(&store, 1).expect("named");
        assert!(may_be_locked(&file));
        drop(held);
        assert!(may_be_locked(&file), "what is not there is no proof");
        fs::write(&file, "").expect("left by a killed process");
        let is_complete = fs::read_link("/proc/self/ns/pid").expect("there").as_os_str() == FIRST_NAMESPACE;
        if !is_complete {
            iotax_testkit::skip!("the list of locks in this PID namespace is not complete");
        }
        assert!(!may_be_locked(&file));
    }
}
