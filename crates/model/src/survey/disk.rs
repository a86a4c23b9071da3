//! Facts about a block device.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fact::Known;
use crate::words::words;

words! {
    /// The kind of a block device.
    #[derive(Default)]
    DiskKind, "kind of disk" {
        /// A namespace of an NVMe controller.
        Nvme = "nvme",
        /// A disk of the SCSI layer: SCSI, SAS, SATA, USB, iSCSI, Fibre Channel.
        Scsi = "scsi",
        /// A virtio-blk disk.
        Virtio = "virtio",
        /// A partition.
        Partition = "partition",
        /// A device-mapper device.
        Mapped = "dm",
        /// A software RAID.
        Raid = "md",
        /// A loop device.
        Loop = "loop",
        /// A bcache device.
        Bcache = "bcache",
        /// Anything else.
        #[default]
        Other = "other",
    }
}

/// A block device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// The kernel's name.
    pub name: String,
    /// Its kind.
    pub kind: DiskKind,
    /// The kernel names of the devices directly below it; for a loop device that of its file's filesystem.
    pub below: Vec<String>,
    /// The model, if it has one.
    pub model: Known<String>,
    /// Its size.
    pub size_bytes: Known<u64>,
    /// The beginning of a partition on its disk.
    pub start_bytes: Known<u64>,
    /// The smallest request.
    pub logical_block_bytes: Known<u64>,
    /// The smallest write that needs no read before it.
    pub physical_block_bytes: Known<u64>,
    /// The distance of its first byte from a physical block; -1 if the layers below are not aligned to each other.
    pub alignment_bytes: Known<i64>,
    /// True if it is a disk with seek times, according to the kernel.
    pub rotational: Known<bool>,
    /// The active I/O scheduler.
    pub scheduler: Known<String>,
    /// The read-ahead of buffered reads.
    pub read_ahead_kib: Known<u64>,
    /// The write cache as the kernel treats it: `write back` or `write through`.
    pub write_cache: Known<String>,
    /// The write cache as the disk reports it.
    pub device_cache: Known<String>,
    /// The largest discard; 0 if discards are not possible.
    pub discard_max_bytes: Known<u64>,
    /// The largest request.
    pub request_max_kib: Known<u64>,
    /// The largest request that the hardware takes.
    pub hardware_request_max_kib: Known<u64>,
    /// The depth of the queue before the driver.
    pub requests: Known<u64>,
    /// The kernel's `nomerges`: 0 merges all, 2 none.
    pub no_merges: Known<u64>,
    /// Hardware queues.
    pub queues: Known<u64>,
    /// The NUMA node; -1 if it is unknown to the kernel.
    pub node: Known<i64>,
    /// Features that the driver of a virtio disk negotiated, from bit 0.
    pub virtio_features: Known<String>,
    /// Interrupts of its queues, with the CPUs that they are delivered to.
    pub interrupts: Vec<QueueInterrupt>,
    /// Facts that only disks of the SCSI layer have.
    pub scsi: Option<Scsi>,
    /// The PCI Express link of an NVMe controller.
    pub link: Option<PciLink>,
    /// Facts that only software RAIDs have.
    pub raid: Option<Raid>,
    /// Facts that only device-mapper devices have.
    pub mapped: Option<Mapped>,
    /// Facts that only loop devices have.
    pub loop_file: Option<LoopFile>,
    /// Facts that only bcache devices have.
    pub bcache: Option<Bcache>,
    /// The health that an NVMe disk reports.
    pub wear: Option<Wear>,
}

/// An interrupt of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueInterrupt {
    /// The action's name in /proc/interrupts, such as `nvme0q1`.
    pub name: String,
    /// The list of CPUs that it may be delivered to.
    pub cpus: Known<String>,
}

/// A disk of the SCSI layer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scsi {
    /// The driver of its host, such as `ahci`.
    pub driver: Known<String>,
    /// Commands that it takes at once.
    pub queue_depth: Known<u64>,
    /// The kernel's state: `running`, `offline`, `blocked`.
    pub state: Known<String>,
    /// The time limit of a command.
    pub timeout_s: Known<u64>,
    /// Time until an iSCSI session that broke fails its I/O; negative for no limit.
    pub iscsi_recovery_s: Known<i64>,
    /// Time until a lost Fibre Channel port fails its I/O: seconds or `off`.
    pub fc_fast_fail: Known<String>,
}

/// A PCI Express link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PciLink {
    /// The speed now, such as `8.0 GT/s PCIe`.
    pub speed: Known<String>,
    /// The highest speed of the device.
    pub speed_max: Known<String>,
    /// Lanes now.
    pub width: Known<u64>,
    /// The most lanes of the device.
    pub width_max: Known<u64>,
}

/// A software RAID.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Raid {
    /// Such as `raid1`.
    pub level: Known<String>,
    /// Members that are missing.
    pub missing: Known<u64>,
    /// Such as `idle`, `resync`, `recover`, `check`.
    pub action: Known<String>,
    /// The place of the write-intent bitmap; `none` without one.
    pub bitmap: Known<String>,
    /// Sectors that a check found to differ.
    pub mismatches: Known<u64>,
    /// The bytes on one member before the next one follows.
    pub chunk_bytes: Known<u64>,
}

/// A device-mapper device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mapped {
    /// Its name, as in /dev/mapper.
    pub title: Known<String>,
    /// Its UUID, which begins with what made it.
    pub uuid: Known<String>,
    /// The lines of its table.
    pub table: Vec<MapperTarget>,
    /// The lines of its state.
    pub status: Vec<MapperTarget>,
}

/// A line of `dmsetup table` or `dmsetup status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MapperTarget {
    /// The target, such as `thin-pool`.
    pub kind: String,
    /// The words behind it.
    pub words: Vec<String>,
    /// The command that printed it.
    pub source: String,
}

/// The file of a loop device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoopFile {
    /// Its path.
    pub path: Known<String>,
    /// True if the file is used without the page cache.
    pub direct: Known<bool>,
}

/// A bcache device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bcache {
    /// `no cache`, `clean`, `dirty` or `inconsistent`.
    pub state: Known<String>,
    /// The active cache mode.
    pub mode: Known<String>,
}

/// The health of an NVMe disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wear {
    /// The bits of its critical warning; 0 for none.
    pub critical_warning: Known<u64>,
    /// The part of its endurance that is used, by the vendor's estimate; may exceed 100.
    pub percent_used: Known<u64>,
    /// Errors of its media that it could not correct.
    pub media_errors: Known<u64>,
}
