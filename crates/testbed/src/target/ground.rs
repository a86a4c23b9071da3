//! What has been built of a target so far: the ground for its next layer.

use std::path::PathBuf;
use std::sync::Arc;

use iotax_model::target::Format;
use iotax_model::wire::Identity;

use super::Built;
use super::raw::RawFile;
use crate::build_error::BuildError;
use crate::device::{DeviceArea, DeviceClaim};
use crate::refusal::Refusal;

/// What the topmost layer so far offers.
#[derive(Debug)]
pub(super) enum Ground {
    /// Nothing is there yet.
    Machine,
    /// A block device of the user's, or a volume.
    Block(BlockGround),
    /// A directory for the target's files.
    Directory(PathBuf),
    /// A raw file.
    Raw(RawFile),
    /// Anything else that can be measured.
    Built(Box<Built>),
}

/// A block device for the layers above.
#[derive(Debug)]
pub(super) struct BlockGround {
    pub(super) area: DeviceArea,
    /// True if LVM holds it.
    pub(super) shared: bool,
    pub(super) identity: Option<Identity>,
    pub(super) claim: Option<Arc<DeviceClaim>>,
}

impl Ground {
    /// The block device that a layer stands on.
    pub(super) fn block(self) -> Result<BlockGround, BuildError> {
        match self {
            Self::Block(block) => Ok(block),
            // A device that iotax made.
            Self::Built(built) => Ok(BlockGround {
                area: DeviceArea { path: built.path, offset: built.offset, size: built.size },
                shared: false,
                identity: built.identity,
                claim: None,
            }),
            Self::Machine | Self::Directory(_) | Self::Raw(_) => Err(unfit("a block device")),
        }
    }

    /// The directory that a layer stands on.
    pub(super) fn directory(self) -> Result<PathBuf, BuildError> {
        if let Self::Directory(path) = self { Ok(path) } else { Err(unfit("a directory")) }
    }

    /// The path and the format of the image that a layer stands on.
    pub(super) fn image(self) -> Result<(PathBuf, Format), BuildError> {
        match self {
            Self::Raw(file) => Ok((file.path, Format::Raw)),
            Self::Built(built) => Ok((built.path, built.format)),
            Self::Machine | Self::Block(_) | Self::Directory(_) => Err(unfit("a file")),
        }
    }

    /// The raw file that a layer stands on.
    pub(super) fn raw(self) -> Result<RawFile, BuildError> {
        if let Self::Raw(file) = self { Ok(file) } else { Err(unfit("a raw file")) }
    }
}

/// The plan's check lets no such stack through.
fn unfit(needed: &str) -> BuildError {
    Refusal::input(format!("a layer stands on {needed}, and there is none")).into()
}
