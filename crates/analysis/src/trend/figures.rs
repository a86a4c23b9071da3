//! The figures of a run that its point in a trend rests on.

use std::collections::{BTreeMap, HashMap};

use iotax_model::Run;
use serde::{Deserialize, Serialize};

use crate::checks;
use crate::metric::Metric;

/// The figures of a run's usable measurements: a few kilobytes, whatever the run holds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFigures {
    /// Ids of the metrics, in the order of the values.
    metrics: Vec<String>,
    cells: Vec<CellFigures>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CellFigures {
    target: String,
    workload: String,
    /// Number of each round and its values.
    rounds: Vec<(u32, Vec<Option<f64>>)>,
}

impl RunFigures {
    /// The version of the rules by which measurements are left out. It is raised when one of them judges differently, so that stored
    /// figures are taken anew.
    pub const RULES: u32 = 1;

    /// Takes the figures by every metric that targets are compared by.
    #[must_use]
    pub fn all(run: &Run) -> Self {
        Self::of(run, &Metric::compared().collect::<Vec<_>>())
    }

    /// Takes the figures by these metrics. Measurements that no verdict may rest on are left out.
    #[must_use]
    pub fn of(run: &Run, metrics: &[Metric]) -> Self {
        let findings = checks::of_measurements(run);
        let is_unusable = |target: &str, workload: &str, round: u32| {
            let is = |named: Option<&str>, name: &str| named.is_none_or(|named| named == name);
            findings.iter().filter(|finding| finding.unusable).map(|finding| &finding.warning).any(|w| {
                is(w.target.as_deref(), target)
                    && is(w.workload.as_deref(), workload)
                    && w.round.is_none_or(|of| of == round)
            })
        };
        let mut cells: Vec<CellFigures> = Vec::new();
        let mut places: HashMap<(&str, &str), usize> = HashMap::new();
        for m in run.measurements.iter().filter(|m| !is_unusable(&m.target, &m.workload, m.round)) {
            let place = *places.entry((&m.target, &m.workload)).or_insert_with(|| {
                let (target, workload) = (m.target.clone(), m.workload.clone());
                cells.push(CellFigures { target, workload, rounds: Vec::new() });
                cells.len() - 1
            });
            cells[place].rounds.push((m.round, metrics.iter().map(|metric| metric.of(m)).collect()));
        }
        Self { metrics: metrics.iter().map(|metric| metric.word().to_owned()).collect(), cells }
    }

    /// The geometric mean of a cell over its rounds; absent if none is usable.
    #[must_use]
    pub fn mean(&self, target: &str, workload: &str, metric: Metric) -> Option<f64> {
        let logs = self.logs(target, workload, metric);
        (!logs.is_empty()).then(|| (logs.values().sum::<f64>() / logs.len() as f64).exp())
    }

    /// A cell's logarithms by a metric in the order of the rounds, so that their sum is always the same.
    pub(super) fn logs(&self, target: &str, workload: &str, metric: Metric) -> BTreeMap<u32, f64> {
        let column = self.metrics.iter().position(|known| known == metric.word());
        let cell = self.cells.iter().find(|cell| cell.target == target && cell.workload == workload);
        let (Some(column), Some(cell)) = (column, cell) else { return BTreeMap::new() };
        let log = |(round, values): &(u32, Vec<Option<f64>>)| Some((*round, (*values.get(column)?)?.ln()));
        cell.rounds.iter().filter_map(log).collect()
    }
}
