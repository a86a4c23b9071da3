//! The storage that a target's layers provide so far, on which its next layer is built.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use iotax_model::target::Format;
use iotax_model::units::Bytes;
use iotax_model::wire::Identity;

use super::Built;
use super::node::{BlockNode, NodeBase};
use super::raw::RawFile;
use crate::build_error::BuildError;
use crate::device::{self, DeviceArea, DeviceClaim, DevicePin};
use crate::guest::image::DevicePart;
use crate::refusal::Refusal;

/// The interface that the topmost layer provides to the next one.
#[derive(Debug)]
pub(super) enum Ground {
    /// Nothing: no layer is built yet.
    Machine,
    /// A block device: the user's, or one that a layer created.
    Block(BlockGround),
    /// A directory in which the next layer creates files.
    Directory(PathBuf),
    /// A raw file that iotax created.
    Raw(RawFile),
    /// A node of QEMU's block layer, which a storage daemon will open.
    Node(Box<NodeGround>),
    /// Other storage that a workload can use directly, such as an export.
    Built(Box<Built>),
}

/// A node of QEMU's block layer, with the device that it uses.
#[derive(Debug)]
pub(super) struct NodeGround {
    pub(super) node: BlockNode,
    /// Length of the node's disk in bytes; `None` for the length that the plan specifies.
    pub(super) size: Option<Bytes>,
    pub(super) claim: Option<Arc<DeviceClaim>>,
    pub(super) identity: Option<Identity>,
}

/// A block device, or a byte range of one, on which the next layer is built.
#[derive(Debug)]
pub(super) struct BlockGround {
    pub(super) area: DeviceArea,
    /// True if LVM holds the device open, so that an exclusive claim would fail.
    pub(super) shared: bool,
    pub(super) identity: Option<Identity>,
    pub(super) claim: Option<Arc<DeviceClaim>>,
    /// True if the data becomes unreadable once the device is removed: its key is not stored, or its data is in files that iotax removes.
    pub(super) transient: bool,
}

/// A block device that a layer formats as a whole.
#[derive(Debug)]
pub(super) struct TakenBlock {
    pub(super) area: DeviceArea,
    /// True for a device of the user, permitted by `--overwrite`.
    pub(super) is_users: bool,
    pub(super) transient: bool,
    /// Keeps the device open, so that no other disk gets its number until the tools have claimed it.
    _pin: Option<DevicePin>,
}

impl BlockGround {
    /// Releases the exclusive claim, so that formatting tools can claim the device. Unless `signature` is true, rejects a user's device
    /// that carries a signature or has non-zero bytes at its ends.
    pub(super) fn take(self, signature: bool) -> Result<TakenBlock, Refusal> {
        let Self { area, claim, transient, .. } = self;
        if let Some(claim) = claim.as_ref().filter(|_| !signature) {
            claim.check_signature()?;
        }
        let pin = claim.as_ref().map(|claim| claim.pin());
        Ok(TakenBlock { area, is_users: claim.is_some(), transient, _pin: pin })
    }
}

impl Ground {
    /// Converts to a block device. Fails if the topmost layer provides none.
    pub(super) fn block(self) -> Result<BlockGround, BuildError> {
        match self {
            Self::Block(block) => Ok(block),
            // A device that iotax made, over a file or a server of the run's.
            Self::Built(built) => Ok(BlockGround {
                area: DeviceArea { path: built.path, offset: built.offset, size: built.size },
                shared: false,
                identity: built.identity,
                claim: None,
                transient: true,
            }),
            Self::Machine | Self::Directory(_) | Self::Raw(_) | Self::Node(_) => Err(unfit("a block device")),
        }
    }

    /// Describes a block device that a layer created, and that is removed after the layers above it.
    pub(super) fn made(path: PathBuf) -> Result<Self, BuildError> {
        let mut device = File::open(&path).map_err(BuildError::file(&path))?;
        let disk = device::disk_of(&device).map_err(BuildError::file(&path))?;
        let size = Bytes(device.seek(SeekFrom::End(0)).map_err(BuildError::file(&path))?);
        let area = DeviceArea { path, offset: Bytes(0), size };
        let identity = Some(Identity::Disk(disk));
        Ok(Self::Block(BlockGround { area, shared: false, identity, claim: None, transient: true }))
    }

    /// Converts to a directory. Fails if the topmost layer provides none.
    pub(super) fn directory(self) -> Result<PathBuf, BuildError> {
        if let Self::Directory(path) = self { Ok(path) } else { Err(unfit("a directory")) }
    }

    /// Converts to a block node for a storage daemon. Fails if the topmost layer provides neither a file nor a device.
    pub(super) fn node(self) -> Result<NodeGround, BuildError> {
        let on_file = |path, format, identity| NodeGround {
            node: BlockNode::image(path, format),
            size: None,
            claim: None,
            identity,
        };
        match self {
            Self::Raw(file) => Ok(on_file(file.path, Format::Raw, None)),
            // A device: a loop device that iotax made, or one of the user's.
            Self::Built(built) if built.format == Format::Raw => {
                let part = DevicePart { offset: built.offset, size: built.size, writable: built.writable };
                let base = NodeBase::Image {
                    path: built.path,
                    format: Format::Raw,
                    part: Some(part),
                    read_only: !built.writable,
                };
                let node = BlockNode::on(base);
                Ok(NodeGround { node, size: Some(built.size), claim: built.claim, identity: built.identity })
            }
            Self::Built(built) => Ok(on_file(built.path, built.format, None)),
            Self::Block(block) => {
                let DeviceArea { path, offset, size } = block.area;
                let part = DevicePart { offset, size, writable: true };
                let base = NodeBase::Image { path, format: Format::Raw, part: Some(part), read_only: false };
                let node = BlockNode::on(base);
                Ok(NodeGround { node, size: Some(size), claim: block.claim, identity: block.identity })
            }
            Self::Node(node) => Ok(*node),
            Self::Machine | Self::Directory(_) => Err(unfit("a file or device")),
        }
    }

    /// Converts to a raw file. Fails if the topmost layer provides none.
    pub(super) fn raw(self) -> Result<RawFile, BuildError> {
        if let Self::Raw(file) = self { Ok(file) } else { Err(unfit("a raw file")) }
    }
}

/// Returns the error for layers that do not fit together; the plan's check should have rejected them.
fn unfit(needed: &str) -> BuildError {
    Refusal::input(format!("a layer stands on {needed}, and there is none")).into()
}
