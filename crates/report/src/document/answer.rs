//! Builds the answer of a run on one screen.

use iotax_analysis::curve::{self, Curves, curves};
use iotax_analysis::summary::scatter;
use iotax_analysis::{Grade, Judgement, Metric};
use iotax_model::Workload;
use iotax_model::units::human;
use iotax_model::{CellKey, Run};

use super::run::figures_table;
use super::{Field, Grid, Page, Part, behind_incomplete, figure, verdict, words};
use crate::answer::{Answer, Cell, Change, Table, emulated, grave, trust};
use crate::figure::{counted, megabytes, share, title};
use crate::marks;
use crate::sentences::verified;

/// Number of workload columns that fit a terminal next to the targets' names.
const COLUMNS: usize = 5;

/// Builds the answer of a run on one screen. For several targets: a line per layer, one table, and the most serious remarks. For a single
/// target: a line of results, a line on whether they can be trusted, and its figures. A search, a watch, latency curves, rate limits and
/// demands have their own short forms. Suites, imported runs, a single target over a network, and runs without results get the whole
/// report.
#[must_use]
pub fn answer(run: &Run, judgement: &Judgement) -> Page {
    behind_incomplete(short(run, judgement), run)
}

fn short(run: &Run, judgement: &Judgement) -> Page {
    let network = run.plan.workloads.iter().any(|workload| workload.kind.is_network());
    let alone = run.plan.targets.len() < 2;
    let mut limited = Page::default();
    if super::limits::add(&mut limited, run) {
        super::demands::add(&mut limited, run, judgement);
        limited.add_lines(Answer::of(run, judgement).remarks);
        return limited;
    }
    let whole = run.source.is_imported() || (alone && network) || run.plan.known_suite().is_some();
    if whole || judgement.cells.is_empty() {
        return super::run::whole(run, judgement);
    }
    let mut page = Page::default();
    if super::demands::add(&mut page, run, judgement) {
        page.add_lines(Answer::of(run, judgement).remarks);
        return page;
    }
    let curves = curves(run);
    if alone && curves.is_empty() && run.plan.compares_targets() {
        return bench(run, judgement);
    }
    let answer = Answer::of(run, judgement);
    let mut page = Page::default();
    page.add(Part::Head(head(run)));
    if !run.plan.compares_targets() {
        page.add_lines(answer.emulated.map(str::to_owned).into_iter().collect());
        super::ask::add(&mut page, run, false);
        super::watch::add(&mut page, run, false);
        page.add_lines(answer.remarks);
        return page;
    }
    if !curves.is_empty() {
        page.add_lines(answer.emulated.map(str::to_owned).into_iter().collect());
        add_curves(&mut page, run, judgement, &curves);
        page.add_lines(answer.remarks);
        return page;
    }
    page.add_lines(answer.emulated.map(str::to_owned).into_iter().collect());
    page.add_lines(answer.layers);
    if let Some(table) = answer.table {
        add_table(&mut page, table);
    }
    page.add_lines(answer.remarks);
    page
}

/// Builds the page of an unfinished run: the results of a search or a watch so far, the latency curves, or the table of the cells measured so far.
#[must_use]
pub fn so_far(run: &Run, judgement: &Judgement) -> Page {
    let mut page = Page::default();
    let curves = curves(run);
    if super::ask::add(&mut page, run, false) || super::watch::add(&mut page, run, false) {
        return page;
    }
    if !curves.is_empty() {
        add_curves(&mut page, run, judgement, &curves);
    } else if let Some(table) = Answer::of(run, judgement).table {
        add_table(&mut page, table);
    }
    page
}

