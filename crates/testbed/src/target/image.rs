//! Creates disk images and snapshot overlays, recorded in the undo log.

use std::path::Path;

use iotax_model::target::{FileSpec, Format};
use iotax_model::units::Bytes;

use super::Built;
use super::side_by_side::hold_inodes;
use crate::build_error::BuildError;
use crate::guest::image;
use crate::undo::{Effect, UndoEntry, UndoLog};

/// Creates an image at `path` if `is_new` is true; otherwise uses the image there, which survived a power cut.
pub fn build(
    path: &Path,
    size: Bytes,
    file: &FileSpec,
    is_new: bool,
    undo_log: &mut UndoLog,
) -> Result<Built, BuildError> {
    let entry = undo_log.record(Effect::File { path: path.to_owned(), identity: None })?;
    let companions = image::companions(path, file, size);
    let mut others = Vec::new();
    for path in companions.clone() {
        others.push(undo_log.record(Effect::File { path, identity: None })?);
    }
    if is_new {
        let held = path.parent().map(hold_inodes);
        image::create(path, file, size, undo_log.lock())?;
        drop(held);
    }
    let entry = undo_log.identify(entry)?;
    for other in others {
        undo_log.identify(other)?;
    }
    Ok(Built {
        companions,
        writable: true,
        entry: Some(entry),
        snapshot: file.snapshot,
        ..Built::at(path.to_owned(), file.format, size)
    })
}

/// Creates an empty qcow2 overlay at `path` on the image `below`, whose format is `format`.
pub fn overlay(
    path: &Path,
    below: &Path,
    format: Format,
    file: &FileSpec,
    undo_log: &mut UndoLog,
) -> Result<UndoEntry, BuildError> {
    let entry = undo_log.record(Effect::File { path: path.to_owned(), identity: None })?;
    image::create_overlay(path, below, format, file, undo_log.lock())?;
    Ok(undo_log.identify(entry)?)
}
