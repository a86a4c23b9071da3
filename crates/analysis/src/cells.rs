//! Cells and places, by which measurements are grouped and identified.

use std::collections::HashMap;

use iotax_model::TargetSpec;
use iotax_model::Warning;
use iotax_model::record::Measurement;

use iotax_model::Run;

/// (workload, target) in the plan's order.
pub(crate) fn each_cell(run: &Run) -> impl Iterator<Item = (&str, &TargetSpec)> {
    let (plan, targets) = (&run.plan, 0..run.plan.targets.len());
    let all = (0..plan.workloads.len()).flat_map(move |workload| targets.clone().map(move |t| (workload, t)));
    all.filter(|(workload, target)| plan.measures(*target, *workload))
        .map(|(workload, target)| (plan.workloads[workload].name.as_str(), &plan.targets[target]))
}

/// The measurements of each cell that enter its figures, one per round, by (workload, target).
pub fn by_cell(run: &Run) -> HashMap<(&str, &str), Vec<&Measurement>> {
    let mut cells: HashMap<_, Vec<_>> = HashMap::new();
    for m in run.measured() {
        cells.entry((m.workload.as_str(), m.target.as_str())).or_default().push(m);
    }
    cells
}

/// Identifies a measurement: target, workload and round.
pub(crate) type Place<'a> = (&'a str, &'a str, u32);

/// The place of a measurement.
pub fn place(m: &Measurement) -> Place<'_> {
    (&m.target, &m.workload, m.round)
}

/// The place of the measurement that a warning concerns; absent if it concerns more than one.
pub fn place_of(warning: &Warning) -> Option<Place<'_>> {
    Some((warning.target.as_deref()?, warning.workload.as_deref()?, warning.round?))
}
