//! Computes rates from two readings. A rate is unknown if a reading lacks the counter, or if the counter decreased.

use std::collections::HashMap;

use iotax_model::record::NicActivity;
use iotax_model::target::LayerKind;
use schemars::JsonSchema;
use serde::Serialize;

use crate::buckets;
use crate::raw::{
    CgroupIo, Device, DeviceCounters, MachineSnapshot, PercentileSource, Process, QemuDisk, QemuGuest,
    RequestKind,
};

/// Bytes per sector in /proc/diskstats, whatever the device's block size.
const SECTOR: f64 = 512.0;
const NS_PER_MS: f64 = 1e6;
const NS_PER_S: f64 = 1e9;

/// All rates of one interval between two readings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Frame {
    /// End of the interval in milliseconds since 1970, UTC; `None` if the frame was imported from another tool's output that lacks it.
    pub at_ms: Option<u64>,
    /// Length of the interval in nanoseconds; `None` if the frame was imported from another tool's output that lacks it.
    pub interval_ns: Option<u64>,
    /// Block devices in stack order: each follows the first device that it is built on.
    pub layers: Vec<LayerRates>,
    /// Processes with I/O in the interval, the busiest first.
    pub processes: Vec<ProcessRates>,
    /// Control groups with I/O in the interval, one row per group and device, the busiest first.
    pub cgroups: Vec<CgroupRates>,
    /// Guests; the row of each guest is followed by the rows of its disks.
    pub guests: Vec<GuestRates>,
    /// Network interfaces, with and without traffic.
    pub interfaces: Vec<InterfaceRates>,
    /// Shares of time in which tasks waited for I/O, a CPU or memory; `None` if unknown.
    pub pressure: Option<PressureRates>,
    /// Source of the latency percentiles, or the reason why there are none.
    pub percentiles: PercentileSource,
    /// Sources that could not be read, each with the reason.
    pub remarks: Vec<String>,
}

/// Rates of a block device; a rate is `None` if unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct LayerRates {
    /// Name in the kernel, such as `sda` or `dm-0`.
    pub name: String,
    /// Name shown to users: `vg0/images` for an LVM volume, the given name of another device-mapper device or a ZFS volume, else the
    /// kernel's name.
    pub title: String,
    /// Kind of layer, such as md or LVM; `None` if unknown.
    pub kind: Option<LayerKind>,
    /// Number of devices below this one, counted along the first lower device of each; 0 at the bottom of the stack.
    pub depth: usize,
    /// Kernel names of the devices directly below.
    pub on: Vec<String>,
    /// Mount points of the filesystem on the device.
    pub mounts: Vec<String>,
    /// Reads of the device completed per second.
    pub read_iops: Option<f64>,
    /// Writes of the device completed per second.
    pub write_iops: Option<f64>,
    /// Bytes read from the device per second.
    pub read_bytes_per_s: Option<f64>,
    /// Bytes written to the device per second.
    pub write_bytes_per_s: Option<f64>,
    /// Mean latency of reads in nanoseconds, from queueing to completion; `None` if unknown or without reads.
    pub read_latency_ns: Option<f64>,
    /// Mean latency of writes in nanoseconds, from queueing to completion; `None` if unknown or without writes.
    pub write_latency_ns: Option<f64>,
    /// 99th percentile of read latencies in nanoseconds, from queueing to completion; `None` if unknown or without reads.
    pub read_p99_ns: Option<f64>,
    /// 99th percentile of write latencies in nanoseconds, from queueing to completion; `None` if unknown or without writes.
    pub write_p99_ns: Option<f64>,
    /// Mean time in nanoseconds from dispatch to the driver until completion, over reads and writes; `None` if unknown or without I/O.
    pub device_latency_ns: Option<f64>,
    /// Mean number of the device's I/Os in flight during the interval.
    pub queue: Option<f64>,
    /// Share of time with at least one I/O in flight, 0 to 1.
    pub busy: Option<f64>,
    /// I/Os in flight at the end of the interval.
    pub in_flight: Option<f64>,
    /// Reads per second that the kernel merged with an adjacent request.
    pub read_merges_per_s: Option<f64>,
    /// Writes per second that the kernel merged with an adjacent request.
    pub write_merges_per_s: Option<f64>,
    /// Discards of the device completed per second.
    pub discard_iops: Option<f64>,
    /// Bytes discarded on the device per second.
    pub discard_bytes_per_s: Option<f64>,
    /// Flushes of the device completed per second.
    pub flush_iops: Option<f64>,
    /// Mean latency of flushes in nanoseconds; `None` if unknown or without flushes.
    pub flush_latency_ns: Option<f64>,
}

