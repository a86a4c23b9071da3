//! Trends: changes of level over a history of runs.
//!
//! A series is one cell by one metric over the runs: the mean over each run's rounds of the logarithm of target / control, so that what the
//! machine did to both goes out of it. Without a control it is the target alone, and the machine's days are in it. `energy` divides
//! a series, `change` says where and by how much, `figures` and `history` keep what is needed of each run.

mod change;
mod energy;
mod figures;
mod history;

pub use change::{LevelChange, Pending, changes, pending};
pub use energy::{LEAST_RUNS, LEAST_SIDE, LEVEL};
pub use figures::{AnswerFigure, FoundAnswer, RunFigures};
pub use history::PastRun;

use iotax_model::Workload;

use crate::compare::{Difference, Gate, GateDirection};
use crate::metric::Metric;
use crate::stats::paired::Interval;

/// The series to follow, and the gates.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrendQuestion {
    /// Only this target.
    pub target: Option<String>,
    /// Only this workload.
    pub workload: Option<String>,
    /// Metrics, or their substitutes on streams.
    pub metrics: Vec<Metric>,
    /// The control, in place of the plans'.
    pub control: Option<String>,
    /// Only changes that may have come with this run of the history or a later one; `None` for all.
    pub since: Option<usize>,
    /// Changes that fail.
    pub gates: Vec<Gate>,
}

/// A run's point in a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrendPoint {
    /// Index of the run in the history.
    pub run: usize,
    /// Geometric mean of the target's figure over the rounds, in the metric's unit.
    pub mean: f64,
    /// The control's; absent without one.
    pub control: Option<f64>,
    /// The series: the ratio of the target to the control, else the target's mean.
    pub followed: f64,
    /// Rounds that it rests on.
    pub rounds: u32,
}

/// A change of a series in terms of runs.
#[derive(Debug, Clone, PartialEq)]
pub struct TrendChange {
    /// Index of the first point after the change, as estimated.
    pub at: usize,
    /// Index of the last run that is before it for certain (95%).
    pub last_before: usize,
    /// Index of the first run that is after it for certain.
    pub first_after: usize,
    /// The new level as a ratio to the old one.
    pub ratio: f64,
    /// Its 95% interval.
    pub interval: Interval,
    /// Points of the level before it and of the level after it.
    pub points: (usize, usize),
    /// The machine's own change between the same points, by the control: ratio and 95% interval.
    pub control: Option<(f64, Interval)>,
    /// True if the new level is worse.
    pub is_worse: bool,
    /// False if it precedes the requested runs.
    pub is_new: bool,
    /// Other differences between the two runs, as possible causes.
    pub causes: Vec<Difference>,
}

/// The newest points may be a change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PendingChange {
    /// The number of points.
    pub points: usize,
    /// Their level as a ratio to the previous one.
    pub ratio: f64,
    /// Number of further runs like these that would make it a change; absent if a dozen would not.
    pub needed: Option<usize>,
}

/// One metric of one cell over the runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Trend {
    /// The target.
    pub target: String,
    /// The workload, as last planned.
    pub workload: Workload,
    /// The metric.
    pub metric: Metric,
    /// The target that shows the machine's own state; absent if the series is that of the target alone.
    pub control: Option<String>,
    /// True if the series is the control's own.
    pub is_control: bool,
    /// Points in the order of the runs.
    pub points: Vec<TrendPoint>,
    /// Changes in order of time.
    pub changes: Vec<TrendChange>,
    /// A change that the newest points may become.
    pub pending: Option<PendingChange>,
    /// Standard deviation from run to run about the levels, as a share; absent for fewer than five points.
    pub noise: Option<f64>,
}

/// A change that tripped a gate: indices of the trend and of its change.
pub type Tripped = (usize, usize);

/// The result of a gate.
#[derive(Debug, Clone, PartialEq)]
pub struct TrendGate {
    /// The gate.
    pub gate: Gate,
    /// The changes that tripped it.
    pub tripped: Vec<Tripped>,
    /// Number of trends of its metric that are long enough to show a change.
    pub judged: usize,
}

/// The trends of a history.
#[derive(Debug, Clone, PartialEq)]
pub struct Trends {
    /// Trends in the order of cells and metrics.
    pub trends: Vec<Trend>,
    /// Gates in the order given.
    pub gates: Vec<TrendGate>,
}

impl Trend {
    /// Returns whether it has too few points to find a change.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.points.len() < LEAST_RUNS
    }
}

impl Trends {
    /// Returns whether any gate tripped.
    #[must_use]
    pub fn tripped(&self) -> bool {
        self.gates.iter().any(|gate| !gate.tripped.is_empty())
    }
}

