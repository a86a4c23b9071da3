//! The record of a target.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Allocation, Interface, SampledContent, Timeout};
use crate::target::Layer;

/// A target as it was built for the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetRecord {
    /// The target's name in the plan.
    pub name: String,
    /// The stack from the bottom up, as read from the system.
    pub layers: Vec<Layer>,
    /// Timeouts of the layers on the machine that holds the target (for a guest, its host).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub timeouts: Vec<Timeout>,
    /// Timeouts of the guest's disk and filesystem, as the guest has them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub guest_timeouts: Vec<Timeout>,
    /// True if the guest's CPU, or the CPU of a Xen domain's host, was emulated (TCG).
    pub emulated: bool,
    /// QEMU's complete command line for the guest; absent without a QEMU guest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command_line: Option<String>,
    /// Kernel release of the guest, or of the other machine that holds the target; absent for a target on the host.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub guest_kernel: Option<String>,
    /// Clocksource of the guest, or of the other machine that holds the target; absent for a target on the host, or if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub guest_clocksource: Option<String>,
    /// The network interfaces on the packets' path.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub interfaces: Vec<Interface>,
    /// Time from the start of the guest until its agent answered; absent without a guest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub boot_ns: Option<u64>,
    /// Allocation of the target's file or image at the start of measuring; absent if unknown, such as for devices.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub allocation: Option<Allocation>,
    /// Content of an area that iotax did not fill; absent if iotax filled it, or if it was not sampled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub found: Option<SampledContent>,
    /// Outcome of the purge before the device below the target was filled: the method, or the reason why it was not purged. Absent if no purge
    /// was tried.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub purged: Option<String>,
    /// The reason why the run continued without this target; absent if it was not lost.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost: Option<String>,
}