impl LayerRates {
    /// Returns the sum of reads and writes per second; an unknown rate counts as 0.
    pub fn iops(&self) -> f64 {
        self.read_iops.unwrap_or(0.0) + self.write_iops.unwrap_or(0.0)
    }
}

/// Rates of a process; a rate is `None` if unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct ProcessRates {
    /// Process id.
    pub pid: u32,
    /// Name of the process, as in [`Process::name`].
    pub name: String,
    /// Path of the process's control group; `None` if unknown.
    pub cgroup: Option<String>,
    /// Bytes per second read from storage for the process.
    pub read_bytes_per_s: Option<f64>,
    /// Bytes per second written to storage for the process, including dirty pages that are still to be written back.
    pub write_bytes_per_s: Option<f64>,
    /// Read system calls of the process per second.
    pub read_calls_per_s: Option<f64>,
    /// Write system calls of the process per second.
    pub write_calls_per_s: Option<f64>,
}

/// Rates of a control group on one device; a rate is `None` if unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct CgroupRates {
    /// Path of the control group in the cgroup hierarchy, such as `/system.slice/db.service`.
    pub path: String,
    /// Name of the device as shown to users; `major:minor` if the device is unknown.
    pub device: String,
    /// Reads of the group on the device per second.
    pub read_iops: Option<f64>,
    /// Writes of the group on the device per second.
    pub write_iops: Option<f64>,
    /// Bytes that the group read from the device per second.
    pub read_bytes_per_s: Option<f64>,
    /// Bytes that the group wrote to the device per second.
    pub write_bytes_per_s: Option<f64>,
}

/// Rates of a guest, or of one of its disks; a rate is `None` if unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct GuestRates {
    /// Name from QEMU's `-name` option; `pid N` without one.
    pub guest: String,
    /// Process id of the guest's QEMU.
    pub pid: u32,
    /// Path of the disk's file, else QEMU's name of the disk; `None` in the row of the whole guest.
    pub disk: Option<String>,
    /// Kernel name of the host's block device that holds the disk; `None` in the row of the whole guest, or if unknown.
    pub device: Option<String>,
    /// Reads per second: for a disk as counted by QEMU, for a guest the sum over its disks.
    pub read_iops: Option<f64>,
    /// Writes per second: for a disk as counted by QEMU, for a guest the sum over its disks.
    pub write_iops: Option<f64>,
    /// Bytes read per second: for a disk as counted by QEMU, for a guest as counted by the host's kernel for the QEMU process.
    pub read_bytes_per_s: Option<f64>,
    /// Bytes written per second: for a disk as counted by QEMU, for a guest as counted by the host's kernel for the QEMU process.
    pub write_bytes_per_s: Option<f64>,
    /// Mean latency of the disk's I/Os in nanoseconds, as measured in QEMU; `None` in the row of the whole guest, if unknown, or without
    /// I/O.
    pub guest_latency_ns: Option<f64>,
    /// Mean latency in nanoseconds of all I/Os at the host's device, including those of other users; `None` in the row of the whole guest,
    /// if unknown, or if the guest's QEMU did no I/O.
    pub host_latency_ns: Option<f64>,
    /// `guest_latency_ns` minus `host_latency_ns`: time in QEMU and the host's filesystem. `None` if either is unknown, or if the
    /// difference is negative, because the two then measure different I/Os.
    pub above_latency_ns: Option<f64>,
}

/// Rates of a network interface; a rate is `None` if unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct InterfaceRates {
    /// Name of the interface, such as `eth0`.
    pub name: String,
    /// Bytes received by the interface per second.
    pub rx_bytes_per_s: Option<f64>,
    /// Bytes sent by the interface per second.
    pub tx_bytes_per_s: Option<f64>,
    /// Packets received by the interface per second.
    pub rx_packets_per_s: Option<f64>,
    /// Packets sent by the interface per second.
    pub tx_packets_per_s: Option<f64>,
    /// Received packets that were dropped or had errors, per second.
    pub rx_drops_per_s: Option<f64>,
    /// Packets to be sent that were dropped or had errors, per second.
    pub tx_drops_per_s: Option<f64>,
}

