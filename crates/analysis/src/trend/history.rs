//! The data that a trend needs of each run, and the matching of targets and workloads across runs.

use std::collections::HashMap;

use iotax_model::record::Environment;
use iotax_model::{CellKey, Run, Workload};

use super::figures::RunFigures;
use crate::compare::HOW_LONG;
use crate::compare::account::{AccountedTarget, Settings, flat, subjects};
use crate::compare::differences::{self, Difference};
use crate::metric::Metric;
use crate::stats::paired::Differences;

/// The data of one run that a trend needs: machine, tags, targets, workloads and figures.
#[derive(Debug, Clone, PartialEq)]
pub struct PastRun {
    /// The run's number in its store.
    pub id: i64,
    /// Start time in milliseconds since 1970-01-01 UTC.
    pub started_at_ms: u64,
    /// The machine that measured.
    pub environment: Environment,
    /// Tags, such as `commit=4f1c2a`.
    pub tags: Vec<String>,
    /// The user's note on the run.
    pub note: String,
    control: Option<String>,
    subjects: Vec<AccountedTarget>,
    workloads: Vec<KeyedWorkload>,
    figures: RunFigures,
}

/// A workload with its settings as one text. The text leaves out settings that do not change the I/O, such as the duration.
#[derive(Debug, Clone, PartialEq)]
struct KeyedWorkload {
    workload: Workload,
    keys: String,
}

impl PastRun {
    /// Extracts the data of a run for the given metrics.
    #[must_use]
    pub fn of(run: &Run, metrics: &[Metric], tags: Vec<String>, note: String) -> Self {
        Self::with(run, RunFigures::of(run, metrics), tags, note)
    }

    /// Extracts the data of a run with precomputed figures; its measurements may be missing.
    #[must_use]
    pub fn with(run: &Run, figures: RunFigures, tags: Vec<String>, note: String) -> Self {
        let keyed = |workload: &Workload| KeyedWorkload { workload: workload.clone(), keys: keys(workload) };
        Self {
            id: run.id,
            started_at_ms: run.started_at_ms,
            environment: run.environment.clone(),
            tags,
            note,
            control: run.plan.control.clone(),
            subjects: subjects(&run.plan.targets, &run.plan.neighbours, &run.targets),
            workloads: run.plan.workloads.iter().map(keyed).collect(),
            figures,
        }
    }

    /// Iterates over the names of the run's targets, in the plan's order.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.subjects.iter().map(|subject| subject.name.as_str())
    }

    /// Iterates over the names of the run's workloads, in the plan's order.
    pub fn workloads(&self) -> impl Iterator<Item = &str> {
        self.workloads.iter().map(|keyed| keyed.workload.name.as_str())
    }

    fn workload(&self, name: &str) -> Option<&KeyedWorkload> {
        self.workloads.iter().find(|keyed| keyed.workload.name == name)
    }

    fn subject(&self, name: &str) -> Option<&AccountedTarget> {
        self.subjects.iter().find(|subject| subject.name == name)
    }

    /// Lists differences between this run and a later one, for a cell, other than their results.
    #[must_use]
    pub fn differences(&self, later: &Self, cell: CellKey<'_>) -> Vec<Difference> {
        let mut found = differences::machines(&self.environment, &later.environment);
        if let (Some(one), Some(other)) = (self.subject(cell.target), later.subject(cell.target)) {
            found.extend(differences::targets(one, other));
        }
        if let (Some(one), Some(other)) = (self.workload(cell.workload), later.workload(cell.workload)) {
            found.extend(differences::workloads(&one.workload, &other.workload));
        }
        found.extend(differences::tags(&self.tags, &later.tags));
        found
    }
}

/// Identity of a series: a cell and the workload's settings. A workload with a changed setting starts another series, even under
/// the same name; only settings that do not change the I/O, such as the duration, may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SeriesKey<'a> {
    pub(super) cell: CellKey<'a>,
    keys: &'a str,
}

/// Lists the series of all runs in the order of first appearance, each with the workload of the newest run that has it.
pub(super) fn series(runs: &[PastRun]) -> Vec<(SeriesKey<'_>, &Workload)> {
    let mut found: Vec<(SeriesKey<'_>, &Workload)> = Vec::new();
    let mut indices: HashMap<SeriesKey<'_>, usize> = HashMap::new();
    for run in runs {
        for KeyedWorkload { workload, keys } in &run.workloads {
            for subject in &run.subjects {
                let cell = CellKey { target: &subject.name, workload: &workload.name };
                let key = SeriesKey { cell, keys };
                if let Some(index) = indices.get(&key) {
                    found[*index].1 = workload;
                } else {
                    indices.insert(key, found.len());
                    found.push((key, workload));
                }
            }
        }
    }
    found
}

/// Returns a workload's settings as one text, without settings that do not change the I/O, such as the duration.
fn keys(workload: &Workload) -> String {
    let mut keys: Settings = flat(&serde_json::to_value(workload).unwrap_or_default());
    keys.retain(|key, _| !HOW_LONG.contains(&key.as_str()));
    format!("{keys:?}")
}

/// A run's point in a series; all values are logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LogPoint {
    /// Index of the run in the history.
    pub(super) run: usize,
    /// Logarithm of the target's mean.
    pub(super) target: f64,
    /// Logarithm of the control's mean; absent without a control.
    pub(super) control: Option<f64>,
    /// Value of the series: mean of target minus control over the rounds that have both; without a control the target's mean.
    pub(super) value: f64,
    /// Number of rounds in the means.
    pub(super) rounds: usize,
}

/// Builds the points of a series by a metric, for all runs that measured it. With a control, only rounds count in which both the target and
/// the control were measured.
pub(super) fn points(
    runs: &[PastRun],
    series: SeriesKey<'_>,
    metric: Metric,
    control: Option<&str>,
) -> Vec<LogPoint> {
    let cell = series.cell;
    let of_run = |(i, run): (usize, &PastRun)| {
        let has_it = run.workload(cell.workload).is_some_and(|keyed| keyed.keys == series.keys);
        if !has_it {
            return None;
        }
        let logs = run.figures.logs(cell, metric);
        let Some(control) = control else {
            let mean = mean(logs.into_values())?;
            return Some(LogPoint { run: i, target: mean.0, control: None, value: mean.0, rounds: mean.1 });
        };
        let of_control = run.figures.logs(CellKey { target: control, ..cell }, metric);
        let both: Vec<(f64, f64)> =
            logs.iter().filter_map(|(round, log)| Some((*log, *of_control.get(round)?))).collect();
        let (target, rounds) = mean(both.iter().map(|pair| pair.0))?;
        let (control, _) = mean(both.iter().map(|pair| pair.1))?;
        Some(LogPoint { run: i, target, control: Some(control), value: target - control, rounds })
    };
    runs.iter().enumerate().filter_map(of_run).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> Option<(f64, usize)> {
    // In a fixed order, so that a sum is the same every time.
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    Differences::new(values).map(|sample| (crate::stats::Estimate::mean(&sample), sample.n()))
}

/// Returns the control named by the newest plan that names one; `None` if no plan does.
pub(super) fn planned_control(runs: &[PastRun]) -> Option<&str> {
    runs.iter().rev().find_map(|run| run.control.as_deref())
}
