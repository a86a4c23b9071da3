//! Schedules rounds: all rounds of the plan, or further rounds until every comparison is decided or every cell (a target with a workload)
//! is in a steady state.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Instant;

use iotax_analysis::{SequentialState, SequentialStatus, SteadyState, Stopped};
use iotax_model::Run;
use iotax_model::plan::Design;
use iotax_model::record::{Measurement, Outcome};
use iotax_model::schedule;
use iotax_model::units::{Bytes, human};
use iotax_model::{Cell, Plan};
use iotax_testbed::target::disks::{TargetDisk, by_disk};

use super::Progress;

/// Consecutive rounds that are measured before the next interim look at the results.
pub(super) struct Batch {
    pub(super) rounds: RangeInclusive<u32>,
    /// The cells (targets with workloads) measured in each round.
    pub(super) cells: Vec<Cell>,
    /// Number of measurements before this batch.
    pub(super) before: usize,
    /// Maximum number of measurements in the run, if no further comparison is decided.
    pub(super) at_most: usize,
    /// The number of undecided comparisons and the number of all comparisons; `None` unless rounds are added until all are decided.
    pub(super) open: Option<(usize, usize)>,
}

impl Batch {
    /// Returns the rounds after the last interim look, up to round `next`.
    fn up_to(status: SequentialStatus, next: u32) -> Self {
        let rounds = status.rounds() + 1..=next;
        let cells = status.cells.len();
        let last = status.looks.last().copied().unwrap_or(next);
        Self {
            before: status.planned - rounds.clone().count() * cells,
            at_most: status.planned + (last - next) as usize * cells,
            open: Some((status.open, status.comparisons)),
            cells: status.cells,
            rounds,
        }
    }

    /// Returns the number of measurements at the end of this batch.
    pub(super) fn after(&self) -> usize {
        self.before + self.rounds.clone().count() * self.cells.len()
    }
}

/// Scheduler of a run's remaining rounds.
pub(super) struct Scheduler<'a> {
    plan: &'a Plan,
    /// State of the comparisons; `None` unless rounds are added until every comparison is decided.
    sequential: Option<SequentialState>,
    /// State of the rule for a steady state, with the last scheduled round; `None` unless rounds are added until a steady state.
    steady: Option<(SteadyState, u32)>,
    /// Bytes that were written to fill each target.
    filled: Vec<Bytes>,
    /// The physical disks that the targets are on, which a limit on what is written applies to.
    disks: Vec<TargetDisk>,
    /// Bytes written in warm-ups and windows, by target and round.
    written: BTreeMap<(String, u32), u64>,
    /// True once the rounds of a plan with a fixed number of rounds have been scheduled.
    scheduled: bool,
    begun: Instant,
    /// Seconds of warm-ups and windows that were planned for the measurements so far.
    planned_seconds: f64,
}

impl<'a> Scheduler<'a> {
    /// Creates a scheduler once the targets are built. Durations follow from `plan`, the interim looks from the run's original plan.
    pub(super) fn new(plan: &'a Plan, run: &Run, filled: Vec<Bytes>) -> Self {
        let mut scheduler = Self {
            plan,
            sequential: SequentialState::new(run),
            steady: SteadyState::of(run).map(|state| (state, 0)),
            filled,
            disks: plan.until_steady().map(|_| by_disk(plan)).unwrap_or_default(),
            written: BTreeMap::new(),
            scheduled: false,
            begun: Instant::now(),
            planned_seconds: 0.0,
        };
        run.measurements.iter().for_each(|measurement| scheduler.add_written(measurement));
        scheduler
    }

    /// Adds the bytes that a measurement wrote, its warm-up included at the rate of its window.
    fn add_written(&mut self, measurement: &Measurement) {
        let Outcome { tallies, duration_ns, .. } = &measurement.outcome;
        let workload = self.plan.workloads.iter().find(|workload| workload.name == measurement.workload);
        let ramp_ns = workload.map_or(0, |workload| workload.ramp_time.0);
        let bytes = tallies.write.as_ref().map_or(0, |write| write.bytes);
        let with_ramp =
            u128::from(bytes) * u128::from(duration_ns + ramp_ns) / u128::from(*duration_ns.max(&1));
        *self.written.entry((measurement.target.clone(), measurement.round)).or_default() +=
            u64::try_from(with_ramp).unwrap_or(u64::MAX);
    }

    /// Returns the reason to stop if another round like round `last` would write more to a disk than the plan permits, else `None`. A disk of
    /// several in an array counts as if all of a target's bytes came to it.
    fn too_much_written(&self, last: u32) -> Option<String> {
        let most = self.plan.until_steady()?.may_write?;
        self.disks.iter().find_map(|TargetDisk { disk, targets }| {
            let name = |index: &usize| self.plan.targets[*index].name.as_str();
            let of_round = |round: Option<u32>| -> u64 {
                let is_meant = |(target, of): &(String, u32)| {
                    targets.iter().any(|index| name(index) == target)
                        && round.is_none_or(|round| round == *of)
                };
                self.written.iter().filter(|(key, _)| is_meant(key)).map(|(_, bytes)| bytes).sum()
            };
            let filled: u64 =
                targets.iter().filter_map(|index| self.filled.get(*index)).map(|bytes| bytes.0).sum();
            let (written, next) = (filled + of_round(None), of_round(Some(last)));
            let shown = || disk.clone().unwrap_or_else(|| targets.iter().map(name).collect());
            (written + next > most.0).then(|| {
                format!(
                    "stopped: {} was written with {}, another round writes about {}, and may_write = {most}",
                    shown(),
                    human::bytes(written),
                    human::bytes(next)
                )
            })
        })
    }

