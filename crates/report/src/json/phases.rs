//! JSON of a replay's phases.

use iotax_analysis::phases::{PhaseRatio, PhasedComparison};
use schemars::JsonSchema;
use serde::Serialize;

use super::ratio::RatioEntry;

/// Mean response times of a target compared with the baseline's, by phase of the trace.
#[derive(Serialize, JsonSchema)]
pub(super) struct PhasedComparisonEntry<'a> {
    workload: &'a str,
    target: &'a str,
    phases: Vec<PhaseEntry<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct PhaseEntry<'a> {
    /// Start of the phase in nanoseconds from the trace's first I/O.
    from_ns: u64,
    /// End of the phase in nanoseconds from the trace's first I/O.
    to_ns: u64,
    #[serde(flatten)]
    ratio: RatioEntry<'a>,
}

pub(super) fn entry<'a>(compared: &'a PhasedComparison<'a>) -> PhasedComparisonEntry<'a> {
    let phase = |phase: &'a PhaseRatio| PhaseEntry {
        from_ns: phase.from_ns,
        to_ns: phase.to_ns,
        ratio: (&phase.ratio).into(),
    };
    PhasedComparisonEntry {
        workload: compared.workload,
        target: compared.target,
        phases: compared.phases.iter().map(phase).collect(),
    }
}
