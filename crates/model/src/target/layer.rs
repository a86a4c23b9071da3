//! The layers of a target's stack.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// The kind of a layer.
    LayerKind, "layer" {
        /// A physical or virtual disk of this machine.
        Device = "device",
        /// A partition of a device.
        Partition = "partition",
        /// A device-mapper device (LVM, dm-crypt, multipath ...).
        Dm = "dm",
        /// A software RAID.
        Md = "md",
        /// A loop device.
        Loop = "loop",
        /// A volume of a ZFS pool.
        Zvol = "zvol",
        /// A filesystem.
        Filesystem = "filesystem",
        /// A file on a filesystem.
        File = "file",
        /// A disk image format.
        Image = "image",
        /// A snapshot on top of an image.
        Snapshot = "snapshot",
        /// An export of a file or image, such as NBD, iSCSI, NFS, FUSE or virtio-blk, or a QEMU block filter over it.
        Export = "export",
        /// A kernel limit (cgroup) on the I/O of the processes that generate the load.
        Limit = "limit",
        /// The bus of a guest's disk, with the hypervisor's cache mode and I/O backend.
        Bus = "bus",
        /// A guest.
        Guest = "guest",
        /// A network path between client and server.
        Network = "network",
        /// The guest's network card.
        Nic = "nic",
        /// Another machine, reached by ssh.
        Machine = "machine",
        /// A container, which shares the kernel of the machine that it runs on.
        Container = "container",
    }
}

/// One layer of a target's stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// The layer's kind.
    pub kind: LayerKind,
    /// The layer's name: `vda`, `ext4`, `qcow2`, `virtio-blk`, `guest`.
    pub name: String,
    /// Further details: size, model, scheduler, mount options, cache mode; may be empty.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub detail: String,
}

impl Layer {
    /// Creates a layer as recorded with a run's results; `detail` may be empty.
    pub fn new(kind: LayerKind, name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind, name: name.into(), detail: detail.into() }
    }
}
