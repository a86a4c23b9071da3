//! The results of a measurement, as sent over the wire and kept in the store.
//!
//! Values that are not known are absent. Times are in nanoseconds, unless the field's name ends in another unit.

mod edges;
mod fleet_member;
mod imported_metrics;
mod layer_counters;
mod merge;
mod net_stats;
mod pace;
mod pacing;
mod process;
mod replayed;
mod storage;
mod tally;
mod target_record;
mod timeouts;
mod watched;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use edges::WindowEdges;
pub use fleet_member::{FleetMember, FleetMode, FleetStart};
pub use imported_metrics::{Dated, ImportSource, ImportedMetric, ImportedMetrics, RunSource};
pub use layer_counters::LayerCounters;
pub use merge::LoadRelation;
pub use net_stats::{Carried, DirectionSample, Flow, Gap, Interface, NicActivity, Probes};
pub use pace::CpuPace;
pub use pacing::Pacing;
pub use process::ProcessCounts;
pub use replayed::{ReplayPhase, Replayed};
pub use storage::{Allocation, Mapper, PageCache, SampledContent};
pub use tally::{Tallies, Tally};
pub use target_record::TargetRecord;
pub use timeouts::{Timeout, TimeoutKind};
pub use watched::{Blackout, DeviceGaps, Happened, IoClass, Occurrence, Source, Standstill};

use crate::verify_errors::Findings;
use crate::words::words;
use crate::workload::{IoEngine, SteadyResult};

/// Results of one interval of a measurement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// End of the interval, from the start of the measured window, by the agent's clock.
    pub at_ns: u64,
    /// Length of the interval; the last one may be shorter than the others.
    pub duration_ns: u64,
    /// I/Os completed in the interval, by direction.
    pub tallies: Tallies,
    /// Age of the oldest I/O in flight at the end of the interval, over all jobs. Absent if no I/O was in flight, and for network streams.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub oldest_ns: Option<u64>,
    /// Number of I/Os that failed in the interval.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub failed: u64,
    /// Network streams by direction, as seen by the client; empty without streams.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub directions: Vec<DirectionSample>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// CPU time of a process or of a group of threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuTime {
    /// CPU time in user mode.
    pub user_ns: u64,
    /// CPU time in the kernel.
    pub system_ns: u64,
}

impl CpuTime {
    /// Returns the user and system time together, in nanoseconds.
    #[must_use]
    pub const fn total_ns(self) -> u64 {
        self.user_ns + self.system_ns
    }
}

/// I/Os that failed in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorCount {
    /// The error's name: `EIO`, `ENOSPC`, `short read` (fewer bytes than requested), `empty read` (none: past the end).
    pub error: String,
    /// `read`, `write`, `trim` or `sync`.
    pub direction: String,
    /// The number of failures in the warm-up, in the window and in the flush after it.
    pub count: u64,
    /// The number of failures in the warm-up.
    pub in_ramp: u64,
    /// Byte offset of the first failure; 0 for `sync` and for network streams, which have no offset.
    pub first_offset: u64,
    /// Byte offset of the last failure. Absent for the flush after the window, for network streams, and in records of versions that did not
    /// keep it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_offset: Option<u64>,
}

impl ErrorCount {
    /// Returns the number of failures after the warm-up: in the window and in the flush after it.
    #[must_use]
    pub const fn in_window(&self) -> u64 {
        self.count.saturating_sub(self.in_ramp)
    }

    /// Adds an error to the list `known`, which has one entry per error name and direction. For a known error, counts are added and
    /// `last_offset` is replaced.
    pub fn add(known: &mut Vec<Self>, error: &Self) {
        let same = |one: &&mut Self| one.error == error.error && one.direction == error.direction;
        match known.iter_mut().find(same) {
            Some(one) => {
                one.count += error.count;
                one.in_ramp += error.in_ramp;
                one.last_offset = error.last_offset;
            }
            None => known.push(error.clone()),
        }
    }
}

words! {
    /// The reason why a measurement ended early.
    Stop, "stop" {
        /// An I/O was in flight longer than `stall_timeout`.
        Stalled = "stalled",
        /// I/Os in flight at the end of the window did not complete within the time allowed after it. Not used for a workload with
        /// `blackout`, which records this as a period without a completed I/O.
        Unanswered = "unanswered",
        /// `max_errors` I/Os failed.
        Errors = "errors",
        /// The agent or its guest disappeared; the figures cover the time before that.
        Gone = "gone",
    }
}

