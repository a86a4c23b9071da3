//! Shows durable writes: a table of methods, the number of flushes at each layer, and the conclusions.

use iotax_analysis::durability::{DurableWrites, MethodOnTarget};
use iotax_analysis::{Judgement, Metric};
use iotax_model::units::human;
use iotax_model::{CellKey, Run, Workload};

use super::{Field, Grid, Page, Part, figure, verdict, words};
use crate::durability::{account_lines, against, sentences};
use crate::figure::{UNKNOWN, change, or_unknown};
use crate::marks;

/// Adds the comparison of a run's durable-write methods to the page. Returns whether the run compares such methods.
pub(super) fn add(page: &mut Page, run: &Run, judgement: &Judgement) -> bool {
    let Some(writes) = DurableWrites::of(run, judgement) else { return false };
    add_figures(page, run, judgement, &writes);
    page.add_list("What it means", sentences(run, &writes));
    true
}

fn add_figures(page: &mut Page, run: &Run, judgement: &Judgement, writes: &DurableWrites<'_>) {
    page.add(Part::Head(title(run)));
    page.add(Part::Table(table(run, judgement, writes)));
    let failures = run.plan.workloads.iter().flat_map(|workload| marks::failures(run, judgement, workload));
    page.add_lines(failures.collect());
    page.add_list("Flushes, from the program down", account_lines(run, writes));
}

/// Formats the heading: `Durable writes of 4k`, `Durable writes of 8k by 4 jobs at once`; without what differs between the workloads.
fn title(run: &Run) -> String {
    let mut text = "Durable writes".to_owned();
    let Some((first, others)) = run.plan.workloads.split_first() else { return text };
    if others.iter().all(|other| other.lengths() == first.lengths()) {
        text = format!("{text} of {}", first.lengths());
    }
    if first.numjobs > 1 && others.iter().all(|other| other.numjobs == first.numjobs) {
        text = format!("{text} by {} jobs at once", first.numjobs);
    }
    text
}

/// Returns the page section on durable writes for HTML; empty if the run tested none.
pub(crate) fn section(run: &Run, judgement: &Judgement) -> Page {
    let mut page = Page::default();
    if let Some(writes) = DurableWrites::of(run, judgement) {
        add_figures(&mut page, run, judgement, &writes);
    }
    page
}

/// Builds the table of commit rates, latencies and CPU times, with one row per method and target.
fn table(run: &Run, judgement: &Judgement, writes: &DurableWrites<'_>) -> Grid {
    let compares = run.plan.targets.len() > 1;
    let reference = writes.reference.map(|name| format!("against {name}"));
    let baseline = format!("against {}", run.plan.baseline);
    let mut head = vec![words("")];
    let swept = swept(run);
    head.extend(swept.iter().map(|(key, _)| figure(*key)));
    head.extend(compares.then(|| words("target")));
    head.extend(["per second", "p50", "p99", "CPU each"].map(figure));
    head.extend(reference.iter().map(figure));
    head.extend(compares.then(|| figure(&baseline)));
    let is_marked = |cell: &MethodOnTarget<'_>| {
        !marks::marks(run, judgement, &cell.workload.name, cell.target).is_empty()
    };
    let marked = writes.cells.iter().any(is_marked);
    head.extend(marked.then(|| words("")));
    let mut rows = Vec::new();
    let mut last = "";
    for cell in &writes.cells {
        let name = cell.workload.name.as_str();
        let mut row = vec![words(if cell.method == last { String::new() } else { titled(cell) })];
        last = cell.method;
        row.extend(swept.iter().map(|(_, value)| figure(value(cell.workload))));
        row.extend(compares.then(|| words(cell.target)));
        row.extend(
            [
                or_unknown(cell.per_second, human::count),
                or_unknown(cell.p50_ns, human::time),
                or_unknown(cell.p99_ns, human::time),
                or_unknown(cell.cpu_ns, human::time),
            ]
            .map(figure),
        );
        row.extend(writes.reference.map(|reference| against_method(cell, writes, reference)));
        row.extend(compares.then(|| against_target(run, judgement, cell)));
        row.extend(marked.then(|| words(marks::marks(run, judgement, name, cell.target).join(", "))));
        rows.push(row);
    }
    Grid { head, rows }
}

/// A key of the workload, and its value in words.
type Swept = (&'static str, fn(&Workload) -> String);

/// Returns the keys in which the points of a sweep differ.
fn swept(run: &Run) -> Vec<Swept> {
    const KEYS: [Swept; 4] = [
        ("bs", Workload::lengths),
        ("numjobs", |workload| workload.numjobs.to_string()),
        ("iodepth", |workload| workload.iodepth.to_string()),
        ("layout", |workload| workload.layout.to_string()),
    ];
    let differs = |(_, value): &Swept| {
        let mut values = run.plan.workloads.iter().map(value);
        values.next().is_some_and(|first| values.any(|other| other != first))
    };
    KEYS.into_iter().filter(differs).collect()
}

fn titled(cell: &MethodOnTarget<'_>) -> String {
    let name = cell.method;
    if cell.is_durable() { name.to_owned() } else { format!("{name} (not durable)") }
}

fn against_method(cell: &MethodOnTarget<'_>, writes: &DurableWrites<'_>, reference: &str) -> Field {
    let is_there = writes.on(cell.target).any(|one| one.method == reference && one.is_at_point_of(cell));
    match &cell.against_reference {
        _ if cell.method == reference || !is_there => figure(""),
        Some(ratio) => coloured(against(ratio), ratio.verdict),
        None => figure(UNKNOWN),
    }
}

fn against_target(run: &Run, judgement: &Judgement, cell: &MethodOnTarget<'_>) -> Field {
    if cell.target == run.plan.baseline {
        return figure("baseline");
    }
    match judgement.comparison(CellKey { workload: &cell.workload.name, target: cell.target }, Metric::IOPS) {
        Some(comparison) if comparison.ratio.withheld.is_none() => {
            coloured(against(&comparison.ratio), comparison.ratio.verdict)
        }
        Some(comparison) => figure(format!("{} (withheld)", change(comparison.ratio.mean))),
        None => figure(UNKNOWN),
    }
}

fn coloured(text: String, of: iotax_analysis::stats::verdict::Verdict) -> Field {
    Field { is_figure: true, ..verdict(text, Some(of)) }
}
