//! A new qcow2 image, and the overlay that a snapshot puts on top of it.

use std::path::{Path, PathBuf};

use iotax_model::target::{FileSpec, Format};
use iotax_model::units::Bytes;

use super::{BuildError, Built};
use crate::guest::image;
use crate::ledger::{Effect, Entry, Ledger};

/// Makes the image in a directory of iotax's own.
pub fn build(path: &Path, size: Bytes, file: &FileSpec, ledger: &mut Ledger) -> Result<Built, BuildError> {
    let entry = ledger.will(Effect::File { path: path.to_owned(), identity: None })?;
    image::create(path, Format::Qcow2, file.preallocation, size)?;
    Ok(Built {
        path: path.to_owned(),
        offset: Bytes(0),
        format: Format::Qcow2,
        size,
        writable: true,
        shared: false,
        claim: None,
        entry: Some(entry),
        snapshot: file.snapshot,
        origin: None,
        warnings: Vec::new(),
    })
}

/// Takes a snapshot: an empty overlay, the `number`th, with the image as its backing file.
pub fn overlay(image: &Built, number: u32, ledger: &mut Ledger) -> Result<(PathBuf, Entry), BuildError> {
    let path = image.path.with_extension(format!("overlay-{number}.qcow2"));
    let entry = ledger.will(Effect::File { path: path.clone(), identity: None })?;
    image::create_overlay(&path, &image.path, image.format)?;
    Ok((path, entry))
}