/// The result that an agent returns for one measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Length of the measured window by the agent's clock, without warm-up.
    pub duration_ns: u64,
    /// I/Os completed in the window, by direction.
    pub tallies: Tallies,
    /// Distance of the window's start and end from the last completion before each. Absent if unknown, such as without a completion in the
    /// warm-up or in the window, for several guests together, and for work other than block I/O.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub edges: Option<WindowEdges>,
    /// I/Os completed in the warm-up; no other count includes them.
    pub ramp_ios: u64,
    /// CPU time of the load generator's process in the window.
    pub cpu: CpuTime,
    /// The kernel's counters for the load generator's process in the window. Absent if unknown, such as for several guests together, and in
    /// records of versions that did not keep them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub counts: Option<ProcessCounts>,
    /// I/O errors in the warm-up, in the window and in the flush after it, by error and direction.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub errors: Vec<ErrorCount>,
    /// Deviations from the requested settings, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
    /// The I/O engine used, never `auto`. Absent if none was used, if concurrent loads used different ones, and in records of versions that
    /// did not keep it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ioengine: Option<IoEngine>,
    /// Delays of I/Os against their schedule in an open loop; absent in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pacing: Option<Pacing>,
    /// Fidelity of a replay to its trace: delays, and I/Os left out; absent without a replay.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replayed: Option<Replayed>,
    /// Reason for an early end of the measurement; absent if it ran to its end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stop: Option<Stop>,
    /// Result of the workload's `steadystate`; absent without one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub steadystate: Option<SteadyResult>,
    /// Periods without a completed I/O in order of time, at most the 500 longest for each class (reads, writes with trims, flushes). Absent if they
    /// are not recorded, or if a worker did not return.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub blackouts: Option<Vec<Blackout>>,
    /// Periods in which no I/O completed in the block devices below the target on the agent's machine, from the bottom up; empty if not recorded.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub devices: Vec<DeviceGaps>,
    /// Result of verification; absent if the workload does not verify.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verify: Option<Findings>,
    /// Activity of the agent's machine over the window; for a guest this includes steal time, for another machine its disks. Absent for the local
    /// agent, which runs on the host.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub inside: Option<HostActivity>,
    /// Time from the scheduled start of the load until its first worker issued an I/O. Absent if none did, and for network streams.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_io_ns: Option<u64>,
    /// Duration of the flush after the window, which does not count toward the window. Absent without such a flush, as when nothing was
    /// written or an I/O failed, and if the flush failed or is not supported.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub flush_ns: Option<u64>,
    /// Sampled bytes of the target in the page cache of the agent's machine, before and after direct I/O. Absent if not sampled, such as
    /// for buffered I/O, or if the kernel does not report residency.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub page_cache: Option<PageCache>,
    /// Network statistics; absent for storage.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub carried: Option<Carried>,
    /// Results of each job over the time in which it ran, if several jobs ran concurrently; the other figures cover all jobs. Empty for a single
    /// job.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub jobs: Vec<Share>,
}

/// The caches that were dropped before a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheDrop {
    /// All caches of the machine, dropped via /proc/sys/vm/drop_caches after a sync.
    Machine,
    /// The caches of the target's own files and devices that could be opened, dropped with posix_fadvise after a sync of each.
    Target {
        /// Total size in bytes of the target's files and devices.
        of: u64,
        /// Bytes of these files and devices that were still cached afterwards; absent if one of them could not be opened, or if the kernel
        /// does not report residency.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        left: Option<u64>,
    },
    /// No file or device could be opened, or the cache of one could not be dropped.
    Nothing,
}

/// The activity of one block layer over a window, from /proc/diskstats.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskActivity {
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Reads merged with an adjacent request.
    pub read_merges: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Writes merged with an adjacent request.
    pub write_merges: u64,
    /// Fraction of the window in which the device was busy, 0 to 1.
    pub busy: f64,
    /// Mean time of reads and writes from queueing to completion; absent without I/O.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mean_wait_ns: Option<f64>,
    /// Total time of all reads from queueing to completion. Absent in records of versions that did not keep it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read_wait_ns: Option<u64>,
    /// Total time of all writes from queueing to completion. Absent in records of versions that did not keep it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub write_wait_ns: Option<u64>,
    /// Flushes; absent if the kernel does not count them: for devices without request queues (dm, md), for partitions, and before Linux 5.5.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub flushes: Option<DiskFlushes>,
}

/// Flushes of a block device over a window, and the cache settings that decide whether the kernel sends flushes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskFlushes {
    /// Flush commands that the device completed. The kernel sends none to a device without a volatile cache, and merges flushes that are pending at
    /// the same time. Writes with FUA do not count.
    pub done: u64,
    /// Total time of the completed flush commands.
    pub wait_ns: u64,
    /// True if the kernel treats the device's cache as volatile (queue/write_cache); absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volatile_cache: Option<bool>,
    /// True if the kernel sends durable writes with FUA (queue/fua) instead of as a write and a flush; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fua: Option<bool>,
    /// Writes with FUA that the device completed, each durable without a flush; absent if they were not counted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fua_writes: Option<u64>,
}