/// Shares of time, 0 to 1, in which tasks were stalled (kernel documentation, accounting/psi); a share is `None` if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct PressureRates {
    /// Share of time in which some task waited for I/O.
    pub io_some: Option<f64>,
    /// Share of time in which all non-idle tasks waited for I/O.
    pub io_full: Option<f64>,
    /// Share of time in which some task waited for a CPU.
    pub cpu_some: Option<f64>,
    /// Share of time in which some task waited for memory.
    pub memory_some: Option<f64>,
}

/// Computes the rates between two readings; `None` unless `later` was taken after `earlier`.
#[must_use]
pub fn between(earlier: &MachineSnapshot, later: &MachineSnapshot) -> Option<Frame> {
    let interval_ns = later.clock_ns.checked_sub(earlier.clock_ns).filter(|ns| *ns > 0)?;
    let per = Per { seconds: interval_ns as f64 / NS_PER_S };
    let before: HashMap<&str, &Device> =
        earlier.devices.iter().map(|device| (device.name.as_str(), device)).collect();
    let layers: Vec<LayerRates> = later
        .devices
        .iter()
        .map(|device| {
            // Another device may have taken the name.
            let before = before.get(device.name.as_str()).filter(|before| before.number == device.number);
            layer(before.copied(), device, per)
        })
        .collect();
    let waits: HashMap<&str, f64> = later
        .devices
        .iter()
        .filter_map(|device| {
            let before = before.get(device.name.as_str())?;
            Some((device.name.as_str(), mean_wait_ns(&before.counters, &device.counters)?))
        })
        .collect();
    let processes = processes(earlier, later, per);
    let frame = Frame {
        at_ms: Some(later.at_ms),
        interval_ns: Some(interval_ns),
        cgroups: cgroups(earlier, later, per),
        guests: guests(earlier, later, &waits, per),
        processes,
        layers,
        interfaces: interfaces(earlier, later, per),
        pressure: pressure(earlier, later, per),
        percentiles: later.percentiles.clone(),
        remarks: later.remarks.clone(),
    };
    Some(frame)
}

/// Divides differences of counters by the length of the interval.
#[derive(Debug, Clone, Copy)]
struct Per {
    seconds: f64,
}

impl Per {
    /// Returns the increase of a counter per second; `None` if the counter decreased.
    fn second(self, earlier: u64, later: u64) -> Option<f64> {
        Some(since(earlier, later)? / self.seconds)
    }

    fn second_of(self, earlier: Option<u64>, later: Option<u64>) -> Option<f64> {
        self.second(earlier?, later?)
    }
}

fn since(earlier: u64, later: u64) -> Option<f64> {
    Some(later.checked_sub(earlier)? as f64)
}

/// Divides the increase of a sum by the increase of its count; `None` if either is unknown or the count did not increase.
fn mean(sum: Option<f64>, count: Option<f64>) -> Option<f64> {
    Some(sum? / count.filter(|count| *count > 0.0)?)
}

