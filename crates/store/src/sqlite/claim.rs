//! Claims on runs: a lock on a file beside the store, which the kernel releases when its process ends, however it ends.
//!
//! The directory is one that nobody else writes into, and the file one that nobody else can open: whoever can open a file can lock it. A
//! file that a killed process left claims nothing; whoever claims a run of the store next removes it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::threads;
use rustix::fs::OFlags;

use super::neighbours;

/// Longest time that somebody who only looks holds a file.
const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);

/// A run that this process works on.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    _file: File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Its lock is still held: nobody else can have it under this name.
        let _ = fs::remove_file(&self.path);
    }
}

/// Claims a run of the store in a file.
///
/// # Errors
/// [`ErrorKind::AddrInUse`] if a process has it, or the error of making or locking the file.
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

/// Returns whether a process works on the run of the store with this file of claims. A user who may not look takes a file for a claim.
pub(super) fn is_held(path: &Path) -> bool {
    match open(OpenOptions::new().read(true), path) {
        // Shared, so that two who look do not take each other for the run's process.
        Ok(file) => matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// The file whose lock is the claim on a run: beside the store, whatever link leads to it.
pub(super) fn path(store: &Path, run: i64) -> io::Result<PathBuf> {
    Ok(neighbours::beside(&store.canonicalize()?, &format!("-claim-{run}")))
}

/// Locks the file, which is made if it is missing. `None` if somebody holds it or has just removed it.
fn take(path: &Path) -> io::Result<Option<File>> {
    // Writable, which NFS asks for.
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

/// Removes what killed processes left of claims on other runs of the store.
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
