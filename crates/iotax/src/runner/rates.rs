//! Measures the capacity of each target, to choose the rates of a curve.

use std::collections::BTreeMap;
use std::sync::Arc;

use iotax_analysis::{Metric, curve};
use iotax_model::Cell;
use iotax_model::plan::{Plan, Scouted};
use iotax_model::record::Measurement;
use iotax_model::units::human;

use super::Runner;
use super::cell::ScheduledCell;

/// Number of times that each target's capacity is measured: the first measurement after filling often differs.
const TRIALS: u32 = 2;
/// Number of times that the capacity is measured if rates are given as shares of it, because their windows are long.
const TRIALS_FOR_SHARES: u32 = 1;

impl Runner<'_> {
    /// Measures every workload on every target in a closed loop (without a rate) and, unless rates are given as shares of the capacity, at
    /// a few rates. Sets the plan's rates from the results. These measurements are not stored: otherwise the same noise would affect both
    /// the choice of a rate and the result at this rate.
    pub(super) fn set_rates(&mut self) -> anyhow::Result<()> {
        self.context.progress.phase("measuring what the targets can do");
        let plan = Arc::clone(&self.plan);
        let mut scouted_targets = vec![BTreeMap::new(); plan.workloads.len()];
        for (workload, scouted_targets) in scouted_targets.iter_mut().enumerate() {
            let name = &plan.workloads[workload].name;
            for target in
                (0..plan.targets.len()).filter(|target| !self.lost.contains(target)).collect::<Vec<_>>()
            {
                let mut measure = |runner: &mut Self, workload, order| {
                    let trial = ScheduledCell { cell: Cell { target, workload }, round: 0, order };
                    runner.measure_alive(trial)
                };
                let scouted = self.scout(workload, &mut measure)?;
                self.plan = Arc::clone(&plan);
                let target = &plan.targets[target].name;
                let scouted = scouted.ok_or_else(|| {
                    anyhow::anyhow!("{target} completed no I/O of {name}, so no rate can be placed")
                })?;
                self.context
                    .progress
                    .note(&format!("{target}, {name}: up to {} IOPS", human::count(scouted.capacity)));
                scouted_targets.insert(target.clone(), scouted);
            }
        }
        let plan = self.order.plan.clone().with_rates(&scouted_targets)?;
        self.context.store.set_plan(self.order.run, &plan)?;
        self.plan = Arc::new(plan);
        Ok(())
    }

    /// Measures a target's capacity under a workload, and the latency at a few rates unless rates are given as shares of the capacity.
    /// `None` if no I/O completed.
    fn scout(
        &mut self,
        workload: usize,
        measure: &mut dyn FnMut(&mut Self, usize, u32) -> anyhow::Result<Measurement>,
    ) -> anyhow::Result<Option<Scouted>> {
        let given = self.plan.curve().is_some_and(|curve| !curve.shares.is_empty());
        let trials = if given { TRIALS_FOR_SHARES } else { TRIALS };
        let mut most: Option<f64> = None;
        for order in 0..trials {
            let measured = measure(self, workload, order)?;
            most = most.into_iter().chain(Metric::IOPS.of(&measured)).reduce(f64::max);
        }
        let Some(capacity) = most.filter(|iops| *iops > 0.0) else { return Ok(None) };
        let mut scouted = Scouted::new(capacity);
        let rates = if given { Vec::new() } else { Scouted::first_rates(capacity) };
        for (order, rate) in (trials..).zip(rates) {
            let mut plan = Plan::clone(&self.plan);
            let at_rate = plan.add_rate(workload, rate);
            self.plan = Arc::new(plan);
            let measured = measure(self, at_rate, order)?;
            let response = curve::response_if_sustained(&self.plan.workloads[at_rate], &measured);
            scouted.measured.push((rate, response));
        }
        Ok(Some(scouted))
    }
}
