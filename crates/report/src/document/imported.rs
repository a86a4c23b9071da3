//! Shows runs that were measured by another tool, with the figures that this tool reported.

use iotax_model::record::{ImportSource, ImportedMetric, Measurement};
use iotax_model::units::human;

use super::{Grid, Page, Part, figure, words};
use crate::figure::{UNKNOWN, counted, or_unknown, rate_of};
use iotax_analysis::cells::by_cell;
use iotax_analysis::stats::median;
use iotax_analysis::{CellJudgement, Judgement, Metric};
use iotax_model::Run;

/// Metrics of the overview, with their column heads.
const SHOWN: [(Metric, &str); 8] = [
    (Metric::IOPS, "IOPS"),
    (Metric::BYTES_PER_S, "bytes/s"),
    (Metric::LATENCY_MEAN, "mean"),
    (Metric::LATENCY_P50, "p50"),
    (Metric::LATENCY_P90, "p90"),
    (Metric::LATENCY_P99, "p99"),
    (Metric::LATENCY_P99_9, "p99.9"),
    (Metric::CPU_PER_IO, "CPU/IO"),
];

/// Adds an overview of all cells, and a table of the tool's remaining figures.
pub(super) fn add(page: &mut Page, run: &Run, judgement: &Judgement, source: &ImportSource) {
    let source_line = source.to_string();
    let target = only_target(run, source).map(|name| format!(": {name}")).unwrap_or_default();
    page.add(Part::Head(format!("{}{}{target}.", source_line[..1].to_uppercase(), &source_line[1..])));
    source.about_time().into_iter().for_each(|sentence| page.add(Part::Sentence(sentence)));
    let measured = by_cell(run);
    let rows: Vec<Row<'_>> = judgement
        .cells
        .iter()
        .map(|cell| (cell, measured.get(&cell.key()).map_or(&[][..], Vec::as_slice)))
        .collect();
    if let Some(grid) = overview(run, &rows, source) {
        page.add(Part::Table(grid));
    }
    if run.plan.repeat > 1 {
        let how = "means of means, sums of counts, the farthest of max and min, medians of all else";
        page.add(Part::Sentence(format!("Over {} rounds: {how}.", run.plan.repeat)));
    }
    if let Some(grid) = others(run, &rows) {
        page.add(Part::Head("What else it states".into()));
        page.add(Part::Table(grid));
    }
    if !source.not_understood.is_empty() {
        let lines = counted(source.not_understood.len() as u64, "line");
        page.add(Part::Sentence(format!(
            "Not understood: {lines}, kept with the run: {}",
            run.command("report", "--json -")
        )));
    }
}

/// Returns the name of the only target, which the tables leave out. `None` with several targets, or if the source names none: the target
/// then has the tool's name.
fn only_target<'a>(run: &'a Run, source: &ImportSource) -> Option<&'a str> {
    let [target] = run.plan.targets.as_slice() else { return None };
    let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    (letters(&target.name) != letters(&source.tool)).then_some(target.name.as_str())
}

/// A cell with its measurements.
type Row<'a> = (&'a CellJudgement, &'a [&'a Measurement]);

