//! The kernel's counters for the load generator's process.

use serde::{Deserialize, Serialize};

/// The kernel's counters for a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessCounts {
    /// Voluntary and involuntary context switches of all threads.
    pub context_switches: u64,
    /// Page faults that read from storage.
    pub major_faults: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
}
