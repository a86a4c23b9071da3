//! Checks that the targets of a plan can carry its workloads.

use super::{Plan, PlanError};
use crate::target::{NinePSpec, PlannedLayer};
use crate::workload::{IoEngine, Test, Workload};

impl Plan {
    /// Rejects file workloads on targets without a filesystem, workloads that a virtio device without a guest or a directory on 9p
    /// cannot run, and pgbench in guests.
    pub(super) fn check_places(&self) -> Result<(), PlanError> {
        for target in self.everything() {
            target.kind()?;
            let refusal = |job: &Workload| {
                match target.stack.top() {
                Some(PlannedLayer::Virtio(virtio)) => virtio.refusal(job),
                Some(top) if job.ioengine == IoEngine::Libblkio && !matches!(top, PlannedLayer::Path(_)) => Some(
                    "ioengine = libblkio drives a virtio device; add virtio to the target (in a line: > virtio), or use another engine"
                        .to_owned(),
                ),
                _ => target.stack.find::<NinePSpec>()?.refusal(job),
            }
            };
            let refused =
                |workload: &&Workload| Some((workload.name.clone(), workload.jobs().find_map(refusal)?));
            if let Some((name, why)) = self.work_on(target).iter().find_map(refused) {
                return Err(target.refused(format!("workload {name:?}: {why}")).into());
            }
            let of_pgbench = |workload: &&Workload| workload.test == Some(Test::Pgbench);
            if let (true, Some(workload)) =
                (target.is_in_guest(), self.work_on(target).into_iter().find(of_pgbench))
            {
                let (name, doing) = (&workload.name, workload.doing());
                let remedy = "a guest of iotax has no PostgreSQL; use a target of this host, or a machine that has it (ssh://[user@]host/path)";
                return Err(target.refused(format!("workload {name:?} ({doing}): {remedy}")).into());
            }
            let Some(remedy) = target.stack.wants_filesystem() else { continue };
            if let Some(workload) =
                self.work_on(target).into_iter().find(|workload| workload.needs_directory())
            {
                let (name, doing) = (&workload.name, workload.doing());
                return Err(target
                    .refused(format!("workload {name:?} ({doing}) makes files: {remedy}"))
                    .into());
            }
        }
        Ok(())
    }
}
