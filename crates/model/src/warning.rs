//! Warnings about the validity of results, each with its evidence and a remedy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// The kind of a warning.
    WarningKind, "warning" {
        /// A cache answered direct I/O: the devices at the bottom transferred far fewer bytes than the workload requested.
        CacheLie = "cache_lie",
        /// The area has holes, unallocated clusters or extents shared with other files, or a workload trims data that is accessed later.
        Holes = "holes",
        /// A compressing or deduplicating layer could shorten the payload.
        Compressible = "compressible",
        /// Direct I/O was requested and not honoured.
        BufferedDirect = "buffered_direct",
        /// A clock disagrees with another or is slow to read, or the hypervisor gave CPU time to others.
        Clock = "clock",
        /// The guest's CPU was emulated (TCG).
        Emulated = "emulated",
        /// The load generator's own CPU time was the bottleneck.
        SaturatedGenerator = "saturated_generator",
        /// The rate was not steady within the measurement.
        Unsteady = "unsteady",
        /// The rate dropped in a step, as with rate limits; or CPUs were slowed by heat, or their frequency governor changed.
        Throttled = "throttled",
        /// A file that a target only reads was changed by another program.
        Changed = "changed",
        /// Other programs used the device, the network or the CPUs during the measurement.
        OtherLoad = "other_load",
        /// A cache could not be dropped before the measurement.
        CacheKept = "cache_kept",
        /// The target could not keep up with the scheduled rate: I/Os were due but not started, or a stream did not reach its bitrate.
        CannotSustain = "cannot_sustain",
        /// A replay was late, or left out I/Os of its trace.
        UnfaithfulReplay = "unfaithful_replay",
        /// A replay did its I/Os at other offsets than its trace, because the target is smaller or the plan asks for it.
        ScaledReplay = "scaled_replay",
        /// Blocks differ from what was written.
        Corrupt = "corrupt",
        /// A measurement deviates from the value expected for its target and round.
        Outlier = "outlier",
        /// Packets bypassed the interfaces on their path.
        Bypassed = "bypassed",
        /// An interface's offloads differ from those of the baseline target, or the kernel segments TCP in software.
        Offloads = "offloads",
        /// The link's speed was the bottleneck.
        LinkBound = "link_bound",
        /// The sender or receiver used all of its CPU time.
        CpuBound = "cpu_bound",
        /// TCP retransmitted so much that it slowed the stream.
        Retransmits = "retransmits",
        /// Datagrams or messages were lost.
        Loss = "loss",
        /// No data arrived for some time.
        Gap = "gap",
        /// A measurement is missing or incomplete.
        Incomplete = "incomplete",
        /// Rounds were added to a run with a fixed number of rounds after its results were known.
        Extended = "extended",
    }
}

/// The severity of a warning, the most serious first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Stored data are wrong.
    WrongData,
    /// Figures are missing.
    Missing,
    /// The figures are not those of the storage or of the network's path.
    OtherSubject,
    /// The figures may be wrong.
    Doubtful,
    /// Something other than the storage limited the load, or the load was not the one asked for.
    OtherLimit,
    /// The conditions were not equal for all measurements.
    Unequal,
    /// The figures scatter, or hold for these conditions only.
    Disturbed,
}

impl Severity {
    /// Returns true if the figures are wrong, missing, or not those of the storage.
    #[must_use]
    pub fn is_grave(self) -> bool {
        self <= Self::OtherSubject
    }
}

impl WarningKind {
    /// Returns how serious a warning of this kind is.
    #[must_use]
    pub const fn severity(self) -> Severity {
        self.effect().0
    }

    /// Returns whether a warning of this kind can make a measurement unusable for comparisons.
    #[must_use]
    pub const fn can_spoil(self) -> bool {
        self.effect().1
    }

    /// Returns the severity, and whether the kind can make a measurement unusable.
    const fn effect(self) -> (Severity, bool) {
        match self {
            Self::Corrupt => (Severity::WrongData, true),
            Self::Incomplete => (Severity::Missing, true),
            Self::CacheLie | Self::BufferedDirect | Self::Bypassed => (Severity::OtherSubject, true),
            Self::Holes => (Severity::OtherSubject, false),
            Self::Clock => (Severity::Doubtful, true),
            Self::Changed | Self::Compressible => (Severity::Doubtful, false),
            Self::CannotSustain | Self::UnfaithfulReplay => (Severity::OtherLimit, true),
            Self::SaturatedGenerator | Self::CpuBound | Self::LinkBound | Self::Throttled | Self::Loss => {
                (Severity::OtherLimit, false)
            }
            Self::CacheKept | Self::Extended | Self::Offloads | Self::ScaledReplay => {
                (Severity::Unequal, false)
            }
            Self::OtherLoad
            | Self::Gap
            | Self::Retransmits
            | Self::Unsteady
            | Self::Outlier
            | Self::Emulated => (Severity::Disturbed, false),
        }
    }
}

/// A warning with its evidence and remedy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Warning {
    /// The kind of problem that the warning reports.
    pub kind: WarningKind,
    /// The target that the warning is about; absent if it is about the whole run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target: Option<String>,
    /// The workload that the warning is about; absent if it is about all workloads.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workload: Option<String>,
    /// The round that the warning is about, from 1; absent if it is about all rounds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub round: Option<u32>,
    /// The observation that led to the warning, with its numbers.
    pub evidence: String,
    /// The remedy, in one sentence.
    pub remedy: String,
}
