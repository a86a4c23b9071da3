//! What was measured: plain data, as it goes over the wire and into the store.
//!
//! What is not known is absent. Times are nanoseconds.

mod imported_metrics;
mod net_stats;
mod pace;
mod process;
mod storage;
mod tally;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use imported_metrics::{Figure, Source, Stated};
pub use net_stats::{Carried, Flow, Gap, Interface, NicActivity, Probes};
pub use pace::CpuPace;
pub use process::ProcessCounts;
pub use storage::{Allocation, Found, Mapper, PageCache};
pub use tally::{Tallies, Tally};

use crate::target::Layer;
use crate::verify_errors::Findings;
use crate::words::words;
use crate::workload::IoEngine;

/// One interval of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// End of the interval, from the start of the measured window, by the agent's clock.
    pub at_ns: u64,
    /// Length of the interval.
    pub duration_ns: u64,
    /// What was completed in it.
    pub tallies: Tallies,
    /// How long the oldest I/O in flight at its end had been there, over all jobs. Absent if none was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub oldest_ns: Option<u64>,
}

/// CPU time of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuTime {
    /// In user mode.
    pub user_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
}

impl CpuTime {
    /// Both together.
    #[must_use]
    pub const fn total_ns(self) -> u64 {
        self.user_ns + self.system_ns
    }
}

/// I/Os that failed in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorCount {
    /// The name of the error: `EIO`, `ENOSPC`, `short read` (fewer bytes than asked), `empty read` (none: beyond the end).
    pub error: String,
    /// `read`, `write`, `trim` or `sync`.
    pub direction: String,
    /// How many.
    pub count: u64,
    /// Byte offset of the first; 0 for `sync`, which has no place.
    pub first_offset: u64,
    /// Byte offset of the last. Absent in records of versions that did not keep it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_offset: Option<u64>,
}

impl ErrorCount {
    /// Adds errors to those that are known: of one kind and direction there is one count.
    pub fn add(known: &mut Vec<Self>, error: &Self) {
        let same = |one: &&mut Self| one.error == error.error && one.direction == error.direction;
        match known.iter_mut().find(same) {
            Some(one) => {
                one.count += error.count;
                one.last_offset = error.last_offset;
            }
            None => known.push(error.clone()),
        }
    }
}

/// How an open loop kept its schedule, over all jobs, from its start to the window's end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pacing {
    /// I/Os that were due in the measured window.
    pub due: u64,
    /// I/Os begun in the window that found every slot of their job taken when they were due.
    pub delayed: u64,
    /// The longest that one of those waited for its start.
    pub longest_delay_ns: u64,
    /// I/Os that were due by the window's end and had not begun.
    pub backlog: u64,
    /// How long the oldest of those had waited.
    pub backlog_ns: u64,
}

impl Pacing {
    /// Two schedules that were kept at the same time, as one.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            due: self.due + other.due,
            delayed: self.delayed + other.delayed,
            longest_delay_ns: self.longest_delay_ns.max(other.longest_delay_ns),
            backlog: self.backlog + other.backlog,
            backlog_ns: self.backlog_ns.max(other.backlog_ns),
        }
    }
}

words! {
    /// Why a measurement ended before its time.
    Stop, "stop" {
        /// An I/O was in flight for longer than `stall_timeout`.
        Stalled = "stalled",
        /// `max_errors` I/Os had failed.
        Errors = "errors",
    }
}

/// What an agent says of one finished measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Length of the measured window by the agent's clock, warm-up excluded.
    pub duration_ns: u64,
    /// Totals of the window.
    pub tallies: Tallies,
    /// I/Os completed in the warm-up, which count nowhere else.
    pub ramp_ios: u64,
    /// CPU time of the engine's process in the window.
    pub cpu: CpuTime,
    /// What the kernel counted of that process in the window. Absent of several guests together and in records of versions that
    /// did not keep it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub counts: Option<ProcessCounts>,
    /// Errors of warm-up and window.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub errors: Vec<ErrorCount>,
    /// What was done otherwise than asked, in words.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
    /// What did the I/O: never `auto`. Absent in records of versions that did not keep it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ioengine: Option<IoEngine>,
    /// Absent in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pacing: Option<Pacing>,
    /// Why it ended before its time; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stop: Option<Stop>,
    /// What checking blocks found; absent for a workload that does not verify.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verify: Option<Findings>,
    /// What the agent's own machine did over the window, as it sees itself: in a guest steal and guest time, on another
    /// machine its disks too. Absent for the local agent, whose machine is the host.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub inside: Option<HostActivity>,
    /// How long the target took to make safe what was written to it, after the window: one flush, which is no part of it.
    /// Absent where there was none: nothing was written or something failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub flush_ns: Option<u64>,
    /// What direct I/O left in the page cache of the agent's machine; absent for I/O that was to go through it, and where
    /// the kernel does not tell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub page_cache: Option<PageCache>,
    /// What only a network's measurement has.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub carried: Option<Carried>,
    /// What each of several jobs did that ran at once, over the time in which it ran; the totals are of all of them. Else
    /// empty.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub jobs: Vec<Share>,
}