    /// Adds a measurement to the statistics for the next interim look.
    pub(super) fn measured(&mut self, cell: Cell, measurement: &Measurement) {
        self.planned_seconds += self.seconds(cell);
        if let Some(sequential) = &mut self.sequential {
            sequential.add(measurement);
        }
        if let Some((steady, _)) = &mut self.steady {
            steady.add(measurement);
            self.add_written(measurement);
        }
    }

    /// Records for the next interim look that a measurement failed.
    pub(super) fn failed(&mut self, cell: Cell, round: u32) {
        if let Some(sequential) = &mut self.sequential {
            sequential.fail(cell, round);
        }
    }

    /// Returns the next batch, after an interim look at the measurements so far. `None` if nothing is left to measure, or if the batch
    /// would end later than the plan permits.
    pub(super) fn next(&mut self, progress: &mut dyn Progress) -> Option<Batch> {
        let sequential = match &self.plan.design {
            Design::UntilSteady(_) => return self.next_towards_steady(progress),
            Design::UntilDecided(_) => self.sequential.as_mut(),
            // A search has its own schedule.
            Design::FixedRounds | Design::Curve(_) | Design::Ask(_) | Design::Watch(_) => None,
        };
        let Some(sequential) = sequential else {
            return (!std::mem::replace(&mut self.scheduled, true)).then(|| self.everything());
        };
        let status = sequential.status();
        if status.taken > 0 {
            progress.report_look(&self.describe_look(&status));
        }
        let next = status.next()?;
        let batch = Batch::up_to(status, next);
        if let Some(reason) = self.too_late(&batch) {
            progress.note(&reason);
            return None;
        }
        Some(batch)
    }

    /// Returns the next round of a run to a steady state. `None` once every cell is steady, or a maximum of rounds or of written bytes is
    /// reached.
    fn next_towards_steady(&mut self, progress: &mut dyn Progress) -> Option<Batch> {
        let (state, before) = self.steady.as_mut()?;
        let most = self.plan.most_rounds();
        if *before >= self.plan.repeat {
            let cells = state.cells();
            let steady = cells.iter().filter(|cell| cell.is_steady()).count();
            progress.report_look(&format!(
                "{before} rounds, {}: {steady} of {} cells in a steady state",
                human::duration(self.begun.elapsed().as_secs_f64()),
                cells.len()
            ));
            if state.is_reached() || *before >= most {
                return None;
            }
        }
        let last = *before;
        if let Some(reason) = self.too_much_written(last) {
            progress.note(&reason);
            return None;
        }
        let (_, before) = self.steady.as_mut()?;
        *before = last + 1;
        let cells = schedule::cells(self.plan);
        let at_most = cells.len() * most as usize;
        Some(Batch {
            rounds: last + 1..=last + 1,
            before: last as usize * cells.len(),
            cells,
            at_most,
            open: None,
        })
    }

    /// Returns all rounds of a plan with a fixed number of rounds, as one batch.
    fn everything(&self) -> Batch {
        let cells = schedule::cells(self.plan);
        let at_most = self.plan.cells() * self.plan.repeat as usize;
        Batch { rounds: 1..=self.plan.repeat, cells, before: 0, at_most, open: None }
    }

    /// Formats the result of an interim look: the decided comparisons, and what follows.
    fn describe_look(&self, status: &SequentialStatus) -> String {
        let (taken, looks, rounds) = (status.taken, status.looks.len(), status.rounds());
        let (decided, all) = (status.comparisons - status.open, status.comparisons);
        let passed = human::duration(self.begun.elapsed().as_secs_f64());
        let then = match (status.stopped, status.next()) {
            (Some(Stopped::MaxRounds), _) => "; it was the last".into(),
            (Some(Stopped::Failed), _) => "; what is open could not be measured".into(),
            (None, Some(next)) => {
                format!("; {} of {} cells go on to {next} rounds", status.cells.len(), self.plan.cells())
            }
            _ => String::new(),
        };
        format!(
            "look {taken} of {looks}, {rounds} rounds, {passed}: {decided} of {all} comparisons decided{then}"
        )
    }

    /// Returns the reason to stop if a batch would end later than the plan's `max_time` after measuring began, else `None`.
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
        // The ratio of elapsed time to warm-ups and windows alone, so far.
        let stretched = if self.planned_seconds > 0.0 { passed / self.planned_seconds } else { 1.0 };
        let end = passed + planned * stretched;
        (end > limit.as_secs_f64()).then(|| {
            format!(
                "stopped: the rounds up to the next look would end after {}, and the limit is {limit}",
                human::duration(end)
            )
        })
    }

    /// Returns the expected seconds of the warm-up and window of a cell's workload.
    fn seconds(&self, cell: Cell) -> f64 {
        let workload = &self.plan.workloads[cell.workload];
        workload.expected_time().as_secs_f64()
    }
}
