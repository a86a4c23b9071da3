//! Flushes that a layer acknowledged without passing them on, as counted in a run of `iotax flush`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A layer that acknowledged more flushes than it passed on, as seen for one target of an `iotax flush` run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwallowedFlushes {
    /// The target's name in the run.
    pub target: String,
    /// The layer, or the two layers between which the flushes were lost.
    pub layer: String,
    /// Flushes that the layer received; if the layer does not count them, the number that the program requested.
    pub asked: u64,
    /// Number of received flushes that the layer passed on.
    pub passed_on: u64,
    /// The command that shows the run.
    pub report: String,
}