/// The CPU time of all CPUs of a machine over a window, from /proc/stat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostCpu {
    /// CPU time in user mode, at any nice level; includes the time in guests.
    pub user_ns: u64,
    /// CPU time in the kernel, without interrupts.
    pub system_ns: u64,
    /// CPU time in hard and soft interrupts.
    pub irq_ns: u64,
    /// Idle time with I/O outstanding. Absent if the counter ran backwards, which proc(5) warns about.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub iowait_ns: Option<u64>,
    /// Idle time without I/O outstanding.
    pub idle_ns: u64,
    /// Steal time: the hypervisor below this machine ran something else.
    pub steal_ns: u64,
    /// CPU time in guests; also part of `user_ns`.
    pub guest_ns: u64,
}

impl HostCpu {
    /// Returns the CPU time spent in user mode, guests, the kernel and interrupts; idle, I/O wait and steal time do not count.
    #[must_use]
    pub const fn busy_ns(&self) -> u64 {
        self.user_ns + self.system_ns + self.irq_ns
    }
}

/// Pressure stall times over a window, from /proc/pressure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pressure {
    /// Time in which at least one task waited for I/O.
    pub io_some_ns: u64,
    /// Time in which all non-idle tasks waited for I/O.
    pub io_full_ns: u64,
    /// Time in which at least one task waited for a CPU.
    pub cpu_some_ns: u64,
    /// Time in which at least one task waited for memory.
    pub memory_some_ns: u64,
}

/// The activity of a machine over an interval or a whole measurement.
///
/// A part is absent if one of its counters ran backwards.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostActivity {
    /// End of the interval, from the start of the measured window, by the clock of the observed machine.
    pub at_ns: u64,
    /// Length of the interval.
    pub duration_ns: u64,
    /// Activity of each block device below the target, by kernel name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub disks: BTreeMap<String, DiskActivity>,
    /// Activity of each network interface on the packets' path, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub nics: BTreeMap<String, NicActivity>,
    /// CPU time of all CPUs together.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu: Option<HostCpu>,
    /// Pressure stall times; absent if the kernel has no PSI.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pressure: Option<Pressure>,
    /// CPU time of the threads of QEMU and of storage daemons, by role (`vcpu`, `iothread`, `worker`, `main`), and of storage servers as a whole, by
    /// name (`ceph-osd`, `tgtd`). Empty if none of them runs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub guest_threads: BTreeMap<String, CpuTime>,
    /// CPU time of kernel threads that serve the layers below the target, by name: `loop0`, `jbd2/vda-8`. A kworker counts under its last task, such
    /// as `kworker/loop0`; all high-priority kworkers, which serve any device, count under `kworker`. Only for a whole measurement.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub kernel_threads: BTreeMap<String, CpuTime>,
    /// CPU time of the programs on this host that take part in the I/O: the load generator, the server of a network test, QEMU and storage
    /// daemons. Only for a whole measurement; absent if one of these programs is not observed, such as the daemon of a FUSE filesystem.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub programs_ns: Option<u64>,
    /// CPU time of all kernel threads, including `kernel_threads`. Only for a whole measurement.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernel_ns: Option<u64>,
    /// CPU time of iotax's own monitoring, without the load generator. Only for a whole measurement.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub watching_ns: Option<u64>,
    /// CPU frequency and throttling. Only for a whole measurement.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pace: Option<CpuPace>,
    /// Activity of each block device below the target from the end of the window to the end of the flush. Only for a whole measurement that ended
    /// with a flush.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub flushed: BTreeMap<String, DiskActivity>,
}

/// I/Os of one direction that QEMU's block layer counted for a guest's disk over a window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockTally {
    /// I/Os completed.
    pub ios: u64,
    /// Bytes read or written; 0 for flushes.
    pub bytes: u64,
    /// Total time of all I/Os, each from the arrival of the guest's request in QEMU to its completion.
    pub total_ns: u64,
    /// Latency histogram of QEMU: the upper bound of each bin in nanoseconds (`None` for the last bin) and the number of I/Os in the bin.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub latency: Vec<(Option<u64>, u64)>,
}

/// Activity of QEMU's block layer for the guest's disk over a window, from query-blockstats.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockStats {
    /// Reads that the guest issued.
    pub read: BlockTally,
    /// Writes that the guest issued.
    pub write: BlockTally,
    /// Flushes that the guest issued.
    pub flush: BlockTally,
}

/// Results of one of several loads that ran concurrently (guests, network servers, a neighbour, jobs), over their common window; for a job,
/// over the part of the window in which the job ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// `1`, `2`, ... for the guests of a target; the address of a network server; otherwise the name of the neighbour or job.
    pub name: String,
    /// Time over which rates are computed. For a guest, network server or neighbour, the total length of the intervals that lie completely
    /// within the common window; for a job, the part of the window in which it ran.
    pub duration_ns: u64,
    /// I/Os completed in this time, by direction.
    pub tallies: Tallies,
}

