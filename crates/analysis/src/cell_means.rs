//! Means of each cell (a workload on a target) over its rounds, as shown in tables. The ratio of two cells' means is the ratio that their
//! comparison shows.

use std::collections::HashMap;

use iotax_model::Run;

use crate::effects::{Grid, mean};
use crate::finding::Finding;
use crate::grade::is_unusable;
use crate::metric::{Metric, OverRounds};

/// Geometric means by workload, target and metric.
///
/// A run that stops measuring a cell once its comparisons are decided measures its cells in different rounds. A least-squares fit then
/// splits the logarithm of each figure into a target effect and a round effect (additive two-factor model: Scheffé, The Analysis of
/// Variance, 1959, chapter 4), and each mean is adjusted to all rounds. So the ratios of the single layers multiply to the ratio of the
/// whole stack. Unusable measurements are left out, see [`means`].
#[derive(Debug, Default)]
pub(crate) struct CellMeans<'a> {
    by: HashMap<(&'a str, Metric), HashMap<&'a str, f64>>,
}

impl<'a> CellMeans<'a> {
    /// Computes the means of a run for the given metrics; leaves out metrics that are not summarized by a geometric mean. A cell without a
    /// positive value has no mean.
    pub(crate) fn of(run: &'a Run, metrics: &[Metric], findings: &[Finding]) -> Self {
        let metrics = metrics.iter().filter(|m| m.definition().over_rounds == OverRounds::GeometricMean);
        let workloads = || run.plan.workloads.iter().map(|workload| workload.name.as_str());
        let each = metrics.flat_map(|metric| workloads().map(move |workload| (workload, *metric)));
        Self {
            by: each
                .map(|(workload, metric)| ((workload, metric), fitted(run, workload, metric, findings)))
                .collect(),
        }
    }

    /// Returns the geometric mean of a workload on a target for a metric; `None` if no round has a positive value, or if the means do not
    /// cover the metric.
    pub(crate) fn get(&self, workload: &str, target: &str, metric: Metric) -> Option<f64> {
        self.by.get(&(workload, metric))?.get(target).copied()
    }
}

fn fitted<'a>(run: &'a Run, workload: &str, metric: Metric, findings: &[Finding]) -> HashMap<&'a str, f64> {
    let of_workload = run.measured().filter(|m| m.workload == workload);
    let figures = of_workload.filter_map(|m| {
        let value = metric.of(m)?;
        Some(RoundFigure { target: &m.target, round: m.round, value, is_usable: !is_unusable(m, findings) })
    });
    means(figures, !run.source.is_imported())
}

/// A positive figure of one measurement of a workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundFigure<'a> {
    pub(crate) target: &'a str,
    pub(crate) round: u32,
    pub(crate) value: f64,
    pub(crate) is_usable: bool,
}

/// Computes each target's geometric mean from the figures of one workload. A target whose figures are all unusable shows their plain mean;
/// otherwise unusable figures have no effect on any mean. Pass `has_rounds` = false for an import: its repetitions belong to one target,
/// so two targets share no round.
pub(crate) fn means<'a>(
    figures: impl Iterator<Item = RoundFigure<'a>>,
    has_rounds: bool,
) -> HashMap<&'a str, f64> {
    let (usable, unusable): (Vec<_>, Vec<_>) = figures.partition(|figure| figure.is_usable);
    let mut means = fit(&unusable, false);
    means.extend(fit(&usable, has_rounds));
    means
}

fn fit<'a>(figures: &[RoundFigure<'a>], has_rounds: bool) -> HashMap<&'a str, f64> {
    let grid = Grid::new(figures.iter().map(|figure| (figure.target, figure.round, figure.value.ln(), ())));
    let fit = grid.parts(mean, has_rounds && grid.is_connected());
    grid.targets.iter().copied().zip(fit.targets.iter().map(|part| part.exp())).collect()
}
