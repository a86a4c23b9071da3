//! Selects the remarks shown below the table of results: at most three lines, and the command that shows the rest.

use iotax_analysis::grade::Grade;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Comparison, Judgement, Metric};
use iotax_model::Run;
use iotax_model::record::Measurement;
use iotax_model::units::human::listed;
use iotax_model::{Warning, WarningKind};

use crate::figure::counted;
use crate::marks;
use crate::remarks::{checks, remarks};
use crate::sentences::{lost, next_step};

const MOST: usize = 3;
/// Text between the number of remarks that are not shown and the command that shows them.
pub(crate) const MORE: &str = " more, where, what to do, and all figures: ";

/// Returns one line that states whether the figures of a single-target run can be trusted.
pub(crate) fn trust(run: &Run, judgement: &Judgement) -> String {
    let unusable: Vec<&Measurement> = run
        .measurements
        .iter()
        .zip(&judgement.grades)
        .filter_map(|(m, grade)| (*grade == Grade::Unusable).then_some(m))
        .collect();
    let about = |w: &&Warning| unusable.iter().any(|m| w.measurement() == Some(m.key()));
    let mut found = grouped(&judgement.warnings);
    // Findings that make a measurement unusable come first.
    found.sort_by_key(|(kind, warnings)| (!warnings.iter().any(about), kind.severity()));
    let Some((kind, warnings)) = found.first() else {
        let checks = listed(&checks(run).map(str::to_owned));
        let other = if super::emulated(run).is_some() { "other " } else { "" };
        return format!("Checked {checks}: no {other}findings.");
    };
    let word = if unusable.is_empty() { "With care" } else { "NOT to be believed" };
    let others = match found.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "{word}: {}{others}; details: {}",
        finding(run, *kind, warnings),
        run.command("report", "--detail")
    )
}

/// Returns in full the grave remarks on a single-target run.
pub(crate) fn grave(run: &Run, judgement: &Judgement) -> Vec<String> {
    let all = remarks(run, &judgement.warnings);
    all.iter().filter(|remark| remark.kind.severity().is_grave()).map(ToString::to_string).collect()
}

/// Returns the remarks, the most serious first; the last line names the command that shows the rest.
pub(super) fn lines(run: &Run, judgement: &Judgement) -> Vec<String> {
    let mut found = grouped(&judgement.warnings);
    found.sort_by_key(|(kind, _)| kind.severity());
    let clean = found.is_empty() && !run.measurements.is_empty();
    let (grave, others): (Vec<_>, Vec<_>) = found.iter().partition(|(kind, _)| kind.severity().is_grave());
    let said = |found: &(WarningKind, Vec<&Warning>)| finding(run, found.0, &found.1);
    let mut lines: Vec<String> = crate::steady_state::sentences(run);
    lines.extend(grave.into_iter().map(said));
    // The result of a search already states its certainty.
    let compares = run.plan.compares_targets();
    let open = open(run, judgement).into_iter().filter(|_| compares);
    lines.extend(lost(run).chain(failed(run, judgement)).chain(open));
    lines.extend(others.into_iter().map(said));
    let more = lines.len().saturating_sub(MOST);
    lines.truncate(MOST);
    let detail = run.command("report", "--detail");
    lines.push(match (more, clean) {
        (0, true) if super::emulated(run).is_some() => {
            format!("The checks found nothing else. All figures: {detail}")
        }
        (0, true) => format!("The checks found nothing. All figures: {detail}"),
        (0, false) => format!("Where, what to do, and all figures: {detail}"),
        (more, _) => format!("{more}{MORE}{detail}"),
    });
    lines
}

/// Returns one line per workload and target with failed measurements; names the workload if the run has several.
fn failed<'a>(run: &'a Run, judgement: &'a Judgement) -> impl Iterator<Item = String> + 'a {
    run.plan.workloads.iter().flat_map(move |workload| {
        let lines = marks::failures(run, judgement, workload).into_iter();
        lines.map(
            move |line| {
                if run.plan.workloads.len() > 1 { format!("{}: {line}", workload.name) } else { line }
            },
        )
    })
}

/// Counts the undecided comparisons and says how to decide them; `None` if all are decided.
fn open(run: &Run, judgement: &Judgement) -> Option<String> {
    let status = judgement.sequential.as_ref();
    let is_headline = |c: &&Comparison| {
        run.plan.workloads.iter().any(|w| w.name == c.workload && Metric::headline(w) == c.metric)
    };
    let mut pairs: Vec<(&str, &str, &str)> = Vec::new();
    let mut needed: Vec<Option<u32>> = Vec::new();
    for c in judgement.comparisons.iter().chain(&judgement.steps).filter(is_headline) {
        let pair = (c.workload.as_str(), c.target.as_str(), c.baseline.as_str());
        if pairs.contains(&pair) {
            continue;
        }
        pairs.push(pair);
        if c.ratio.verdict == Verdict::Undecided && c.ratio.withheld.is_none() {
            needed.push(c.ratio.needed_rounds);
        }
    }
    let (open, all) = status.map_or((needed.len(), pairs.len()), |status| (status.open, status.comparisons));
    if open == 0 {
        return None;
    }
    let advice = next_step(run, judgement, &needed);
    Some(format!("{open} of {} not decided; {advice}", counted(all as u64, "comparison")))
}

