//! The membership of a run in a fleet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Identifies the fleet that a run is part of. Each member of a fleet has its own run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetMember {
    /// The fleet's id, the same for all its members.
    pub fleet: String,
    /// The member's unique name.
    pub member: String,
    /// The mode of the fleet.
    pub mode: FleetMode,
    /// The URL by which the coordinator reaches the member: `ssh://root@box`, `local`.
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
    /// All measure one storage that they share, each round at the same time: sums and shares count.
    Shared,
}

/// The start of a measurement in a fleet whose members start together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetStart {
    /// Delay from the common start time to the start of this window, by the coordinator's clock. Negative if the window started early.
    pub late_ns: i64,
    /// Maximum error of `late_ns`, from the uncertainty of the offset between the clocks.
    pub uncertainty_ns: u64,
}
