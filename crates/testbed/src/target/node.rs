//! Nodes of QEMU's block layer that a storage daemon opens: images, clients of servers, and filters.

use std::path::{Path, PathBuf};

use iotax_model::target::{Aio, FileSpec, FilterSpec, FilterType, Format, NbdAddress};
use serde_json::{Value, json};

use crate::build_error::BuildError;
use crate::guest::disk::{DiskChain, Drive};
use crate::guest::image::{self, DevicePart, KEY, SECRET};

/// An image or a server's storage in QEMU's block layer, with filters on it.
#[derive(Debug, Clone)]
pub(super) struct BlockNode {
    pub(super) base: NodeBase,
    /// The user's image below `base`, if `base` is an overlay on it; `None` otherwise.
    pub(super) over: Option<(PathBuf, Format)>,
    /// The filters on `base`, from the bottom up.
    pub(super) filters: Vec<FilterSpec>,
}

/// The lowest node: a local image or a server's storage.
#[derive(Debug, Clone)]
pub(super) enum NodeBase {
    /// An image, possibly raw, in a file or in a byte range of a device.
    Image { path: PathBuf, format: Format, part: Option<DevicePart>, read_only: bool },
    /// Storage of a server, which iotax or someone else started.
    Client(Box<ClientNode>),
}

/// A QEMU block driver that connects to a server.
#[derive(Debug, Clone)]
pub(super) struct ClientNode {
    /// The driver's options, with the address of the server.
    pub(super) node: Value,
    /// The object that holds the password for `--object`; `None` if the server needs none.
    pub(super) secret: Option<Value>,
    /// The directory that relative paths in `node` count from; `None` if there are none.
    pub(super) directory: Option<PathBuf>,
    /// Path of the network namespace's file in which the server is reachable; `None` for this process's namespace.
    pub(super) namespace: Option<PathBuf>,
    pub(super) read_only: bool,
}

/// Returns the options of QEMU's NBD driver for an export.
pub(super) fn client(address: &NbdAddress, export: &str) -> Value {
    let server = match address {
        NbdAddress::Tcp(host, port) => json!({ "type": "inet", "host": host, "port": port.to_string() }),
        NbdAddress::Unix(socket) => json!({ "type": "unix", "path": socket.to_string_lossy() }),
    };
    json!({ "driver": "nbd", "server": server, "export": export })
}

/// Error number that injected I/O errors return: EIO.
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

/// The options with which a storage daemon opens a node.
#[derive(Debug)]
pub(super) struct NodeArguments {
    /// The value of the option `--blockdev`.
    pub(super) node: Value,
    /// The values of the options `--object` that the node refers to.
    pub(super) objects: Vec<Value>,
}

impl BlockNode {
    /// Returns a node for an image in a whole file, opened for writing, without filters.
    pub(super) const fn image(path: PathBuf, format: Format) -> Self {
        Self::on(NodeBase::Image { path, format, part: None, read_only: false })
    }

    /// Returns a node on `base` without filters.
    pub(super) const fn on(base: NodeBase) -> Self {
        Self { base, over: None, filters: Vec::new() }
    }

    /// Returns the path and format of the local image; `None` if a server holds the data.
    pub(super) fn stored(&self) -> Option<(&Path, Format)> {
        match &self.base {
            NodeBase::Image { path, format, .. } => Some((path, *format)),
            NodeBase::Client(_) => None,
        }
    }

    /// Returns the path of the second file of a mirror, next to the first; `None` without a quorum filter.
    pub(super) fn mirror(&self) -> Option<PathBuf> {
        let (path, _) = self.stored()?;
        let is_mirrored = self.filters.iter().any(|filter| filter.kind == FilterType::Quorum);
        is_mirrored.then(|| path.with_extension("mirror.raw"))
    }

    /// Returns the path of the file of the network namespace in which the daemon must run; `None` for this process's namespace.
    pub(super) fn namespace(&self) -> Option<&Path> {
        match &self.base {
            NodeBase::Image { .. } => None,
            NodeBase::Client(client) => client.namespace.as_deref(),
        }
    }

    /// Returns whether the node is opened read-only.
    pub(super) const fn is_read_only(&self) -> bool {
        match &self.base {
            NodeBase::Image { read_only, .. } => *read_only,
            NodeBase::Client(client) => client.read_only,
        }
    }

    /// Returns the names of the node's files that QEMU opens with threads instead of the I/O backend `aio`.
    pub(super) fn with_threads(&self, aio: Aio) -> Result<Vec<String>, BuildError> {
        let Some((path, format)) = self.stored() else { return Ok(Vec::new()) };
        let chain = image::chain(path, format)?;
        Ok(DiskChain { chain: &chain, l2_cache_size: None }.with_threads(aio))
    }

    /// Builds the options for opening the node under this name, with its filters.
    pub(super) fn arguments(
        &self,
        name: &str,
        drive: Drive,
        file: &FileSpec,
    ) -> Result<NodeArguments, BuildError> {
        let mut objects = Vec::new();
        let mut mirror = None;
        if let Some(path) = self.mirror() {
            let chain = image::chain(&path, Format::Raw)?;
            mirror = Some(DiskChain { chain: &chain, l2_cache_size: None }.node_of(name, drive));
        }
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
            let without_name = |node: &mut Value| node.as_object_mut().map(|node| node.remove("node-name"));
            without_name(&mut node);
            if let Some(mut second) = mirror.take_if(|_| filter.kind == FilterType::Quorum) {
                without_name(&mut second);
                // One child that works is enough, as for a mirror.
                node = json!({
                    "driver": "quorum",
                    "node-name": name,
                    "vote-threshold": 1,
                    "read-pattern": "fifo",
                    "children": [node, second],
                });
                continue;
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
