//! Trends: changes of level over a history of runs.
//!
//! A series follows one workload on one target by one metric over the runs. Its value is the mean over a run's rounds of the logarithm of
//! target / control. The control is a target that does not change, so effects of the machine on both cancel. Without a control the value is
//! that of the target alone, including effects of the machine. `energy` divides a series, `change` finds the position and the size of
//! changes, `figures` and `history` keep the necessary data of each run.

mod change;
mod energy;
mod figures;
mod history;

pub use change::{LevelChange, Pending, changes, pending};
pub use energy::{LEAST_RUNS, LEAST_SIDE, LEVEL};
pub use figures::{AnswerFigure, FoundAnswer, RunFigures};
pub use history::PastRun;

use iotax_model::{CellKey, Workload};

use crate::compare::{Difference, Gate, GateDirection};
use crate::metric::Metric;
use crate::stats::paired::Interval;

/// The series to follow, and the gates.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrendQuestion {
    /// Limits the result to this target; `None` for all.
    pub target: Option<String>,
    /// Limits the result to this workload; `None` for all.
    pub workload: Option<String>,
    /// Metrics to follow; for streams, their substitutes (see [`Metric::or_of_streams`]).
    pub metrics: Vec<Metric>,
    /// Name of the control; `None` for the control that the plans name.
    pub control: Option<String>,
    /// Index of a run: only changes that may have come with this run or a later one count as new and can trip a gate. With `None` all
    /// changes count.
    pub since: Option<usize>,
    /// Gates: changes that make the command fail.
    pub gates: Vec<Gate>,
}

/// The point of one run in a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrendPoint {
    /// Index of the run in the history.
    pub run: usize,
    /// Geometric mean of the target's figure over the rounds, in the metric's unit.
    pub mean: f64,
    /// The control's geometric mean; absent without a control.
    pub control: Option<f64>,
    /// Value of the series: the ratio of the target to the control, or the target's mean without a control.
    pub followed: f64,
    /// Number of rounds in the point.
    pub rounds: u32,
}

/// A change of level in a series.
#[derive(Debug, Clone, PartialEq)]
pub struct TrendChange {
    /// Index of the first point after the change; an estimate.
    pub at: usize,
    /// Index of the last point that precedes the change at 95% confidence.
    pub last_before: usize,
    /// Index of the first point that follows the change at 95% confidence.
    pub first_after: usize,
    /// The new level as a ratio to the old one.
    pub ratio: f64,
    /// 95% interval of `ratio`.
    pub interval: Interval,
    /// Number of points in the level before the change and in the level after it.
    pub points: (usize, usize),
    /// Change of the control over the same points, which the machine alone causes: ratio and 95% interval. Absent without a control.
    pub control: Option<(f64, Interval)>,
    /// True if the new level is worse.
    pub is_worse: bool,
    /// False if the change is older than the run of [`TrendQuestion::since`].
    pub is_new: bool,
    /// Other differences between the runs before and after the change, as possible causes.
    pub causes: Vec<Difference>,
}

/// A possible change at the newest points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PendingChange {
    /// Number of newest points that stand out.
    pub points: usize,
    /// Level of these points as a ratio to the previous level.
    pub ratio: f64,
    /// Number of further runs like these after which a change would be detected; absent if 12 would not suffice.
    pub needed: Option<usize>,
}

/// One metric of a workload on a target, over the runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Trend {
    /// Name of the target.
    pub target: String,
    /// The workload, with the settings of the newest run that has it.
    pub workload: Workload,
    /// The metric that the points show.
    pub metric: Metric,
    /// Name of the control, which shows the machine's own changes; absent if the series is the target alone.
    pub control: Option<String>,
    /// True if the target is the control itself.
    pub is_control: bool,
    /// Points in the order of the runs.
    pub points: Vec<TrendPoint>,
    /// Changes in order of time.
    pub changes: Vec<TrendChange>,
    /// A possible change at the newest points; absent if they do not stand out.
    pub pending: Option<PendingChange>,
    /// Standard deviation from run to run about the levels, as a share; absent for fewer than five points.
    pub noise: Option<f64>,
}

/// A change that tripped a gate: index of the trend, and index of the change in it.
pub type Tripped = (usize, usize);

/// A gate, and the changes that tripped it.
#[derive(Debug, Clone, PartialEq)]
pub struct TrendGate {
    /// The gate that was requested.
    pub gate: Gate,
    /// The changes that tripped the gate.
    pub tripped: Vec<Tripped>,
    /// Number of trends of the gate's metric that are long enough to show a change, without those of the control.
    pub judged: usize,
}

/// The trends of a history of runs, and the results of the gates.
#[derive(Debug, Clone, PartialEq)]
pub struct Trends {
    /// Trends in the order of series, then of metrics.
    pub trends: Vec<Trend>,
    /// Results of the gates, in the order given.
    pub gates: Vec<TrendGate>,
}

impl Trend {
    /// Returns whether the trend has too few points to find a change.
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

/// Finds the trends of all targets and workloads of the runs, which must be in order of time, and judges the gates.
#[must_use]
pub fn trends(runs: &[PastRun], question: &TrendQuestion) -> Trends {
    let is_meant = |asked: &Option<String>, name: &str| asked.as_ref().is_none_or(|asked| asked == name);
    let control = question.control.as_deref().or_else(|| history::planned_control(runs));
    let mut trends = Vec::new();
    for (key, workload) in history::series(runs) {
        if !is_meant(&question.target, key.cell.target) || !is_meant(&question.workload, key.cell.workload) {
            continue;
        }
        let mut metrics: Vec<Metric> = Vec::new();
        let gated = question.gates.iter().map(|gate| gate.metric);
        for metric in
            question.metrics.iter().copied().chain(gated).map(|metric| metric.or_of_streams(workload))
        {
            if metric.compares(workload) && !metrics.contains(&metric) {
                metrics.push(metric);
            }
        }
        let is_control = control == Some(key.cell.target);
        for metric in metrics {
            let mut control = control.filter(|_| !is_control);
            let mut points = history::points(runs, key, metric, control);
            // A workload that the control does not measure is followed alone.
            if points.is_empty() && control.take().is_some() {
                points = history::points(runs, key, metric, None);
            }
            if !points.is_empty() {
                let series = Series { runs, cell: key.cell, workload, metric, control, points: &points };
                trends.push(Trend { is_control, ..series.followed(question.since) });
            }
        }
    }
    let gates = question.gates.iter().map(|gate| judged(gate, &trends)).collect();
    Trends { trends, gates }
}

/// The series of a workload on a target by one metric, before changes are searched for.
struct Series<'a> {
    runs: &'a [PastRun],
    cell: CellKey<'a>,
    workload: &'a Workload,
    metric: Metric,
    control: Option<&'a str>,
    points: &'a [history::LogPoint],
}

impl Series<'_> {
    /// Finds the changes of the series. The caller marks the series of the control.
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
            target: self.cell.target.to_owned(),
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
            causes: before.differences(after, self.cell),
        }
    }
}

/// Finds the new changes whose whole interval is beyond a gate. The machine causes the changes of a control, so they trip no gate.
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
