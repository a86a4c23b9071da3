//! Checks that the targets of a plan can carry its workloads.

use super::{Plan, PlanError};
use crate::target::{NinePSpec, PlannedLayer, TargetError, TargetSpec};
use crate::workload::{IoEngine, Workload};

impl Plan {
    /// Rejects targets that cannot carry the workloads that run on them, see [`TargetSpec::check_work`].
    pub(super) fn check_targets(&self) -> Result<(), PlanError> {
        for target in self.everything() {
            target.kind()?;
            target.check_work(&self.work_on(target))?;
        }
        Ok(())
    }
}

impl TargetSpec {
    /// Rejects file workloads on a target without a filesystem, workloads that a virtio device without a guest or a directory on 9p cannot
    /// run, and pgbench in a guest.
    ///
    /// # Errors
    /// The target cannot carry one of the workloads.
    pub fn check_work(&self, work: &[&Workload]) -> Result<(), TargetError> {
        let refused = |workload: &Workload, why: &str| {
            let (name, doing) = (&workload.name, workload.doing());
            Err(self.refused(format!("workload {name:?} ({doing}){why}")))
        };
        let refusal = |job: &Workload| {
            match self.stack.top() {
            Some(PlannedLayer::Virtio(virtio)) => virtio.refusal(job),
            Some(top) if job.ioengine == IoEngine::Libblkio && !matches!(top, PlannedLayer::Path(_)) => Some(
                "ioengine = libblkio drives a virtio device; add virtio to the target (in a line: > virtio), or use another engine"
                    .to_owned(),
            ),
            _ => self.stack.find::<NinePSpec>()?.refusal(job),
        }
        };
        for workload in work {
            if let Some(why) = workload.jobs().find_map(refusal) {
                return Err(self.refused(format!("workload {:?}: {why}", workload.name)));
            }
            if self.is_in_guest() && workload.is_pgbench() {
                let remedy = "a guest of iotax has no PostgreSQL; use a target of this host, or a machine that has it (ssh://[user@]host/path)";
                return refused(workload, &format!(": {remedy}"));
            }
            if let (true, Some(remedy)) = (workload.needs_directory(), self.stack.wants_filesystem()) {
                return refused(workload, &format!(" makes files: {remedy}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Stack;
    use crate::workload::WorkloadKeys;

    #[test]
    fn files_are_made_on_the_storage_in_question_or_not_at_all() {
        let work = |test: &str| {
            let mut keys = WorkloadKeys::default();
            for (key, text) in [("test", test), ("direct", "0")] {
                keys.set(key, text).expect(key);
            }
            keys.complete(&WorkloadKeys::default())
        };
        for (line, test, words) in [
            ("/srv > raw file > virtio", "create", "a virtio device is a raw disk; leave virtio out"),
            ("/srv > qcow2 file > fuse", "create", "fuse shows one file, in which no others can be made"),
            ("/srv > qcow2 file > fuse > cgroup wiops=500", "create", "fuse shows one file"),
            ("/srv > raw file > loop", "sqlite", "a loop device is a raw disk; leave loop out"),
            ("/srv > raw file > virtio-blk > guest", "sqlite", "add filesystem = \"ext4\" to guest"),
            ("/srv > raw file > virtio-blk > guest > ext4", "pgbench", "a guest of iotax has no PostgreSQL"),
        ] {
            let target = TargetSpec::new("t", Stack::parse(line).expect(line));
            assert_eq!(target.check(), Ok(()), "{line}");
            let error = target.check_work(&[&work(test)]).expect_err(line);
            assert!(error.reason().contains(words), "{line}: {error}");
        }
        for (line, test) in [
            ("/srv > raw file > loop > ext4 > raw file", "pgbench"),
            ("/srv > qcow2 file > virtio-blk > guest > ext4", "sqlite"),
            ("/srv > qcow2 file > fuse", "getc"),
        ] {
            let target = TargetSpec::new("t", Stack::parse(line).expect(line));
            assert_eq!(target.check_work(&[&work(test)]), Ok(()), "{line}");
        }
    }

    #[test]
    fn a_guest_gets_a_filesystem_where_it_has_a_raw_disk() {
        let added = |line: &str| {
            let mut stack = Stack::parse(line).expect(line);
            (stack.add_guest_filesystem(), stack.line())
        };
        let raw = "/srv > raw file > virtio-blk cache=none aio=io_uring > guest";
        assert!(added(raw).0 && added(raw).1.ends_with("> ext4"), "{}", added(raw).1);
        for line in ["/srv > raw file", "/srv > raw file > virtio-blk > guest > xfs", "/srv > 9p > guest"] {
            assert!(!added(line).0, "{line}");
        }
    }
}
