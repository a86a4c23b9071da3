//! What a reader must know before trusting a figure.

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// What was seen.
    WarningKind, "warning" {
        /// Bytes at the top of the stack did not come from the bottom device.
        CacheLie = "cache_lie",
        /// The area has holes or unallocated clusters.
        Holes = "holes",
        /// The payload could be shortened by a layer that compresses or removes duplicates.
        Compressible = "compressible",
        /// Direct I/O was asked for and not given.
        BufferedDirect = "buffered_direct",
        /// A clock disagrees with another or is slow to read.
        Clock = "clock",
        /// The guest's CPU was emulated (TCG).
        Emulated = "emulated",
        /// The load generator's own CPU was the limit.
        SaturatedGenerator = "saturated_generator",
        /// The figures did not settle within the measurement.
        Unsteady = "unsteady",
        /// The rate fell in a step, as rate limits do.
        Throttled = "throttled",
        /// Someone else used the device meanwhile.
        OtherLoad = "other_load",
        /// A cache could not be dropped before the measurement.
        CacheKept = "cache_kept",
        /// More I/O was due than the target could begin.
        CannotSustain = "cannot_sustain",
        /// Blocks are not what was written.
        Corrupt = "corrupt",
        /// One measurement is unlike the others of its target and round.
        Outlier = "outlier",
        /// Packets did not pass the interfaces that lie on their way.
        Bypassed = "bypassed",
        /// An interface cannot do what another target's can, or leaves it to the kernel.
        Offloads = "offloads",
        /// A link carried all that its speed allows.
        LinkBound = "link_bound",
        /// What sends or receives used all of its CPU time.
        CpuBound = "cpu_bound",
        /// TCP sent so much again that it held it back.
        Retransmits = "retransmits",
        /// Datagrams or messages were lost.
        Loss = "loss",
        /// For some time nothing arrived.
        Gap = "gap",
        /// A measurement is missing or incomplete.
        Incomplete = "incomplete",
        /// Rounds were added to a run of a fixed number after its results were there.
        Extended = "extended",
    }
}

/// A remark with its evidence and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warning {
    /// What was seen.
    pub kind: WarningKind,
    /// The target it concerns; absent if it concerns the run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target: Option<String>,
    /// The workload it concerns; absent if it concerns all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workload: Option<String>,
    /// The round it concerns, from 1; absent if it concerns all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub round: Option<u32>,
    /// The figures that show it.
    pub evidence: String,
    /// What to do about it.
    pub remedy: String,
}
