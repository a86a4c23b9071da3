//! Effects of the machine over a run: differences between rounds, and drift.
//!
//! For each workload, least squares splits the logarithm of the mean latency (of streams: the time per byte) into a
//! target effect, a round effect and a residual (additive two-factor model: Scheffé, The Analysis of Variance, 1959,
//! chapter 4). The drift is the least-squares line through the round effects in run order. Measurements of one round
//! are not independent, so the sample for the drift's interval is the rounds.

use iotax_model::record::Measurement;
use schemars::JsonSchema;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, FisherSnedecor, StudentsT};

use crate::finding::Finding;
use crate::grade::is_unusable;
use crate::metric::Metric;
use crate::stats::ALPHA;
use crate::stats::paired::Interval;
use iotax_model::Run;

/// Maximum number of iterations of the fit; it usually ends earlier, once no effect changes.
const SWEEPS: usize = 200;

/// Changes of one workload's mean latency during the run that all targets share. All changes are relative: 0.05 is 5% slower.
#[derive(Debug, Clone, PartialEq)]
pub struct Effects {
    /// The workload's name.
    pub workload: String,
    /// Mean latency, or throughput for streams; the relative changes are then those of the time per byte.
    pub metric: Metric,
    /// Number of rounds in the fit.
    pub rounds: u32,
    /// Standard deviation of the round effects on the natural logarithm of the metric: 0.05 is about 5%.
    pub spread: f64,
    /// The round that deviates most from the mean of the rounds.
    pub furthest: u32,
    /// Relative deviation of that round from the mean of the rounds: 0.05 is 5% slower.
    pub furthest_by: f64,
    /// Standard deviation of the residuals of the metric's natural logarithm, after target and round effects: 0.05 is about 5%. Absent for
    /// a single target or too few measurements, because the fit then leaves no residual.
    pub rest: Option<f64>,
    /// P-value of the F test of the round effects against the residual: the probability that chance alone gives such differences. Absent if
    /// `rest` is absent or 0.
    pub rounds_p: Option<f64>,
    /// The drift; absent for fewer than three rounds.
    pub drift: Option<Drift>,
    /// Significance level for the p-values of rounds and drift: 5% divided by two tests for each of the run's workloads (Bonferroni).
    pub level: f64,
}

/// The drift of a workload over a run: the change of its mean latency from the first measurement to the last, along a fitted line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Drift {
    /// Relative change of the mean latency (for streams, of the time per byte) over the run: 0.05 is 5% slower.
    pub change: f64,
    /// Student's t interval of the change at 95%.
    #[serde(flatten)]
    pub interval: Interval,
    /// Two-sided p-value of the hypothesis that there is no drift.
    pub p: f64,
}

/// One figure with its target and round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell<T> {
    /// The measurement that the figure belongs to; `()` if only the figure matters.
    pub(super) of: T,
    /// Index into [`Grid::targets`].
    pub(super) target: usize,
    /// Index into [`Grid::rounds`].
    pub(super) round: usize,
    /// The logarithm of the figure; in a grid of [`Grid::of`], of its inverse if more is better, as for a rate.
    log: f64,
}

/// A workload's figures by target and round.
#[derive(Debug)]
pub(super) struct Grid<'a, T> {
    pub(super) cells: Vec<Cell<T>>,
    /// The targets' names, sorted.
    pub(super) targets: Vec<&'a str>,
    /// The rounds' numbers, ascending.
    pub(super) rounds: Vec<u32>,
}

impl<'a> Grid<'a, &'a Measurement> {
    /// Collects a workload's figures by a metric from the measurements that count. Leaves out measurements without a positive value of it.
    pub(crate) fn of(
        run: &'a Run,
        workload: &str,
        metric: Metric,
        counts: impl Fn(&Measurement) -> bool,
    ) -> Self {
        let log = |m: &Measurement| {
            let log = metric.of(m)?.ln();
            Some(if metric.more_is_better() { -log } else { log })
        };
        let of_workload = run.measured().filter(|m| m.workload == workload && counts(m));
        Self::new(of_workload.filter_map(|m| Some((m.target.as_str(), m.round, log(m)?, m))))
    }
}

