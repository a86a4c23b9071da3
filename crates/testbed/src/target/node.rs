//! Block nodes that a storage daemon opens: images and filters in QEMU's block layer.

use std::path::{Path, PathBuf};

use iotax_model::target::{Aio, FileSpec, FilterSpec, FilterType, Format, NbdAddress};
use serde_json::{Value, json};

use crate::build_error::BuildError;
use crate::guest::disk::{DiskChain, Drive};
use crate::guest::image::{self, DevicePart, KEY, SECRET};

/// A node of QEMU's block layer, from its image up.
#[derive(Debug, Clone)]
pub(super) struct BlockNode {
    pub(super) base: NodeBase,
    /// The user's image, if the base is an overlay on it.
    pub(super) over: Option<(PathBuf, Format)>,
    /// The filters on it, from the bottom up.
    pub(super) filters: Vec<FilterSpec>,
}

/// The lowest node.
#[derive(Debug, Clone)]
pub(super) enum NodeBase {
    /// An image, which may be raw, in a file or a part of a device.
    Image { path: PathBuf, format: Format, part: Option<DevicePart>, read_only: bool },
    /// Storage of a server, started by iotax or not.
    Client(Box<ClientNode>),
}

/// A QEMU client for a server's storage.
#[derive(Debug, Clone)]
pub(super) struct ClientNode {
    /// The client's driver and the address of the server.
    pub(super) node: Value,
    /// The `--object` of the secret, if needed.
    pub(super) secret: Option<Value>,
    /// The working directory of the client, because the address of the server's socket may be relative to it.
    pub(super) directory: Option<PathBuf>,
    /// The file of the network namespace in which the client reaches the server; `None` for this process's.
    pub(super) namespace: Option<PathBuf>,
    pub(super) read_only: bool,
}

/// QEMU's client of an NBD server.
pub(super) fn client(address: &NbdAddress, export: &str) -> Value {
    let server = match address {
        NbdAddress::Tcp(host, port) => json!({ "type": "inet", "host": host, "port": port.to_string() }),
        NbdAddress::Unix(socket) => json!({ "type": "unix", "path": socket.to_string_lossy() }),
    };
    json!({ "driver": "nbd", "server": server, "export": export })
}

/// The number of the error EIO.
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

/// The arguments with which a daemon opens a node.
#[derive(Debug)]
pub(super) struct NodeArguments {
    /// The value of `--blockdev`.
    pub(super) node: Value,
    /// The values of `--object` that the node needs.
    pub(super) objects: Vec<Value>,
}

impl BlockNode {
    /// The node of an image that iotax may write.
    pub(super) const fn image(path: PathBuf, format: Format) -> Self {
        Self::on(NodeBase::Image { path, format, part: None, read_only: false })
    }

    /// A node without filters.
    pub(super) const fn on(base: NodeBase) -> Self {
        Self { base, over: None, filters: Vec::new() }
    }

    /// The image's file or device, and its format; `None` if a server holds the image.
    pub(super) fn stored(&self) -> Option<(&Path, Format)> {
        match &self.base {
            NodeBase::Image { path, format, .. } => Some((path, *format)),
            NodeBase::Client(_) => None,
        }
    }

    /// The file of the network namespace in which the node is opened; `None` for this process's.
    pub(super) fn namespace(&self) -> Option<&Path> {
        match &self.base {
            NodeBase::Image { .. } => None,
            NodeBase::Client(client) => client.namespace.as_deref(),
        }
    }

    /// Returns whether the node is read-only.
    pub(super) const fn is_read_only(&self) -> bool {
        match &self.base {
            NodeBase::Image { read_only, .. } => *read_only,
            NodeBase::Client(client) => client.read_only,
        }
    }

    /// The names of the node's files that QEMU opens with threads instead of `aio`.
    pub(super) fn with_threads(&self, aio: Aio) -> Result<Vec<String>, BuildError> {
        let Some((path, format)) = self.stored() else { return Ok(Vec::new()) };
        let chain = image::chain(path, format)?;
        Ok(DiskChain { chain: &chain, l2_cache_size: None }.with_threads(aio))
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
            NodeBase::Image { path, format, part, read_only } => {
                let mut chain = image::chain(path, *format)?;
                chain[0].part = *part;
                let disk = DiskChain { chain: &chain, l2_cache_size: file.l2_cache_size };
                if disk.is_encrypted() {
                    objects.push(json!({ "qom-type": "secret", "id": SECRET, "data": KEY }));
                }
                let mut node = disk.node_of(name, drive);
                if *read_only {
                    let mut set = |place: &str| {
                        if let Some(part) = node.pointer_mut(place) {
                            part["read-only"] = json!(true);
                        }
                    };
                    ["", "/file", "/data-file"].into_iter().for_each(&mut set);
                }
                node
            }
            NodeBase::Client(client) => {
                objects.extend(client.secret.clone());
                let mut node = client.node.clone();
                node["node-name"] = json!(name);
                node["read-only"] = json!(client.read_only);
                node["discard"] = json!(drive.discard.word());
                node["cache"] = json!({ "direct": drive.cache.direct(), "no-flush": drive.cache.no_flush() });
                node
            }
        };
        for (number, filter) in self.filters.iter().enumerate() {
            if let Some(below) = node.as_object_mut() {
                below.remove("node-name");
            }
            let below = if filter.kind == FilterType::Blkdebug { "image" } else { "file" };
            let mut above = json!({ "driver": filter.kind.word(), "node-name": name, below: node });
            if let Some(errors) = filter.errors {
                let error = json!({ "event": "none", "iotype": "read", "errno": EIO, "once": true });
                above["inject-error"] = vec![error; errors as usize].into();
            }
            if filter.kind == FilterType::Throttle {
                let group = format!("limit{number}");
                above["throttle-group"] = json!(group);
                let mut limits = json!({
                    "iops-total": filter.iops.unwrap_or_default(),
                    "bps-total": filter.rate.unwrap_or_default().0,
                });
                if let Some(most) = filter.iops_max {
                    limits["iops-total-max"] = json!(most);
                    limits["iops-total-max-length"] = json!(filter.iops_max_length.unwrap_or(1));
                }
                objects.push(json!({ "qom-type": "throttle-group", "id": group, "limits": limits }));
            }
            node = above;
        }
        Ok(NodeArguments { node, objects })
    }
}