/// Groups warnings by kind, in order of first appearance. Leaves out emulation, which has a separate line.
fn grouped(warnings: &[Warning]) -> Vec<(WarningKind, Vec<&Warning>)> {
    let mut groups: Vec<(WarningKind, Vec<&Warning>)> = Vec::new();
    for warning in warnings.iter().filter(|warning| warning.kind != WarningKind::Emulated) {
        match groups.iter_mut().find(|(kind, _)| *kind == warning.kind) {
            Some((_, group)) => group.push(warning),
            None => groups.push((warning.kind, vec![warning])),
        }
    }
    groups
}

/// Summarises the warnings of one kind: `other load: another program used the device (140 of 400 measurements)`.
fn finding(run: &Run, kind: WarningKind, warnings: &[&Warning]) -> String {
    let mut cells: Vec<_> =
        warnings.iter().filter_map(|w| Some((&w.target, &w.workload, w.round?))).collect();
    cells.sort_unstable();
    cells.dedup();
    // A failed cell left no measurement, so its warning may point to a round without one.
    let is_there = |(target, workload, round): &(&Option<String>, &Option<String>, u32)| {
        let here = |m: &Measurement| {
            m.round == *round
                && target.as_ref().is_none_or(|name| *name == m.target)
                && workload.as_ref().is_none_or(|name| *name == m.workload)
        };
        run.measurements.iter().any(here)
    };
    let there = cells.iter().filter(|cell| is_there(cell)).count();
    let mut targets: Vec<String> = Vec::new();
    for target in warnings.iter().filter_map(|w| w.target.as_ref()) {
        if !targets.contains(target) {
            targets.push(target.clone());
        }
    }
    let where_from = match (cells.len() as u64, targets.as_slice()) {
        (0, []) => String::new(),
        (0, targets) => format!(" ({})", listed(targets)),
        (found, _) if there == 0 => format!(" ({})", counted(found, "measurement")),
        _ => format!(" ({there} of {} measurements)", run.measurements.len()),
    };
    let words = if kind == WarningKind::Clock { of_clocks(warnings) } else { short(kind) };
    format!("{}: {words}{where_from}", kind.word().replace('_', " "))
}

/// Describes clock warnings by cause: clocks that disagree or are slow, CPU time taken by the hypervisor (steal), or both.
fn of_clocks(warnings: &[&Warning]) -> &'static str {
    let is_steal = |warning: &&&Warning| warning.evidence.contains("(steal)");
    match warnings.iter().filter(is_steal).count() {
        0 => "clocks disagree, or a slow one is in use",
        steal if steal == warnings.len() => "the hypervisor gave CPU time to others (steal)",
        _ => "clocks disagree or are slow, and the hypervisor gave CPU time to others (steal)",
    }
}

const fn short(kind: WarningKind) -> &'static str {
    match kind {
        WarningKind::CacheLie => "a cache answered, not the device",
        WarningKind::Holes => "part of the area has no data of its own",
        WarningKind::Compressible => "a layer could shorten the data",
        WarningKind::BufferedDirect => "direct I/O was asked for and not done",
        WarningKind::Clock => "clocks disagree",
        WarningKind::Emulated => "guests ran without KVM",
        WarningKind::SaturatedGenerator => "the load generator was the bottleneck",
        WarningKind::Unsteady => "the rate still changed within the window",
        WarningKind::Throttled => "the rate fell in a step, as under a limit",
        WarningKind::Changed => "another program changed a file that is measured",
        WarningKind::OtherLoad => "other programs used the device or the CPUs",
        WarningKind::CacheKept => "a cache could not be dropped before the window",
        WarningKind::CannotSustain => "more I/O was due than could be started",
        WarningKind::UnfaithfulReplay => "replays were late or lack I/Os, and no verdict rests on these",
        WarningKind::ScaledReplay => "I/Os lay at other offsets than in the trace",
        WarningKind::Corrupt => "blocks differ from what was written",
        WarningKind::Outlier => "differs from the other rounds",
        WarningKind::Bypassed => "packets bypassed the interfaces",
        WarningKind::Offloads => "interfaces differ in what they offload",
        WarningKind::LinkBound => "the link was the bottleneck",
        WarningKind::CpuBound => "one end's CPU was the bottleneck",
        WarningKind::Retransmits => "retransmits slowed the stream",
        WarningKind::Loss => "packets were lost",
        WarningKind::Gap => "nothing arrived for some time",
        WarningKind::Incomplete => "missing, failed or ended early",
        WarningKind::Extended => "rounds were added once results were known",
    }
}
