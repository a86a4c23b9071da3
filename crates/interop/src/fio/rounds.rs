//! Merges the rounds of a workload on a target, because fio has no rounds.

use iotax_model::record::{ErrorCount, Measurement, Share};

use crate::Unfit;
use iotax_model::Run;

/// A workload on a target with all its rounds merged, because readers of fio's formats would take two jobs of the same name for different jobs.
pub(super) struct MergedRounds {
    /// The merged measurement: counts, times, errors and samples cover all rounds. The engine is unknown if rounds differ in it. Everything
    /// else comes from the first round.
    pub(super) merged: Measurement,
    pub(super) rounds: u32,
    /// Time at which the last round ended, in milliseconds since 1970-01-01 UTC.
    pub(super) ended_at_ms: u64,
}

impl MergedRounds {
    /// Merges the rounds of each workload on each target, sorted by workload, then by target, in the plan's order.
    ///
    /// # Errors
    /// A measurement has a result that fio's formats cannot express.
    pub(super) fn all(run: &Run) -> Result<Vec<Self>, Unfit> {
        let mut cells: Vec<Self> = Vec::new();
        for m in &run.measurements {
            refuse(run, m)?;
            let ended_at_ms = m.started_at_ms + m.outcome.duration_ns / 1_000_000;
            let is_same =
                |cell: &&mut Self| cell.merged.target == m.target && cell.merged.workload == m.workload;
            match cells.iter_mut().find(is_same) {
                Some(cell) => cell.add(m, ended_at_ms),
                None => cells.push(Self { merged: m.clone(), rounds: 1, ended_at_ms }),
            }
        }
        let plan = &run.plan;
        cells.sort_by_key(|Self { merged, .. }| {
            let workload = plan.workloads.iter().position(|workload| workload.name == merged.workload);
            (workload, plan.targets.iter().position(|target| target.name == merged.target))
        });
        Ok(cells)
    }

    /// Merges another round of the same workload on the same target.
    fn add(&mut self, m: &Measurement, ended_at_ms: u64) {
        self.rounds += 1;
        self.ended_at_ms = self.ended_at_ms.max(ended_at_ms);
        let (all, one) = (&mut self.merged.outcome, &m.outcome);
        all.duration_ns += one.duration_ns;
        all.tallies.merge(&one.tallies);
        all.cpu.user_ns += one.cpu.user_ns;
        all.cpu.system_ns += one.cpu.system_ns;
        all.counts = all.counts.zip(one.counts).map(|(mut all, one)| {
            all.context_switches += one.context_switches;
            all.major_faults += one.major_faults;
            all.minor_faults += one.minor_faults;
            all
        });
        one.errors.iter().for_each(|error| ErrorCount::add(&mut all.errors, error));
        all.ioengine = all.ioengine.filter(|engine| one.ioengine == Some(*engine));
        add_shares(&mut all.jobs, &one.jobs);
        add_shares(&mut self.merged.shares, &m.shares);
        self.merged.samples.extend_from_slice(&m.samples);
    }
}

fn add_shares(all: &mut Vec<Share>, round: &[Share]) {
    for share in round {
        match all.iter_mut().find(|known| known.name == share.name) {
            Some(known) => {
                known.duration_ns += share.duration_ns;
                known.tallies.merge(&share.tallies);
            }
            None => all.push(share.clone()),
        }
    }
}

fn refuse(run: &Run, m: &Measurement) -> Result<(), Unfit> {
    let none = m.outcome.tallies.each().all(|(_, tally)| tally.is_none());
    if let (Some(_), true) = (&m.stated, none) {
        let tool = run.source.as_ref().map_or("another tool", |source| source.tool.as_str());
        return Err(Unfit(format!(
            "run {} comes from {tool}, which tells no counts and latencies of {:?}; fio's formats are made of them",
            run.id, m.workload
        )));
    }
    if m.stated.is_some() && m.outcome.duration_ns == 0 {
        return Err(Unfit(format!(
            "run {} is imported and tells not how long {:?} took; fio's rates are made of that",
            run.id, m.workload
        )));
    }
    if m.outcome.tallies.meta.is_some() {
        return Err(Unfit(format!(
            "workload {:?} has operations on files as such, for which fio's formats have no place",
            m.workload
        )));
    }
    Ok(())
}
