//! Builds the full report of a run: the figures of each workload, and the conclusions.

use iotax_model::record::Tally;
use iotax_model::units::human;
use iotax_model::units::human::listed;
use iotax_model::workload::{Kind, Test};
use iotax_model::{CellKey, Histogram, Workload};

use super::targets::comparison_table;
use super::{
    Field, Grid, Page, Part, behind_incomplete, certainty, figure, guests, imported, layers, network,
    steady_state, words,
};
use crate::amplification;
use crate::figure::{megabytes, or_unknown, title};
use crate::marks;
use crate::remarks::{checks, engine, notes, remarks};
use crate::sentences::meaning;
use iotax_analysis::percentile::percentile;
use iotax_analysis::{Judgement, MemberKind, Metric, Summary};
use iotax_analysis::{curve, suite};
use iotax_model::Run;

/// Builds the whole report: for each workload its figures, the cost of each layer, the shares of guests and the latency breakdown; then
/// conclusions and remarks. A suite has one table per test.
///
/// A run of a single target has nothing to compare, so its figures are shown in full instead.
#[must_use]
pub fn run(run: &Run, judgement: &Judgement) -> Page {
    behind_incomplete(whole(run, judgement), run)
}

pub(super) fn whole(run: &Run, judgement: &Judgement) -> Page {
    let mut page = Page::default();
    if let Some(source) = run.source.imported() {
        imported::add(&mut page, run, judgement, source);
        page.add_list("What it means", meaning(run, judgement));
        page.add_list("Remarks", notes(run));
        return page;
    }
    super::demands::add(&mut page, run, judgement);
    super::limits::add(&mut page, run);
    let asks = super::ask::add(&mut page, run, true);
    super::watch::add(&mut page, run, true);
    let curves = curve::curves(run);
    curve::grids(&curves).iter().for_each(|grid| super::grid::add(&mut page, grid));
    curves.iter().for_each(|curves| super::curve::add(&mut page, run, judgement, curves));
    let is_durability = super::durability::add(&mut page, run, judgement);
    let tests = suite::tests(run);
    tests.iter().for_each(|test| super::suite::add(&mut page, run, judgement, test));
    // Rates of a search and durable-write methods have separate tables.
    let alone = run.plan.workloads.iter().filter(|_| tests.is_empty() && !asks && !is_durability);
    for workload in alone {
        let grid = if workload.kind.is_network() {
            network::figures(run, judgement, workload)
        } else if run.plan.targets.len() > 1 {
            comparison_table(run, judgement, workload)
        } else {
            figures_table(run, judgement, workload)
        };
        let Some(grid) = grid else { continue };
        page.add(Part::Head(format!("{} ({})", title(workload), workload.name)));
        page.add(Part::Table(grid));
        let more = [
            network::directions(run, judgement, workload),
            layers::steps(judgement, workload),
            guests::crowds(judgement, workload, MemberKind::Guests),
            guests::crowds(judgement, workload, MemberKind::Jobs),
        ];
        more.into_iter().flatten().for_each(|grid| page.add(Part::Table(grid)));
        steady_state::add(&mut page, run, workload);
        let mut lines = guests::noises(run, judgement, workload);
        lines.extend(crate::fidelity::lines(run, &workload.name));
        lines.extend(layers::insides(judgement, &workload.name));
        lines.extend(layers::flows(judgement, &workload.name));
        lines.extend(amplification::counted(run, &workload.name));
        lines.extend(amplification::transactions(run, judgement, &workload.name));
        lines.extend(not_given(run, judgement, workload));
        lines.extend(marks::failures(run, judgement, workload));
        let (margin, compared) = (run.plan.margin.share(), run.plan.targets.len() > 1);
        lines.extend(certainty::over_the_run(judgement, &workload.name, margin, compared));
        let known = run.plan.known_suite().into_iter();
        let remarks = known.flat_map(|suite| suite.remarks_on(suite.test(workload)));
        lines.extend(remarks.map(|remark| format!("Note: {remark}.")));
        page.add_lines(lines);
    }
    if page.parts.is_empty() {
        page.add(Part::Sentence("Nothing was measured.".into()));
    }
    super::suite::add_indexes(&mut page, run);
    if curves.is_empty() && !asks && !is_durability {
        page.add_list("What it means", meaning(run, judgement));
    }
    if let Some(suite) = run.plan.known_suite() {
        page.add_list("Of this suite", suite.remarks_on_all().map(|remark| format!("{remark}.")).collect());
    }
    page.add_list("Remarks", remark_lines(run, judgement));
    page
}