/// Returns the metric whose effects are fitted on a workload: mean latency, or throughput for streams.
pub(crate) fn leading(run: &Run, workload: &str) -> Metric {
    let known = run.plan.workloads.iter().find(|known| known.name == workload);
    known.map_or(Metric::LATENCY_MEAN, Metric::leading)
}

impl<'a, T> Grid<'a, T> {
    /// Builds a grid from (target, round, logarithm, subject) tuples.
    pub(crate) fn new(figures: impl Iterator<Item = (&'a str, u32, f64, T)>) -> Self {
        let figures: Vec<_> = figures.collect();
        let mut targets: Vec<&str> = figures.iter().map(|(target, ..)| *target).collect();
        let mut rounds: Vec<u32> = figures.iter().map(|(_, round, ..)| *round).collect();
        targets.sort_unstable();
        targets.dedup();
        rounds.sort_unstable();
        rounds.dedup();
        let cell = |(target, round, log, of): (&str, u32, f64, T)| {
            let (target, round) = (targets.binary_search(&target).ok()?, rounds.binary_search(&round).ok()?);
            Some(Cell { of, target, round, log })
        };
        let cells = figures.into_iter().filter_map(cell).collect();
        Self { cells, targets, rounds }
    }

    /// Splits the figures into target effects, round effects and residuals. Each effect is the `middle` of the figures without the other
    /// effect, repeated until no effect changes: with the mean as `middle` this is a least-squares fit, with the median it is Tukey's
    /// median polish. Without `rounds_too` all round effects are 0.
    pub(super) fn parts(&self, middle: impl Fn(&[f64]) -> Option<f64>, rounds_too: bool) -> Parts {
        let mut parts = Parts {
            targets: vec![0.0; self.targets.len()],
            rounds: vec![0.0; self.rounds.len()],
            rest: vec![],
        };
        for _ in 0..SWEEPS {
            let mut moved = 0.0_f64;
            for target in 0..self.targets.len() {
                let left: Vec<f64> = self
                    .cells
                    .iter()
                    .filter(|c| c.target == target)
                    .map(|c| c.log - parts.rounds[c.round])
                    .collect();
                let new = middle(&left).unwrap_or_default();
                moved = moved.max((new - parts.targets[target]).abs());
                parts.targets[target] = new;
            }
            if !rounds_too {
                break;
            }
            for round in 0..self.rounds.len() {
                let left: Vec<f64> = self
                    .cells
                    .iter()
                    .filter(|c| c.round == round)
                    .map(|c| c.log - parts.targets[c.target])
                    .collect();
                let new = middle(&left).unwrap_or_default();
                moved = moved.max((new - parts.rounds[round]).abs());
                parts.rounds[round] = new;
            }
            if moved < 1e-12 {
                break;
            }
        }
        // Only differences between round effects matter, so their middle is set to 0.
        let level = middle(&parts.rounds).unwrap_or_default();
        parts.rounds.iter_mut().for_each(|part| *part -= level);
        parts.targets.iter_mut().for_each(|part| *part += level);
        parts.rest =
            self.cells.iter().map(|c| c.log - parts.targets[c.target] - parts.rounds[c.round]).collect();
        parts
    }

    /// Returns whether a chain of common rounds links every target with every other. Otherwise the round effects are unknown.
    pub(crate) fn is_connected(&self) -> bool {
        let mut reached = vec![false; self.targets.len()];
        let Some(first) = reached.first_mut() else { return false };
        *first = true;
        for _ in 0..self.targets.len() {
            let mut near = vec![false; self.rounds.len()];
            self.cells.iter().filter(|c| reached[c.target]).for_each(|c| near[c.round] = true);
            self.cells.iter().filter(|c| near[c.round]).for_each(|c| reached[c.target] = true);
        }
        reached.into_iter().all(|is| is)
    }
}

/// Result of the fit: an effect per target, an effect per round, and the residuals, all as logarithms.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) targets: Vec<f64>,
    pub(super) rounds: Vec<f64>,
    /// Residual of each figure.
    pub(super) rest: Vec<f64>,
}

