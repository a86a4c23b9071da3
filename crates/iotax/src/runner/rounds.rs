//! Measures the rounds of a run. A round is a sequence of windows; each window measures one cell (a target and a workload), or several at
//! the same time.

use std::sync::Arc;

use iotax_model::plan::Plan;
use iotax_model::record::{Measurement, Stop};
use iotax_model::schedule::{self, Cell};
use iotax_model::units::Bytes;

use super::cell::ScheduledCell;
use super::scheduler::{Batch, Scheduler};
use super::target::Target;
use super::{Ended, Interrupted, Runner, Step};

impl Runner<'_> {
    /// Measures all cells that earlier parts of the run have not measured.
    pub(super) fn all_rounds(&mut self) -> anyhow::Result<Ended> {
        let plan = Arc::clone(&self.plan);
        if let Some(ask) = plan.ask() {
            return self.search(ask);
        }
        let filled = |(index, group): (usize, &Vec<Target>)| {
            let is_own = index >= plan.targets.len() || plan.storage_of(index) == index;
            let bytes = |target: &Target| Some(target.filled(&plan)?.1.0 * plan.fill_passes());
            Bytes(group.iter().filter(|_| is_own).filter_map(bytes).sum())
        };
        let filled: Vec<Bytes> = self.groups.iter().enumerate().map(filled).collect();
        let mut scheduler = Scheduler::new(&plan, &self.context.store.load(self.order.run)?, filled);
        let mut missing = 0;
        while let Some(batch) = scheduler.next(self.context.progress) {
            let mut number = batch.before + 1;
            for round in batch.rounds.clone() {
                let whole = schedule::round_order(&plan, self.order.seed, round);
                let due: Vec<Cell> =
                    whole.iter().filter(|cell| batch.cells.contains(cell)).copied().collect();
                for window in schedule::windows(&plan, &due) {
                    let first = number;
                    number += window.len();
                    let left = window.into_iter().filter(|cell| !self.is_done(*cell, round));
                    let left = left.map(|cell| scheduled(&plan, &whole, cell, round));
                    let left = left.collect::<anyhow::Result<Vec<ScheduledCell>>>()?;
                    if left.is_empty() {
                        continue;
                    }
                    self.context.fail_if_stopped()?;
                    self.context.progress.cell(step(&plan, &batch, &left, first));
                    missing += self.window(&left, &mut scheduler)?;
                }
            }
        }
        Ok(if missing == 0 { Ended::Complete } else { Ended::Missing(missing) })
    }

    /// Measures the cells of a window at the same time and stores the results. Returns the number of cells that failed.
    fn window(&mut self, cells: &[ScheduledCell], scheduler: &mut Scheduler<'_>) -> anyhow::Result<usize> {
        let results = match cells {
            [only] => vec![self.measure_alive(*only)],
            together => self.measure_together(together),
        };
        let (mut missing, mut is_interrupted) = (0, false);
        for (ScheduledCell { cell, round, .. }, result) in cells.iter().copied().zip(results) {
            let error = match result {
                Ok(measurement) => {
                    self.context.store.put_measurement(self.order.run, &measurement)?;
                    self.order.gate.stored(&measurement);
                    scheduler.measured(cell, &measurement);
                    // A watch that the user ended early is kept.
                    is_interrupted |= self.plan.watch().is_some() && self.context.is_stopped();
                    let is_gone = measurement.outcome.stop == Some(Stop::Gone);
                    is_gone.then(|| anyhow::anyhow!("{}", measurement.outcome.notes.join("; ")))
                }
                Err(_) if self.context.is_stopped() => {
                    is_interrupted = true;
                    None
                }
                Err(error) => {
                    scheduler.failed(cell, round);
                    Some(error)
                }
            };
            if let Some(error) = error {
                missing += 1;
                self.failed(cell, round, &error)?;
            }
        }
        if is_interrupted { Err(Interrupted.into()) } else { Ok(missing) }
    }

    /// Returns whether an earlier part of the run measured a cell (a target and a workload) in a round.
    pub(super) fn is_done(&self, cell: Cell, round: u32) -> bool {
        let plan = &self.plan;
        let (target, workload) = (&plan.targets[cell.target].name, &plan.workloads[cell.workload].name);
        self.order.done.contains(&(target.clone(), workload.clone(), round))
    }

    /// Measures a cell. Fails if its target was lost earlier in the run.
    fn measure_if_there(&mut self, scheduled: ScheduledCell) -> anyhow::Result<Measurement> {
        // The reason was reported once, for the target.
        anyhow::ensure!(!self.lost.contains(&scheduled.cell.target), "the target was lost");
        self.measure(scheduled)
    }

    /// Measures a cell (a target and a workload). If a guest's disk does not answer, reboots the guest and measures once more, except in a
    /// watch.
    pub(super) fn measure_alive(&mut self, scheduled: ScheduledCell) -> anyhow::Result<Measurement> {
        let measurement = self.measure_if_there(scheduled)?;
        // A watch's event may well stop a disk, and must not happen twice.
        if self.plan.disturbs() || !self.hangs(scheduled.cell, &measurement) {
            return Ok(measurement);
        }
        self.revive(scheduled.cell)?;
        let mut again = self.measure_if_there(scheduled)?;
        if self.hangs(scheduled.cell, &again) {
            self.revive(scheduled.cell)?;
        }
        let remark =
            "the guest's disk had not answered, so the guest was started again; this is the second attempt";
        again.outcome.notes.push(remark.into());
        Ok(again)
    }
}

/// Returns a cell with its position in the run, counted as if no cell were omitted.
fn scheduled(plan: &Plan, whole: &[Cell], cell: Cell, round: u32) -> anyhow::Result<ScheduledCell> {
    let index = whole.iter().take_while(|one| **one != cell).count();
    let order = u32::try_from((round as usize - 1) * plan.cells() + index + 1)?;
    Ok(ScheduledCell { cell, round, order })
}

/// Returns the progress step of the window that measures `cells`. `number` is the position of the first cell in the run.
fn step<'a>(plan: &'a Plan, batch: &Batch, cells: &[ScheduledCell], number: usize) -> Step<'a> {
    let targets: Vec<&str> = cells.iter().map(|one| plan.targets[one.cell.target].name.as_str()).collect();
    Step {
        round: cells.first().map_or(0, |one| one.round),
        rounds: *batch.rounds.end(),
        cell: number,
        cells: batch.after(),
        at_most: batch.at_most,
        open: batch.open,
        target: targets.join(", "),
        workload: cells.first().map_or("", |one| &plan.workloads[one.cell.workload].name),
    }
}
