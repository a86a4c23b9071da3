//! The published progress of runs in a SQLite store: files in memory, so that updates do not disturb the measured disk.
//!
//! The files are in a directory in /dev/shm that only this user can enter; in /dev/shm itself, other users could create links with the same
//! names. Each file starts with the path of the run's claim file, which shows whether a process still works on the run.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::claim;

/// Writes the progress of a run, replacing earlier progress.
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
    let claim = claim::path(store, run)?;
    file.write_all(&[claim.as_os_str().as_bytes(), b"\0", state.as_bytes()].concat())?;
    match fs::rename(new, path) {
        // A concurrent sweep took the file for one of an ended run and removed it; the next update is shown again.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

/// Returns the progress of a run; `None` if there is none.
pub(super) fn get(store: &Path, run: i64) -> Option<String> {
    let directory = directory();
    refuse_foreign(&directory).ok()?;
    let mut bytes = fs::read(directory.join(name(store, run).ok()?)).ok()?;
    let end = bytes.iter().position(|byte| *byte == 0)?;
    String::from_utf8(bytes.split_off(end + 1)).ok()
}

/// Removes the progress of a run; also the directory if that is then empty.
pub(super) fn end(store: &Path, run: i64) {
    let directory = directory();
    if let (Ok(()), Ok(name)) = (refuse_foreign(&directory), name(store, run)) {
        let _ = fs::remove_file(directory.join(name));
        let _ = fs::remove_dir(directory);
    }
}

/// Removes the progress of all runs whose process is gone.
pub(super) fn sweep() {
    let directory = directory();
    if refuse_foreign(&directory).is_err() {
        return;
    }
    for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(text) = fs::read(&path) else { continue };
        let claim = text.split(|byte| *byte == 0).next().unwrap_or_default();
        if !claim::is_held(Path::new(OsStr::from_bytes(claim))) {
            let _ = fs::remove_file(path);
        }
    }
}

fn directory() -> PathBuf {
    format!("/dev/shm/iotax-{}", rustix::process::geteuid().as_raw()).into()
}

/// Returns an error unless the path is a directory, not a symbolic link, that only this user can enter.
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
