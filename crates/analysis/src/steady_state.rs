//! Steady states by SNIA's rule: over the last five rounds the values of a workload on a target vary by at most 20% of their mean, and
//! their best linear fit by at most 10% (Solid State Storage Performance Test Specification 2.0.2, 2.1.24).
//!
//! The values are those of the metric in tables ([`Metric::headline`]). A run ends with the first round after which every workload
//! satisfies the rule on every target on which it can be measured.

use std::collections::HashMap;

use iotax_model::plan::{Design, STEADY_RANGE, STEADY_SLOPE, STEADY_WINDOW};
use iotax_model::record::Measurement;
use iotax_model::{Cell, Plan, Run};
use schemars::JsonSchema;
use serde::Serialize;

use crate::metric::Metric;

/// The last five rounds of a workload on a target.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct SteadyWindow {
    /// Mean of the five rounds' values, in the metric's unit.
    pub mean: f64,
    /// Highest minus lowest value, as a share of the mean; at most 0.2 in a steady state.
    pub range: f64,
    /// Change of the best linear fit over the five rounds, as a share of the mean, negative if the values fall; within 0.1 of 0 in a steady
    /// state.
    pub slope: f64,
}

impl SteadyWindow {
    /// Computes the window of five values, one per round; `None` for another number of values, or if the mean is not positive.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = STEADY_WINDOW as usize;
        let mean = values.iter().sum::<f64>() / count as f64;
        if values.len() != count || !mean.is_finite() || mean <= 0.0 {
            return None;
        }
        let (low, high) =
            values.iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
        let middle = (count as f64 - 1.0) / 2.0;
        let centered = |index: usize| index as f64 - middle;
        let squares: f64 = (0..count).map(|index| centered(index).powi(2)).sum();
        let per_round: f64 = values.iter().enumerate().map(|(i, v)| centered(i) * v).sum::<f64>() / squares;
        Some(Self { mean, range: (high - low) / mean, slope: per_round * (count as f64 - 1.0) / mean })
    }

    /// Returns whether the window satisfies the rule.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.range <= STEADY_RANGE && self.slope.abs() <= STEADY_SLOPE
    }
}

/// The values of a workload on a target in a run that waits for a steady state.
#[derive(Debug, Clone, PartialEq)]
pub struct CellSteadiness {
    /// The cell, as indices of workload and target in the plan.
    pub cell: Cell,
    /// The metric whose values must become steady.
    pub metric: Metric,
    /// Round and value of each measurement, by ascending round.
    pub values: Vec<(u32, f64)>,
    /// The window of the run's last five rounds; `None` if one of these rounds has no value, or if their mean is not positive.
    pub window: Option<SteadyWindow>,
    /// The first round that ended five rounds satisfying the rule; `None` if there is none.
    pub first: Option<u32>,
}

impl CellSteadiness {
    /// Returns whether the run's last five rounds satisfy the rule.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.window.is_some_and(|window| window.is_steady())
    }
}

/// Values of each workload on each target while a run adds rounds until they are steady.
#[derive(Debug, Clone)]
pub struct SteadyState {
    plan: Plan,
    values: HashMap<Cell, Vec<(u32, f64)>>,
}

impl SteadyState {
    /// Collects the values of a run so far; `None` if the run does not wait for a steady state.
    #[must_use]
    pub fn of(run: &Run) -> Option<Self> {
        let Design::UntilSteady(_) = &run.plan.design else { return None };
        let mut state = Self { plan: run.plan.clone(), values: HashMap::new() };
        run.measurements.iter().for_each(|measurement| state.add(measurement));
        Some(state)
    }

    /// Adds a measurement. Ignores a measurement without a value, or whose workload or target is not in the plan.
    pub fn add(&mut self, measurement: &Measurement) {
        let target = self.plan.targets.iter().position(|target| target.name == measurement.target);
        let workload = self.plan.workloads.iter().position(|workload| workload.name == measurement.workload);
        let (Some(target), Some(workload)) = (target, workload) else { return };
        let Some(value) = Metric::headline(&self.plan.workloads[workload]).value(measurement) else { return };
        let values = self.values.entry(Cell { target, workload }).or_default();
        let at = values.partition_point(|(round, _)| *round < measurement.round);
        values.insert(at, (measurement.round, value));
    }

    /// Returns the number of the last round that has a value; 0 before the first.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.values.values().filter_map(|values| Some(values.last()?.0)).max().unwrap_or(0)
    }

    /// Returns all workloads and targets with values, in the plan's order of workloads, then of targets.
    #[must_use]
    pub fn cells(&self) -> Vec<CellSteadiness> {
        let last = self.rounds();
        let mut cells: Vec<&Cell> = self.values.keys().collect();
        cells.sort_by_key(|cell| (cell.workload, cell.target));
        let of_cell = |cell: &Cell| {
            let values = &self.values[cell];
            let window = |end: u32| {
                let within = values
                    .iter()
                    .filter(|(round, _)| (end.saturating_sub(STEADY_WINDOW) + 1..=end).contains(round));
                SteadyWindow::of(&within.map(|(_, value)| *value).collect::<Vec<f64>>())
            };
            let holds = |end: &u32| window(*end).is_some_and(|window| window.is_steady());
            CellSteadiness {
                cell: *cell,
                metric: Metric::headline(&self.plan.workloads[cell.workload]),
                values: values.clone(),
                window: window(last),
                first: (STEADY_WINDOW..=last).find(holds),
            }
        };
        cells.into_iter().map(of_cell).collect()
    }

    /// Returns whether every workload and target measured in the last window satisfies the rule. Those that can no longer be measured are
    /// ignored. False before five rounds.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        let last = self.rounds();
        let is_alive = |cell: &&CellSteadiness| {
            cell.values.last().is_some_and(|(round, _)| *round + STEADY_WINDOW > last)
        };
        let cells = self.cells();
        let mut alive = cells.iter().filter(is_alive).peekable();
        last >= STEADY_WINDOW && alive.peek().is_some() && alive.all(CellSteadiness::is_steady)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_is_that_of_snia() {
        let of = |values: [f64; 5]| SteadyWindow::of(&values).expect("five values");
        // A line from 95 to 105: both ranges are 10% of the mean.
        let line = of([95.0, 97.5, 100.0, 102.5, 105.0]);
        assert!((line.range - 0.1).abs() < 1e-12 && (line.slope - 0.1).abs() < 1e-12, "{line:?}");
        assert!(of([105.0, 102.0, 100.0, 98.0, 96.0]).slope < 0.0);
        // 21% between two of them; no trend.
        let wide = of([100.0, 110.5, 100.0, 89.5, 100.0]);
        assert!(wide.range > 0.2 && !wide.is_steady(), "{wide:?}");
        // 18% of range is allowed where there is little trend.
        assert!(of([91.0, 109.0, 100.0, 109.0, 91.0]).is_steady());
        // 12% of trend is not, although the range is 12%.
        let falling = of([106.0, 103.0, 100.0, 97.0, 94.0]);
        assert!(!falling.is_steady() && falling.range < 0.2, "{falling:?}");
        assert_eq!(SteadyWindow::of(&[1.0; 4]), None);
        assert_eq!(SteadyWindow::of(&[0.0; 5]), None);
    }
}
