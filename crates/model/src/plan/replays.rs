//! Checks plans that replay a trace.

use super::{Design, Plan, PlanError};
use crate::target::TargetSpec;

impl Plan {
    /// Rejects replays in guests and on other machines, because their agents cannot read the trace on this host. Also rejects replays in a curve,
    /// search or watch, because these set the rate.
    pub(super) fn check_replays(&self) -> Result<(), PlanError> {
        let Some((workload, path)) = self.work().find_map(|w| Some((w, w.read_iolog.as_ref()?))) else {
            return Ok(());
        };
        let reason = if self.everything().any(TargetSpec::is_in_guest) {
            "replay in a guest is not possible yet; use a target of the host, such as virtio-qcow2:DIR"
        } else if self.everything().any(|target| target.remote().is_some()) {
            "replay on another machine is not possible yet; run iotax there"
        } else {
            match &self.design {
                Design::FixedRounds | Design::UntilDecided(_) | Design::UntilSteady(_) => return Ok(()),
                Design::Curve(_) | Design::Ask(_) | Design::Watch(_) => {
                    "the trace decides the rate, which [curve], [ask] and [watch] would set"
                }
            }
        };
        Err(workload.refusal("read_iolog", path, reason).into())
    }
}
