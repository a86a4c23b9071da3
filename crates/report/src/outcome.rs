//! Summarises the outcome of a run in a few words, for lists of runs.

use iotax_analysis::Metric;
use iotax_analysis::trend::{AnswerFigure, FoundAnswer, RunFigures};
use iotax_model::units::human::{self, listed};
use iotax_model::{Run, Workload};

use crate::figure::counted;

/// Maximum number of targets that are listed with their figures.
const NAMED: usize = 3;

/// Formats each target's main figure on the first workload that has one: `60.5k IOPS`, `host-file 60.5k IOPS, vm-raw 10.9k IOPS`. For a
/// rate search this is the rate found, for a curve the capacity, for a watch the longest gap. `None` if nothing usable was measured.
#[must_use]
pub fn outcome(run: &Run, figures: &RunFigures) -> Option<String> {
    let targets = &run.plan.targets;
    let (workload, found) = run.plan.workloads.iter().find_map(|workload| {
        let figure =
            |target: &str| answer(figures, target, workload).or_else(|| mean(run, figures, target, workload));
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

/// Formats a target's result of a rate search, a curve or a watch: `up to 12.1k IOPS`, `longest gap 3.02 s`; `None` in other runs, or
/// without a result.
fn answer(figures: &RunFigures, target: &str, workload: &Workload) -> Option<String> {
    let is_of = |found: &&FoundAnswer| found.target == target && found.workload == workload.name;
    Some(match figures.answers().iter().find(is_of)?.is {
        AnswerFigure::Rate(rate) => format!("up to {} IOPS", human::count(rate)),
        AnswerFigure::AtLeast(rate) => format!("{} IOPS and more", human::count(rate)),
        AnswerFigure::Below(rate) => format!("less than {} IOPS", human::count(rate)),
        AnswerFigure::LongestGap(0) => "no gap".into(),
        AnswerFigure::LongestGap(ns) => format!("longest gap {}", human::time(ns as f64)),
    })
}

/// Formats the mean of the workload's headline metric. If that is unknown, as in some imported runs, formats the first known metric with
/// its name. `None` if no metric is known.
fn mean(run: &Run, figures: &RunFigures, target: &str, workload: &Workload) -> Option<String> {
    let headline = Metric::headline(workload);
    [headline].into_iter().chain(Metric::compared()).find_map(|metric| {
        let words = metric.figure_on(workload, figures.mean(run, target, &workload.name, metric)?);
        Some(match metric {
            metric if metric == Metric::IOPS => format!("{words} IOPS"),
            metric if metric == headline || metric == Metric::BYTES_PER_S => words,
            metric => format!("{} {words}", metric.name_on(workload)),
        })
    })
}
