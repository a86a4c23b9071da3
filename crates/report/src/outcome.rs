//! What came out of a run, in a few words for a list.

use iotax_analysis::Metric;
use iotax_analysis::trend::RunFigures;
use iotax_model::Run;
use iotax_model::units::human::listed;

use crate::figure::counted;

/// Targets that are named with their figures.
const NAMED: usize = 3;

/// The main figure of each target on the first workload: `60.5k IOPS`, `host-file 60.5k IOPS, vm-raw 10.9k IOPS`. Absent if nothing usable
/// was measured.
#[must_use]
pub fn outcome(run: &Run, figures: &RunFigures) -> Option<String> {
    let targets = &run.plan.targets;
    let (workload, found) = run.plan.workloads.iter().find_map(|workload| {
        let metric = Metric::headline(workload);
        let figure = |target: &str| {
            let words = metric.figure_on(workload, figures.mean(target, &workload.name, metric)?);
            Some(if metric == Metric::IOPS { format!("{words} IOPS") } else { words })
        };
        let found = targets.iter().filter_map(|target| Some((target.name.as_str(), figure(&target.name)?)));
        let found: Vec<(&str, String)> = found.collect();
        (!found.is_empty()).then_some((workload, found))
    })?;
    let named: Vec<String> = match found.as_slice() {
        [(_, figure)] if targets.len() == 1 => vec![figure.clone()],
        all => all[..all.len().min(NAMED)].iter().map(|(name, figure)| format!("{name} {figure}")).collect(),
    };
    let more = found.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {}", counted(more as u64, "more target")) } else { String::new() };
    let on = if run.plan.workloads.len() > 1 { format!("{}: ", workload.name) } else { String::new() };
    Some(format!("{on}{}{more}", if more.is_empty() { listed(&named) } else { named.join(", ") }))
}