fn layer(before: Option<&Device>, device: &Device, per: Per) -> LayerRates {
    let known = LayerRates {
        name: device.name.clone(),
        title: device.title.clone(),
        kind: Some(device.kind),
        depth: device.depth,
        on: device.on.clone(),
        mounts: device.mounts.clone(),
        in_flight: Some(device.counters.in_flight as f64),
        ..LayerRates::default()
    };
    let Some(before) = before else { return known };
    let (a, b) = (&before.counters, &device.counters);
    let keeps_time = keeps_time(b);
    let mean_ms = |sums: (u64, u64), counts: (u64, u64)| {
        keeps_time.then_some(())?;
        // The counter is in milliseconds, so no increase means less than 1 ms, not 0.
        let sum = since(sums.0, sums.1).filter(|ms| *ms > 0.0);
        Some(mean(sum, since(counts.0, counts.1))? * NS_PER_MS)
    };
    let interval_ms = per.seconds * 1e3;
    let flush_ms = a.flush_ms.zip(b.flush_ms).and_then(|(a, b)| since(a, b));
    let flushes = a.flushes.zip(b.flushes).and_then(|(a, b)| since(a, b));
    LayerRates {
        read_iops: per.second(a.reads, b.reads),
        write_iops: per.second(a.writes, b.writes),
        read_bytes_per_s: per.second(a.read_sectors, b.read_sectors).map(|rate| rate * SECTOR),
        write_bytes_per_s: per.second(a.write_sectors, b.write_sectors).map(|rate| rate * SECTOR),
        read_latency_ns: mean_ms((a.read_ms, b.read_ms), (a.reads, b.reads)),
        write_latency_ns: mean_ms((a.write_ms, b.write_ms), (a.writes, b.writes)),
        read_p99_ns: percentile(before, device, RequestKind::Read),
        write_p99_ns: percentile(before, device, RequestKind::Write),
        device_latency_ns: device_latency(before, device),
        queue: since(a.weighted_ms, b.weighted_ms).filter(|_| keeps_time).map(|ms| ms / interval_ms),
        // The kernel counts in ticks, which may slightly exceed the interval.
        busy: since(a.busy_ms, b.busy_ms).filter(|_| keeps_time).map(|ms| (ms / interval_ms).min(1.0)),
        read_merges_per_s: per.second(a.read_merges, b.read_merges),
        write_merges_per_s: per.second(a.write_merges, b.write_merges),
        discard_iops: per.second_of(a.discards, b.discards),
        discard_bytes_per_s: per.second_of(a.discard_sectors, b.discard_sectors).map(|rate| rate * SECTOR),
        flush_iops: per.second_of(a.flushes, b.flushes),
        flush_latency_ns: mean(flush_ms, flushes).map(|ms| ms * NS_PER_MS),
        ..known
    }
}

/// Returns whether the driver records the times of I/Os; also true before the first I/O. md before Linux 5.14 only counts I/Os.
fn keeps_time(counters: &DeviceCounters) -> bool {
    let times = [counters.read_ms, counters.write_ms, counters.busy_ms, counters.weighted_ms];
    counters.reads + counters.writes == 0 || times.iter().any(|ms| *ms > 0)
}

/// Returns the mean latency of reads and writes together, in nanoseconds; `None` if unknown or without I/O.
fn mean_wait_ns(a: &DeviceCounters, b: &DeviceCounters) -> Option<f64> {
    keeps_time(b).then_some(())?;
    let ms = since(a.read_ms, b.read_ms)? + since(a.write_ms, b.write_ms)?;
    let ios = since(a.reads, b.reads)? + since(a.writes, b.writes)?;
    Some(mean(Some(ms), Some(ios))? * NS_PER_MS)
}

/// Returns the 99th percentile in nanoseconds of a device's reads or writes in the interval; `None` without I/O or if unknown.
fn percentile(before: &Device, device: &Device, direction: RequestKind) -> Option<f64> {
    let of = |device: &Device| {
        let latencies = device.latencies.iter().find(|latencies| latencies.direction == direction)?;
        Some(latencies.buckets.clone())
    };
    let later = of(device)?;
    let new = buckets::since(&of(before).unwrap_or_default(), &later)?;
    buckets::percentile_ns(&new, 0.99)
}

fn device_latency(before: &Device, device: &Device) -> Option<f64> {
    let total = |device: &Device| {
        let of =
            |sum: fn(&crate::raw::RequestLatencies) -> u64| device.latencies.iter().map(sum).sum::<u64>();
        (of(|latencies| latencies.device_ns), of(|latencies| latencies.device_ios))
    };
    let (earlier, later) = (total(before), total(device));
    mean(since(earlier.0, later.0), since(earlier.1, later.1))
}

