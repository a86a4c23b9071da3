//! Opens existing files and block devices of the user for reading.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use iotax_model::target::Format;
use iotax_model::units::Bytes;
use iotax_model::wire::Identity;

use super::Built;
use crate::build_error::BuildError;
use crate::device;

/// Opens an existing file or device for reading.
pub fn open(path: &Path) -> Result<Built, BuildError> {
    let in_path = |error| BuildError::file(path)(error);
    let mut file = File::open(path).map_err(in_path)?;
    let (place, identity) = stand(&file, path).map_err(in_path)?;
    let size = Bytes(file.seek(SeekFrom::End(0)).map_err(in_path)?);
    Ok(Built { identity: Some(identity), held: Some(file), ..Built::at(place, Format::Raw, size) })
}

/// Returns the path of an open file or device without symbolic links, and its identity.
fn stand(file: &File, path: &Path) -> std::io::Result<(PathBuf, Identity)> {
    let found = file.metadata()?;
    if !found.file_type().is_block_device() {
        let identity = Identity::File { device: found.dev(), inode: found.ino() };
        return Ok((fs::canonicalize(path)?, identity));
    }
    let place = device::kernel_node(found.rdev()).ok().map_or_else(|| fs::canonicalize(path), Ok)?;
    Ok((place, Identity::Disk(device::disk_of(file)?)))
}

/// Returns the length of a file or block device in bytes, found by seeking to its end: the metadata of a block device do not contain it.
pub fn length(path: &Path) -> Result<Bytes, BuildError> {
    let end = File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0)));
    end.map(Bytes).map_err(BuildError::file(path))
}
