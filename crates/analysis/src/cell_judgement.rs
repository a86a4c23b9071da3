//! Results derived from the measurements of one cell.

use crate::amplification::IoAmplification;
use crate::cpu_breakdown::CpuByRole;
use crate::failed::Failure;
use crate::fairness::{GroupFairness, NeighbourLoad};
use crate::latency_breakdown::LatencyBreakdown;
use crate::network::Network;
use crate::summary::Summary;

/// Results of one workload on one target, over all rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct CellJudgement {
    /// The workload's name.
    pub workload: String,
    /// The target's name.
    pub target: String,
    /// Its figures over all rounds.
    pub summary: Summary,
    /// Each guest's or server's share of the I/O, if there are several.
    pub guests: Option<GroupFairness>,
    /// Each job's share of the I/O, if there are several.
    pub jobs: Option<GroupFairness>,
    /// The load of the neighbour that ran at the same time; absent without one.
    pub neighbour: Option<NeighbourLoad>,
    /// Its mean latency by layer; absent where only the program observed it.
    pub latency: Option<LatencyBreakdown>,
    /// Its CPU time by role, if it could be attributed.
    pub cpu: Option<CpuByRole>,
    /// Its I/O at each layer; absent if only the program counted.
    pub amplification: Option<IoAmplification>,
    /// Its packet counts; absent if the work crossed no network or reported none.
    pub network: Option<Network>,
    /// Failures among its measurements; absent if none failed.
    pub failure: Option<Failure>,
}
