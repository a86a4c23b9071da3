//! Latency against offered load, from workloads of a run that differ only in their rate.
//!
//! An open loop does not wait for completions, so latency is a function of the offered load: flat while the target is mostly idle, steep
//! where requests begin to queue, and unbounded from the capacity on. The capacity is the rate of the same workload in a closed loop,
//! measured in the same rounds.

mod grid;
mod knee;

use iotax_model::record::Measurement;
use iotax_model::workload::RateProcess;
use iotax_model::{CellKey, Histogram, Nanos, Workload};

pub use grid::{Grid, Ray, grids};
pub use knee::{Knee, Located};

use crate::metric::Metric;
use crate::percentile::percentile;
use crate::stats::paired::Differences;
use crate::stats::{ALPHA, Estimate};
use iotax_model::Run;

/// Smallest share of due I/Os that must complete within the windows for a rate to count as sustained.
pub const SUSTAINED: f64 = 0.98;

/// Incomplete I/Os per window that a sustained rate may always have: at low rates two of them already exceed the allowed share.
const IN_FLIGHT: u64 = 2;

/// Minimum number of rates that form a curve.
const FEWEST: usize = 3;

/// Latency against offered load for one workload: one curve per target.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves<'a> {
    /// The curves' workload: the closed-loop one, or the one at the lowest rate if the run has no closed loop.
    pub work: &'a Workload,
    /// Measured targets, in the plan's order.
    pub targets: Vec<Curve<'a>>,
}

/// Latency of one target against offered load.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve<'a> {
    /// The target's name.
    pub target: &'a str,
    /// One point for each measured rate, by ascending rate.
    pub points: Vec<RatePoint<'a>>,
    /// Closed-loop I/Os per second, over the rounds; absent if no closed loop of this workload was measured.
    pub closed: Option<Located>,
    /// Capacity in I/Os per second: the closed loop, or a rate that achieved more. Absent without a closed loop.
    pub capacity: Option<Located>,
    /// The load from which latency rises; absent for fewer than four sustained rates, or if no I/O completed at one of the rates used.
    pub knee: Option<Knee>,
}

/// Figures of a workload on a target at one scheduled rate, over all rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct RatePoint<'a> {
    /// The workload at this rate.
    pub workload: &'a Workload,
    /// Scheduled I/Os per second, of all jobs.
    pub offered: f64,
    /// Completed I/Os per second: the geometric mean over the rounds, as in tables; absent if nothing completed.
    pub achieved: Option<f64>,
    /// Number of I/Os that were due in the windows of all rounds.
    pub due: u64,
    /// Number of I/Os that completed in the windows of all rounds.
    pub completed: u64,
    /// Mean time from submission to completion in nanoseconds, all rounds together; absent without an I/O.
    pub service_ns: Option<f64>,
    /// Times from the scheduled start of an I/O to its completion, all rounds together.
    pub response: Histogram,
    /// CPU time of the host per I/O in nanoseconds: the geometric mean over the rounds; absent if unknown.
    pub cpu_per_io: Option<f64>,
    rounds: Vec<Round>,
}

/// The counts of one measurement at a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Round {
    number: u32,
    ios: u64,
    response_ns: u64,
    due: u64,
    completed: u64,
}

impl Round {
    /// Returns the share of the due I/Os that completed, at most 1; `None` if none was due.
    fn kept(&self) -> Option<f64> {
        (self.due > 0).then(|| (self.completed as f64 / self.due as f64).min(1.0))
    }
}

impl RatePoint<'_> {
    /// Returns the share of the I/Os due in a window that completed in it: the geometric mean over the rounds, as for
    /// the achieved rate. `None` if no I/O was due.
    #[must_use]
    pub fn kept(&self) -> Option<f64> {
        let shares: Vec<f64> = self.rounds.iter().filter_map(Round::kept).map(f64::ln).collect();
        (!shares.is_empty()).then(|| (shares.iter().sum::<f64>() / shares.len() as f64).exp())
    }

    /// Returns whether the target keeps up with the rate. If not, latency only shows the length of the queue at the end of the window.
    #[must_use]
    pub fn is_sustained(&self) -> bool {
        let missing = self.due.saturating_sub(self.completed);
        self.kept().is_some_and(|kept| kept >= SUSTAINED || missing <= IN_FLIGHT * self.rounds.len() as u64)
    }

    /// Returns the mean response time in nanoseconds, over all rounds; `None` without an I/O.
    #[must_use]
    pub fn response_mean(&self) -> Option<f64> {
        self.response.mean()
    }

    /// Returns a quantile of the response time in nanoseconds; `None` if fewer than ten I/Os lie beyond it.
    #[must_use]
    pub fn response_quantile(&self, q: f64) -> Option<f64> {
        percentile(&self.response, q)
    }
}

/// Returns the I/Os per second that a workload's schedule demands of all its jobs; `None` in a closed loop, and for a
/// rate in bytes per second.
#[must_use]
pub fn offered(workload: &Workload) -> Option<f64> {
    Some(workload.rate_iops? as f64 * f64::from(workload.numjobs))
}

