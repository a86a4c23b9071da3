//! Progress of a run that adds rounds until its comparisons are decided.

use iotax_model::Cell;
use schemars::JsonSchema;
use serde::Serialize;

/// Reason why no more rounds are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// Every comparison that must be decided is decided.
    Decided,
    /// The maximum number of rounds was reached.
    MaxRounds,
    /// The rounds up to the next interim test would have taken longer than the plan allows.
    MaxTime,
    /// More rounds cannot decide the open comparisons: a workload could not be measured on a target, or its measurements are unusable.
    Failed,
}

impl Stopped {
    /// Returns the reason's word in documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Decided => "decided",
            Self::MaxRounds => "max_rounds",
            Self::MaxTime => "max_time",
            Self::Failed => "failed",
        }
    }
}

/// Progress of a run that tests its comparisons at fixed numbers of rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequentialStatus {
    /// Numbers of rounds after which interim tests (looks) happen, fixed by the plan.
    pub looks: Vec<u32>,
    /// Number of interim tests done.
    pub taken: usize,
    /// Number of comparisons, each of two targets on a workload, that must be decided.
    pub comparisons: usize,
    /// Number of the required comparisons that are not decided yet; each is decided by the workload's headline metric.
    pub open: usize,
    /// Workloads and targets to measure in the rounds up to the next interim test, in the plan's order; empty if no rounds are added.
    pub cells: Vec<Cell>,
    /// Number of measurements planned from the first round to the next interim test.
    pub planned: usize,
    /// The reason why no more rounds are added; absent while more are to come.
    pub stopped: Option<Stopped>,
}

impl SequentialStatus {
    /// Returns the number of rounds at the last interim test; 0 before the first.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.taken.checked_sub(1).map_or(0, |look| self.looks[look])
    }

    /// Returns the number of rounds at the next interim test; `None` if no test follows.
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        if self.stopped.is_some() { None } else { self.looks.get(self.taken).copied() }
    }
}
