//! Facts about a machine as a whole.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fact::{Fact, Known};
use crate::record::Environment;

/// A machine's configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineSetup {
    /// Kernel, CPUs, memory, hypervisor.
    pub environment: Environment,
    /// The kernel's clocksource.
    pub clocksource: Known<String>,
    /// The driver of CPU frequency scaling.
    pub frequency_driver: Known<String>,
    /// The frequency governor of CPU 0.
    pub governor: Known<String>,
    /// The kernel's command line.
    pub command_line: Known<String>,
    /// Dirty memory at which writers are blocked, in percent of the available memory; 0 if the limit is set in bytes.
    pub dirty_percent: Known<u64>,
    /// Dirty memory at which writers are blocked, in bytes; 0 if the limit is set in percent.
    pub dirty_bytes: Known<u64>,
    /// Dirty memory at which writeback begins, in percent of the available memory; 0 if the limit is set in bytes.
    pub dirty_background_percent: Known<u64>,
    /// Dirty memory at which writeback begins, in bytes; 0 if the limit is set in percent.
    pub dirty_background_bytes: Known<u64>,
    /// The kernel's swappiness (vm.swappiness): 0 avoids swapping, higher values favour it over dropping page cache.
    pub swappiness: Known<u64>,
    /// Swap areas in use.
    pub swaps: Known<Vec<String>>,
    /// The kernel's `zone_reclaim_mode`: 0 allocates memory from other NUMA nodes before it reclaims local memory.
    pub zone_reclaim: Known<u64>,
    /// The kernel's policy when no huge page is free (`defrag` of transparent huge pages).
    pub huge_page_defrag: Known<String>,
    /// The share of the last 5 minutes in which all non-idle tasks waited for memory, in percent.
    pub memory_stalls_percent: Known<f64>,
    /// CPU time since boot that the hypervisor gave to others, in percent of the used and stolen time; idle time does not count.
    pub steal_percent: Known<f64>,
    /// Asynchronous I/Os that all processes have reserved (fs.aio-nr).
    pub aio: Known<u64>,
    /// The limit on asynchronous I/Os reserved by all processes (fs.aio-max-nr).
    pub aio_max: Known<u64>,
    /// The kernel's `io_uring_disabled`: 0 allows io_uring to all processes, 1 only to privileged ones and to a group, 2 to none.
    pub io_uring_disabled: Known<u64>,
    /// The number of NUMA nodes.
    pub nodes: Known<u64>,
    /// True if a systemd timer or cron job trims filesystems regularly; absent without systemd.
    pub trim_timer: Known<bool>,
    /// CPU and I/O limits of the control groups of this process and of guests, and of the groups above them.
    pub limits: Vec<CgroupLimit>,
    /// Settings of TCP.
    pub tcp: Tcp,
}

/// A limit of a control group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CgroupLimit {
    /// The member of the control group: `this process` or a guest.
    pub of: String,
    /// The name of the limit's file, such as `io.max` or `cpu.max`.
    pub file: String,
    /// The limit, as one line of the file; a file with several limits has an entry for each.
    pub limit: Fact<String>,
}

/// Settings of TCP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tcp {
    /// Window scaling: 1 if TCP windows may exceed 64 KiB.
    pub window_scaling: Known<u64>,
    /// Selective acknowledgements: 1 if TCP can retransmit single lost segments.
    pub selective_ack: Known<u64>,
    /// The largest receive buffer that the kernel chooses automatically.
    pub receive_max_bytes: Known<u64>,
    /// The largest send buffer that the kernel chooses automatically.
    pub send_max_bytes: Known<u64>,
}
