//! Groups the warnings of a run into remarks, one line each.

use std::fmt;

use iotax_model::record::HostActivity;
use iotax_model::units::human;
use iotax_model::units::human::listed;
use iotax_model::{Warning, WarningKind};

use crate::figure::{counted, listed_briefly};
use iotax_analysis::stats::median;
use iotax_model::Run;

/// A group of warnings with the same kind and remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remark {
    pub(super) kind: WarningKind,
    /// Affected targets and workloads, and the number of measurements. Empty if the whole run is affected.
    pub(super) scope: String,
    /// Evidence for the remark; that of the first warning if the warnings of the group differ.
    pub(super) evidence: String,
    pub(super) remedy: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind.word().replace('_', " "))?;
        if !self.scope.is_empty() {
            write!(f, ", {}", self.scope)?;
        }
        // A command at the end gets no period, so that it can be copied.
        let end = if self.remedy.contains(": iotax ") { "" } else { "." };
        write!(f, ": {}. Remedy: {}{end}", self.evidence, self.remedy)
    }
}

/// Names what the checks of a run examine, for the sentence that reports no findings; network runs have other checks.
pub(super) fn checks(run: &Run) -> [&'static str; 5] {
    if run.plan.workloads.iter().all(|workload| workload.kind.is_network()) {
        return ["the packets' way", "clocks", "both ends' CPUs", "steadiness", "losses"];
    }
    ["caches", "clocks", "the load generator", "steadiness", "errors"]
}

/// Groups the warnings by kind and remedy, those on a workload apart from those on the whole run or a target; in order of first appearance.
pub(super) fn remarks(run: &Run, warnings: &[Warning]) -> Vec<Remark> {
    let mut groups: Vec<Vec<&Warning>> = Vec::new();
    for warning in warnings {
        let key = |w: &Warning| (w.kind, w.workload.is_some(), w.remedy.clone());
        let same = |w: &Warning| key(w) == key(warning);
        match groups.iter_mut().find(|group| same(group[0])) {
            Some(group) => group.push(warning),
            None => groups.push(vec![warning]),
        }
    }
    groups.iter().map(|group| remark(run, group)).collect()
}

/// Returns the agents' notes without duplicates, each with the number of measurements that have it.
pub(super) fn notes(run: &Run) -> Vec<String> {
    let mut found: Vec<(&str, u64)> = Vec::new();
    for note in run.measurements.iter().flat_map(|m| &m.outcome.notes) {
        match found.iter_mut().find(|(text, _)| text == note) {
            Some((_, times)) => *times += 1,
            None => found.push((note, 1)),
        }
    }
    found.into_iter().map(|(text, times)| format!("{text} ({})", counted(times, "measurement"))).collect()
}

/// Names the I/O engines used, the CPU time per I/O of the engine's own code, and the CPU use of the monitoring, each if known. `None` if
/// all are unknown.
pub(super) fn engine(run: &Run) -> Option<String> {
    let engines = distinct(run.measurements.iter().filter_map(|m| Some(m.outcome.ioengine?.word())));
    let work = (!engines.is_empty()).then(|| format!("I/O was done by {}", listed(&engines)));
    let on_disks = run.plan.workloads.iter().any(|workload| !workload.kind.is_network());
    let cost = run.environment.floor_ns_per_io.filter(|_| on_disks);
    let cost = cost.map(|ns| {
        format!("the engine's own code takes {} of CPU per I/O, without the kernel's", human::time(ns as f64))
    });
    let parts: Vec<String> = work.into_iter().chain(cost).chain(watching(run)).collect();
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}

/// Returns the CPU use of the monitoring in the median measurement, in percent of one CPU: `watching cost 0.8% of one CPU`. `None` if
/// unknown.
fn watching(run: &Run) -> Option<String> {
    let hosts = run.measurements.iter().filter_map(|m| m.host.as_ref());
    let share = |host: &HostActivity| Some(host.watching_ns? as f64 / host.duration_ns.max(1) as f64);
    let median = median(&hosts.filter_map(share).collect::<Vec<_>>())?;
    Some(format!("watching cost {:.1}% of one CPU", median * 100.0))
}

fn remark(run: &Run, group: &[&Warning]) -> Remark {
    let first = group[0];
    let mut scope: Vec<String> = Vec::new();
    let targets = distinct(group.iter().filter_map(|w| w.target.as_deref()));
    if targets.len() == run.plan.targets.len() && targets.len() > 1 {
        scope.push("all targets".into());
    } else if !targets.is_empty() {
        scope.push(listed(&targets));
    }
    let workloads = distinct(group.iter().filter_map(|w| w.workload.as_deref()));
    if workloads.len() == run.plan.workloads.len() && workloads.len() > 1 {
        scope.push("all workloads".into());
    } else if !workloads.is_empty() {
        scope.push(listed_briefly(&workloads));
    }
    let rounds = group.iter().filter(|w| w.round.is_some()).count();
    let mut scope = scope.join(", ");
    let times = match group.iter().find_map(|w| w.round) {
        None => String::new(),
        Some(round) if rounds == 1 => format!(", round {round}"),
        Some(_) => format!(", {}", counted(rounds as u64, "measurement")),
    };
    scope.push_str(&times);
    let others = group.iter().any(|w| w.evidence != first.evidence);
    let evidence = if others { format!("for instance {}", first.evidence) } else { first.evidence.clone() };
    Remark { kind: first.kind, scope, evidence, remedy: first.remedy.clone() }
}

/// Removes repetitions from words, in order of first appearance.
fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in words {
        if !found.iter().any(|known| known == word) {
            found.push(word.to_owned());
        }
    }
    found
}
