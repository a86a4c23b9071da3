//! Recovers from failures: restarts agents and guests, or continues without a target.

use anyhow::Context;
use iotax_model::plan::Plan;
use iotax_model::record::{Measurement, TargetRecord};
use iotax_model::schedule::Cell;
use iotax_model::warning::{Warning, WarningKind};

use super::target::{Site, Target};
use super::{Interrupted, Runner, local_agent, pair, phases};
use crate::causes::with_causes;

impl Runner<'_> {
    /// Gives up a group of guests that fails before it is measured, and continues the run. The failure of any other target ends the run.
    pub(super) fn or_lose(&mut self, group: usize, result: anyhow::Result<()>) -> anyhow::Result<()> {
        match result {
            Err(error) if self.groups[group].iter().any(Target::is_guest) && !self.context.is_stopped() => {
                self.lose(group, &with_causes(&error))
            }
            result => result,
        }
    }

    /// Gives up a group for the rest of the run: a target, or a neighbour together with the targets that it competes with. Kills their
    /// guests.
    pub(super) fn lose(&mut self, group: usize, reason: &str) -> anyhow::Result<()> {
        if self.lost.contains(&group) {
            return Ok(());
        }
        let Some(first) = self.groups[group].first() else { return Ok(()) };
        let name = first.spec.name.clone();
        self.context.progress.note(&format!("{name} is lost, the run goes on without it: {reason}"));
        let targets = self.order.plan.targets.len();
        if group < targets {
            let stood = self.records.remove(&group).map_or_else(|| first.record(), Ok)?;
            let record = TargetRecord { lost: Some(reason.to_owned()), ..stood };
            self.context.store.put_target(self.order.run, &record)?;
        }
        self.groups[group].iter_mut().for_each(|target| target.end_guest(self.context.undo_log));
        self.lost.insert(group);
        let beside = (0..targets).filter(|target| self.neighbour_of(*target) == Some(group));
        beside
            .collect::<Vec<usize>>()
            .into_iter()
            .try_for_each(|target| self.lose(target, &format!("its neighbour {name} was lost: {reason}")))
    }

    /// Records that a measurement failed, and restarts agents and guests for the next one. Gives up the target if that fails.
    pub(super) fn failed(&mut self, cell: Cell, round: u32, error: &anyhow::Error) -> anyhow::Result<()> {
        let plan = &self.plan;
        let (target, workload) = (&plan.targets[cell.target].name, &plan.workloads[cell.workload].name);
        let evidence = with_causes(error);
        let is_lost = self.lost.contains(&cell.target);
        if !is_lost {
            self.context.progress.note(&format!("{target}, {workload}, round {round}: {evidence}"));
        }
        self.context
            .store
            .put_warning(self.order.run, &incomplete(plan, target, workload, round, evidence))?;
        if is_lost {
            return Ok(());
        }
        match self.restart(cell) {
            Err(_) if self.context.is_stopped() => Err(Interrupted.into()),
            Err(error) => {
                self.lose(cell.target, &format!("it could not be started again: {}", with_causes(&error)))
            }
            Ok(()) => Ok(()),
        }
    }

    /// Returns whether a guest's disk no longer answers: in the whole measurement no I/O completed, and none failed.
    pub(super) fn hangs(&self, cell: Cell, measurement: &Measurement) -> bool {
        let has_disk = |target: &Target| matches!(target.site, Site::Guest(_) | Site::Domain(_));
        let outcome = &measurement.outcome;
        self.groups[cell.target].iter().any(has_disk)
            && outcome.tallies.ios() == 0
            && outcome.errors.is_empty()
    }

    /// Reboots a guest whose disk hangs.
    pub(super) fn revive(&mut self, cell: Cell) -> anyhow::Result<()> {
        let target = &self.plan.targets[cell.target].name;
        self.context
            .progress
            .note(&format!("{target}: its disk does not answer; the guest is started again"));
        match self.restart(cell) {
            Err(_) if self.context.is_stopped() => Err(Interrupted.into()),
            other => other.context("it could not be started again"),
        }
    }

    /// Replaces agents and reboots guests after a failure, so that the next measurement can succeed. Guests that still answer stay.
    pub(super) fn restart(&mut self, cell: Cell) -> anyhow::Result<()> {
        self.phases.begin(phases::BOOT);
        self.local = local_agent(self.context.stop)?;
        let neighbour = self.neighbour_of(cell.target);
        let (targets, neighbours) = pair(&mut self.groups, cell.target, neighbour);
        let mut all: Vec<&mut Target> = targets.iter_mut().chain(neighbours).collect();
        let some_are_lost = all.iter_mut().any(|target| target.is_lost());
        for target in all {
            if some_are_lost && !target.is_lost() {
                target.pause()?;
                continue;
            }
            match &mut target.site {
                Site::Host(site) if site.agent.is_some() => {
                    site.agent = Some(local_agent(self.context.stop)?);
                }
                Site::Host(_) | Site::Guest(_) | Site::Domain(_) => {}
                Site::Remote(site) => site.agent.give_up(),
                Site::Network(site) => site.restart(self.context.stop)?,
            }
            if let Some(guests) = self.order.guests {
                guests.reboot(target, &mut self.context)?;
            }
            if let Some(domains) = self.order.domains {
                domains.reboot(target, &mut self.context)?;
            }
        }
        Ok(())
    }
}

/// Returns the warning about a failed measurement. Its remedy is to resume the run, unless the run adds rounds: such a run does not repeat
/// a measurement.
fn incomplete(plan: &Plan, target: &str, workload: &str, round: u32, evidence: String) -> Warning {
    let remedy = if plan.adds_rounds() {
        "the evidence says where to look; the rounds that follow go on without this one"
    } else {
        "measure it again with iotax resume; if it fails again, the evidence says where to look"
    };
    Warning {
        kind: WarningKind::Incomplete,
        target: Some(target.to_owned()),
        workload: Some(workload.to_owned()),
        round: Some(round),
        evidence,
        remedy: remedy.into(),
    }
}
