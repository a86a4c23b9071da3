//! Means of each cell (a workload on a target) over its rounds, as shown in tables. The ratio of two cells' means is the ratio that their
//! comparison shows.

use std::collections::HashMap;

use iotax_model::Run;
use iotax_model::record::Measurement;

use crate::effects::{Grid, mean};
use crate::fidelity::is_late;
use crate::metric::{Metric, OverRounds};

/// Geometric means by workload, target and metric.
///
/// A run that stops measuring a cell once its comparisons are decided measures its cells in different rounds. A least-squares fit then
/// splits the logarithm of each figure into a target effect and a round effect (additive two-factor model: Scheffé, The Analysis of
/// Variance, 1959, chapter 4), and each mean is adjusted to all rounds. So the ratios of the single layers multiply to the ratio of the
/// whole stack.
#[derive(Debug, Default)]
pub(crate) struct CellMeans<'a> {
    by: HashMap<(&'a str, Metric), HashMap<&'a str, f64>>,
}

impl<'a> CellMeans<'a> {
    /// Computes the means of a run for the given metrics; leaves out metrics that are not summarized by a geometric mean. A cell without a
    /// positive value has no mean.
    pub(crate) fn of(run: &'a Run, metrics: &[Metric]) -> Self {
        let metrics = metrics.iter().filter(|m| m.definition().over_rounds == OverRounds::GeometricMean);
        let workloads = || run.plan.workloads.iter().map(|workload| workload.name.as_str());
        let each = metrics.flat_map(|metric| workloads().map(move |workload| (workload, *metric)));
        Self {
            by: each.map(|(workload, metric)| ((workload, metric), fitted(run, workload, metric))).collect(),
        }
    }

    /// Returns the geometric mean of a workload on a target for a metric; `None` if no round has a positive value, or if the means do not
    /// cover the metric.
    pub(crate) fn get(&self, workload: &str, target: &str, metric: Metric) -> Option<f64> {
        self.by.get(&(workload, metric))?.get(target).copied()
    }
}

fn fitted<'a>(run: &'a Run, workload: &str, metric: Metric) -> HashMap<&'a str, f64> {
    let of_workload: Vec<&Measurement> = run.measured().filter(|m| m.workload == workload).collect();
    // Late replays are left out, as in comparisons, unless the target has no other replays.
    let is_punctual = |m: &&&Measurement| !is_late(m);
    let has_others = |target: &str| of_workload.iter().filter(is_punctual).any(|m| m.target == target);
    let of_workload = of_workload.iter().filter(|m| is_punctual(m) || !has_others(&m.target));
    let figures = of_workload.filter_map(|m| Some((m.target.as_str(), m.round, metric.of(m)?)));
    means(figures, run.source.is_none())
}

/// Computes each target's geometric mean from (target, round, positive figure) of one workload. Pass `has_rounds` = false for an import:
/// its repetitions belong to one target, so two targets share no round.
pub(crate) fn means<'a>(
    figures: impl Iterator<Item = (&'a str, u32, f64)>,
    has_rounds: bool,
) -> HashMap<&'a str, f64> {
    let grid = Grid::new(figures.map(|(target, round, figure)| (target, round, figure.ln(), ())));
    let fit = grid.parts(mean, has_rounds && grid.is_connected());
    grid.targets.iter().copied().zip(fit.targets.iter().map(|part| part.exp())).collect()
}
