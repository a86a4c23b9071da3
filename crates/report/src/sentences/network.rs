//! Compares network paths in sentences, by throughput, CPU cost and round-trip time.

use iotax_model::units::human;
use iotax_model::units::human::listed;

use super::amount::{absolute, range};
use super::{Versus, margin};
use crate::figure::{counted, listed_briefly};
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Comparison, Judgement, Metric};
use iotax_model::{CellKey, Run};

/// Returns a sentence per pair with a decided comparison, ladder steps first. The targets that ladder steps lead to share one sentence that
/// compares them with the baseline, because the steps already give their costs.
pub(super) fn costs(
    run: &Run,
    judgement: &Judgement,
    steps: &[Versus<'_>],
    totals: &[Versus<'_>],
) -> Vec<String> {
    let said = |parts: &[Option<String>]| {
        let parts: Vec<String> = parts.iter().flatten().cloned().collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    };
    let in_full = |versus: &Versus<'_>| {
        let parts = [carried(run, judgement, versus), cpu(versus), trips(run, versus)];
        Some(format!("{}: {}.", name(run, versus), said(&parts)?))
    };
    let is_reached = |versus: &&Versus<'_>| judgement.edges.iter().any(|edge| edge.to == versus.target);
    let (reached, others): (Vec<&Versus<'_>>, Vec<&Versus<'_>>) = totals.iter().partition(is_reached);
    let mut sentences: Vec<String> = steps.iter().chain(others).filter_map(in_full).collect();
    let brief = |versus: &&Versus<'_>| {
        let parts = [carried(run, judgement, versus), trips(run, versus)];
        Some(format!("{} {}", versus.target, said(&parts)?.replace("; ", ", ")))
    };
    let all: Vec<String> = reached.iter().filter_map(brief).collect();
    if !all.is_empty() {
        sentences.push(format!("In all, against {}: {}.", run.plan.baseline, all.join("; ")));
    }
    sentences
}

/// Lists the targets with gaps of more than 200 ms in the received data; these affect no verdict.
pub(super) fn facts(judgement: &Judgement) -> Vec<String> {
    let gaps: Vec<String> = judgement
        .cells
        .iter()
        .filter_map(|cell| Some((cell, cell.network.as_ref()?)))
        .filter(|(_, network)| !network.gaps.is_empty())
        .map(|(cell, network)| {
            let (round, gap) = network.gaps[0];
            let longest = human::time(gap.duration_ns as f64);
            let times = counted(network.gaps.len() as u64, "time");
            format!(
                "{} on {} {times}, for {longest} in round {round} at the longest",
                cell.target, cell.workload
            )
        })
        .collect();
    (!gaps.is_empty())
        .then(|| format!("Nothing arrived for more than 200 ms: {}.", listed_briefly(&gaps)))
        .into_iter()
        .collect()
}

/// Names a pair of targets: `virtio-net + guest (vm over veth)`, `vm against loopback`.
fn name(run: &Run, versus: &Versus<'_>) -> String {
    let emulated = if versus.only_one_emulated(run) { ", emulated," } else { "" };
    match versus.edge {
        Some(edge) => format!("{} ({}{emulated} over {})", edge.name, versus.target, versus.baseline),
        None => format!("{}{} against {}", versus.target, emulated.trim_end_matches(','), versus.baseline),
    }
}

fn with<'a>(versus: &Versus<'a>, metric: Metric, verdict: Verdict) -> Vec<&'a Comparison> {
    versus.by(metric).filter(|c| c.ratio.verdict == verdict).collect()
}

fn workloads(found: &[&Comparison]) -> String {
    listed_briefly(&found.iter().map(|c| c.workload.clone()).collect::<Vec<_>>())
}

/// Compares throughputs: `carries 9.41 of 31.2 Gbit/s on tcp-upload`; `None` if no comparison is decided.
fn carried(run: &Run, judgement: &Judgement, versus: &Versus<'_>) -> Option<String> {
    let rate = |c: &Comparison, target: &str| {
        judgement.summary(CellKey { workload: &c.workload, target })?.of(Metric::BYTES_PER_S)
    };
    let moved = |verdict, between: &str| {
        let each = with(versus, Metric::BYTES_PER_S, verdict).into_iter().filter_map(|c| {
            let [ours, theirs] = [&c.target, &c.baseline].map(|target| rate(c, target).map(human::bits));
            let (ours, theirs) = (ours?, theirs?);
            let unit = |text: &str| text.split_once(' ').map(|(_, unit)| unit.to_owned());
            let same = unit(&ours) == unit(&theirs);
            let ours = if same { ours.split(' ').next().unwrap_or_default() } else { &ours };
            Some(format!("{ours} {between} {theirs} on {}", c.workload))
        });
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| format!("carries {}", listed(&each)))
    };
    let same = with(versus, Metric::BYTES_PER_S, Verdict::Same);
    let same =
        (!same.is_empty()).then(|| format!("carries as much ({}) on {}", margin(run), workloads(&same)));
    let parts = [moved(Verdict::Slower, "of"), moved(Verdict::Faster, "instead of"), same];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Compares CPU costs: `takes 450 ms more host CPU per GiB on tcp-upload and tcp-download`; `None` if no comparison is decided.
fn cpu(versus: &Versus<'_>) -> Option<String> {
    let part = |verdict, word| {
        let found = with(versus, Metric::CPU_PER_GIB, verdict);
        let amounts: Vec<f64> = found.iter().filter_map(|c| Some(c.ratio.tax?.ns.abs())).collect();
        Some(format!("{} {word} host CPU per GiB on {}", range(&amounts, human::time)?, workloads(&found)))
    };
    let parts: Vec<String> =
        [part(Verdict::Slower, "more"), part(Verdict::Faster, "less")].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("takes {}", parts.join(" and ")))
}

/// Compares round-trip times: `adds 35.2 us to a round trip on tcp-rtt`; `None` if no comparison is decided.
fn trips(run: &Run, versus: &Versus<'_>) -> Option<String> {
    let part = |verdict, verb: &str, to: &str| {
        let each = with(versus, Metric::LATENCY_MEAN, verdict)
            .into_iter()
            .filter_map(|c| Some(format!("{} {to} a round trip on {}", absolute(&[c])?, c.workload)));
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| format!("{verb} {}", listed(&each)))
    };
    let same = with(versus, Metric::LATENCY_MEAN, Verdict::Same);
    let same = (!same.is_empty()).then(|| {
        format!("adds nothing measurable ({}) to a round trip on {}", margin(run), workloads(&same))
    });
    let parts = [part(Verdict::Slower, "adds", "to"), part(Verdict::Faster, "takes", "off"), same];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
