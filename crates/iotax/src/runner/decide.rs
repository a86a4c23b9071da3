//! Which rounds are measured next, and what of them: all that the plan has, or what is needed to decide what is open.

use std::ops::RangeInclusive;
use std::time::Instant;

use iotax_analysis::store::Run;
use iotax_analysis::{Course, Standing, Stopped};
use iotax_model::record::Measurement;
use iotax_model::units::human;
use iotax_model::{Cell, Plan};

use super::Progress;

/// Rounds that are measured without a look in between.
pub(super) struct Stretch {
    pub(super) rounds: RangeInclusive<u32>,
    /// The cells that are measured in each of them.
    pub(super) cells: Vec<Cell>,
    /// Measurements of the run before it.
    pub(super) before: usize,
    /// Measurements of the run if no comparison is decided any more.
    pub(super) at_most: usize,
    /// How many comparisons are open, of how many; absent where no rounds are added.
    pub(super) open: Option<(usize, usize)>,
}

impl Stretch {
    /// From a look to the next.
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

    /// Measurements of the run at its end.
    pub(super) fn after(&self) -> usize {
        self.before + self.rounds.clone().count() * self.cells.len()
    }
}

/// What is left to be measured of a run.
pub(super) struct Agenda<'a> {
    plan: &'a Plan,
    /// Absent where the number of rounds is fixed.
    course: Option<Course>,
    /// Whether all rounds of a fixed number were given out.
    given_out: bool,
    begun: Instant,
    /// Warm-ups and windows since it began, in seconds by the plan.
    planned_seconds: f64,
}

impl<'a> Agenda<'a> {
    /// Of a run whose targets stand. The plan's times are those of `plan`, the looks those that the run began with.
    pub(super) fn new(plan: &'a Plan, run: &Run) -> Self {
        let course = Course::new(run);
        Self { plan, course, given_out: false, begun: Instant::now(), planned_seconds: 0.0 }
    }

    /// Takes note of a measurement.
    pub(super) fn measured(&mut self, cell: Cell, measurement: &Measurement) {
        self.planned_seconds += self.seconds(cell);
        if let Some(course) = &mut self.course {
            course.add(measurement);
        }
    }

    /// Takes note of a measurement that failed.
    pub(super) fn failed(&mut self, cell: Cell, round: u32) {
        if let Some(course) = &mut self.course {
            course.fail(cell, round);
        }
    }

    /// What is to be measured next, after a look at what was; absent if nothing is.
    pub(super) fn next(&mut self, progress: &mut dyn Progress) -> Option<Stretch> {
        let Some(course) = &mut self.course else {
            return (!std::mem::replace(&mut self.given_out, true)).then(|| self.everything());
        };
        let standing = course.standing();
        if standing.taken > 0 {
            progress.look(&self.look(&standing));
        }
        let next = standing.next()?;
        let stretch = Stretch::up_to(standing, next);
        if let Some(reason) = self.too_late(&stretch) {
            progress.note(&reason);
            return None;
        }
        Some(stretch)
    }

    /// All rounds of a plan that fixes their number.
    fn everything(&self) -> Stretch {
        let cells = (0..self.plan.targets.len())
            .flat_map(|target| (0..self.plan.workloads.len()).map(move |workload| Cell { target, workload }))
            .collect();
        let at_most = self.plan.cells() * self.plan.repeat as usize;
        Stretch { rounds: 1..=self.plan.repeat, cells, before: 0, at_most, open: None }
    }

    /// What a look came to.
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

    /// Why a stretch is not begun, if it would end later than the plan allows.
    fn too_late(&self, stretch: &Stretch) -> Option<String> {
        let limit = self.plan.until_decided.as_ref()?.max_time?;
        let planned: f64 = stretch.cells.iter().map(|cell| self.seconds(*cell)).sum();
        let is_there =
            |cell: &Cell, round| self.course.as_ref().is_some_and(|course| course.has(*cell, round));
        let there = stretch.rounds.clone().map(|round| {
            let cells = stretch.cells.iter().filter(|cell| is_there(cell, round));
            cells.map(|cell| self.seconds(*cell)).sum::<f64>()
        });
        let planned = planned * stretch.rounds.clone().count() as f64 - there.sum::<f64>();
        let passed = self.begun.elapsed().as_secs_f64();
        // By how much measuring takes longer than warm-ups and windows alone.
        let stretched = if self.planned_seconds > 0.0 { passed / self.planned_seconds } else { 1.0 };
        let end = passed + planned * stretched;
        (end > limit.as_secs_f64()).then(|| {
            format!(
                "it ends here: the next look would be after {}, beyond the {limit} that it has",
                human::duration(end)
            )
        })
    }

    /// Warm-up and window of a cell.
    fn seconds(&self, cell: Cell) -> f64 {
        let workload = &self.plan.workloads[cell.workload];
        workload.expected_time().as_secs_f64()
    }
}