impl Effects {
    /// Fits one workload without the measurements that the findings make unusable; `None` for fewer than two rounds, or if common rounds do
    /// not link all targets.
    pub(super) fn of(run: &Run, workload: &str, findings: &[Finding]) -> Option<Self> {
        let metric = leading(run, workload);
        let grid = Grid::of(run, workload, metric, |m| !is_unusable(m, findings));
        if grid.rounds.len() < 2 || !grid.is_connected() {
            return None;
        }
        let parts = grid.parts(mean, true);
        let (b, t, n) = (grid.rounds.len(), grid.targets.len(), grid.cells.len());
        let squares = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>();
        let (furthest, by) =
            parts.rounds.iter().enumerate().max_by(|(_, x), (_, y)| x.abs().total_cmp(&y.abs()))?;
        let free = n.saturating_sub(t + b - 1);
        let rest = (t > 1 && free > 0).then(|| squares(&parts.rest) / free as f64);
        let between: f64 =
            grid.cells.iter().map(|cell| parts.rounds[cell.round].powi(2)).sum::<f64>() / (b - 1) as f64;
        Some(Self {
            workload: workload.into(),
            metric,
            rounds: u32::try_from(b).ok()?,
            spread: (squares(&parts.rounds) / (b - 1) as f64).sqrt(),
            furthest: grid.rounds[furthest],
            furthest_by: by.exp_m1(),
            rest: rest.map(f64::sqrt),
            rounds_p: rest.filter(|rest| *rest > 0.0).and_then(|rest| {
                Some(FisherSnedecor::new((b - 1) as f64, free as f64).ok()?.sf(between / rest))
            }),
            drift: drift(&grid, &parts.rounds),
            level: ALPHA / (2 * run.plan.workloads.len()) as f64,
        })
    }

    /// Returns whether a round deviates from the mean by more than `margin`, a share such as 0.02, and the differences between rounds are
    /// significant.
    #[must_use]
    pub fn rounds_moved(&self, margin: f64) -> bool {
        self.furthest_by.abs() > margin && self.rounds_p.is_some_and(|p| p < self.level)
    }

    /// Returns the drift if it is significant and larger than `margin`, a share such as 0.02; else `None`.
    #[must_use]
    pub fn drifted(&self, margin: f64) -> Option<Drift> {
        self.drift.filter(|drift| drift.change.abs() > margin && drift.p < self.level)
    }
}

/// Fits a line through the round effects, each placed at the mean position of its measurements in the run's order. `None` for fewer than
/// three rounds.
fn drift(grid: &Grid<'_, &Measurement>, parts: &[f64]) -> Option<Drift> {
    let order = |cell: &Cell<&Measurement>| f64::from(cell.of.order);
    let positions: Vec<f64> = (0..parts.len())
        .map(|round| mean(&grid.cells.iter().filter(|c| c.round == round).map(order).collect::<Vec<_>>()))
        .collect::<Option<_>>()?;
    let (first, last) =
        grid.cells.iter().map(order).fold((f64::MAX, f64::MIN), |(l, h), o| (l.min(o), h.max(o)));
    let free = parts.len().checked_sub(2).filter(|free| *free > 0)? as f64;
    let (x, y) = (mean(&positions)?, mean(parts)?);
    let along: f64 = positions.iter().map(|position| (position - x).powi(2)).sum();
    let slope =
        positions.iter().zip(parts).map(|(position, part)| (position - x) * (part - y)).sum::<f64>() / along;
    let off: f64 =
        positions.iter().zip(parts).map(|(position, part)| (part - y - slope * (position - x)).powi(2)).sum();
    let error = (off / free / along).sqrt() * (last - first);
    let student = StudentsT::new(0.0, 1.0, free).ok()?;
    let (change, half) = (slope * (last - first), student.inverse_cdf(1.0 - ALPHA / 2.0) * error);
    let p = if error > 0.0 {
        2.0 * student.sf((change / error).abs())
    } else {
        f64::from(u8::from(change == 0.0))
    };
    let interval = Interval { low: (change - half).exp_m1(), high: (change + half).exp_m1() };
    (along > 0.0 && change.is_finite()).then(|| Drift { change: change.exp_m1(), interval, p })
}

/// Returns the arithmetic mean; `None` for an empty slice.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
