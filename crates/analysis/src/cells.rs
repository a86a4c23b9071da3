//! Lists a run's cells, and groups its measurements by cell.

use std::collections::HashMap;

use iotax_model::record::Measurement;
use iotax_model::{CellKey, Run, TargetSpec, Workload};

/// Iterates over all workloads and targets that the plan measures, in the plan's order.
pub(crate) fn each_cell(run: &Run) -> impl Iterator<Item = (&Workload, &TargetSpec)> {
    let (plan, targets) = (&run.plan, 0..run.plan.targets.len());
    let all = (0..plan.workloads.len()).flat_map(move |workload| targets.clone().map(move |t| (workload, t)));
    all.filter(|(workload, target)| plan.measures(*target, *workload))
        .map(|(workload, target)| (&plan.workloads[workload], &plan.targets[target]))
}

/// Groups the measurements that count toward the figures by cell: all, or those of the last five rounds if the run waits for a steady state.
pub fn by_cell(run: &Run) -> HashMap<CellKey<'_>, Vec<&Measurement>> {
    let mut cells: HashMap<_, Vec<_>> = HashMap::new();
    for m in run.measured() {
        cells.entry(m.cell()).or_default().push(m);
    }
    cells
}