/// Adds the latency curves to a page; if curves with several shares of reads form grids, adds the grids instead.
fn add_curves(page: &mut Page, run: &Run, judgement: &Judgement, curves: &[Curves<'_>]) {
    let grids = curve::grids(curves);
    grids.iter().for_each(|grid| super::grid::add(page, grid));
    if grids.is_empty() {
        curves.iter().for_each(|curves| super::curve::add(page, run, judgement, curves));
    }
}

fn add_table(page: &mut Page, table: Table) {
    grids(&table).into_iter().for_each(|grid| page.add(Part::Table(grid)));
    page.add(Part::Lines(vec![table.legend]));
}

/// Builds the page of a single target: the workload, a line on whether the figures can be trusted, and the figures by direction.
fn bench(run: &Run, judgement: &Judgement) -> Page {
    let mut page = Page::default();
    let mut lines: Vec<String> =
        run.plan.workloads.iter().filter_map(|workload| measured(run, judgement, workload)).collect();
    // The heading contains the run's name, so it comes first.
    if let Some(first) = lines.first_mut() {
        *first = format!("Run {}, {}: {first}", run.id, run.plan.name);
    }
    lines.extend(emulated(run).map(str::to_owned));
    lines.extend(crate::steady_state::sentences(run));
    lines.push(trust(run, judgement));
    lines.extend(verified(run));
    lines.extend(grave(run, judgement));
    lines.into_iter().for_each(|line| page.add(Part::Head(line)));
    for workload in &run.plan.workloads {
        let Some(grid) = figures_table(run, judgement, workload) else { continue };
        if run.plan.workloads.len() > 1 {
            page.add(Part::Head(workload.name.clone()));
        }
        page.add(Part::Table(grid));
        page.add_lines(marks::failures(run, judgement, workload));
    }
    page
}

/// Formats the results of a single target on a workload: `4k random read, queue depth 1: 14.7k IOPS, 60.2 MB/s, 67.1 us each, 4.10 us of
/// CPU, scatter 1.2% over 5 rounds`. `None` if the workload was not measured.
fn measured(run: &Run, judgement: &Judgement, workload: &Workload) -> Option<String> {
    let summary =
        judgement.summary(CellKey { workload: &workload.name, target: &run.plan.targets.first()?.name })?;
    // Which programs serve the target is not known.
    let mut hosts = run.measured().filter(|m| m.workload == workload.name).filter_map(|m| m.host.as_ref());
    let is_of_all = hosts.any(|host| host.programs_ns.is_none());
    let bytes = summary.of(Metric::BYTES_PER_S).filter(|bytes| *bytes > 0.0);
    let parts = [
        summary.of(Metric::IOPS).map(|iops| format!("{} IOPS", human::count(iops))),
        bytes.map(|bytes| format!("{} MB/s", megabytes(bytes))),
        summary.of(Metric::LATENCY_MEAN).map(|ns| format!("{} each", human::time(ns))),
        summary.of(Metric::CPU_PER_IO).map(|ns| {
            let of_all = if is_of_all { " by all programs" } else { "" };
            format!("{} of CPU{of_all}", human::time(ns))
        }),
    ];
    let graded = run.measurements.iter().zip(&judgement.grades).filter(|(m, grade)| {
        m.workload == workload.name && m.round >= run.first_measured_round() && **grade != Grade::Unusable
    });
    let figures: Vec<f64> = graded.filter_map(|(m, _)| Metric::headline(workload).of(m)).collect();
    let scatter = scatter(&figures).map(|by| format!("scatter {} over {} rounds", share(by), figures.len()));
    let parts: Vec<String> = parts.into_iter().flatten().chain(scatter).collect();
    Some(format!("{}: {}", title(workload), parts.join(", ")))
}

/// Describes the run in a heading: `Run 17, ladder /mnt: 12 rounds of 4 targets and 5 workloads`.
fn head(run: &Run) -> String {
    let rounds = run.measurements.iter().map(|m| m.round).max().unwrap_or_default();
    format!(
        "Run {}, {}: {}{} of {} and {}",
        run.id,
        run.plan.name,
        if run.plan.until_decided().is_some() { "up to " } else { "" },
        counted(rounds, "round"),
        counted(run.plan.targets.len() as u64, "target"),
        counted(run.plan.asked().count() as u64, "workload")
    )
}

/// Splits the table into tables of at most [`COLUMNS`] workloads each, which fit a terminal.
fn grids(table: &Table) -> Vec<Grid> {
    let columns: Vec<usize> = (0..table.workloads.len()).collect();
    columns.chunks(COLUMNS).map(|columns| grid(table, columns)).collect()
}

fn grid(table: &Table, columns: &[usize]) -> Grid {
    let heads = columns.iter().map(|at| {
        let (name, unit) = &table.workloads[*at];
        Field { unit: Some((*unit).to_owned()), ..figure(name) }
    });
    let rows = table.targets.iter().map(|(target, cells)| {
        let shown = columns.iter().map(|at| shown(table, &cells[*at], *at));
        [words(target)].into_iter().chain(shown).collect()
    });
    Grid { head: [words("")].into_iter().chain(heads).collect(), rows: rows.collect() }
}

/// Formats a cell: `10.5k -31% `, padded so that the changes of a column line up, with or without a mark.
fn shown(table: &Table, cell: &Cell, column: usize) -> Field {
    let in_column = || table.targets.iter().filter_map(|(_, cells)| cells[column].change);
    let width = in_column().map(|change| change.text().trim_end_matches('?').chars().count()).max();
    let marked = in_column().any(|change| change.text().ends_with('?'));
    let Some(width) = width else { return figure(&cell.value) };
    let text = cell.change.map(Change::text).unwrap_or_default();
    let (number, mark) = text.strip_suffix('?').map_or((text.as_str(), " "), |number| (number, "?"));
    let mark = if marked { mark } else { "" };
    let text = format!("{} {number:>width$}{mark}", cell.value);
    Field { is_figure: true, ..verdict(text, cell.change.map(Change::verdict)) }
}