fn processes(earlier: &MachineSnapshot, later: &MachineSnapshot, per: Per) -> Vec<ProcessRates> {
    let before: HashMap<u32, &Process> =
        earlier.processes.iter().map(|process| (process.pid, process)).collect();
    let rates = |process: &Process| {
        let earlier = before.get(&process.pid)?;
        let (a, b) = (earlier.io, process.io);
        // The kernel adds an ended child's counters of its whole life, so the increase is not the process's own.
        let is_its_own = earlier.children_faults == process.children_faults;
        let second = |a, b| per.second(a, b).filter(|_| is_its_own);
        (a != b).then(|| ProcessRates {
            pid: process.pid,
            name: process.name.clone(),
            cgroup: process.cgroup.clone(),
            read_bytes_per_s: second(a.read_bytes, b.read_bytes),
            write_bytes_per_s: second(a.write_bytes, b.write_bytes),
            read_calls_per_s: second(a.read_calls, b.read_calls),
            write_calls_per_s: second(a.write_calls, b.write_calls),
        })
    };
    let mut all: Vec<ProcessRates> = later.processes.iter().filter_map(rates).collect();
    all.sort_by(|one, other| {
        busiest(one.read_bytes_per_s, one.write_bytes_per_s, other.read_bytes_per_s, other.write_bytes_per_s)
            .then(one.pid.cmp(&other.pid))
    });
    all
}

/// Orders rows by the sum of bytes read and written, the largest first.
fn busiest(
    read: Option<f64>,
    write: Option<f64>,
    other_read: Option<f64>,
    other_write: Option<f64>,
) -> std::cmp::Ordering {
    let sum = |read: Option<f64>, write: Option<f64>| read.unwrap_or(0.0) + write.unwrap_or(0.0);
    sum(other_read, other_write).total_cmp(&sum(read, write))
}

fn cgroups(earlier: &MachineSnapshot, later: &MachineSnapshot, per: Per) -> Vec<CgroupRates> {
    let names: HashMap<&str, &str> =
        later.devices.iter().map(|device| (device.number.as_str(), device.title.as_str())).collect();
    let before: HashMap<(&str, &str), &CgroupIo> =
        earlier.cgroups.iter().map(|group| ((group.path.as_str(), group.device.as_str()), group)).collect();
    let rates = |group: &CgroupIo| {
        let before = before.get(&(group.path.as_str(), group.device.as_str()))?;
        (*before != group).then(|| CgroupRates {
            path: group.path.clone(),
            device: names.get(group.device.as_str()).map_or(group.device.as_str(), |name| name).to_owned(),
            read_iops: per.second(before.reads, group.reads),
            write_iops: per.second(before.writes, group.writes),
            read_bytes_per_s: per.second(before.read_bytes, group.read_bytes),
            write_bytes_per_s: per.second(before.write_bytes, group.write_bytes),
        })
    };
    let mut all: Vec<CgroupRates> = later.cgroups.iter().filter_map(rates).collect();
    all.sort_by(|one, other| {
        busiest(one.read_bytes_per_s, one.write_bytes_per_s, other.read_bytes_per_s, other.write_bytes_per_s)
            .then_with(|| one.path.cmp(&other.path))
    });
    all
}

fn guests(
    earlier: &MachineSnapshot,
    later: &MachineSnapshot,
    waits: &HashMap<&str, f64>,
    per: Per,
) -> Vec<GuestRates> {
    let mut rows = Vec::new();
    for guest in &later.guests {
        let before = earlier.guests.iter().find(|before| before.pid == guest.pid);
        let disks = guest_disks(before, guest, waits, per);
        let io = |snapshot: &MachineSnapshot| {
            snapshot.processes.iter().find(|process| process.pid == guest.pid).map(|process| process.io)
        };
        let io = io(earlier).zip(io(later));
        let sum = |figure: fn(&GuestRates) -> Option<f64>| {
            let all: Option<Vec<f64>> = disks.iter().map(figure).collect();
            all.filter(|all| !all.is_empty()).map(|all| all.iter().sum())
        };
        rows.push(GuestRates {
            guest: guest.name.clone(),
            pid: guest.pid,
            read_iops: sum(|disk| disk.read_iops),
            write_iops: sum(|disk| disk.write_iops),
            read_bytes_per_s: io.and_then(|(a, b)| per.second(a.read_bytes, b.read_bytes)),
            write_bytes_per_s: io.and_then(|(a, b)| per.second(a.write_bytes, b.write_bytes)),
            ..GuestRates::default()
        });
        // If the guest did no I/O, the device's latency is that of other users.
        let is_idle = io.is_some_and(|(a, b)| (a.read_bytes, a.write_bytes) == (b.read_bytes, b.write_bytes));
        rows.extend(
            disks.into_iter().map(|disk| GuestRates {
                host_latency_ns: disk.host_latency_ns.filter(|_| !is_idle),
                ..disk
            }),
        );
    }
    rows
}

