//! A run's place in a fleet.

use serde::{Deserialize, Serialize};

/// The fleet that a run is part of. Each member has a run of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetMember {
    /// The fleet's id, the same for all its members.
    pub fleet: String,
    /// The member's name, another one for each.
    pub member: String,
    /// What the members measure together.
    pub mode: FleetMode,
}

/// What the members of a fleet measure together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetMode {
    /// Each measures its own storage: hosts are compared.
    Each,
    /// All measure one storage that they share, each round at the same time: sums and shares count.
    Shared,
}
