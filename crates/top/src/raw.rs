//! All counters of a machine at one moment, as read from the kernel and stored in recordings.
//!
//! Rates follow from two snapshots ([`crate::rates`]). A counter that could not be read is `None`, or its row is missing.

use iotax_model::record::{NicActivity, Pressure};
use iotax_model::target::LayerKind;
use serde::{Deserialize, Serialize};

/// Counters of a machine at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSnapshot {
    /// Time of the reading in milliseconds since 1970, UTC.
    pub at_ms: u64,
    /// Nanoseconds since the collector started, on a monotonic clock.
    pub clock_ns: u64,
    /// Block devices in stack order: each follows the first device that it is built on.
    pub devices: Vec<Device>,
    /// Processes whose I/O counters can be read.
    pub processes: Vec<Process>,
    /// I/O counters of control groups, one entry per group and device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupIo>,
    /// Guests run by QEMU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guests: Vec<QemuGuest>,
    /// Network interfaces by name, with their total counters.
    pub interfaces: Vec<(String, NicActivity)>,
    /// Total times in which tasks waited for I/O, a CPU or memory; `None` if unknown.
    pub pressure: Option<Pressure>,
    /// Source of the latency percentiles, or the reason why there are none.
    pub percentiles: PercentileSource,
    /// Sources that could not be read, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// The source of latency percentiles, or the reason why there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PercentileSource {
    /// BPF programs at the kernel's block tracepoints.
    Bpf,
    /// There are no percentiles; holds the reason.
    Unknown(String),
    /// There are no percentiles, because the figures were imported from another tool's output.
    #[default]
    NotReported,
}

/// A block device with its counters at the time of the reading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Name in the kernel, such as `sda` or `dm-0`.
    pub name: String,
    /// Device number as `major:minor`.
    pub number: String,
    /// Kind of layer, such as md or LVM.
    pub kind: LayerKind,
    /// Name shown to users: `vg0/images` for an LVM volume, the given name of another device-mapper device or a ZFS volume, else the
    /// kernel's name.
    pub title: String,
    /// Number of devices below this one, counted along the first lower device of each; 0 at the bottom of the stack.
    pub depth: usize,
    /// Kernel names of the devices directly below.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
    /// Mount points of the filesystem on the device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<String>,
    /// Counters of the device in /proc/diskstats.
    pub counters: DeviceCounters,
    /// Latencies of reads and of writes; a kind without completed requests is missing. Empty without BPF, and for devices without requests,
    /// such as device-mapper.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<RequestLatencies>,
}

/// Counters of a block device since it appeared (kernel documentation, admin-guide/iostats).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCounters {
    /// Reads completed since the device appeared.
    pub reads: u64,
    /// Reads that the kernel merged with an adjacent request, since the device appeared.
    pub read_merges: u64,
    /// 512-byte sectors read since the device appeared.
    pub read_sectors: u64,
    /// Sum of the latencies of completed reads in milliseconds, since the device appeared.
    pub read_ms: u64,
    /// Writes completed since the device appeared.
    pub writes: u64,
    /// Writes that the kernel merged with an adjacent request, since the device appeared.
    pub write_merges: u64,
    /// 512-byte sectors written since the device appeared.
    pub write_sectors: u64,
    /// Sum of the latencies of completed writes in milliseconds, since the device appeared.
    pub write_ms: u64,
    /// I/Os in flight at the time of the reading.
    pub in_flight: u64,
    /// Time with at least one I/O in flight in milliseconds, since the device appeared.
    pub busy_ms: u64,
    /// Integral over time of the I/Os in flight in milliseconds, since the device appeared: two I/Os for 5 ms add 10.
    pub weighted_ms: u64,
    /// Discards completed since the device appeared; `None` before Linux 4.18.
    pub discards: Option<u64>,
    /// Sum of discard latencies in milliseconds, since the device appeared; `None` before Linux 4.18.
    pub discard_ms: Option<u64>,
    /// 512-byte sectors discarded since the device appeared; `None` before Linux 4.18.
    pub discard_sectors: Option<u64>,
    /// Flushes completed since the device appeared; `None` before Linux 5.5.
    pub flushes: Option<u64>,
    /// Sum of flush latencies in milliseconds, since the device appeared; `None` before Linux 5.5.
    pub flush_ms: Option<u64>,
}

