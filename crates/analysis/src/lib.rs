//! Derives results from records: comparisons, breakdowns, verdicts and warnings.
//!
//! [`judge`] compares the targets of a [`iotax_model::Run`] by the rules of [`stats`] and checks how far the figures can be trusted.
//! [`mod@compare`] compares two runs, and [`suite`] the workloads of a suite. Nothing here touches the machine.

pub mod amplification;
pub mod ask;
mod cell_judgement;
mod cell_means;
pub mod cells;
mod checks;
pub mod compare;
pub mod comparison;
pub mod cpu_breakdown;
pub mod crash;
pub mod curve;
pub mod demands;
pub mod durability;
pub mod edges;
pub mod effects;
pub mod failed;
pub mod fairness;
mod fidelity;
pub mod figures;
mod finding;
pub mod fleet;
pub mod flushes;
pub mod grade;
pub mod judgement;
pub mod latency_breakdown;
pub mod levels;
pub mod limits;
pub mod looks;
pub mod metric;
pub mod network;
mod outliers;
mod packets;
pub mod percentile;
pub mod phases;
mod sample;
mod samples;
pub mod sequential_status;
mod stack_diff;
pub mod stats;
pub mod steady_state;
pub mod suite;
pub mod summary;
pub mod time;
pub mod timing;
pub mod trace;
pub mod trend;
pub mod tune;
mod warm_up;
pub mod watch;

pub use amplification::IoAmplification;
pub use cell_judgement::{CellJudgement, CellJudgements};
pub use comparison::{Comparison, Ratio, Tax};
pub use cpu_breakdown::CpuByRole;
pub use edges::{Edge, edges};
pub use effects::{Drift, Effects};
pub use failed::{Failed, Failure};
pub use fairness::{GroupFairness, MemberKind, NeighbourLoad};

pub use flushes::FlushAccount;
pub use grade::Grade;
pub use judgement::{Judgement, judge, judge_by};
pub use latency_breakdown::LatencyBreakdown;
pub use looks::SequentialState;
pub use metric::Metric;
pub use network::Network;
pub use percentile::Percentile;
pub use sequential_status::{SequentialStatus, Stopped};
pub use steady_state::SteadyState;
pub use summary::Summary;
pub use timing::Timing;
