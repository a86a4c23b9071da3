//! Facts about a guest: from its QEMU's command line or its libvirt definition.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fact::Known;

/// A guest's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestSetup {
    /// The guest's name, as libvirt or QEMU's command line states it.
    pub name: String,
    /// The process ID of the guest's QEMU; absent if the guest does not run.
    pub pid: Option<u32>,
    /// True if the CPU is emulated in software.
    pub emulated: Known<bool>,
    /// The number of virtual CPUs.
    pub vcpus: Known<u64>,
    /// The CPU model, or libvirt's CPU mode, such as `host-passthrough`.
    pub cpu_model: Known<String>,
    /// The guest's disks.
    pub disks: Vec<GuestDisk>,
    /// The guest's network cards.
    pub nics: Vec<GuestNic>,
}

/// A disk of a guest. Settings that the guest's definition leaves to QEMU's defaults are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestDisk {
    /// The disk's name in the guest's definition.
    pub name: String,
    /// The local file or device that holds the data.
    pub path: Known<String>,
    /// The protocol of a disk that is not a local file or device, such as `rbd` or `https`.
    pub protocol: Known<String>,
    /// The disk's libvirt volume as `pool/volume`, if only libvirt knows its location.
    pub volume: Known<String>,
    /// The format in which QEMU opens the image.
    pub format: Known<String>,
    /// The bus: `virtio-blk`, `virtio-scsi`, `ide`, `sata`, `nvme`, `scsi`, `usb`.
    pub bus: Known<String>,
    /// QEMU's cache mode.
    pub cache: Known<String>,
    /// QEMU's I/O backend: `threads`, `native`, `io_uring`.
    pub aio: Known<String>,
    /// QEMU's `discard` setting for the guest's discards: `unmap` or `ignore`.
    pub discard: Known<String>,
    /// The policy on write errors, such as `ignore`.
    pub write_error: Known<String>,
    /// The number of I/O threads that serve the disk or, with virtio-scsi, its controller; 0 for none.
    pub iothreads: Known<u64>,
    /// The number of request queues of the disk or, with virtio-scsi, of its controller.
    pub queues: Known<u64>,
    /// The size of the cache for a qcow2 image's L2 tables.
    pub l2_cache_bytes: Known<u64>,
    /// The logical block size that the guest sees.
    pub logical_block_bytes: Known<u64>,
    /// Configured limits on the disk's IOPS or throughput, or the name of the throttle group that holds them.
    pub throttle: Known<String>,
    /// True if the guest's writes do not persist: the disk is read-only, or an overlay that is discarded when QEMU ends.
    pub nothing_lasts: Known<bool>,
    /// True if several guests may write to the disk.
    pub shared: Known<bool>,
}

/// A network card of a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestNic {
    /// The network card's name in the guest's definition.
    pub name: String,
    /// The model, such as `virtio` or `e1000`.
    pub model: Known<String>,
    /// The backend on the host: `tap`, `user`, `passt` and others.
    pub backend: Known<String>,
    /// True if the host's kernel moves the packets (vhost).
    pub vhost: Known<bool>,
    /// The number of queue pairs.
    pub queues: Known<u64>,
}
