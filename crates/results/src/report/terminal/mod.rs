//! A run as text for a terminal.

mod certainty;
mod guests;
mod layers;
mod table;
mod timing;

use std::fmt::Write as _;

use comfy_table::{Cell, Table};
use iotax_model::record::Tally;
use iotax_model::units::human;
use iotax_model::{Histogram, Workload};

pub use timing::timing;

use table::{add_table, coloured, plain, right, wrapped};

use super::figure::{UNKNOWN, listed, megabytes, or_unknown, tax, title};
use super::remarks::{engine, notes, remarks};
use crate::judge::figures::percentile;
use crate::judge::{Judgement, Metric};
use crate::store::Run;

/// Narrower than this, sentences are not broken further.
const NARROWEST: usize = 40;

/// The whole report: for each workload a table, what each layer costs, what each guest got and where its latency arises; then what
/// it means, and remarks. Sentences are broken at `width` columns;
/// tables are as wide as their figures, at most 100 columns for names of the usual length, and set tighter if that is
/// above `width`. With `colour`, ANSI colours.
///
/// A run of a single target has nothing to compare and shows its figures in full instead.
#[must_use]
pub fn render(run: &Run, judgement: &Judgement, width: usize, colour: bool) -> String {
    let width = width.max(NARROWEST);
    let mut text = String::new();
    for workload in &run.plan.workloads {
        let table = if run.plan.targets.len() > 1 {
            comparison_table(run, judgement, workload)
        } else {
            figures_table(run, judgement, workload)
        };
        let Some(table) = table else { continue };
        let _ = writeln!(text, "{} ({})", title(workload), workload.name);
        add_table(&mut text, table, width, colour);
        text.push('\n');
        let more =
            [layers::steps(judgement, &workload.name, width), guests::crowds(judgement, &workload.name)];
        for table in more.into_iter().flatten() {
            add_table(&mut text, table, width, colour);
            text.push('\n');
        }
        let lines = [guests::noises, layers::insides, layers::flows];
        let mut lines: Vec<String> =
            lines.iter().flat_map(|lines| lines(judgement, &workload.name)).collect();
        lines.extend(not_given(run, judgement, workload));
        let (margin, compared) = (run.plan.margin.share(), run.plan.targets.len() > 1);
        lines.extend(certainty::over_the_run(judgement, &workload.name, margin, compared));
        for line in &lines {
            for (i, line) in wrapped(line, width - 4).iter().enumerate() {
                let _ = writeln!(text, "{}{line}", if i == 0 { "  " } else { "    " });
            }
        }
        if !lines.is_empty() {
            text.push('\n');
        }
    }
    if text.is_empty() {
        text.push_str("Nothing was measured.\n\n");
    }
    section(&mut text, "What it means", &judgement.conclusions, width);
    section(&mut text, "Remarks", &remark_lines(run, judgement), width);
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// One row per target; absent if none was measured.
fn comparison_table(run: &Run, judgement: &Judgement, workload: &Workload) -> Option<Table> {
    let mut table = plain(&["", "IOPS", "MB/s", "p50", "p99", "tax on mean latency", "CPU/IO", ""]);
    let mut rows = 0;
    for target in &run.plan.targets {
        let Some(summary) = judgement.summary(&workload.name, &target.name) else { continue };
        let latency = judgement.comparison(&workload.name, &target.name, Metric::LatencyMean);
        let cost = match latency {
            _ if target.name == run.plan.baseline => "baseline".into(),
            Some(comparison) => comparison.tax.as_ref().map_or_else(|| UNKNOWN.into(), tax),
            None => UNKNOWN.into(),
        };
        let emulated = run.targets.iter().any(|t| t.name == target.name && t.emulated);
        let verdict = latency.map(|c| c.verdict);
        let words: Vec<String> = latency
            .map(|comparison| comparison.word().to_owned())
            .into_iter()
            .chain(emulated.then(|| "emulated".to_owned()))
            .collect();
        let mut row = vec![Cell::new(&target.name)];
        row.extend(
            [
                or_unknown(summary.iops, human::count),
                or_unknown(summary.bytes_per_s, megabytes),
                or_unknown(summary.percentile(0.5), human::time),
                or_unknown(summary.percentile(0.99), human::time),
                cost,
                or_unknown(summary.host_cpu_per_io, human::time),
            ]
            .map(right),
        );
        row.push(coloured(Cell::new(words.join(", ")), verdict));
        table.add_row(row);
        rows += 1;
    }
    (rows > 0).then_some(table)
}

/// One row per direction, and one for all together if there are several; absent if nothing was measured. In an open loop
/// each is followed by its response times.
fn figures_table(run: &Run, judgement: &Judgement, workload: &Workload) -> Option<Table> {
    let summary = judgement.summary(&workload.name, &run.plan.targets.first()?.name)?;
    let mut table = plain(&["", "IOPS", "MB/s", "mean", "p50", "p99", "p99.9", "max", "CPU/IO"]);
    let directions: Vec<(&str, &Tally)> =
        summary.tallies.each().filter_map(|(name, tally)| Some((name, tally?))).collect();
    let moving: Vec<&Tally> =
        directions.iter().filter(|(name, _)| *name != "sync").map(|(_, tally)| *tally).collect();
    for (name, tally) in &directions {
        let cpu = if moving.len() == 1 && *name != "sync" { summary.host_cpu_per_io } else { None };
        add_figures(&mut table, name, tally, summary.duration_ns, cpu);
    }
    if moving.len() > 1 {
        let mut all = Tally::default();
        moving.iter().for_each(|tally| all.merge(tally));
        add_figures(&mut table, "all", &all, summary.duration_ns, summary.host_cpu_per_io);
    }
    Some(table)
}

/// The percentiles that a table of one target's figures leaves out.
fn not_given(run: &Run, judgement: &Judgement, workload: &Workload) -> Option<String> {
    let [target] = run.plan.targets.as_slice() else { return None };
    let tallies = &judgement.summary(&workload.name, &target.name)?.tallies;
    let rows: Vec<_> = tallies.each().filter_map(|(name, tally)| Some((name, tally?))).collect();
    certainty::left_out(&rows, &SHOWN)
}

fn add_figures(table: &mut Table, name: &str, tally: &Tally, duration_ns: u64, cpu: Option<f64>) {
    let per_second = |count: u64| (duration_ns > 0).then(|| count as f64 / (duration_ns as f64 / 1e9));
    let bytes = (tally.bytes > 0).then_some(tally.bytes).and_then(per_second);
    let mut row = vec![
        Cell::new(name),
        right(or_unknown(per_second(tally.ios), human::count)),
        right(or_unknown(bytes, megabytes)),
    ];
    row.extend(times(&tally.latency));
    row.push(right(or_unknown(cpu, human::time)));
    table.add_row(row);
    if let Some(response) = &tally.response {
        let mut row = vec![Cell::new(format!("{name}, response")), Cell::new(""), Cell::new("")];
        row.extend(times(response));
        row.push(Cell::new(""));
        table.add_row(row);
    }
}

/// The percentiles of a table of one target's figures.
const SHOWN: [f64; 3] = [0.5, 0.99, 0.999];

/// Mean, percentiles and maximum.
fn times(latency: &Histogram) -> impl Iterator<Item = Cell> {
    let percentiles = SHOWN.map(|q| percentile(latency, q));
    let max = latency.max().map(|max| max as f64);
    let figures = [latency.mean()].into_iter().chain(percentiles).chain([max]);
    figures.map(|ns| right(or_unknown(ns, human::time)))
}

fn remark_lines(run: &Run, judgement: &Judgement) -> Vec<String> {
    let mut lines: Vec<String> = remarks(run, &judgement.warnings)
        .into_iter()
        .map(|r| {
            let place: Vec<String> =
                [r.kind.word().replace('_', " "), r.place].into_iter().filter(|p| !p.is_empty()).collect();
            format!("{}: {}. Remedy: {}.", place.join(", "), r.evidence, r.remedy)
        })
        .collect();
    lines.extend(notes(run));
    if lines.is_empty() && !run.measurements.is_empty() {
        let checks = ["caches", "clocks", "the load generator", "steadiness", "errors"].map(str::to_owned);
        lines.push(format!("clean: the checks of {} found nothing.", listed(&checks)));
    }
    lines.extend(engine(run));
    lines
}

fn section(text: &mut String, head: &str, sentences: &[String], width: usize) {
    if sentences.is_empty() {
        return;
    }
    let _ = writeln!(text, "{head}");
    for sentence in sentences {
        for (i, line) in wrapped(sentence, width - 4).iter().enumerate() {
            let _ = writeln!(text, "  {} {line}", if i == 0 { '-' } else { ' ' });
        }
    }
    text.push('\n');
}
