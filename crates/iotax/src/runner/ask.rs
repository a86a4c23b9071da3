//! The search for the highest rate that keeps conditions: rounds whose rates follow from the rounds before.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use iotax_analysis::ask::{self, Found, Next};
use iotax_analysis::store::{Run, Store};
use iotax_model::Cell;
use iotax_model::plan::{AskSpec, Plan};
use iotax_model::schedule;
use iotax_model::units::human;
use iotax_model::workload::Workload;
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::undo::UndoLog;

use super::cell::ScheduledCell;
use super::{Ended, Interrupted, Progress, Runner, Step};

/// Rounds from one look to the next.
const LOOK_EVERY: u32 = 4;

impl Runner<'_> {
    /// Measures round after round until the question's time is over or nothing is left to try.
    pub(super) fn search(
        &mut self,
        ask: &AskSpec,
        undo_log: &mut UndoLog,
        store: &mut Store,
        progress: &mut dyn Progress,
        stop: &Interrupt,
    ) -> anyhow::Result<Ended> {
        let (mut missing, mut spent) = (0, 0);
        for round in 1_u32.. {
            let so_far = store.load(self.order.run)?;
            let cells = self.place(&so_far, ask, round);
            let times = cells.iter().map(|cell| Plan::trial_time(self.workload(*cell)));
            let time = times.fold(0, u64::saturating_add);
            if cells.is_empty() || time.saturating_add(spent) > ask.time.0 {
                break;
            }
            spent += time;
            store.set_plan(self.order.run, &self.plan)?;
            let before = so_far.measurements.len();
            for (number, cell) in (before + 1..).zip(&cells) {
                if self.is_done(*cell, round) {
                    continue;
                }
                if stop.load(Ordering::Relaxed) {
                    return Err(Interrupted.into());
                }
                let plan = Arc::clone(&self.plan);
                let left = ask.time.0.saturating_sub(spent) / (time / cells.len() as u64).max(1);
                let cells = before + cells.len() + usize::try_from(left)?;
                progress.cell(step(&plan, *cell, round, number, cells));
                let scheduled = ScheduledCell { cell: *cell, round, order: u32::try_from(number)? };
                match self.measure_alive(scheduled, undo_log, progress, stop) {
                    Ok(measurement) => store.put_measurement(self.order.run, &measurement)?,
                    Err(_) if stop.load(Ordering::Relaxed) => return Err(Interrupted.into()),
                    Err(error) => {
                        missing += 1;
                        self.failed(*cell, round, &error, undo_log, store, progress, stop)?;
                    }
                }
            }
            if round.is_multiple_of(LOOK_EVERY) {
                progress.look(&look(&store.load(self.order.run)?, round));
            }
        }
        Ok(if missing == 0 { Ended::Complete } else { Ended::Missing(missing) })
    }

    /// The cells of a round in random order, whose workloads are added to the plan.
    fn place(&mut self, so_far: &Run, ask: &AskSpec, round: u32) -> Vec<Cell> {
        let mut plan = Plan::clone(&self.plan);
        let mut cells = Vec::new();
        let asked: Vec<String> = plan.asked().map(|workload| workload.name.clone()).collect();
        let is_asked = |workload: &Workload| asked.contains(&workload.name);
        let asked: Vec<usize> = (0..plan.workloads.len()).filter(|i| is_asked(&plan.workloads[*i])).collect();
        for target in (0..plan.targets.len()).filter(|target| !self.lost.contains(target)) {
            for work in &asked {
                let name = &plan.targets[target].name;
                let next = ask::next(so_far, ask, &plan.workloads[*work], name, round);
                let rates = match next {
                    Next::Nothing => Vec::new(),
                    Next::Capacity => vec![*work],
                    Next::Rates(rates) => rates.into_iter().map(|rate| plan.add_rate(*work, rate)).collect(),
                };
                cells.extend(rates.into_iter().map(|workload| Cell { target, workload }));
            }
        }
        self.plan = Arc::new(plan);
        schedule::shuffle(&mut cells, self.order.seed, round);
        cells
    }

    fn workload(&self, cell: Cell) -> &Workload {
        &self.plan.workloads[cell.workload]
    }
}

/// `round 8: host-file 12.3k IOPS, vm-raw 8.10k IOPS so far`.
fn look(run: &Run, round: u32) -> String {
    let answers = ask::answers(run);
    let targets =
        answers.iter().flat_map(|answers| &answers.targets).filter_map(|answer| match answer.found {
            Found::Rate(located) => Some(format!("{} {} IOPS", answer.target, human::count(located.at))),
            _ => None,
        });
    let targets: Vec<String> = targets.collect();
    if targets.is_empty() {
        format!("round {round}: no rate is close yet")
    } else {
        format!("round {round}: {} so far", targets.join(", "))
    }
}

fn step(plan: &Plan, cell: Cell, round: u32, number: usize, cells: usize) -> Step<'_> {
    Step {
        round,
        rounds: round,
        cell: number,
        cells,
        at_most: cells,
        open: None,
        target: &plan.targets[cell.target].name,
        workload: &plan.workloads[cell.workload].name,
    }
}
