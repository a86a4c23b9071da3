//! The topmost layer of a target under construction, on which its next layer is built.

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

/// The interface of the topmost layer so far.
#[derive(Debug)]
pub(super) enum Ground {
    /// Only the machine; no layer is built yet.
    Machine,
    /// A user's block device, or a volume.
    Block(BlockGround),
    /// A directory for the target's files.
    Directory(PathBuf),
    /// A raw file.
    Raw(RawFile),
    /// A node of QEMU's block layer.
    Node(Box<NodeGround>),
    /// Any other storage that can be measured.
    Built(Box<Built>),
}

/// A block node for a storage daemon.
#[derive(Debug)]
pub(super) struct NodeGround {
    pub(super) node: BlockNode,
    /// The node's size in bytes, if different from the plan's.
    pub(super) size: Option<Bytes>,
    pub(super) claim: Option<Arc<DeviceClaim>>,
    pub(super) identity: Option<Identity>,
}

/// A block device for the layers above.
#[derive(Debug)]
pub(super) struct BlockGround {
    pub(super) area: DeviceArea,
    /// True if LVM holds the device.
    pub(super) shared: bool,
    pub(super) identity: Option<Identity>,
    pub(super) claim: Option<Arc<DeviceClaim>>,
    /// True if its data is lost when the device is removed: its key is not stored, or its data is in iotax's files.
    pub(super) transient: bool,
}

/// A block device that a layer occupies completely.
#[derive(Debug)]
pub(super) struct TakenBlock {
    pub(super) area: DeviceArea,
    /// True for a user's device, which `--overwrite` names.
    pub(super) is_users: bool,
    pub(super) transient: bool,
    /// Keeps the device's identity fixed until the tools have claimed it.
    _pin: Option<DevicePin>,
}

impl BlockGround {
    /// Releases the exclusive claim for tools that claim the device themselves; `signature` permits a device that carries a signature.
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
    /// The block device for the next layer; fails for any other storage.
    pub(super) fn block(self) -> Result<BlockGround, BuildError> {
        match self {
            Self::Block(block) => Ok(block),
            // A device that iotax made.
            Self::Built(built) => Ok(BlockGround {
                area: DeviceArea { path: built.path, offset: built.offset, size: built.size },
                shared: false,
                identity: built.identity,
                claim: None,
                transient: false,
            }),
            Self::Machine | Self::Directory(_) | Self::Raw(_) | Self::Node(_) => Err(unfit("a block device")),
        }
    }

    /// A new block device that iotax created, which exists as long as the layers above it.
    pub(super) fn made(path: PathBuf) -> Result<Self, BuildError> {
        let mut device = File::open(&path).map_err(BuildError::file(&path))?;
        let disk = device::disk_of(&device).map_err(BuildError::file(&path))?;
        let size = Bytes(device.seek(SeekFrom::End(0)).map_err(BuildError::file(&path))?);
        let area = DeviceArea { path, offset: Bytes(0), size };
        let identity = Some(Identity::Disk(disk));
        Ok(Self::Block(BlockGround { area, shared: false, identity, claim: None, transient: true }))
    }

    /// The directory for the next layer; fails for any other storage.
    pub(super) fn directory(self) -> Result<PathBuf, BuildError> {
        if let Self::Directory(path) = self { Ok(path) } else { Err(unfit("a directory")) }
    }

    /// The block node that a storage daemon opens.
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

    /// The raw file for the next layer; fails for any other storage.
    pub(super) fn raw(self) -> Result<RawFile, BuildError> {
        if let Self::Raw(file) = self { Ok(file) } else { Err(unfit("a raw file")) }
    }
}

/// The error for a stack that the plan's check should have rejected.
fn unfit(needed: &str) -> BuildError {
    Refusal::input(format!("a layer stands on {needed}, and there is none")).into()
}
