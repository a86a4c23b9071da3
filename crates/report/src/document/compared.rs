//! Shows a comparison of two runs, or of two targets of one run.

use iotax_model::Workload;
use iotax_model::units::human::{self, listed};

use super::{Field, Grid, Page, Part, figure, verdict, words};
use crate::figure::{change_with, counted, title_in};
use crate::sentences::compared::{self, percent};
use iotax_analysis::Metric;
use iotax_analysis::compare::{
    Compared, ComparedCell, Difference, GateResult, Matched, RateCell, Side, Which,
};
use iotax_analysis::stats::verdict::Verdict;

/// Metrics that are shown unless the user requests other metrics.
pub const SHOWN: [Metric; 4] = [Metric::LATENCY_MEAN, Metric::LATENCY_P99, Metric::IOPS, Metric::CPU_PER_IO];

/// Builds the page of a comparison: conclusions, both sides, differences in their setups, and the figures of each workload.
#[must_use]
pub fn compared(a: &Side<'_>, b: &Side<'_>, compared: &Compared, metrics: &[Metric]) -> Page {
    let mut page = Page::default();
    let (over, under) = if compared.baseline == Which::A { (b, a) } else { (a, b) };
    page.add(Part::Head(format!("{} against {}", over.called(), under.called())));
    page.add_list("What it means", compared::conclusions(compared));
    page.add_lines(
        [(a, Which::A), (b, Which::B)].map(|(side, which)| introduced(side, which, compared)).into(),
    );
    let differing = differing(compared);
    if differing.is_empty() {
        page.add(Part::Sentence("Nothing else that is on record differs.".into()));
    } else {
        page.add_list("What differs", differing);
    }
    for (w, workload) in compared.workloads.iter().enumerate() {
        let grid = table(compared, w, metrics);
        if grid.rows.is_empty() {
            continue;
        }
        let title = title_in(compared.source.imported(), &workload.a);
        page.add(Part::Head(format!("{title} ({})", workload.name())));
        page.add(Part::Table(grid));
    }
    page.add(Part::Sentence(rule(compared)));
    let hidden = |metric: Option<Metric>| metric.is_some_and(|metric| !metrics.contains(&metric));
    let missing = compared.missing.iter().filter(|m| !hidden(m.metric)).map(|m| format!("{}.", m.reason));
    page.add_list("Without a partner", missing.collect());
    page.add_list("Gates", compared.gates.iter().map(|result| gate(compared, result)).collect());
    page
}

const fn other(which: Which) -> Which {
    match which {
        Which::A => Which::B,
        Which::B => Which::A,
    }
}

/// Describes one side: `A: run 12, which disk format for our VMs, 2026-09-21T14:13:20Z (baseline)`.
fn introduced(side: &Side<'_>, which: Which, compared: &Compared) -> String {
    let account = side.account;
    let role = if compared.baseline == which { " (baseline)" } else { "" };
    let run = if account.label.starts_with("run ") { String::new() } else { format!("run {}, ", account.id) };
    let source = account.source.imported().map(|source| format!(", {source}")).unwrap_or_default();
    format!("{which}: {}, {run}{}, {}{role}{source}", side.called(), account.name, account.started_at)
}

/// Lists differences between the setups: `kernel: 6.1 in A, 6.2 in B`; a difference that several targets share is listed once.
fn differing(compared: &Compared) -> Vec<String> {
    let mut lines: Vec<String> = compared.machines.iter().map(|d| said("", d)).collect();
    for pair in &compared.targets {
        match pair.matched {
            Matched::Settings => {
                lines.push(format!("{} in A is {} in B: they are made of the same.", pair.a, pair.b));
            }
            Matched::Only => {
                lines.push(format!("{} in A is held against {} in B: each is alone.", pair.a, pair.b));
            }
            Matched::Asked | Matched::Name => {}
        }
    }
    // A difference that several targets share takes one line.
    let mut found: Vec<(&Difference, Vec<String>)> = Vec::new();
    for pair in &compared.targets {
        for difference in &pair.differences {
            match found.iter_mut().find(|(known, _)| *known == difference) {
                Some((_, names)) => names.push(pair.name()),
                None => found.push((difference, vec![pair.name()])),
            }
        }
    }
    lines.extend(found.iter().map(|(difference, names)| said(&listed(names), difference)));
    lines.extend(compared.workloads.iter().flat_map(|w| w.differences.iter().map(|d| said(&w.name(), d))));
    lines
}

fn said(subject: &str, difference: &Difference) -> String {
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "not there or not known".into());
    let subject = if subject.is_empty() { String::new() } else { format!("{subject}, ") };
    format!("{subject}{}: {} in A, {} in B", difference.what, side(&difference.a), side(&difference.b))
}

