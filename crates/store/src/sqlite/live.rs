//! How far a run of a SQLite store is: a file in memory, so that telling it does not disturb the disk that is measured.
//!
//! The files are in a directory that only this user can enter. In /dev/shm itself others could put links under their names.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::claim;

/// Replaces the state of a run.
pub(super) fn put(store: &Path, run: i64, state: &str) -> io::Result<()> {
    let directory = directory();
    if let Err(error) = DirBuilder::new().mode(0o700).create(&directory)
        && error.kind() != ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    refuse_foreign(&directory)?;
    let path = directory.join(name(store, run)?);
    let new = path.with_extension(format!("new{}", std::process::id()));
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(state.as_bytes())?;
    fs::rename(new, path)
}

/// The state of a run, if there is one.
pub(super) fn get(store: &Path, run: i64) -> Option<String> {
    let directory = directory();
    refuse_foreign(&directory).ok()?;
    fs::read_to_string(directory.join(name(store, run).ok()?)).ok()
}

/// Removes the state of a run, and the directory if it was the last.
pub(super) fn end(store: &Path, run: i64) {
    let directory = directory();
    if let (Ok(()), Ok(name)) = (refuse_foreign(&directory), name(store, run)) {
        let _ = fs::remove_file(directory.join(name));
        let _ = fs::remove_dir(directory);
    }
}

/// Removes the states of runs that nobody works on any more: their processes were killed.
pub(super) fn sweep() {
    let directory = directory();
    if refuse_foreign(&directory).is_err() {
        return;
    }
    for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let mut ids = name.split(['-', '.']).map_while(|id| id.parse::<u64>().ok());
        let (Some(device), Some(inode), Some(run)) = (ids.next(), ids.next(), ids.next()) else { continue };
        if !claim::is_claimed_by_id(device, inode, run.cast_signed()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn directory() -> PathBuf {
    format!("/dev/shm/iotax-{}", rustix::process::geteuid().as_raw()).into()
}

/// Refuses a directory that others can write to, or that is a link.
fn refuse_foreign(directory: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(directory)?;
    let open_to_others = found.mode() & 0o077;
    let is_ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && open_to_others == 0;
    if is_ours {
        return Ok(());
    }
    let path = directory.display();
    Err(io::Error::other(format!("{path} is not a directory that only this user can enter; remove it")))
}

fn name(store: &Path, run: i64) -> io::Result<String> {
    let file = fs::metadata(store)?;
    Ok(format!("{}-{}-{run}", file.dev(), file.ino()))
}
