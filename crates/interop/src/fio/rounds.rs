//! Merges the rounds of a workload on a target, because fio has no rounds.

use iotax_model::record::{LoadRelation, Measurement, Outcome, Share};
use iotax_model::{CellKey, Run};

use crate::Unfit;

/// A workload on a target with all its rounds merged, because readers of fio's formats would take two jobs of the same name for different jobs.
pub(super) struct MergedRounds {
    /// The merged measurement: outcome, shares and samples cover all rounds. Everything else comes from the first round.
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
        let mut cells: Vec<Vec<&Measurement>> = Vec::new();
        for m in &run.measurements {
            refuse(run, m)?;
            match cells.iter_mut().find(|rounds| rounds[0].cell() == m.cell()) {
                Some(rounds) => rounds.push(m),
                None => cells.push(vec![m]),
            }
        }
        let plan = &run.plan;
        cells.sort_by_key(|rounds| {
            let CellKey { workload, target } = rounds[0].cell();
            let workload = plan.workloads.iter().position(|known| known.name == workload);
            (workload, plan.targets.iter().position(|known| known.name == target))
        });
        Ok(cells.iter().map(|rounds| Self::new(rounds)).collect())
    }

    /// Merges the rounds of one workload on one target, of which there is at least one.
    fn new(rounds: &[&Measurement]) -> Self {
        let outcomes = rounds.iter().map(|m| (format!("round {}", m.round), m.outcome.clone()));
        let mut shares = Vec::new();
        for share in rounds.iter().flat_map(|m| &m.shares) {
            Share::add(&mut shares, share, LoadRelation::Successive);
        }
        let ends = rounds.iter().map(|m| m.started_at_ms + m.outcome.duration_ns / 1_000_000);
        Self {
            merged: Measurement {
                outcome: Outcome::merge(outcomes, LoadRelation::Successive),
                samples: rounds.iter().flat_map(|m| &m.samples).cloned().collect(),
                shares,
                ..rounds[0].clone()
            },
            rounds: u32::try_from(rounds.len()).unwrap_or(u32::MAX),
            ended_at_ms: ends.max().unwrap_or_default(),
        }
    }
}

fn refuse(run: &Run, m: &Measurement) -> Result<(), Unfit> {
    let none = m.outcome.tallies.each().all(|(_, tally)| tally.is_none());
    if let (Some(_), true) = (&m.stated, none) {
        let tool = run.source.imported().map_or("another tool", |source| source.tool.as_str());
        return Err(Unfit(format!(
            "run {} comes from {tool}, which reports no counts and latencies of {:?}; fio's formats are made of them",
            run.id, m.workload
        )));
    }
    if m.stated.is_some() && m.outcome.duration_ns == 0 {
        return Err(Unfit(format!(
            "run {} is imported and does not say how long {:?} took; fio's rates are made of that",
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