/// Total time that a run spent in one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunPhase {
    /// The phase: `check` (before anything is touched), `provision`, `boot`, `fill`, `prepare` (before a measurement), `measure` (warm-up and
    /// window), `finish`, `undo`.
    pub name: String,
    /// Total time spent in the phase.
    pub duration_ns: u64,
}

/// Result of running one workload on one target in one round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// The target's name.
    pub target: String,
    /// The workload's name.
    pub workload: String,
    /// The number of the round, from 1.
    pub round: u32,
    /// Position of the measurement in the run, from 1.
    pub order: u32,
    /// Start of the measured window in milliseconds since 1970-01-01 UTC, by the host's clock.
    pub started_at_ms: u64,
    /// Length of the measured window by the host's clock, as observed by the runner; absent if it was not observed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host_duration_ns: Option<u64>,
    /// Result from the agent that ran the load.
    pub outcome: Outcome,
    /// Results of each interval, in order.
    #[serde(default)]
    pub samples: Vec<Sample>,
    /// Activity of the host over the measured window; absent if not recorded: the agent on another machine reports that machine's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<HostActivity>,
    /// Activity of the machine with the target's storage in each interval, in order.
    #[serde(default)]
    pub host_samples: Vec<HostActivity>,
    /// Caches dropped before the measurement on the target's machine; for a guest, on the guest's host. Absent if none was to be dropped.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host_cache: Option<CacheDrop>,
    /// Caches dropped before the measurement within the guest; absent without a guest, or if none was to be dropped.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub guest_cache: Option<CacheDrop>,
    /// Results of each guest or network server, if several were measured concurrently; `outcome` then covers all of them. Otherwise empty.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub shares: Vec<Share>,
    /// Load of the target's neighbour in the same window; absent without a neighbour.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub neighbour: Option<Share>,
    /// Counters of QEMU's block layer for the guest's disk; absent if not recorded, such as without a guest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub qemu: Option<BlockStats>,
    /// Counts of the target's layers that keep counters, from the bottom up. A layer whose counters could not be read is left out.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub counters: Vec<LayerCounters>,
    /// Periods in which no I/O completed in the host's block devices below a guest's disk, from the bottom up, by the host's clock.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub devices: Vec<DeviceGaps>,
    /// Periods in which the clock of the guest or other machine did not advance, in order; only in a watch.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub standstills: Vec<Standstill>,
    /// Events during a watch in order of time: commands, marks set by the user, and observed changes of devices, links and guests.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub occurrences: Vec<Occurrence>,
    /// Metrics reported by the source of an imported measurement; `outcome` then holds only the values that the source provides.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stated: Option<ImportedMetrics>,
    /// Start of the measurement relative to the fleet's common start; absent unless fleet members start together.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fleet: Option<FleetStart>,
}

impl Measurement {
    /// Returns the activity of the machine that holds the target, the host or another machine, over the measured window. `None` if it was
    /// not recorded.
    #[must_use]
    pub fn machine(&self) -> Option<&HostActivity> {
        self.host.as_ref().or(self.outcome.inside.as_ref())
    }

    /// Returns the samples that are at least half as long as the first sample. This skips the short last sample of a window that ended
    /// early.
    pub fn whole_samples(&self) -> impl Iterator<Item = &Sample> {
        let whole = self.samples.first().map_or(0, |sample| sample.duration_ns / 2);
        self.samples.iter().filter(move |sample| sample.duration_ns >= whole)
    }
}

/// The machine that a run was measured on. Values that could not be read are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Environment {
    /// Host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Name of the user who started the run; under sudo, of the user who called sudo.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Name and version of the distribution.
    pub os: Option<String>,
    /// CPU model.
    pub cpu_model: Option<String>,
    /// Revision of the CPU's microcode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub microcode: Option<String>,
    /// Number of CPUs online.
    pub cpus: Option<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Frequency governor of CPU 0.
    pub governor: Option<String>,
    /// The kernel's clocksource.
    pub clocksource: Option<String>,
    /// The kernel's report on CPU vulnerabilities, by name.
    pub mitigations: BTreeMap<String, String>,
    /// The hypervisor below this machine, if it can be detected.
    pub hypervisor: Option<String>,
    /// QEMU's version.
    pub qemu: Option<String>,
    /// The accelerator of guests: `kvm` or `tcg`.
    pub accel: Option<String>,
    /// The reason for choosing this accelerator.
    pub accel_reason: Option<String>,
    /// iotax's version and commit.
    pub tool: Option<String>,
    /// The engine's overhead: CPU nanoseconds per I/O with the null backend. A lower bound for every latency.
    pub floor_ns_per_io: Option<u64>,
}

#[cfg(test)]
mod tests;
