//! All counters of a machine at one moment, as read and recorded.
//!
//! Rates follow from two snapshots ([`crate::rates`]). A counter that could not be read is `None` or its row is absent.

use iotax_model::record::{NicActivity, Pressure};
use iotax_model::target::LayerKind;
use serde::{Deserialize, Serialize};

/// Counters of a machine at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSnapshot {
    /// Milliseconds since 1970, UTC.
    pub at_ms: u64,
    /// Nanoseconds of a clock that never jumps, since the collector started.
    pub clock_ns: u64,
    /// Block devices in stack order: each follows the first device below it.
    pub devices: Vec<Device>,
    /// Processes whose I/O counters can be read.
    pub processes: Vec<Process>,
    /// I/O of control groups, by device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupIo>,
    /// QEMU's guests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guests: Vec<QemuGuest>,
    /// Network interfaces with the totals of their counters.
    pub interfaces: Vec<(String, NicActivity)>,
    /// Total stall times.
    pub pressure: Option<Pressure>,
    /// The source of percentiles.
    pub percentiles: PercentileSource,
    /// Sources that could not be read, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// The source of latency percentiles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PercentileSource {
    /// BPF programs at the kernel's block tracepoints.
    Bpf,
    /// No percentiles, for this reason.
    Unknown(String),
    /// Imported text of another tool, without percentiles.
    #[default]
    NotTold,
}

/// A block device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The kernel's name.
    pub name: String,
    /// `major:minor`.
    pub number: String,
    /// The kind of layer.
    pub kind: LayerKind,
    /// The display name: `vg0/images`, else the kernel's name.
    pub title: String,
    /// Number of devices between this one and the bottom of the stack.
    pub depth: usize,
    /// The devices directly below.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
    /// Mount points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<String>,
    /// The device's counters.
    pub counters: DeviceCounters,
    /// Latencies of requests, by kind of I/O; empty for devices without requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<RequestLatencies>,
}

/// Counters of a block device since it appeared (kernel documentation, admin-guide/iostats).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCounters {
    /// Completed reads.
    pub reads: u64,
    /// Reads that were merged with neighbours.
    pub read_merges: u64,
    /// 512-byte sectors read.
    pub read_sectors: u64,
    /// Sum of the times of reads.
    pub read_ms: u64,
    /// Completed writes.
    pub writes: u64,
    /// Writes that were merged with neighbours.
    pub write_merges: u64,
    /// 512-byte sectors written.
    pub write_sectors: u64,
    /// Sum of the times of writes.
    pub write_ms: u64,
    /// I/Os in flight now.
    pub in_flight: u64,
    /// Time with at least one I/O in flight.
    pub busy_ms: u64,
    /// Sum over time of the I/Os in flight, in milliseconds.
    pub weighted_ms: u64,
    /// Completed discards; absent before Linux 4.18.
    pub discards: Option<u64>,
    /// Sum of the times of discards.
    pub discard_ms: Option<u64>,
    /// 512-byte sectors discarded.
    pub discard_sectors: Option<u64>,
    /// Completed flushes; absent before Linux 5.5.
    pub flushes: Option<u64>,
    /// Sum of the times of flushes.
    pub flush_ms: Option<u64>,
}

/// Kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestKind {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// Latencies of one kind of requests to a device, totals since the programs were attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestLatencies {
    /// The kind.
    pub direction: RequestKind,
    /// Requests whose dispatch was seen.
    pub device_ios: u64,
    /// Sum of their times from dispatch to completion.
    pub device_ns: u64,
    /// Requests by total time: index in [`crate::buckets`] and count, in order of the index, without empty ones.
    pub buckets: Vec<(u16, u64)>,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Process name.
    pub name: String,
    /// Its control group, relative to the hierarchy's root.
    pub cgroup: Option<String>,
    /// Its counters, to which the kernel adds those of each ended child once it is waited for.
    pub io: ProcessIo,
    /// Page faults of exited children, which reveal whether there were any.
    pub children_faults: u64,
}

/// I/O of a process since its start (proc_pid_io(5)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIo {
    /// Read system calls.
    pub read_calls: u64,
    /// Write system calls.
    pub write_calls: u64,
    /// Bytes read from storage for the process.
    pub read_bytes: u64,
    /// Bytes written to storage for the process, including dirty pages that are still to be written back.
    pub write_bytes: u64,
}

/// I/O of a control group on one device (kernel documentation, cgroup-v2, io.stat).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupIo {
    /// Path of the group, relative to the hierarchy's root.
    pub path: String,
    /// The device's `major:minor`.
    pub device: String,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// A guest of QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QemuGuest {
    /// Process id of QEMU.
    pub pid: u32,
    /// The guest's name.
    pub name: String,
    /// Its disks, by QEMU's command line.
    pub disks: Vec<QemuGuestDisk>,
    /// Its disks as QEMU's block layer counts them; `None` without a QMP socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu: Option<Vec<QemuDisk>>,
}

/// A disk of a guest on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QemuGuestDisk {
    /// Path of the disk's file or device.
    pub path: String,
    /// The host's block device that backs it, directly or through its file.
    pub device: Option<String>,
}

/// A disk's counters in QEMU since the start of the guest (QMP, query-blockstats).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QemuDisk {
    /// QEMU's name of the disk.
    pub name: String,
    /// The backing file, if QEMU reports it.
    pub path: Option<String>,
    /// Completed reads.
    pub reads: u64,
    /// Completed writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Sum of the times of reads.
    pub read_ns: u64,
    /// Sum of the times of writes.
    pub write_ns: u64,
}
