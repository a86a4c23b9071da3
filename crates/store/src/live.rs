//! How far a run of a SQLite store is: a file in memory, so that telling it does not disturb the disk that is measured.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Replaces the state of a run.
pub(super) fn put(store: &Path, run: i64, state: &Value) -> io::Result<()> {
    let path = place(store, run)?;
    let new = path.with_extension("new");
    fs::write(&new, state.to_string())?;
    fs::rename(new, path)
}

/// The state of a run, if there is one.
pub(super) fn get(store: &Path, run: i64) -> Option<Value> {
    serde_json::from_slice(&fs::read(place(store, run).ok()?).ok()?).ok()
}

fn place(store: &Path, run: i64) -> io::Result<PathBuf> {
    let file = fs::metadata(store)?;
    Ok(PathBuf::from(format!("/dev/shm/iotax-live-{}-{}-{run}", file.dev(), file.ino())))
}
