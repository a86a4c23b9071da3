//! A file or block device that is there already: opened for reading, measured as it is.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use iotax_model::target::Format;
use iotax_model::units::Bytes;

use super::{BuildError, Built};

/// Takes what is there.
pub fn open(path: &Path) -> Result<Built, BuildError> {
    Ok(Built {
        path: path.to_owned(),
        offset: Bytes(0),
        format: Format::Raw,
        size: length(path)?,
        writable: false,
        shared: false,
        identity: None,
        held: None,
        claim: None,
        entry: None,
        snapshot: None,
        origin: None,
        warnings: Vec::new(),
    })
}

/// Length of a file or of a block device, whose metadata do not tell it.
pub fn length(path: &Path) -> Result<Bytes, BuildError> {
    let end = File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0)));
    end.map(Bytes).map_err(BuildError::file(path))
}
