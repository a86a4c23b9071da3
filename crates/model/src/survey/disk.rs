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
        /// Any other block device.
        #[default]
        Other = "other",
    }
}

/// A block device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// The kernel's name for the device, such as `sda`.
    pub name: String,
    /// The kind of device.
    pub kind: DiskKind,
    /// The kernel names of the devices directly below; for a loop device, the device under the filesystem of its file.
    pub below: Vec<String>,
    /// The model; absent for devices without one.
    pub model: Known<String>,
    /// The capacity of the device.
    pub size_bytes: Known<u64>,
    /// The offset of a partition on its disk.
    pub start_bytes: Known<u64>,
    /// The logical block size: the smallest possible request.
    pub logical_block_bytes: Known<u64>,
    /// The physical block size: the smallest write without a read-modify-write.
    pub physical_block_bytes: Known<u64>,
    /// The distance of the device's first byte from a physical block boundary; -1 if the layers below are not aligned to each other.
    pub alignment_bytes: Known<i64>,
    /// True if the kernel considers the device a disk with seek times.
    pub rotational: Known<bool>,
    /// The active I/O scheduler.
    pub scheduler: Known<String>,
    /// The read-ahead of buffered reads, in KiB.
    pub read_ahead_kib: Known<u64>,
    /// The write cache as the kernel treats it: `write back` or `write through`.
    pub write_cache: Known<String>,
    /// The write cache mode that a SCSI or virtio disk reports; absent for other disks.
    pub device_cache: Known<String>,
    /// The largest discard; 0 if the device does not support discards.
    pub discard_max_bytes: Known<u64>,
    /// The largest request that the kernel sends, in KiB.
    pub request_max_kib: Known<u64>,
    /// The largest request that the hardware accepts, in KiB.
    pub hardware_request_max_kib: Known<u64>,
    /// The number of requests that the queue in front of the driver holds (nr_requests).
    pub requests: Known<u64>,
    /// The kernel's `nomerges` setting: 0 merges all requests that it can, 1 only simple ones, 2 none.
    pub no_merges: Known<u64>,
    /// The number of hardware queues.
    pub queues: Known<u64>,
    /// The NUMA node; -1 if the kernel does not know it.
    pub node: Known<i64>,
    /// Feature bits that the driver of a virtio disk negotiated, from bit 0.
    pub virtio_features: Known<String>,
    /// Interrupts of the queues, with the CPUs that they are delivered to.
    pub interrupts: Vec<QueueInterrupt>,
    /// Properties of disks of the SCSI layer; absent for other devices.
    pub scsi: Option<Scsi>,
    /// The PCI Express link of an NVMe controller; absent for other devices.
    pub link: Option<PciLink>,
    /// Properties of software RAIDs; absent for other devices.
    pub raid: Option<Raid>,
    /// Properties of device-mapper devices; absent for other devices.
    pub mapped: Option<Mapped>,
    /// The backing file of a loop device; absent for other devices.
    pub loop_file: Option<LoopFile>,
    /// Properties of bcache devices; absent for other devices.
    pub bcache: Option<Bcache>,
    /// The health that an NVMe disk reports; absent for other devices.
    pub wear: Option<Wear>,
}

/// An interrupt of a device's queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueInterrupt {
    /// The interrupt's name in /proc/interrupts, such as `nvme0q1`.
    pub name: String,
    /// The CPUs that the interrupt may be delivered to, as a list: `0-3,8`.
    pub cpus: Known<String>,
}

/// Properties of a disk of the SCSI layer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scsi {
    /// The driver of the SCSI host adapter, such as `ahci`.
    pub driver: Known<String>,
    /// Commands that the disk accepts at the same time.
    pub queue_depth: Known<u64>,
    /// The kernel's state of the disk: `running`, `offline`, `blocked`.
    pub state: Known<String>,
    /// The timeout of a command, in seconds.
    pub timeout_s: Known<u64>,
    /// Seconds until I/O fails after its iSCSI session was lost; negative for no limit.
    pub iscsi_recovery_s: Known<i64>,
    /// Time until I/O fails after its Fibre Channel port was lost: a number of seconds, or `off`.
    pub fc_fast_fail: Known<String>,
}

/// The PCI Express link of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PciLink {
    /// The current speed, such as `8.0 GT/s PCIe`.
    pub speed: Known<String>,
    /// The highest speed that the device supports.
    pub speed_max: Known<String>,
    /// The current number of lanes.
    pub width: Known<u64>,
    /// The highest number of lanes that the device supports.
    pub width_max: Known<u64>,
}

/// Properties of a software RAID.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Raid {
    /// The RAID level, such as `raid1`.
    pub level: Known<String>,
    /// The number of missing members.
    pub missing: Known<u64>,
    /// The current sync action, such as `idle`, `resync`, `recover`, `check`.
    pub action: Known<String>,
    /// The location of the write-intent bitmap; `none` without one.
    pub bitmap: Known<String>,
    /// Sectors that the last check found to differ between members.
    pub mismatches: Known<u64>,
    /// The chunk size: consecutive bytes on one member.
    pub chunk_bytes: Known<u64>,
}

/// Properties of a device-mapper device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mapped {
    /// The device's name, as in /dev/mapper.
    pub title: Known<String>,
    /// The device's UUID, which begins with the name of the tool that created the device.
    pub uuid: Known<String>,
    /// The lines of the device's table.
    pub table: Vec<MapperTarget>,
    /// The lines of the device's status.
    pub status: Vec<MapperTarget>,
}

/// A line of `dmsetup table` or `dmsetup status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MapperTarget {
    /// The type of the device-mapper target, such as `thin-pool`.
    pub kind: String,
    /// The words of the line after the target type.
    pub words: Vec<String>,
    /// The command that printed the line.
    pub source: String,
}

/// The backing file of a loop device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoopFile {
    /// Path of the backing file.
    pub path: Known<String>,
    /// True if the loop device bypasses the page cache (direct I/O).
    pub direct: Known<bool>,
}

/// Properties of a bcache device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bcache {
    /// The state of the cache: `no cache`, `clean`, `dirty` or `inconsistent`.
    pub state: Known<String>,
    /// The active cache mode, such as `writethrough`.
    pub mode: Known<String>,
}

/// The health that an NVMe disk reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wear {
    /// The bits of the disk's critical warning; 0 for none.
    pub critical_warning: Known<u64>,
    /// The used part of the disk's endurance in percent, as the vendor estimates it; may exceed 100.
    pub percent_used: Known<u64>,
    /// Media errors that the disk could not correct.
    pub media_errors: Known<u64>,
}
