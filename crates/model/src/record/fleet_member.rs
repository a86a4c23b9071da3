//! A run's place in a fleet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The fleet that a run is part of. Each member has a run of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetMember {
    /// The fleet's id, the same for all its members.
    pub fleet: String,
    /// The member's unique name.
    pub member: String,
    /// The mode of the fleet.
    pub mode: FleetMode,
    /// Its link, by which it is reached again: `ssh://root@box`, `local`.
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

/// The beginning of a measurement in a fleet whose members begin together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetStart {
    /// From the moment at which all windows were to begin to the beginning of this one, by the coordinator's clock. Negative if it was early.
    pub late_ns: i64,
    /// Bound on the error of `late_ns`, which is that of the clocks' offset.
    pub uncertainty_ns: u64,
}
