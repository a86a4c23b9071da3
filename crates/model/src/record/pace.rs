//! CPU frequency and thermal throttling of a machine during a measurement.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// CPU frequency of a machine at both ends of a window, from /sys/devices/system/cpu. Unreported values are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuPace {
    /// Mean frequency of all CPUs at the start.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_hz: Option<u64>,
    /// Mean frequency of all CPUs at the end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_hz: Option<u64>,
    /// Thermal throttling events in the window, over all cores and packages.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub throttles: Option<u64>,
    /// The distinct frequency governors at the start.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub first_governors: Vec<String>,
    /// The distinct frequency governors at the end.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub last_governors: Vec<String>,
}
