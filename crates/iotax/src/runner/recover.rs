//! After a failure: what is started again, and what the run goes on without.

use std::sync::atomic::Ordering;

use anyhow::Context;
use iotax_analysis::store::Store;
use iotax_model::plan::Plan;
use iotax_model::record::{Measurement, TargetRecord};
use iotax_model::schedule::Cell;
use iotax_model::warning::{Warning, WarningKind};
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::undo::UndoLog;

use super::target::Target;
use super::{Interrupted, Progress, Runner, local_agent, pair, phases};

impl Runner<'_> {
    /// The run goes on without the guests of a group that fail before anything is measured in them; for any other target it ends.
    pub(super) fn or_lose(
        &mut self,
        group: usize,
        result: anyhow::Result<()>,
        store: &mut Store,
        progress: &mut dyn Progress,
        stop: &Interrupt,
    ) -> anyhow::Result<()> {
        match result {
            Err(error)
                if self.groups[group].iter().any(Target::is_guest) && !stop.load(Ordering::Relaxed) =>
            {
                self.lose(group, &format!("{error:#}"), store, progress)
            }
            result => result,
        }
    }

    /// Goes on without a target, or without a neighbour and those that it makes noise for. Its guests end.
    pub(super) fn lose(
        &mut self,
        group: usize,
        reason: &str,
        store: &mut Store,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<()> {
        if self.lost.contains(&group) {
            return Ok(());
        }
        let Some(first) = self.groups[group].first() else { return Ok(()) };
        let name = first.spec.name.clone();
        progress.note(&format!("{name} is lost, the run goes on without it: {reason}"));
        let targets = self.order.plan.targets.len();
        if group < targets {
            let stood = self.records.remove(&group).map_or_else(|| first.record(), Ok)?;
            let record = TargetRecord { lost: Some(reason.to_owned()), ..stood };
            store.put_target(self.order.run, &record)?;
        }
        self.groups[group].iter_mut().for_each(|target| target.machine = None);
        self.lost.insert(group);
        let beside = (0..targets).filter(|target| self.neighbour_of(*target) == Some(group));
        beside.collect::<Vec<usize>>().into_iter().try_for_each(|target| {
            self.lose(target, &format!("its neighbour {name} was lost: {reason}"), store, progress)
        })
    }

    /// Keeps that a measurement failed, and makes ready for the next.
    #[expect(clippy::too_many_arguments, reason = "a failure concerns everything that a measurement does")]
    pub(super) fn failed(
        &mut self,
        cell: Cell,
        round: u32,
        error: &anyhow::Error,
        undo_log: &mut UndoLog,
        store: &mut Store,
        progress: &mut dyn Progress,
        stop: &Interrupt,
    ) -> anyhow::Result<()> {
        let plan = self.order.plan;
        let (target, workload) = (&plan.targets[cell.target].name, &plan.workloads[cell.workload].name);
        let evidence = format!("{error:#}");
        let is_lost = self.lost.contains(&cell.target);
        if !is_lost {
            progress.note(&format!("{target}, {workload}, round {round}: {evidence}"));
        }
        store.put_warning(self.order.run, &incomplete(self.order.plan, target, workload, round, evidence))?;
        if is_lost {
            return Ok(());
        }
        match self.restart(cell, undo_log, stop) {
            Err(_) if stop.load(Ordering::Relaxed) => Err(Interrupted.into()),
            Err(error) => {
                self.lose(cell.target, &format!("it could not be started again: {error:#}"), store, progress)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Whether a guest's disk does not answer any more: nothing was completed, and nothing failed.
    pub(super) fn hangs(&self, cell: Cell, measurement: &Measurement) -> bool {
        let outcome = &measurement.outcome;
        self.order.plan.targets[cell.target].guest.is_some()
            && self.order.plan.targets[cell.target].network.is_none()
            && outcome.tallies.ios() == 0
            && outcome.errors.is_empty()
    }

    /// Boots a guest anew whose disk hangs.
    pub(super) fn revive(
        &mut self,
        cell: Cell,
        undo_log: &mut UndoLog,
        progress: &mut dyn Progress,
        stop: &Interrupt,
    ) -> anyhow::Result<()> {
        let target = &self.order.plan.targets[cell.target].name;
        progress.note(&format!("{target}: its disk does not answer; the guest is started again"));
        match self.restart(cell, undo_log, stop) {
            Err(_) if stop.load(Ordering::Relaxed) => Err(Interrupted.into()),
            other => other.context("it could not be started again"),
        }
    }

    /// After a failure: a new agent or newly booted guests, so that one lost measurement does not cost the next. Of several
    /// those that answer go on.
    pub(super) fn restart(
        &mut self,
        cell: Cell,
        undo_log: &mut UndoLog,
        stop: &Interrupt,
    ) -> anyhow::Result<()> {
        self.phases.begin(phases::BOOT);
        self.local = local_agent(stop)?;
        let neighbour = self.neighbour_of(cell.target);
        let (targets, noise) = pair(&mut self.groups, cell.target, neighbour);
        let mut all: Vec<&mut Target> = targets.iter_mut().chain(noise).collect();
        let some_are_lost = all.iter_mut().any(|target| target.is_lost());
        for target in all {
            if some_are_lost && !target.is_lost() {
                target.pause()?;
                continue;
            }
            if let Some(remote_agent) = &mut target.remote_agent {
                remote_agent.give_up();
            }
            target.way.as_mut().map_or(Ok(()), |way| way.restart(stop))?;
            match self.order.guests {
                Some(guests) if target.is_guest() => guests.reboot(target, undo_log, stop)?,
                _ if target.agent.is_some() => {
                    let own = target.way.as_ref().map(|way| way.client_agent(stop)).transpose()?.flatten();
                    target.agent = Some(own.map_or_else(|| local_agent(stop), Ok)?);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A round that a look counted is not made up for later: a resumed run that adds rounds goes on after it.
fn incomplete(plan: &Plan, target: &str, workload: &str, round: u32, evidence: String) -> Warning {
    let remedy = if plan.until_decided.is_some() {
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