/// Builds a table with a row per direction, and a row for all if there are several; `None` if nothing was measured. In an open loop each row
/// is followed by a row of response times.
pub(super) fn figures_table(run: &Run, judgement: &Judgement, workload: &Workload) -> Option<Grid> {
    let target = &run.plan.targets.first()?.name;
    let summary = judgement.summary(CellKey { workload: &workload.name, target })?;
    let mut grid = Grid::new(&["", "IOPS", "MB/s", "mean", "p50", "p99", "p99.9", "max", "CPU/IO"]);
    // Tests of empty files do no I/O in some directions; those get no row.
    let on_files = matches!(workload.kind, Kind::Files(test) if test.counts_operations());
    let directions: Vec<(&str, &Tally)> = summary
        .tallies
        .each()
        .filter_map(|(name, tally)| Some((name, tally?)))
        .filter(|(_, tally)| tally.ios > 0 || !on_files)
        .collect();
    let moving: Vec<&Tally> =
        directions.iter().filter(|(name, _)| *name != "sync").map(|(_, tally)| *tally).collect();
    for (name, tally) in &directions {
        let cpu = if moving.len() == 1 && *name != "sync" { summary.of(Metric::CPU_PER_IO) } else { None };
        let is_transaction = *name == "meta" && workload.kind.test().is_some_and(Test::is_of_transactions);
        let shown = if is_transaction { workload.kind.unit() } else { name };
        add_figures(&mut grid, shown, tally, &Rates::of(summary, name, tally), cpu);
    }
    if moving.len() > 1 {
        let mut all = Tally::default();
        moving.iter().for_each(|tally| all.merge(tally));
        add_figures(&mut grid, "all", &all, &Rates::of(summary, "all", &all), summary.of(Metric::CPU_PER_IO));
    }
    // The last column holds figures too.
    grid.head.iter_mut().skip(1).for_each(|field| field.is_figure = true);
    let marks: Vec<&str> = marks::marks(run, judgement, &workload.name, target);
    if marks.iter().any(|mark| *mark != "emulated") {
        grid.head.push(words(""));
        grid.rows.iter_mut().for_each(|row| row.push(words(marks.join(", "))));
    }
    grid.filled()
}

/// Names the percentiles left out of a single target's table for lack of I/Os; `None` if none was left out, with several targets, or for
/// network streams.
fn not_given(run: &Run, judgement: &Judgement, workload: &Workload) -> Option<String> {
    let [target] = run.plan.targets.as_slice() else { return None };
    if Metric::leading(workload) != Metric::LATENCY_MEAN {
        return None;
    }
    let tallies = &judgement.summary(CellKey { workload: &workload.name, target: &target.name })?.tallies;
    let rows: Vec<_> = tallies.each().filter_map(|(name, tally)| Some((name, tally?))).collect();
    certainty::left_out(&rows, &SHOWN)
}

/// Rates and mean latency of one direction. The rates of all directions except flushes add up to the rates of the cell.
struct Rates {
    iops: Option<f64>,
    bytes_per_s: Option<f64>,
    latency_mean: Option<f64>,
}

impl Rates {
    fn of(summary: &Summary, name: &str, tally: &Tally) -> Self {
        // The cell's I/Os do not include flushes.
        if name == "sync" {
            let per_second = |count: u64| count as f64 / (summary.rate_ns as f64 / 1e9);
            let iops = (summary.rate_ns > 0).then(|| per_second(tally.ios));
            return Self { iops, bytes_per_s: None, latency_mean: tally.latency.mean() };
        }
        let part =
            |metric: Metric, of: f64, all: f64| Some(summary.of(metric)? * (of / all)).filter(|_| all > 0.0);
        let (ios, bytes) = (summary.tallies.ios() as f64, summary.tallies.bytes() as f64);
        let mean = tally.latency.mean().zip(summary.latency.mean());
        Self {
            iops: part(Metric::IOPS, tally.ios as f64, ios),
            bytes_per_s: part(Metric::BYTES_PER_S, tally.bytes as f64, bytes).filter(|_| tally.bytes > 0),
            latency_mean: mean.and_then(|(of, all)| part(Metric::LATENCY_MEAN, of, all)),
        }
    }
}

fn add_figures(grid: &mut Grid, name: &str, tally: &Tally, rates: &Rates, cpu: Option<f64>) {
    let mut row = vec![
        words(name),
        figure(or_unknown(rates.iops, human::count)),
        figure(or_unknown(rates.bytes_per_s, megabytes)),
    ];
    row.extend(times(rates.latency_mean, &tally.latency));
    row.push(figure(or_unknown(cpu, human::time)));
    grid.rows.push(row);
    if let Some(response) = &tally.response {
        let mut row = vec![words(format!("{name}, response")), figure(""), figure("")];
        row.extend(times(response.mean(), response));
        row.push(figure(""));
        grid.rows.push(row);
    }
}

/// Quantiles in the table of a single target: p50, p99 and p99.9.
const SHOWN: [f64; 3] = [0.5, 0.99, 0.999];

/// Formats the mean, the percentiles [`SHOWN`] and the maximum.
fn times(mean: Option<f64>, latency: &Histogram) -> impl Iterator<Item = Field> {
    let percentiles = SHOWN.map(|q| percentile(latency, q));
    let max = latency.max().map(|max| max as f64);
    let figures = [mean].into_iter().chain(percentiles).chain([max]);
    figures.map(|ns| figure(or_unknown(ns, human::time)))
}

fn remark_lines(run: &Run, judgement: &Judgement) -> Vec<String> {
    let mut lines: Vec<String> = remarks(run, &judgement.warnings).iter().map(ToString::to_string).collect();
    lines.extend(notes(run));
    if lines.is_empty() && !run.measurements.is_empty() {
        let checks = checks(run).map(str::to_owned);
        lines.push(format!("clean: the checks of {} found nothing.", listed(&checks)));
    }
    lines.extend(engine(run));
    lines
}
