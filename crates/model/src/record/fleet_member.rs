//! Membership of a run in a fleet: a group of machines that measure together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Identifies the fleet and the member that a run belongs to. Each member of a fleet has its own run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetMember {
    /// Id of the fleet, the same for all members.
    pub fleet: String,
    /// Name of the member, unique within the fleet.
    pub member: String,
    /// Kind of fleet: members measure their own storage, or one shared storage.
    pub mode: FleetMode,
    /// URL that the coordinator reaches the member by: `ssh://root@box`, `local`.
    #[serde(default)]
    pub link: String,
}

/// Storage that the members of a fleet measure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FleetMode {
    /// Each measures its own storage: hosts are compared.
    #[default]
    Each,
    /// All measure one shared storage at the same time in each round: results are sums and each member's share.
    Shared,
}

/// Start of a measurement relative to the start that the members of a fleet agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetStart {
    /// Delay in nanoseconds from the agreed start to the start of this window, by the coordinator's clock. Negative if the window started early.
    pub late_ns: i64,
    /// Maximum error of `late_ns` in nanoseconds, from the uncertainty of the offset between the machines' clocks.
    pub uncertainty_ns: u64,
}
