//! How fast the CPUs ran.

use serde::{Deserialize, Serialize};

/// How fast a machine's CPUs ran at the two ends of a window, from /sys/devices/system/cpu. What it does not tell is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuPace {
    /// Mean frequency of all CPUs when the window began.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_hz: Option<u64>,
    /// Mean frequency of all CPUs when it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_hz: Option<u64>,
    /// How often CPUs were slowed down in it because of their heat, over all cores and packages.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub throttles: Option<u64>,
    /// The governors that were in force when the window began, each once.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub first_governors: Vec<String>,
    /// The same when it ended.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub last_governors: Vec<String>,
}
