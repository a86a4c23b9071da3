//! What is known of the process that makes the load.

use serde::{Deserialize, Serialize};

/// What the kernel counted of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessCounts {
    /// How often one of its threads gave up its CPU or lost it.
    pub context_switches: u64,
    /// Pages that had to be read in.
    pub major_faults: u64,
    /// Pages that only had to be mapped.
    pub minor_faults: u64,
}