/// Builds the table of a workload, with a row for each target and metric, and for each rate that both sides located.
fn table(compared: &Compared, workload: usize, metrics: &[Metric]) -> Grid {
    let (over, under) = (other(compared.baseline), compared.baseline);
    let mut grid = Grid::new(&["", "", "A", "B", &format!("{over} against {under}"), ""]);
    grid.head[1].is_figure = false;
    let on = &compared.workloads[workload].a;
    let metrics: Vec<Metric> = metrics.iter().map(|metric| metric.or_of_streams(on)).collect();
    for target in 0..compared.targets.len() {
        let cells = metrics.iter().filter_map(|metric| compared.cell(target, workload, *metric));
        let begin = grid.rows.len();
        for (i, cell) in cells.enumerate() {
            let name = if i == 0 { compared.targets[target].name() } else { String::new() };
            grid.rows.push(row(name, on, cell, compared.targets[target].label()));
        }
        let of_cell = |cell: &&RateCell| (cell.target, cell.workload) == (target, workload);
        for cell in compared.rates.iter().filter(of_cell) {
            let is_first = grid.rows.len() == begin;
            let name = if is_first { compared.targets[target].name() } else { String::new() };
            grid.rows.push(rate_row(name, cell, compared.targets[target].label()));
        }
    }
    grid
}

fn row(name: String, on: &Workload, cell: &ComparedCell, label: Option<&str>) -> Vec<Field> {
    let word = match cell.ratio.verdict {
        Verdict::Slower if cell.metric.is_cpu() && cell.ratio.withheld.is_none() => "more",
        Verdict::Faster if cell.metric.is_cpu() && cell.ratio.withheld.is_none() => "less",
        _ => cell.ratio.word(),
    };
    vec![
        words(name),
        words(cell.metric.name_on(on)),
        figure(cell.metric.figure_on(on, cell.a)),
        figure(cell.metric.figure_on(on, cell.b)),
        figure(change_with(cell.ratio.mean, cell.ratio.interval)),
        verdict([word].into_iter().chain(label).collect::<Vec<_>>().join(", "), Some(cell.ratio.verdict)),
    ]
}

fn rate_row(name: String, cell: &RateCell, label: Option<&str>) -> Vec<Field> {
    let word = cell.verdict.word();
    vec![
        words(name),
        words(format!("{}, IOPS", cell.what)),
        figure(human::count(cell.a)),
        figure(human::count(cell.b)),
        figure(change_with(cell.ratio, cell.interval)),
        verdict([word].into_iter().chain(label).collect::<Vec<_>>().join(", "), Some(cell.verdict)),
    ]
}

/// Explains the statistical test behind the verdicts, in a sentence below the tables.
fn rule(compared: &Compared) -> String {
    let how = if compared.paired {
        "Both were measured in the same rounds and are compared within them (Student's t)"
    } else {
        "The two have no round in common and are compared as two samples (Welch's t), which knows the noise within each run and not \
         what changes from one run to the next"
    };
    let rounds = |of: fn(&ComparedCell) -> u32| {
        let all = compared.cells.iter().map(of);
        let (least, most) = (all.clone().min().unwrap_or_default(), all.max().unwrap_or_default());
        if least == most { most.to_string() } else { format!("{least} to {most}") }
    };
    let (a, b) = (rounds(|c| c.rounds.0), rounds(|c| c.rounds.1));
    let rounds = if compared.paired { format!("{a} rounds") } else { format!("{a} rounds of A, {b} of B") };
    let has_percentile = compared.cells.iter().any(|cell| cell.metric.is_percentile());
    let percentiles = if has_percentile {
        " A percentile is the mean of those of the rounds; a report of one run has that of all rounds together."
    } else {
        ""
    };
    format!(
        "{how}: {rounds}. In brackets the interval that the verdict rests on; the same is within {}.{percentiles}",
        percent(compared.margin)
    )
}

/// Describes the outcome of a gate (`--fail-if`): `slower > 5%: tripped by vm-raw on randread-4k-qd1 (+7.2% [+6.1, +8.3]).`
fn gate(compared: &Compared, result: &GateResult) -> String {
    let name_of = |cell: &ComparedCell| {
        format!("{} on {}", compared.targets[cell.target].name(), compared.workloads[cell.workload].name())
    };
    let mut parts = Vec::new();
    if !result.tripped.is_empty() {
        let cells: Vec<String> = result
            .tripped
            .iter()
            .map(|(i, interval)| {
                let cell = &compared.cells[*i];
                format!("{} ({})", name_of(cell), change_with(cell.ratio.mean, Some(*interval)))
            })
            .collect();
        parts.push(format!("tripped by {}", listed(&cells)));
    } else if result.cells == 0 {
        parts.push(format!("nothing to judge: no cell has {} on both sides", result.gate.metric.word()));
    } else if result.open.is_empty() {
        parts.push(format!("passed by {}", all(result.cells)));
    }
    if !result.open.is_empty() {
        let cells: Vec<String> = result.open.iter().map(|i| name_of(&compared.cells[*i])).collect();
        parts.push(format!(
            "{} of {} could not be judged: {}",
            result.open.len(),
            all(result.cells),
            listed(&cells)
        ));
    }
    if !result.missing.is_empty() {
        parts.push(format!("not judged, because one side lacks it: {}", listed(&result.missing)));
    }
    format!("{}: {}.", result.gate, parts.join("; "))
}

fn all(cells: usize) -> String {
    counted(cells as u64, "cell")
}

/// Returns the outcome of each gate (`--fail-if`), one line each.
#[must_use]
pub fn gates(compared: &Compared) -> Vec<String> {
    compared.gates.iter().map(|result| gate(compared, result)).collect()
}