/// Finds the trends of all cells of the runs, which must be in order of time.
#[must_use]
pub fn trends(runs: &[PastRun], question: &TrendQuestion) -> Trends {
    let is_meant = |asked: &Option<String>, name: &str| asked.as_ref().is_none_or(|asked| asked == name);
    let control = question.control.as_deref().or_else(|| history::planned_control(runs));
    let mut trends = Vec::new();
    for (cell, workload) in history::cells(runs) {
        if !is_meant(&question.target, &cell.target) || !is_meant(&question.workload, &cell.workload) {
            continue;
        }
        let mut metrics: Vec<Metric> = Vec::new();
        let gated = question.gates.iter().map(|gate| gate.metric);
        for metric in
            question.metrics.iter().copied().chain(gated).map(|metric| metric.or_of_streams(&workload))
        {
            if metric.compares(&workload) && !metrics.contains(&metric) {
                metrics.push(metric);
            }
        }
        let is_control = control == Some(&*cell.target);
        for metric in metrics {
            let mut control = control.filter(|_| !is_control);
            let mut points = history::points(runs, &cell, metric, control);
            // A workload that the control does not measure is followed alone.
            if points.is_empty() && control.take().is_some() {
                points = history::points(runs, &cell, metric, None);
            }
            if !points.is_empty() {
                let series =
                    Series { runs, cell: &cell, workload: &workload, metric, control, points: &points };
                trends.push(Trend { is_control, ..series.followed(question.since) });
            }
        }
    }
    let gates = question.gates.iter().map(|gate| judged(gate, &trends)).collect();
    Trends { trends, gates }
}

/// A cell's points by one metric.
struct Series<'a> {
    runs: &'a [PastRun],
    cell: &'a history::CellKey,
    workload: &'a Workload,
    metric: Metric,
    control: Option<&'a str>,
    points: &'a [history::LogPoint],
}

impl Series<'_> {
    /// Its changes, for a target that is not the control.
    fn followed(&self, since: Option<usize>) -> Trend {
        let values: Vec<f64> = self.points.iter().map(|point| point.value).collect();
        let found = change::changes(&values);
        let pending = change::pending(&values, &found);
        let shown = self.points.iter().map(|point| TrendPoint {
            run: point.run,
            mean: point.target.exp(),
            control: point.control.map(f64::exp),
            followed: point.value.exp(),
            rounds: u32::try_from(point.rounds).unwrap_or(u32::MAX),
        });
        Trend {
            target: self.cell.target.clone(),
            workload: self.workload.clone(),
            metric: self.metric,
            control: self.control.map(str::to_owned),
            is_control: false,
            points: shown.collect(),
            noise: change::noise(&values, &found).map(f64::exp_m1),
            changes: found.iter().map(|change| self.in_runs(change, since)).collect(),
            pending: pending.map(|pending| PendingChange {
                points: pending.points,
                ratio: pending.shift.exp(),
                needed: pending.needed,
            }),
        }
    }

    fn in_runs(&self, change: &LevelChange, since: Option<usize>) -> TrendChange {
        let (last_before, first_after) = (change.between.0 - 1, change.between.1);
        let run = |point: usize| self.points[point].run;
        let of_control: Option<Vec<f64>> = self.points.iter().map(|point| point.control).collect();
        let (before, after) = (&self.runs[run(last_before)], &self.runs[run(first_after)]);
        TrendChange {
            at: change.at,
            last_before,
            first_after,
            ratio: change.shift.exp(),
            interval: change.interval.map(f64::exp),
            points: (change.at - change.from, change.to - change.at),
            control: of_control.map(|control| {
                let (before, after) = (&control[change.from..change.at], &control[change.at..change.to]);
                let (shift, interval) = change::shift(before, after);
                (shift.exp(), interval.map(f64::exp))
            }),
            is_worse: (change.shift > 0.0) != self.metric.more_is_better(),
            is_new: since.is_none_or(|since| run(first_after) >= since),
            causes: before.differences(after, &self.cell.target, &self.cell.workload),
        }
    }
}

/// The changes whose whole interval is beyond a gate. A control's own changes are the machine's, and trip no gate.
fn judged(gate: &Gate, trends: &[Trend]) -> TrendGate {
    let mut result = TrendGate { gate: gate.clone(), tripped: vec![], judged: 0 };
    for (i, trend) in trends.iter().enumerate() {
        let is_its_metric = trend.metric == gate.metric.or_of_streams(&trend.workload);
        if trend.is_control || trend.is_short() || !is_its_metric {
            continue;
        }
        result.judged += 1;
        let beyond = trend.changes.iter().enumerate().filter(|(_, change)| {
            let limit = 1.0 + gate.threshold;
            let is_beyond = change.interval.low > limit || change.interval.high < limit.recip();
            let is_meant = match gate.direction {
                GateDirection::Slower => change.is_worse,
                GateDirection::Faster => !change.is_worse,
                GateDirection::Different => true,
            };
            change.is_new && is_beyond && is_meant
        });
        result.tripped.extend(beyond.map(|(k, _)| (i, k)));
    }
    result
}
