//! New raw files.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use iotax_model::target::{Format, Preallocation};
use iotax_model::units::Bytes;
use iotax_model::wire::Identity;
use rustix::fs::FallocateFlags;

use super::Built;
use crate::build_error::BuildError;
use crate::undo::UndoLog;

/// Creates a file where nothing exists, recorded in the undo log by its inode.
pub fn build(
    path: &Path,
    size: Bytes,
    preallocation: Preallocation,
    undo_log: &mut UndoLog,
) -> Result<Built, BuildError> {
    let path = std::path::absolute(path).map_err(BuildError::file(path))?;
    let (entry, file) = undo_log.make_file(&path)?;
    let found = file.metadata().map_err(BuildError::file(&path))?;
    match preallocation {
        Preallocation::Off | Preallocation::Metadata => file.set_len(size.0),
        // Preconditioning writes every target, which covers `full`.
        Preallocation::Falloc | Preallocation::Full => {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size.0).map_err(Into::into)
        }
    }
    .map_err(BuildError::file(&path))?;
    Ok(Built {
        path,
        offset: Bytes(0),
        format: Format::Raw,
        size,
        writable: true,
        shared: false,
        identity: Some(Identity::File { device: found.dev(), inode: found.ino() }),
        // Its inode is not reused while it is open.
        held: Some(file),
        claim: None,
        entry: Some(entry),
        snapshot: None,
        origin: None,
        warnings: Vec::new(),
    })
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
            let built = build(&path, Bytes(1 << 20), preallocation, &mut undo_log).expect("built");
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