/// Builds a table with one row per workload and target. Leaves out columns that are unknown in every row; `None` if that leaves no column.
fn overview(run: &Run, rows: &[Row<'_>], source: &ImportSource) -> Option<Grid> {
    let (rate_head, rate) = rate_of(source);
    let shown: Vec<(Metric, &str)> = SHOWN
        .into_iter()
        .filter(|(metric, _)| rows.iter().any(|(cell, _)| cell.summary.of(*metric).is_some()))
        .map(|(metric, head)| (metric, if metric == Metric::BYTES_PER_S { rate_head } else { head }))
        .collect();
    if shown.is_empty() {
        return None;
    }
    let names = names(run);
    let rounds = run.plan.repeat > 1;
    let mut head: Vec<&str> = shown.iter().map(|(_, name)| *name).collect();
    head.extend(rounds.then_some("rounds"));
    let mut grid = table(names, &head);
    for (cell, _) in rows {
        let figures: Vec<Option<f64>> = shown.iter().map(|(metric, _)| cell.summary.of(*metric)).collect();
        if figures.iter().all(Option::is_none) {
            continue;
        }
        let mut row = name(names, cell);
        row.extend(shown.iter().zip(figures).map(|((metric, _), value)| {
            figure(or_unknown(value, |value| {
                if *metric == Metric::BYTES_PER_S { rate(value) } else { metric.figure(value) }
            }))
        }));
        row.extend(rounds.then(|| figure(cell.summary.rounds.to_string())));
        grid.rows.push(row);
    }
    grid.filled()
}

/// Builds a table of the figures that iotax does not know as metrics, under the tool's own names: one row per figure and cell, combined
/// over the rounds. `None` if there are no such figures.
fn others(run: &Run, rows: &[Row<'_>]) -> Option<Grid> {
    let names = names(run);
    let mut grid = table(names, &["figure", "value"]);
    for (cell, measurements) in rows {
        let figures =
            |m: &Measurement| m.stated.as_ref().map(|stated| stated.others.clone()).unwrap_or_default();
        let mut known: Vec<ImportedMetric> = Vec::new();
        for one in measurements.iter().flat_map(|m| figures(m)) {
            if !known.iter().any(|other| other.name == one.name && other.unit == one.unit) {
                known.push(one);
            }
        }
        for one in known {
            let same = |other: &ImportedMetric| other.name == one.name && other.unit == one.unit;
            let all: Vec<f64> = measurements
                .iter()
                .filter_map(|m| figures(m).into_iter().find(same))
                .map(|f| f.value)
                .collect();
            let mut row = name(names, cell);
            row.extend([
                words(one.name.clone()),
                figure(
                    over_rounds(&one, &all).map_or_else(|| UNKNOWN.into(), |value| shown(value, &one.unit)),
                ),
            ]);
            grid.rows.push(row);
        }
    }
    let column = names.len();
    if let Some(head) = grid.head.get_mut(column) {
        head.is_figure = false;
    }
    grid.filled()
}

/// Combines a figure's values over rounds, by the last word of its name: the maximum of `max`, the minimum of `min`, the sum of counts such
/// as `lost`, the mean of `loss`, the median of all others. `None` without values.
fn over_rounds(figure: &ImportedMetric, values: &[f64]) -> Option<f64> {
    let sum = || values.iter().sum::<f64>();
    let is_count = figure.unit.is_empty();
    match figure.name.rsplit([' ', '_']).next().unwrap_or_default() {
        "max" => values.iter().copied().reduce(f64::max),
        "min" => values.iter().copied().reduce(f64::min),
        "sent" | "received" | "lost" | "packets" | "retransmits" | "order" if is_count => Some(sum()),
        "loss" if !values.is_empty() => Some(sum() / values.len() as f64),
        _ => median(values),
    }
}

/// Formats a value as elsewhere in reports; in an unknown unit with up to three decimals.
fn shown(value: f64, unit: &str) -> String {
    match unit {
        "ns" => human::time(value),
        "B/s" => human::rate(value),
        "B" if value >= 0.0 => human::rate(value).trim_end_matches("/s").to_owned(),
        "IOPS" => human::count(value),
        unit => {
            let value = format!("{value:.3}");
            format!("{} {unit}", value.trim_end_matches('0').trim_end_matches('.')).trim_end().to_owned()
        }
    }
}

/// Returns the heads of the columns that identify a cell: the target is left out if there is only one.
fn names(run: &Run) -> &'static [&'static str] {
    if run.plan.targets.len() > 1 { &["workload", "target"] } else { &["workload"] }
}

fn name(names: &[&str], cell: &CellJudgement) -> Vec<super::Field> {
    let both = [words(cell.workload.as_str()), words(cell.target.as_str())];
    both.into_iter().take(names.len()).collect()
}

fn table(names: &[&str], figures: &[&str]) -> Grid {
    let head = names.iter().map(|name| words(*name)).chain(figures.iter().map(|name| figure(*name)));
    Grid { head: head.collect(), rows: vec![] }
}
