//! Flushes that a layer acknowledged without passing them on, as counted in a run of `iotax flush`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A target of a run of `iotax flush` on which a layer acknowledged flushes and did not pass all of them on, by counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwallowedFlushes {
    /// The target's name in the run.
    pub target: String,
    /// The layer, or the two between which they were lost.
    pub layer: String,
    /// Flushes that the layer was asked for.
    pub asked: u64,
    /// Those of them that it passed on.
    pub passed_on: u64,
    /// Shows the run.
    pub report: String,
}
