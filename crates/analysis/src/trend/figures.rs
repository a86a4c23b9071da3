//! The figures of a run from which a trend computes its points.

use std::collections::{BTreeMap, HashMap};

use iotax_model::{CellKey, Run};
use serde::{Deserialize, Serialize};

use crate::ask::{self, HighestRate};
use crate::cell_means::{RoundFigure, means};
use crate::checks;
use crate::curve::{self, Curves};
use crate::grade::is_unusable;
use crate::metric::Metric;
use crate::watch;

/// The figures of a run's usable measurements: a few kilobytes for a typical run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFigures {
    /// Ids of the metrics, in the order of the values.
    metrics: Vec<String>,
    cells: Vec<CellFigures>,
    /// Main results of a search, a curve or a watch, in the order of the plan's workloads; empty for other runs, without a result, and from
    /// [`Self::of`].
    answers: Vec<FoundAnswer>,
}

/// The main result of a search, a curve or a watch on one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoundAnswer {
    /// The target's name.
    pub target: String,
    /// The workload's name.
    pub workload: String,
    /// The rate or the gap that was found.
    pub is: AnswerFigure,
}

/// The main result of a search, a curve or a watch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerFigure {
    /// The highest rate that meets the conditions, or for a curve the capacity, in I/Os per second.
    Rate(f64),
    /// The highest rate tried, which met the conditions, in I/Os per second.
    AtLeast(f64),
    /// The lowest rate tried, which failed the conditions, in I/Os per second.
    Below(f64),
    /// The longest time without a completed I/O, in nanoseconds; 0 if no gap was recorded.
    LongestGap(u64),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CellFigures {
    target: String,
    workload: String,
    /// Number of each round, and its values in the order of the metrics.
    rounds: Vec<(u32, Vec<Option<f64>>)>,
}

impl RunFigures {
    /// Version of the rules that exclude measurements. It is raised when a rule changes, so that stored figures are recomputed.
    pub const RULES: u32 = 3;

    /// Computes the figures of all metrics by which targets are compared, and the results of a search, a curve or a watch.
    #[must_use]
    pub fn all(run: &Run) -> Self {
        let answers = searched(run).into_iter().chain(curved(run)).chain(watched(run)).collect();
        Self { answers, ..Self::of(run, &Metric::compared().collect::<Vec<_>>()) }
    }

    /// Returns the main results of a search, a curve or a watch; empty for other runs, without a result, and for figures from [`Self::of`].
    #[must_use]
    pub fn answers(&self) -> &[FoundAnswer] {
        &self.answers
    }

    /// Computes the figures by the given metrics, without unusable measurements.
    #[must_use]
    pub fn of(run: &Run, metrics: &[Metric]) -> Self {
        let findings = checks::of_measurements(run);
        let mut cells: Vec<CellFigures> = Vec::new();
        let mut indices: HashMap<CellKey<'_>, usize> = HashMap::new();
        for m in run.measured().filter(|m| !is_unusable(m, &findings)) {
            let index = *indices.entry(m.cell()).or_insert_with(|| {
                let (target, workload) = (m.target.clone(), m.workload.clone());
                cells.push(CellFigures { target, workload, rounds: Vec::new() });
                cells.len() - 1
            });
            cells[index].rounds.push((m.round, metrics.iter().map(|metric| metric.of(m)).collect()));
        }
        let metrics = metrics.iter().map(|metric| metric.word().to_owned()).collect();
        Self { metrics, cells, answers: Vec::new() }
    }

    /// Returns the mean of a workload on a target over all rounds of its run, as in tables; `None` if no usable measurement has the metric.
    #[must_use]
    pub fn mean(&self, run: &Run, target: &str, workload: &str, metric: Metric) -> Option<f64> {
        let column = self.metrics.iter().position(|known| known == metric.word())?;
        let of_workload = self.cells.iter().filter(|cell| cell.workload == workload);
        let figures = of_workload.flat_map(|cell| {
            let figure = move |(round, values): &(u32, Vec<Option<f64>>)| {
                let value = (*values.get(column)?)?;
                Some(RoundFigure { target: &cell.target, round: *round, value, is_usable: true })
            };
            cell.rounds.iter().filter_map(figure)
        });
        means(figures, !run.source.is_imported()).get(target).copied()
    }

    /// Returns the logarithms of a metric's values of a workload on a target, by ascending round; this fixed order makes sums reproducible.
    pub(super) fn logs(&self, cell: CellKey<'_>, metric: Metric) -> BTreeMap<u32, f64> {
        let column = self.metrics.iter().position(|known| known == metric.word());
        let cell =
            self.cells.iter().find(|of| cell == CellKey { target: &of.target, workload: &of.workload });
        let (Some(column), Some(cell)) = (column, cell) else { return BTreeMap::new() };
        let log = |(round, values): &(u32, Vec<Option<f64>>)| Some((*round, (*values.get(column)?)?.ln()));
        cell.rounds.iter().filter_map(log).collect()
    }
}

/// Lists the rate found for each target of a search; leaves out those without an estimate.
fn searched(run: &Run) -> Vec<FoundAnswer> {
    let of_work = |answers: ask::Answers<'_>| {
        let workload = answers.work.name.clone();
        let found = answers.targets.into_iter().filter_map(move |answer| {
            let is = match answer.found {
                HighestRate::Unknown => return None,
                HighestRate::Below(rate) => AnswerFigure::Below(rate),
                HighestRate::AtLeast(rate) => AnswerFigure::AtLeast(rate),
                HighestRate::Rate(located) => AnswerFigure::Rate(located.at),
            };
            Some(FoundAnswer { target: answer.target.to_owned(), workload: workload.clone(), is })
        });
        found.collect::<Vec<_>>()
    };
    ask::answers(run).into_iter().flat_map(of_work).collect()
}

/// Lists the capacity of each target of a curve; leaves out those without a closed loop.
fn curved(run: &Run) -> Vec<FoundAnswer> {
    let of_work = |curves: Curves<'_>| {
        let workload = curves.work.name.clone();
        let found = curves.targets.into_iter().filter_map(move |curve| {
            let is = AnswerFigure::Rate(curve.capacity?.at);
            Some(FoundAnswer { target: curve.target.to_owned(), workload: workload.clone(), is })
        });
        found.collect::<Vec<_>>()
    };
    curve::curves(run).into_iter().flat_map(of_work).collect()
}

/// Lists the longest gap for each workload and target of a watch; leaves out those without recorded gaps.
fn watched(run: &Run) -> Vec<FoundAnswer> {
    let mut found: Vec<FoundAnswer> = Vec::new();
    for episode in watch::episodes(run) {
        let Some(gaps) = &episode.gaps else { continue };
        let longest = gaps.iter().map(|gap| gap.duration_ns).max().unwrap_or(0);
        let (target, workload) = (&episode.measurement.target, &episode.measurement.workload);
        match found.iter_mut().find(|of| of.target == *target && of.workload == *workload) {
            Some(FoundAnswer { is: AnswerFigure::LongestGap(known), .. }) => *known = longest.max(*known),
            _ => found.push(FoundAnswer {
                target: target.clone(),
                workload: workload.clone(),
                is: AnswerFigure::LongestGap(longest),
            }),
        }
    }
    found
}
