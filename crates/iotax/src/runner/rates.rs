//! The capacity of each target, by which the rates of a curve are placed.

use std::collections::BTreeMap;
use std::sync::Arc;

use iotax_analysis::Metric;
use iotax_analysis::store::Store;
use iotax_model::Cell;
use iotax_model::units::human;
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::undo::UndoLog;

use super::cell::ScheduledCell;
use super::{Progress, Runner};

/// Measurements of each target: the first after it was filled is often another.
const TRIALS: u32 = 2;
/// Where the rates are given as shares, whose windows are long.
const TRIALS_FOR_SHARES: u32 = 1;

impl Runner<'_> {
    /// Measures every workload's closed loop on every target, and puts workloads at rates by them into the plan. These measurements are not kept:
    /// each round measures the closed loops again.
    pub(super) fn place_rates(
        &mut self,
        undo_log: &mut UndoLog,
        store: &mut Store,
        progress: &mut dyn Progress,
        stop: &Interrupt,
    ) -> anyhow::Result<()> {
        progress.phase("measuring what the targets can do");
        let plan = Arc::clone(&self.plan);
        let given = plan.curve.as_ref().is_some_and(|curve| !curve.shares.is_empty());
        let trials = if given { TRIALS_FOR_SHARES } else { TRIALS };
        let mut capacities = vec![BTreeMap::new(); plan.workloads.len()];
        for (workload, capacities) in capacities.iter_mut().enumerate() {
            let name = &plan.workloads[workload].name;
            for target in
                (0..plan.targets.len()).filter(|target| !self.lost.contains(target)).collect::<Vec<_>>()
            {
                let cell = Cell { target, workload };
                let mut most: Option<f64> = None;
                for order in 0..trials {
                    let trial = ScheduledCell { cell, round: 0, order };
                    let measured = self.measure_alive(trial, undo_log, progress, stop)?;
                    most = most.into_iter().chain(Metric::IOPS.of(&measured)).reduce(f64::max);
                }
                let target = &plan.targets[target].name;
                let most = most.filter(|iops| *iops > 0.0);
                let most = most.ok_or_else(|| {
                    anyhow::anyhow!("{target} completed no I/O of {name}, so no rate can be placed")
                })?;
                progress.note(&format!("{target}, {name}: up to {} IOPS", human::count(most)));
                capacities.insert(target.clone(), most);
            }
        }
        let plan = self.order.plan.clone().with_rates(&capacities)?;
        store.set_plan(self.order.run, &plan)?;
        self.plan = Arc::new(plan);
        Ok(())
    }
}
