//! Facts about a guest: from its QEMU's command line or its libvirt definition.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fact::Known;

/// A guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestSetup {
    /// Its name.
    pub name: String,
    /// The process id of its QEMU, if it runs.
    pub pid: Option<u32>,
    /// True if its CPU is emulated in software.
    pub emulated: Known<bool>,
    /// Virtual CPUs.
    pub vcpus: Known<u64>,
    /// The CPU model.
    pub cpu_model: Known<String>,
    /// Its disks.
    pub disks: Vec<GuestDisk>,
    /// Its network cards.
    pub nics: Vec<GuestNic>,
}

/// A disk of a guest. What the definition leaves to QEMU is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestDisk {
    /// Its name in the guest's definition.
    pub name: String,
    /// The local file or device.
    pub path: Known<String>,
    /// The way to a disk that is no local file or device, such as `rbd` or `https`.
    pub protocol: Known<String>,
    /// The volume as `pool/volume`, if only libvirt knows where it is.
    pub volume: Known<String>,
    /// The image format.
    pub format: Known<String>,
    /// The bus: `virtio-blk`, `virtio-scsi`, `ide`, `sata`, `nvme`, `scsi`, `usb`.
    pub bus: Known<String>,
    /// QEMU's cache mode.
    pub cache: Known<String>,
    /// QEMU's I/O backend: `threads`, `native`, `io_uring`.
    pub aio: Known<String>,
    /// `unmap` or `ignore`.
    pub discard: Known<String>,
    /// The policy on write errors, such as `ignore`.
    pub write_error: Known<String>,
    /// I/O threads; 0 for none.
    pub iothreads: Known<u64>,
    /// Queues.
    pub queues: Known<u64>,
    /// The size of the cache for a qcow2 image's tables.
    pub l2_cache_bytes: Known<u64>,
    /// The logical block size that the guest sees.
    pub logical_block_bytes: Known<u64>,
    /// Limits on its I/O, as they are set.
    pub throttle: Known<String>,
    /// True if nothing that the guest writes lasts: read-only, or on an overlay that ends with QEMU.
    pub nothing_lasts: Known<bool>,
    /// True if several guests may write to it.
    pub shared: Known<bool>,
}

/// A network card of a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestNic {
    /// Its name in the guest's definition.
    pub name: String,
    /// The model, such as `virtio` or `e1000`.
    pub model: Known<String>,
    /// The other end: `tap`, `user`, `passt` and others.
    pub backend: Known<String>,
    /// True if the host's kernel moves the packets.
    pub vhost: Known<bool>,
    /// Pairs of queues.
    pub queues: Known<u64>,
}
