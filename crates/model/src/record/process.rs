//! The kernel's counters for the load generator's process.

use serde::{Deserialize, Serialize};

/// The kernel's counters for the load generator's process over the measured window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessCounts {
    /// Voluntary and involuntary context switches of all threads of the process.
    pub context_switches: u64,
    /// Page faults that had to read from storage.
    pub major_faults: u64,
    /// Page faults served without reading from storage.
    pub minor_faults: u64,
}
