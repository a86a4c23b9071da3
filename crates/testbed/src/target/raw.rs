//! Creates raw files.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use iotax_model::target::{Format, Preallocation};
use iotax_model::units::Bytes;
use iotax_model::wire::Identity;
use rustix::fs::FallocateFlags;

use super::Built;
use super::side_by_side::hold_inodes;
use crate::build_error::BuildError;
use crate::undo::{Effect, FileId, UndoEntry, UndoLog};

/// A raw file that iotax created, kept open.
#[derive(Debug)]
pub struct RawFile {
    /// Absolute path of the file.
    pub path: PathBuf,
    /// Length of the file in bytes.
    pub size: Bytes,
    /// Device number of the file's filesystem, from stat(2).
    pub device: u64,
    /// Inode number of the file, from stat(2).
    pub inode: u64,
    /// Entry of the file in the undo log.
    pub entry: UndoEntry,
    /// Keeps the file open, so that its inode number is not reused.
    pub held: File,
}

impl RawFile {
    /// Returns the identity that an agent must find at the path.
    #[must_use]
    pub const fn identity(&self) -> Identity {
        Identity::File { device: self.device, inode: self.inode }
    }
}

impl From<RawFile> for Built {
    fn from(file: RawFile) -> Self {
        Self {
            writable: true,
            identity: Some(file.identity()),
            held: Some(file.held),
            entry: Some(file.entry),
            ..Self::at(file.path, Format::Raw, file.size)
        }
    }
}

/// Creates a new file of `size` bytes, recorded in the undo log by its inode. Fails if the path exists.
pub fn build(
    path: &Path,
    size: Bytes,
    preallocation: Preallocation,
    undo_log: &mut UndoLog,
) -> Result<RawFile, BuildError> {
    let path = std::path::absolute(path).map_err(BuildError::file(path))?;
    let held = path.parent().map(hold_inodes);
    let (entry, file) = undo_log.make_file(&path)?;
    drop(held);
    let found = file.metadata().map_err(BuildError::file(&path))?;
    match preallocation {
        Preallocation::Off | Preallocation::Metadata => file.set_len(size.0),
        // Preconditioning writes every target, which covers `full`.
        Preallocation::Falloc | Preallocation::Full => {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size.0).map_err(Into::into)
        }
    }
    .map_err(BuildError::file(&path))?;
    Ok(RawFile { path, size, device: found.dev(), inode: found.ino(), entry, held: file })
}

/// Opens a file that survived a power cut, and records it in the undo log.
pub(super) fn open(path: PathBuf, size: Bytes, undo_log: &mut UndoLog) -> Result<RawFile, BuildError> {
    let held = File::options().write(true).open(&path).map_err(BuildError::file(&path))?;
    let found = held.metadata().map_err(BuildError::file(&path))?;
    let identity = Some(FileId::of(&found));
    let entry = undo_log.record(Effect::File { path: path.clone(), identity })?;
    Ok(RawFile { path, size, device: found.dev(), inode: found.ino(), entry, held })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_its_size_and_what_was_asked_to_be_allocated() {
        let temp = tempfile::tempdir().expect("temp dir");
        let mut undo_log = UndoLog::create(&temp.path().join("state"), "t").expect("undo log");
        for (name, preallocation, allocated) in
            [("off", Preallocation::Off, false), ("falloc", Preallocation::Falloc, true)]
        {
            let path = temp.path().join(name);
            let file = build(&path, Bytes(1 << 20), preallocation, &mut undo_log).expect("built");
            let built = Built::from(file);
            let metadata = std::fs::metadata(&path).expect("there");
            assert_eq!((built.size, metadata.len(), built.writable), (Bytes(1 << 20), 1 << 20, true));
            assert_eq!(metadata.blocks() * 512 >= 1 << 20, allocated, "{name}");
        }
        undo_log.undo_all();
        assert!(!temp.path().join("off").exists() && !temp.path().join("falloc").exists());
    }

    #[test]
    fn a_name_that_is_taken_is_refused() {
        let temp = tempfile::tempdir().expect("temp dir");
        let mut undo_log = UndoLog::create(&temp.path().join("state"), "t").expect("undo log");
        let path = temp.path().join("taken");
        std::fs::write(&path, "the user's").expect("written");
        assert!(build(&path, Bytes(4096), Preallocation::Off, &mut undo_log).is_err());
        undo_log.undo_all();
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "the user's");
    }
}