/// Returns a row per disk of a guest: the disks that QEMU counts or, without QMP, the disks on its command line.
fn guest_disks(
    before: Option<&QemuGuest>,
    guest: &QemuGuest,
    waits: &HashMap<&str, f64>,
    per: Per,
) -> Vec<GuestRates> {
    let row = |disk: &str, device: Option<&str>| GuestRates {
        guest: guest.name.clone(),
        pid: guest.pid,
        disk: Some(disk.to_owned()),
        device: device.map(str::to_owned),
        host_latency_ns: device.and_then(|device| waits.get(device).copied()),
        ..GuestRates::default()
    };
    let Some(counted) = &guest.qemu else {
        return guest.disks.iter().map(|disk| row(&disk.path, disk.device.as_deref())).collect();
    };
    let earlier = |name: &str| before?.qemu.as_ref()?.iter().find(|disk| disk.name == name);
    let device = |path: Option<&str>| {
        let named = guest.disks.iter().find(|disk| Some(disk.path.as_str()) == path);
        // After a snapshot, the overlay's name is not on the command line.
        let only = if let [only] = &guest.disks[..] { Some(only) } else { None };
        named.or(only)?.device.as_deref()
    };
    counted
        .iter()
        .map(|disk| {
            let path = disk.path.as_deref();
            let row = row(path.unwrap_or(&disk.name), device(path));
            earlier(&disk.name).map_or(row.clone(), |earlier| counted_disk(row, earlier, disk, per))
        })
        .collect()
}

fn counted_disk(row: GuestRates, a: &QemuDisk, b: &QemuDisk, per: Per) -> GuestRates {
    let sum = |one: Option<f64>, other: Option<f64>| Some(one? + other?);
    let ns = sum(since(a.read_ns, b.read_ns), since(a.write_ns, b.write_ns));
    let ios = sum(since(a.reads, b.reads), since(a.writes, b.writes));
    let guest_latency_ns = mean(ns, ios);
    let above = guest_latency_ns.zip(row.host_latency_ns).map(|(guest, host)| guest - host);
    GuestRates {
        read_iops: per.second(a.reads, b.reads),
        write_iops: per.second(a.writes, b.writes),
        read_bytes_per_s: per.second(a.read_bytes, b.read_bytes),
        write_bytes_per_s: per.second(a.write_bytes, b.write_bytes),
        guest_latency_ns,
        // A negative difference means that both are means over different I/Os: the host's cache served the guest, or others use the device.
        above_latency_ns: above.filter(|ns| *ns >= 0.0),
        ..row
    }
}

fn interfaces(earlier: &MachineSnapshot, later: &MachineSnapshot, per: Per) -> Vec<InterfaceRates> {
    let before: HashMap<&str, &NicActivity> =
        earlier.interfaces.iter().map(|(name, totals)| (name.as_str(), totals)).collect();
    let rates = |name: &str, b: &NicActivity| {
        let name = name.to_owned();
        let Some(a) = before.get(name.as_str()) else {
            return InterfaceRates { name, ..InterfaceRates::default() };
        };
        InterfaceRates {
            name,
            rx_bytes_per_s: per.second(a.rx_bytes, b.rx_bytes),
            tx_bytes_per_s: per.second(a.tx_bytes, b.tx_bytes),
            rx_packets_per_s: per.second(a.rx_packets, b.rx_packets),
            tx_packets_per_s: per.second(a.tx_packets, b.tx_packets),
            rx_drops_per_s: per.second(a.rx_drops, b.rx_drops),
            tx_drops_per_s: per.second(a.tx_drops, b.tx_drops),
        }
    };
    later.interfaces.iter().map(|(name, totals)| rates(name, totals)).collect()
}

fn pressure(earlier: &MachineSnapshot, later: &MachineSnapshot, per: Per) -> Option<PressureRates> {
    let (a, b) = (earlier.pressure?, later.pressure?);
    let share = |a: u64, b: u64| Some((since(a, b)? / (per.seconds * NS_PER_S)).min(1.0));
    Some(PressureRates {
        io_some: share(a.io_some_ns, b.io_some_ns),
        io_full: share(a.io_full_ns, b.io_full_ns),
        cpu_some: share(a.cpu_some_ns, b.cpu_some_ns),
        memory_some: share(a.memory_some_ns, b.memory_some_ns),
    })
}