/// Kinds of block requests whose latencies are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestKind {
    /// Read requests.
    Read,
    /// Write requests.
    Write,
}

/// Latencies of the reads or of the writes of a device, in total since the BPF programs were attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestLatencies {
    /// Kind of the requests: reads or writes.
    pub direction: RequestKind,
    /// Number of completed requests whose dispatch to the driver was observed.
    pub device_ios: u64,
    /// Sum of the times of these `device_ios` requests from dispatch to completion, in nanoseconds.
    pub device_ns: u64,
    /// Histogram of the time from queueing to completion: bucket index (see [`crate::buckets`]) and number of requests, ascending, without
    /// empty buckets.
    pub buckets: Vec<(u16, u64)>,
}

/// A process with its I/O counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Name as in /proc/PID/comm; if that is `exe`, the file name of the executed program.
    pub name: String,
    /// Path of the process's control group, relative to the hierarchy's root; `None` if unknown.
    pub cgroup: Option<String>,
    /// I/O counters of the process. The kernel adds the counters of an ended child to its parent's once the parent has waited for the
    /// child.
    pub io: ProcessIo,
    /// Minor page faults of ended children since the process started (`cminflt`). If this increased, `io` includes counters of such
    /// children.
    pub children_faults: u64,
}

/// I/O of a process since its start (proc_pid_io(5)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIo {
    /// Read system calls since the process started, on files and pipes alike.
    pub read_calls: u64,
    /// Write system calls since the process started, on files and pipes alike.
    pub write_calls: u64,
    /// Bytes read from storage for the process since its start.
    pub read_bytes: u64,
    /// Bytes written to storage for the process since its start, including dirty pages that are still to be written back.
    pub write_bytes: u64,
}

/// I/O of a control group on one device since the group was created (kernel documentation, cgroup-v2, io.stat).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupIo {
    /// Path of the group, relative to the hierarchy's root.
    pub path: String,
    /// Device number as `major:minor`.
    pub device: String,
    /// Bytes that the group has read from the device.
    pub read_bytes: u64,
    /// Bytes that the group has written to the device.
    pub write_bytes: u64,
    /// Number of reads of the group on the device.
    pub reads: u64,
    /// Number of writes of the group on the device.
    pub writes: u64,
}

/// A guest run by QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QemuGuest {
    /// Process id of the guest's QEMU.
    pub pid: u32,
    /// Name from QEMU's `-name` option; `pid N` without one.
    pub name: String,
    /// Disks given on QEMU's command line.
    pub disks: Vec<QemuGuestDisk>,
    /// Disks as counted by QEMU's block layer; `None` without a working QMP connection to the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu: Option<Vec<QemuDisk>>,
}

/// A disk given on QEMU's command line, and the host's device that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QemuGuestDisk {
    /// Path of the disk's file or device.
    pub path: String,
    /// Kernel name of the host's block device that holds the disk, directly or through a filesystem; `None` if unknown.
    pub device: Option<String>,
}

/// A disk's counters in QEMU since the start of the guest (QMP, query-blockstats).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QemuDisk {
    /// QEMU's name of the disk, such as the id of its device.
    pub name: String,
    /// Path of the disk's image or device; `None` if QEMU does not report it.
    pub path: Option<String>,
    /// Reads completed since the guest started.
    pub reads: u64,
    /// Writes completed since the guest started.
    pub writes: u64,
    /// Bytes read since the guest started.
    pub read_bytes: u64,
    /// Bytes written since the guest started.
    pub write_bytes: u64,
    /// Sum of read latencies in nanoseconds, since the guest started.
    pub read_ns: u64,
    /// Sum of write latencies in nanoseconds, since the guest started.
    pub write_ns: u64,
}