/// Returns the mean response time of one measurement in nanoseconds; `None` without a scheduled rate or I/O, or if the target did not keep
/// up with the rate.
#[must_use]
pub fn response_if_sustained(workload: &Workload, measurement: &Measurement) -> Option<f64> {
    let point = point(workload, offered(workload)?, &[measurement])?;
    point.is_sustained().then(|| point.response_mean()).flatten()
}

/// Returns the workload without name, rate and runtime, to recognize workloads that differ only in their rate. The runtime is left out
/// because low rates get longer windows.
pub(crate) fn work(workload: &Workload) -> Workload {
    let closed = Workload {
        name: String::new(),
        rate_iops: None,
        rate_process: RateProcess::Linear,
        ..workload.clone()
    };
    Workload { runtime: Nanos(0), ..closed }
}

/// Builds the curves of a run, for every workload that it measures at three rates or more; empty for a rate search.
#[must_use]
pub fn curves(run: &Run) -> Vec<Curves<'_>> {
    // A search tries many similar rates in one or two windows each, which form no curve (see `crate::ask::Answer::steps`).
    if run.plan.searches() {
        return Vec::new();
    }
    let mut works: Vec<(Workload, Vec<&Workload>)> = Vec::new();
    for workload in &run.plan.workloads {
        let key = work(workload);
        match works.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(workload),
            None => works.push((key, vec![workload])),
        }
    }
    works.iter().filter_map(|(_, members)| of_work(run, members)).collect()
}

fn of_work<'a>(run: &'a Run, members: &[&'a Workload]) -> Option<Curves<'a>> {
    let mut open: Vec<(&Workload, f64)> =
        members.iter().filter_map(|workload| Some((*workload, offered(workload)?))).collect();
    if open.len() < FEWEST {
        return None;
    }
    open.sort_by(|a, b| a.1.total_cmp(&b.1));
    let closed = members.iter().copied().find(|workload| !workload.is_open_loop());
    let of_target = |target: &'a str| -> Option<Curve<'a>> {
        let cell = |workload: &Workload| -> Vec<&Measurement> {
            let key = CellKey { workload: &workload.name, target };
            run.measured().filter(|m| m.cell() == key).collect()
        };
        let points: Vec<RatePoint<'a>> = open
            .iter()
            .filter_map(|(workload, offered)| point(workload, *offered, &cell(workload)))
            .collect();
        if points.is_empty() {
            return None;
        }
        let closed = closed.and_then(|workload| over_rounds(Metric::IOPS, &cell(workload)));
        let at_rates = open.iter().filter_map(|(workload, _)| over_rounds(Metric::IOPS, &cell(workload)));
        let capacity =
            closed.map(|closed| at_rates.fold(closed, |most, one| if one.at > most.at { one } else { most }));
        let knee = knee::of(&points);
        Some(Curve { target, points, closed, capacity, knee })
    };
    let targets: Vec<Curve<'a>> = run.plan.targets.iter().filter_map(|t| of_target(&t.name)).collect();
    let work = closed.or_else(|| open.first().map(|(workload, _)| *workload))?;
    (!targets.is_empty()).then_some(Curves { work, targets })
}

/// Builds the point of one rate; `None` without a measurement.
fn point<'a>(workload: &'a Workload, offered: f64, measurements: &[&Measurement]) -> Option<RatePoint<'a>> {
    let (mut response, mut service) = (Histogram::new(), Histogram::new());
    let (mut due, mut completed, mut rounds) = (0, 0, Vec::new());
    for m in measurements {
        let tallies = &m.outcome.tallies;
        service.merge(&tallies.latency());
        let of_round = m.outcome.pacing.map_or((0, 0), |pacing| (pacing.due, tallies.ios()));
        (due, completed) = (due + of_round.0, completed + of_round.1);
        if let Some(all) = tallies.response() {
            let (due, completed) = of_round;
            rounds.push(Round { number: m.round, ios: all.count(), response_ns: all.sum(), due, completed });
            response.merge(&all);
        }
    }
    (!measurements.is_empty()).then(|| RatePoint {
        workload,
        offered,
        achieved: over_rounds(Metric::IOPS, measurements).map(|rate| rate.at),
        due,
        completed,
        service_ns: service.mean(),
        response,
        cpu_per_io: over_rounds(Metric::CPU_PER_IO, measurements).map(|cpu| cpu.at),
        rounds,
    })
}

/// Returns the geometric mean over the rounds with Student's t interval; `None` if no round has a positive figure.
fn over_rounds(metric: Metric, measurements: &[&Measurement]) -> Option<Located> {
    let figures = measurements.iter().filter_map(|m| metric.of(m)).filter(|figure| *figure > 0.0);
    let logs = Differences::new(figures.map(f64::ln).collect())?;
    let interval = logs.interval(ALPHA).map(|interval| interval.map(f64::exp));
    Some(Located { at: logs.mean().exp(), interval })
}