/// How far caches could be dropped before a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheDrop {
    /// The whole page cache, by /proc/sys/vm/drop_caches after a sync.
    PageCache,
    /// This file's pages only, by posix_fadvise after a sync.
    FileOnly,
    /// Not at all.
    Nothing,
}

/// What one block layer did over a window, from /proc/diskstats.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskActivity {
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Reads merged with a neighbour.
    pub read_merges: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Writes merged with a neighbour.
    pub write_merges: u64,
    /// Share of the window in which the device had work, 0 to 1.
    pub busy: f64,
    /// Mean time from queueing to completion; absent without I/O.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mean_wait_ns: Option<f64>,
    /// That time of all reads, summed. Absent in records of versions that did not keep it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read_wait_ns: Option<u64>,
    /// See `read_wait_ns`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub write_wait_ns: Option<u64>,
}

/// What the host's CPUs did over a window, from /proc/stat: summed over all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCpu {
    /// User and nice time; guests' time is part of it.
    pub user_ns: u64,
    /// Kernel time.
    pub system_ns: u64,
    /// Hard and soft interrupts.
    pub irq_ns: u64,
    /// Idle with I/O outstanding. Absent where the kernel took some of it back: it books idle time as one or the
    /// other by what is outstanding at the moment of reading, so this counter alone may fall (proc(5)).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub iowait_ns: Option<u64>,
    /// Idle.
    pub idle_ns: u64,
    /// Taken by the hypervisor beneath this machine.
    pub steal_ns: u64,
    /// Time in guests, which `user_ns` contains too.
    pub guest_ns: u64,
}

impl HostCpu {
    /// Time in which a CPU of this machine worked: for programs, guests, the kernel and interrupts.
    #[must_use]
    pub const fn busy_ns(&self) -> u64 {
        self.user_ns + self.system_ns + self.irq_ns
    }
}

/// Pressure stall times over a window, from /proc/pressure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pressure {
    /// Some task waited for I/O.
    pub io_some_ns: u64,
    /// Every task waited for I/O.
    pub io_full_ns: u64,
    /// Some task waited for a CPU.
    pub cpu_some_ns: u64,
    /// Some task waited for memory.
    pub memory_some_ns: u64,
}

/// What the machine did over one interval or over a whole measurement.
///
/// A counter that ran backwards makes its part absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostActivity {
    /// End of the interval, from the start of the measured window, by the host's clock.
    pub at_ns: u64,
    /// Length of the interval.
    pub duration_ns: u64,
    /// By block device beneath the target.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub disks: BTreeMap<String, DiskActivity>,
    /// By network interface that the packets pass.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub nics: BTreeMap<String, NicActivity>,
    /// All CPUs together.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu: Option<HostCpu>,
    /// Absent where the kernel has no PSI.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pressure: Option<Pressure>,
    /// CPU time of the guest process's threads, by role: `vcpu`, `iothread`, `worker`, `main`. Empty for host targets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub guest_threads: BTreeMap<String, CpuTime>,
    /// CPU time of kernel threads that serve the layers beneath the target, by name: `loop0`, `jbd2/vda-8`; of
    /// kworkers by what they did last, `kworker/loop0`, and `kworker` for those of high priority, which serve all devices.
    /// Only of a whole measurement.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub kernel_threads: BTreeMap<String, CpuTime>,
    /// CPU time of all the kernel's threads, those of `kernel_threads` among them. Only of a whole measurement.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernel_ns: Option<u64>,
    /// CPU time of iotax itself for watching, beside what makes the load. Only of a whole measurement.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub watching_ns: Option<u64>,
    /// How fast the CPUs ran. Only of a whole measurement.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pace: Option<CpuPace>,
    /// By block device beneath the target, from the end of the window until what was written had been flushed. Only of a whole
    /// measurement that ended in a flush.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub flushed: BTreeMap<String, DiskActivity>,
}

/// I/Os of one direction as QEMU's block layer saw them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockTally {
    /// I/Os completed.
    pub ios: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Time from the guest's request reaching QEMU to its completion, summed.
    pub total_ns: u64,
    /// Requests by that time: each bin's upper bound in nanoseconds, the last one's absent, and its count.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub latency: Vec<(Option<u64>, u64)>,
}

