//! Searches for the highest rate that meets the conditions on latency and errors. Each round's rates are chosen from the results of the
//! rounds before.

use std::sync::Arc;

use iotax_analysis::ask::{self, HighestRate, Next};
use iotax_model::Cell;
use iotax_model::Run;
use iotax_model::plan::{AskSpec, Plan, rounded};
use iotax_model::schedule;
use iotax_model::units::human;
use iotax_model::workload::Workload;

use super::cell::ScheduledCell;
use super::{Ended, Interrupted, Runner, Step};

/// Number of rounds between two reports of the rates found so far.
const LOOK_EVERY: u32 = 4;

impl Runner<'_> {
    /// Measures rounds until the next one would exceed the time limit, or until no rate is left to try. Then holds the found rates, if the
    /// plan requests that.
    pub(super) fn search(&mut self, ask: &AskSpec) -> anyhow::Result<Ended> {
        let (mut missing, mut spent) = (0, 0);
        for round in 1_u32.. {
            let so_far = self.context.store.load(self.order.run)?;
            let cells = self.choose_rates(&so_far, ask, round);
            let times = cells.iter().map(|cell| Plan::trial_time(self.workload(*cell)));
            let time = times.fold(0, u64::saturating_add);
            if cells.is_empty() || time.saturating_add(spent) > ask.time.0 {
                break;
            }
            spent += time;
            self.context.store.set_plan(self.order.run, &self.plan)?;
            let before = so_far.measurements.len();
            let left = ask.time.0.saturating_sub(spent) / (time / cells.len() as u64).max(1);
            let expected = before + cells.len() + usize::try_from(left)?;
            for (number, cell) in (before + 1..).zip(&cells) {
                let trial = Trial { cell: *cell, round, number, expected };
                missing += self.try_cell(&trial)?;
            }
            if round.is_multiple_of(LOOK_EVERY) {
                self.context
                    .progress
                    .report_look(&found_so_far(&self.context.store.load(self.order.run)?, round));
            }
        }
        missing += self.hold(ask)?;
        Ok(if missing == 0 { Ended::Complete } else { Ended::Missing(missing) })
    }

    /// Runs each target at its found rate for the time `sustain`, one target after another. Returns the number of failed measurements; 0
    /// without `sustain`.
    fn hold(&mut self, ask: &AskSpec) -> anyhow::Result<usize> {
        let Some((window, windows)) = ask.held() else { return Ok(0) };
        let so_far = self.context.store.load(self.order.run)?;
        let mut plan = Plan::clone(&self.plan);
        let mut cells = Vec::new();
        for answers in ask::answers(&so_far) {
            for answer in &answers.targets {
                let Some(rate) = answer.found.to_hold() else { continue };
                let target = plan.targets.iter().position(|target| target.name == answer.target);
                let work = plan.workloads.iter().position(|workload| workload.name == answers.work.name);
                let (Some(target), Some(work)) = (target, work) else { continue };
                cells.push(Cell { target, workload: plan.add_held(work, rounded(rate), window) });
            }
        }
        self.plan = Arc::new(plan);
        self.context.store.set_plan(self.order.run, &self.plan)?;
        let mut number = so_far.measurements.len();
        let expected = number + cells.len() * windows as usize;
        let mut missing = 0;
        for cell in cells {
            for round in 1..=windows {
                number += 1;
                missing += self.try_cell(&Trial { cell, round, number, expected })?;
            }
        }
        Ok(missing)
    }

    /// Measures a cell (a target and a workload), unless an earlier part of the run did. Returns the number of failures, 0 or 1.
    fn try_cell(&mut self, trial: &Trial) -> anyhow::Result<usize> {
        let Trial { cell, round, number, .. } = *trial;
        if self.is_done(cell, round) {
            return Ok(0);
        }
        self.context.fail_if_stopped()?;
        let plan = Arc::clone(&self.plan);
        self.context.progress.cell(trial.step(&plan));
        let scheduled = ScheduledCell { cell, round, order: u32::try_from(number)? };
        match self.measure_alive(scheduled) {
            Ok(measurement) => {
                self.context.store.put_measurement(self.order.run, &measurement)?;
                self.order.gate.stored(&measurement);
            }
            Err(_) if self.context.is_stopped() => return Err(Interrupted.into()),
            Err(error) => {
                self.failed(cell, round, &error)?;
                return Ok(1);
            }
        }
        Ok(0)
    }

    /// Chooses the rates of a round and adds their workloads to the plan. Returns the round's cells (targets with workloads) in random
    /// order.
    fn choose_rates(&mut self, so_far: &Run, ask: &AskSpec, round: u32) -> Vec<Cell> {
        let mut plan = Plan::clone(&self.plan);
        let mut cells = Vec::new();
        let asked: Vec<String> = plan.asked().map(|workload| workload.name.clone()).collect();
        let is_asked = |workload: &Workload| asked.contains(&workload.name);
        let asked: Vec<usize> = (0..plan.workloads.len()).filter(|i| is_asked(&plan.workloads[*i])).collect();
        for target in (0..plan.targets.len()).filter(|target| !self.lost.contains(target)) {
            for work in &asked {
                let name = &plan.targets[target].name;
                let next = ask::next(so_far, ask, &plan.workloads[*work], name, round);
                let loads = match next {
                    Next::Nothing => Vec::new(),
                    Next::Capacity => vec![*work],
                    Next::Below(rate) => vec![*work, plan.add_rate(*work, rate)],
                    Next::Rates(rates) => rates.into_iter().map(|rate| plan.add_rate(*work, rate)).collect(),
                };
                cells.extend(loads.into_iter().map(|workload| Cell { target, workload }));
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

/// Formats the rates found so far: `round 8: host-file 12.3k IOPS, vm-raw 8.10k IOPS so far`.
fn found_so_far(run: &Run, round: u32) -> String {
    let answers = ask::answers(run);
    let targets =
        answers.iter().flat_map(|answers| &answers.targets).filter_map(|answer| match answer.found {
            HighestRate::Rate(located) => {
                Some(format!("{} {} IOPS", answer.target, human::count(located.at)))
            }
            _ => None,
        });
    let targets: Vec<String> = targets.collect();
    if targets.is_empty() {
        format!("round {round}: no rate is close yet")
    } else {
        format!("round {round}: {} so far", targets.join(", "))
    }
}

/// A cell (a target and a workload) of the search, with its round and its number in the run.
struct Trial {
    cell: Cell,
    round: u32,
    number: usize,
    /// The expected number of measurements in the whole run.
    expected: usize,
}

impl Trial {
    fn step<'a>(&self, plan: &'a Plan) -> Step<'a> {
        Step {
            round: self.round,
            rounds: self.round,
            cell: self.number,
            cells: self.expected,
            at_most: self.expected,
            open: None,
            target: plan.targets[self.cell.target].name.clone(),
            workload: &plan.workloads[self.cell.workload].name,
        }
    }
}
