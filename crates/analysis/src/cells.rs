//! Groups measurements by cell (a workload on a target), and identifies single measurements.

use std::collections::HashMap;

use iotax_model::TargetSpec;
use iotax_model::Warning;
use iotax_model::record::Measurement;

use iotax_model::Run;

/// Iterates over all (workload, target) pairs that the plan measures, in the plan's order.
pub(crate) fn each_cell(run: &Run) -> impl Iterator<Item = (&str, &TargetSpec)> {
    let (plan, targets) = (&run.plan, 0..run.plan.targets.len());
    let all = (0..plan.workloads.len()).flat_map(move |workload| targets.clone().map(move |t| (workload, t)));
    all.filter(|(workload, target)| plan.measures(*target, *workload))
        .map(|(workload, target)| (plan.workloads[workload].name.as_str(), &plan.targets[target]))
}

/// Groups the measurements that count toward the figures by (workload, target): all, or those of the last five rounds if the run waits for
/// a steady state.
pub fn by_cell(run: &Run) -> HashMap<(&str, &str), Vec<&Measurement>> {
    let mut cells: HashMap<_, Vec<_>> = HashMap::new();
    for m in run.measured() {
        cells.entry((m.workload.as_str(), m.target.as_str())).or_default().push(m);
    }
    cells
}

/// Identity of a measurement: target, workload and round.
pub(crate) type Place<'a> = (&'a str, &'a str, u32);

/// Returns the target, workload and round of a measurement.
pub fn place(m: &Measurement) -> Place<'_> {
    (&m.target, &m.workload, m.round)
}

/// Returns the target, workload and round that a warning names; `None` if it does not name all three.
pub fn place_of(warning: &Warning) -> Option<Place<'_>> {
    Some((warning.target.as_deref()?, warning.workload.as_deref()?, warning.round?))
}