/// What QEMU's block layer did for the guest's disk over a window, by query-blockstats.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockStats {
    /// Reads.
    pub read: BlockTally,
    /// Writes.
    pub write: BlockTally,
    /// Flushes.
    pub flush: BlockTally,
}

/// What one of several that ran at once did in the window in which all of them did; of a job beside others, in the part of the
/// window in which it ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// `1`, `2`, ... for the guests of a target, a neighbour's or a job's name for these.
    pub name: String,
    /// Length of that window, as far as whole intervals of this one lie in it; the tallies' rates refer to it.
    pub duration_ns: u64,
    /// What was completed in it.
    pub tallies: Tallies,
}

/// A stretch of a run's wall time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// What was done: `provision`, `boot`, `fill`, `prepare` (before a measurement), `measure` (warm-up and window), `finish`.
    pub name: String,
    /// How long, summed over all times it was done.
    pub duration_ns: u64,
}

/// One execution of one cell, complete.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// The target's name.
    pub target: String,
    /// The workload's name.
    pub workload: String,
    /// The round, from 1.
    pub round: u32,
    /// The place within the run's order, from 1.
    pub order: u32,
    /// When the measured window began, in milliseconds since 1970-01-01 UTC, by the host's clock.
    pub started_at_ms: u64,
    /// The measured window by the host's clock, as far as it can be seen from outside.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host_duration_ns: Option<u64>,
    /// What the agent measured.
    pub outcome: Outcome,
    /// One entry per interval.
    #[serde(default)]
    pub samples: Vec<Sample>,
    /// The host over the whole window; absent for a target on another machine, which its own agent watches.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<HostActivity>,
    /// The machine by interval.
    #[serde(default)]
    pub host_samples: Vec<HostActivity>,
    /// How far caches were dropped before it: on the host or other machine that the target is on, and in the guest for a guest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host_cache: Option<CacheDrop>,
    /// See `host_cache`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub guest_cache: Option<CacheDrop>,
    /// Each guest's part, where several ran at once; `outcome` is then all of them together. Else empty.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub shares: Vec<Share>,
    /// What the target's neighbour did meanwhile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub neighbour: Option<Share>,
    /// What QEMU's block layer saw; absent without a guest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub qemu: Option<BlockStats>,
    /// What its source states, of a measurement that another tool made; `outcome` then holds no more than the source does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stated: Option<Stated>,
}

impl Measurement {
    /// What the machine did over the window that the target is on: the host, or for another machine itself.
    #[must_use]
    pub fn machine(&self) -> Option<&HostActivity> {
        self.host.as_ref().or(self.outcome.inside.as_ref())
    }
}

/// A target as it was built.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetRecord {
    /// Its name in the plan.
    pub name: String,
    /// Its stack from the bottom up, read from the system.
    pub layers: Vec<Layer>,
    /// Whether its CPU was emulated (TCG).
    pub emulated: bool,
    /// The complete command line of the guest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command_line: Option<String>,
    /// The kernel and clocksource of the guest or other machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub guest_kernel: Option<String>,
    /// See `guest_kernel`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub guest_clocksource: Option<String>,
    /// The interfaces that a network's packets pass.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub interfaces: Vec<Interface>,
    /// Seconds from the start of the guest until its agent answered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub boot_ns: Option<u64>,
    /// What of its file or image is backed by storage when the measuring begins; absent for devices and where nobody tells.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub allocation: Option<Allocation>,
    /// What was found in an area that iotax did not fill; absent for one that it did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub found: Option<Found>,
    /// Why the run went on without it; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost: Option<String>,
}

/// The machine that a run was made on. Facts that could not be read are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Environment {
    /// Kernel release.
    pub kernel: Option<String>,
    /// Distribution's name and version.
    pub os: Option<String>,
    /// CPU model.
    pub cpu_model: Option<String>,
    /// CPUs online.
    pub cpus: Option<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Frequency governor of CPU 0.
    pub governor: Option<String>,
    /// The kernel's clocksource.
    pub clocksource: Option<String>,
    /// What the kernel says of CPU vulnerabilities, by name.
    pub mitigations: BTreeMap<String, String>,
    /// The hypervisor beneath this machine, if it can be told.
    pub hypervisor: Option<String>,
    /// QEMU's version.
    pub qemu: Option<String>,
    /// What runs guests here: `kvm` or `tcg`.
    pub accel: Option<String>,
    /// Why.
    pub accel_reason: Option<String>,
    /// iotax's version and commit.
    pub tool: Option<String>,
    /// CPU nanoseconds that the engine spends per I/O on the null backend: the floor beneath every latency.
    pub floor_ns_per_io: Option<u64>,
}
