//! Schedules rounds: all of the plan's, or those that undecided comparisons need.

use std::ops::RangeInclusive;
use std::time::Instant;

use iotax_analysis::{SequentialState, Standing, SteadyState, Stopped};
use iotax_model::Run;
use iotax_model::record::Measurement;
use iotax_model::schedule;
use iotax_model::units::human;
use iotax_model::{Cell, Plan};

use super::Progress;

/// Rounds measured without a look in between.
pub(super) struct Batch {
    pub(super) rounds: RangeInclusive<u32>,
    /// The cells measured in each round.
    pub(super) cells: Vec<Cell>,
    /// Number of measurements before this batch.
    pub(super) before: usize,
    /// Maximum number of measurements, if no further comparison is decided.
    pub(super) at_most: usize,
    /// The numbers of undecided comparisons and of all; `None` unless rounds are added until all are decided.
    pub(super) open: Option<(usize, usize)>,
}

impl Batch {
    /// The rounds from one look to the next.
    fn up_to(standing: Standing, next: u32) -> Self {
        let rounds = standing.rounds() + 1..=next;
        let cells = standing.cells.len();
        let last = standing.looks.last().copied().unwrap_or(next);
        Self {
            before: standing.planned - rounds.clone().count() * cells,
            at_most: standing.planned + (last - next) as usize * cells,
            open: Some((standing.open, standing.comparisons)),
            cells: standing.cells,
            rounds,
        }
    }

    /// Number of measurements at the end of this batch.
    pub(super) fn after(&self) -> usize {
        self.before + self.rounds.clone().count() * self.cells.len()
    }
}

/// Schedules the remaining rounds of a run.
pub(super) struct Scheduler<'a> {
    plan: &'a Plan,
    /// Set if rounds are added until every comparison is decided.
    sequential: Option<SequentialState>,
    /// Set if rounds are added until a steady state, with the last scheduled round.
    steady: Option<(SteadyState, u32)>,
    /// True once all of a fixed number of rounds have been scheduled.
    scheduled: bool,
    begun: Instant,
    /// Planned seconds of warm-ups and windows since the beginning.
    planned_seconds: f64,
}

impl<'a> Scheduler<'a> {
    /// A scheduler for a run whose targets are built. Times follow from `plan`; looks follow from the run's original plan.
    pub(super) fn new(plan: &'a Plan, run: &Run) -> Self {
        let sequential = SequentialState::new(run);
        let steady = SteadyState::of(run).map(|state| (state, 0));
        Self { plan, sequential, steady, scheduled: false, begun: Instant::now(), planned_seconds: 0.0 }
    }

    /// Adds a measurement to the statistics for the next look.
    pub(super) fn measured(&mut self, cell: Cell, measurement: &Measurement) {
        self.planned_seconds += self.seconds(cell);
        if let Some(sequential) = &mut self.sequential {
            sequential.add(measurement);
        }
        if let Some((steady, _)) = &mut self.steady {
            steady.add(measurement);
        }
    }

    /// Records that a measurement failed, for the next look.
    pub(super) fn failed(&mut self, cell: Cell, round: u32) {
        if let Some(sequential) = &mut self.sequential {
            sequential.fail(cell, round);
        }
    }

    /// The next batch, after a look at the measurements so far; `None` if nothing is left.
    pub(super) fn next(&mut self, progress: &mut dyn Progress) -> Option<Batch> {
        if self.steady.is_some() {
            return self.next_towards_steady(progress);
        }
        let Some(sequential) = &mut self.sequential else {
            return (!std::mem::replace(&mut self.scheduled, true)).then(|| self.everything());
        };
        let standing = sequential.standing();
        if standing.taken > 0 {
            progress.look(&self.look(&standing));
        }
        let next = standing.next()?;
        let batch = Batch::up_to(standing, next);
        if let Some(reason) = self.too_late(&batch) {
            progress.note(&reason);
            return None;
        }
        Some(batch)
    }

    /// The next batch of a run to a steady state: first the plan's rounds, then one round at a time until every cell is steady or the
    /// maximum is reached.
    fn next_towards_steady(&mut self, progress: &mut dyn Progress) -> Option<Batch> {
        let (state, before) = self.steady.as_mut()?;
        let most = self.plan.most_rounds();
        if *before > 0 {
            let cells = state.cells();
            let steady = cells.iter().filter(|cell| cell.is_steady()).count();
            progress.look(&format!(
                "{before} rounds, {}: {steady} of {} cells in a steady state",
                human::duration(self.begun.elapsed().as_secs_f64()),
                cells.len()
            ));
            if state.is_reached() || *before >= most {
                return None;
            }
        }
        let first = *before + 1;
        *before = if *before == 0 { self.plan.repeat } else { first };
        let cells = schedule::cells(self.plan);
        let at_most = cells.len() * most as usize;
        Some(Batch {
            rounds: first..=*before,
            before: (first as usize - 1) * cells.len(),
            cells,
            at_most,
            open: None,
        })
    }

    /// All rounds of a plan with a fixed number of rounds.
    fn everything(&self) -> Batch {
        let cells = schedule::cells(self.plan);
        let at_most = self.plan.cells() * self.plan.repeat as usize;
        Batch { rounds: 1..=self.plan.repeat, cells, before: 0, at_most, open: None }
    }

    /// A look's result as text.
    fn look(&self, standing: &Standing) -> String {
        let (taken, looks, rounds) = (standing.taken, standing.looks.len(), standing.rounds());
        let (decided, all) = (standing.comparisons - standing.open, standing.comparisons);
        let passed = human::duration(self.begun.elapsed().as_secs_f64());
        let then = match (standing.stopped, standing.next()) {
            (Some(Stopped::MaxRounds), _) => "; it was the last".into(),
            (Some(Stopped::Failed), _) => "; what is open could not be measured".into(),
            (None, Some(next)) => {
                format!("; {} of {} cells go on to {next} rounds", standing.cells.len(), self.plan.cells())
            }
            _ => String::new(),
        };
        format!(
            "look {taken} of {looks}, {rounds} rounds, {passed}: {decided} of {all} comparisons decided{then}"
        )
    }

    /// Returns the reason to stop if a batch would end later than the plan's `max_time`, else `None`.
    fn too_late(&self, batch: &Batch) -> Option<String> {
        let limit = self.plan.until_decided()?.max_time?;
        let planned: f64 = batch.cells.iter().map(|cell| self.seconds(*cell)).sum();
        let is_there = |cell: &Cell, round| {
            self.sequential.as_ref().is_some_and(|sequential| sequential.has(*cell, round))
        };
        let there = batch.rounds.clone().map(|round| {
            let cells = batch.cells.iter().filter(|cell| is_there(cell, round));
            cells.map(|cell| self.seconds(*cell)).sum::<f64>()
        });
        let planned = planned * batch.rounds.clone().count() as f64 - there.sum::<f64>();
        let passed = self.begun.elapsed().as_secs_f64();
        // The ratio of the time so far to warm-ups and windows alone.
        let stretched = if self.planned_seconds > 0.0 { passed / self.planned_seconds } else { 1.0 };
        let end = passed + planned * stretched;
        (end > limit.as_secs_f64()).then(|| {
            format!(
                "stopped: the rounds up to the next look would end after {}, and the limit is {limit}",
                human::duration(end)
            )
        })
    }

    /// Expected seconds of a cell's warm-up and window.
    fn seconds(&self, cell: Cell) -> f64 {
        let workload = &self.plan.workloads[cell.workload];
        workload.expected_time().as_secs_f64()
    }
}
