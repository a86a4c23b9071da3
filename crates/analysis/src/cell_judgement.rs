//! Results of one workload on one target (a cell).

use std::ops::Deref;
use std::slice::Iter;

use iotax_model::CellKey;

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
    /// Figures of the cell, such as IOPS and mean latency, over all rounds.
    pub summary: Summary,
    /// Each guest's or server's share of the I/O; absent for a single guest or server.
    pub guests: Option<GroupFairness>,
    /// Each job's share of the I/O; absent for a single job.
    pub jobs: Option<GroupFairness>,
    /// Load of the noisy neighbour that ran at the same time; absent if no neighbour ran.
    pub neighbour: Option<NeighbourLoad>,
    /// Mean latency by layer; absent for network workloads, if the work ran on another machine, or if
    /// only the program observed the latency.
    pub latency: Option<LatencyBreakdown>,
    /// Host CPU time by role; absent if fewer than two roles were observed, or if the work ran on another
    /// machine.
    pub cpu: Option<CpuByRole>,
    /// I/O at each layer; absent for network workloads, after failed measurements, with a noisy
    /// neighbour, if the I/O engine moves no data, or if only the program counted I/O.
    pub amplification: Option<IoAmplification>,
    /// Packet statistics; absent if the workload uses no network, or if none were reported.
    pub network: Option<Network>,
    /// Failed measurements of the cell; absent if none failed.
    pub failure: Option<Failure>,
}

impl CellJudgement {
    /// Returns the cell's identity.
    #[must_use]
    pub fn key(&self) -> CellKey<'_> {
        CellKey { target: &self.target, workload: &self.workload }
    }
}

/// Results of a run's cells by cell, in the plan's order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CellJudgements {
    cells: Vec<CellJudgement>,
    /// Indexes of `cells` in the order of their keys.
    by_key: Vec<usize>,
}

impl CellJudgements {
    /// Returns the results of a cell; `None` if it was not measured.
    #[must_use]
    pub fn get(&self, key: CellKey<'_>) -> Option<&CellJudgement> {
        let found = self.by_key.binary_search_by(|at| self.cells[*at].key().cmp(&key)).ok()?;
        Some(&self.cells[self.by_key[found]])
    }
}

impl FromIterator<CellJudgement> for CellJudgements {
    fn from_iter<I: IntoIterator<Item = CellJudgement>>(cells: I) -> Self {
        let cells: Vec<CellJudgement> = cells.into_iter().collect();
        let mut by_key: Vec<usize> = (0..cells.len()).collect();
        by_key.sort_by(|one, other| cells[*one].key().cmp(&cells[*other].key()));
        Self { cells, by_key }
    }
}

impl Deref for CellJudgements {
    type Target = [CellJudgement];

    fn deref(&self) -> &[CellJudgement] {
        &self.cells
    }
}

impl<'a> IntoIterator for &'a CellJudgements {
    type Item = &'a CellJudgement;
    type IntoIter = Iter<'a, CellJudgement>;

    fn into_iter(self) -> Self::IntoIter {
        self.cells.iter()
    }
}
