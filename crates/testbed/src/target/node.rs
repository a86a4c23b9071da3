//! What a storage daemon opens: images and what stands on them in QEMU's block layer.

use std::path::{Path, PathBuf};

use iotax_model::target::{FileSpec, FilterSpec, FilterType, Format};
use serde_json::{Value, json};

use crate::build_error::BuildError;
use crate::guest::disk::{Drive, GuestDisk};
use crate::guest::image::{self, DevicePart, KEY, SECRET};

/// A node of QEMU's block layer, from its image up.
#[derive(Debug, Clone)]
pub(super) struct BlockNode {
    pub(super) base: NodeBase,
    /// The filters on it, from the bottom up.
    pub(super) filters: Vec<FilterSpec>,
}

/// The lowest node.
#[derive(Debug, Clone)]
pub(super) enum NodeBase {
    /// An image, which may be raw, in a file or a part of a device.
    Image {
        path: PathBuf,
        format: Format,
        part: Option<DevicePart>,
        read_only: bool,
        /// qcow2: the file that holds its data.
        data_file: Option<PathBuf>,
    },
    /// What an NBD server serves at a socket.
    Nbd { socket: PathBuf, export: String },
}

/// The arguments by which a daemon opens a node.
#[derive(Debug)]
pub(super) struct NodeArguments {
    /// `--blockdev`.
    pub(super) node: Value,
    /// `--object` of each thing that it needs.
    pub(super) objects: Vec<Value>,
}

impl BlockNode {
    /// An image that iotax may write.
    pub(super) const fn image(path: PathBuf, format: Format) -> Self {
        Self {
            base: NodeBase::Image { path, format, part: None, read_only: false, data_file: None },
            filters: Vec::new(),
        }
    }

    /// The image's file or device, and its format; `None` if a server has it.
    pub(super) fn stored(&self) -> Option<(&Path, Format)> {
        match &self.base {
            NodeBase::Image { path, format, .. } => Some((path, *format)),
            NodeBase::Nbd { .. } => None,
        }
    }

    /// Whether it is only read.
    pub(super) const fn is_read_only(&self) -> bool {
        matches!(self.base, NodeBase::Image { read_only: true, .. })
    }

    /// The arguments for a node of this name.
    pub(super) fn arguments(
        &self,
        name: &str,
        drive: Drive,
        file: &FileSpec,
    ) -> Result<NodeArguments, BuildError> {
        let mut objects = Vec::new();
        let mut node = match &self.base {
            NodeBase::Image { path, format, part, read_only, data_file } => {
                let mut chain = image::chain(path, *format)?;
                chain[0].part = *part;
                let disk = GuestDisk { chain: &chain, l2_cache_size: file.l2_cache_size };
                if disk.is_encrypted() {
                    objects.push(json!({ "qom-type": "secret", "id": SECRET, "data": KEY }));
                }
                let mut node = disk.node_of(name, drive);
                if *read_only {
                    node["read-only"] = json!(true);
                    node["file"]["read-only"] = json!(true);
                }
                if let Some(data) = data_file {
                    let mut file = node["file"].clone();
                    file["filename"] = json!(data.to_string_lossy());
                    node["data-file"] = file;
                }
                node
            }
            NodeBase::Nbd { socket, export } => json!({
                "driver": "nbd",
                "node-name": name,
                "export": export,
                // Its directory is the daemon's: an address takes 107 bytes.
                "server": { "type": "unix", "path": socket.file_name().map(|name| name.to_string_lossy()) },
                "discard": drive.discard.word(),
                "cache": { "direct": drive.cache.direct(), "no-flush": drive.cache.no_flush() },
            }),
        };
        for (number, filter) in self.filters.iter().enumerate() {
            if let Some(below) = node.as_object_mut() {
                below.remove("node-name");
            }
            let mut above = json!({ "driver": filter.kind.word(), "node-name": name, "file": node });
            if filter.kind == FilterType::Throttle {
                let group = format!("limit{number}");
                above["throttle-group"] = json!(group);
                let limits = json!({
                    "iops-total": filter.iops.unwrap_or_default(),
                    "bps-total": filter.rate.unwrap_or_default().0,
                });
                objects.push(json!({ "qom-type": "throttle-group", "id": group, "limits": limits }));
            }
            node = above;
        }
        Ok(NodeArguments { node, objects })
    }
}
