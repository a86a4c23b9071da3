//! Shows the tests of a suite, each in one table.

use iotax_model::suite::SuiteShape;
use iotax_model::units::human;
use iotax_model::units::human::listed;
use iotax_model::{Bytes, CellKey};

use super::targets::tax_and_verdict;
use super::{Field, Grid, Page, Part, figure, words};
use crate::figure::{megabytes, or_unknown};
use crate::{marks, sweep};
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::suite::{SuiteCell, SuiteTest, TargetSeries};
use iotax_analysis::{Comparison, Judgement, Metric};
use iotax_model::Run;

/// Mark after a figure in a map if its measurement is unusable.
const UNUSABLE: &str = " (unusable)";

/// Adds a heading, the figures (a table by size or depth, or for each target a map by file and record size), and the conclusions.
pub(super) fn add(page: &mut Page, run: &Run, judgement: &Judgement, test: &SuiteTest<'_>) {
    page.add(Part::Head(sweep::title(test)));
    let mut lines: Vec<String> = Vec::new();
    if test.shape == SuiteShape::Files {
        for course in &test.series {
            if test.series.len() > 1 {
                page.add(Part::Sentence(format!("{}, MB/s", course.target)));
            }
            page.add(Part::Table(map(run, judgement, course)));
        }
        lines.extend(verdicts(run, judgement, test));
    } else {
        page.add(Part::Table(table(run, judgement, test)));
    }
    for workload in &test.workloads {
        let failures = marks::failures(run, judgement, workload);
        lines.extend(failures.into_iter().map(|line| format!("{}: {line}", workload.name)));
    }
    lines.extend(sweep::sentences(test));
    if let Some(suite) = run.plan.known_suite() {
        lines.extend(suite.remarks_on(test.name).map(|remark| format!("Note: {remark}.")));
    }
    page.add_lines(lines);
}

/// Adds UnixBench's index of the file copies, with one table for each target that has an index.
pub(super) fn add_indexes(page: &mut Page, run: &Run) {
    for (target, rows) in sweep::indexes(run) {
        page.add(Part::Head(format!("UnixBench's index of {target}")));
        let mut grid = Grid::new(&sweep::INDEX_HEAD);
        grid.head.iter_mut().skip(1).for_each(|field| field.is_figure = true);
        let row = |[name, figures @ ..]: [String; 4]| -> Vec<Field> {
            [words(name)].into_iter().chain(figures.map(figure)).collect()
        };
        grid.rows = rows.into_iter().map(row).collect();
        page.add(Part::Table(grid));
    }
}

/// Builds the table of a sweep: one row per target at each block size or queue depth.
fn table(run: &Run, judgement: &Judgement, test: &SuiteTest<'_>) -> Grid {
    let compares = run.plan.targets.len() > 1;
    let sizes = test.shape == SuiteShape::Sizes;
    let mut head = vec![if sizes { "block size" } else { "outstanding" }];
    head.extend(compares.then_some("target"));
    head.extend([
        "IOPS",
        "MB/s",
        "mean",
        "p50",
        "p99",
        if sizes { "IOPS at half / here" } else { "in flight" },
    ]);
    let alone = test.series.first().filter(|_| !compares).map(|course| course.target);
    let is_unusable = |target| {
        test.workloads.iter().any(|w| judgement.is_unusable(run, CellKey { workload: &w.name, target }))
    };
    let marked = alone.is_some_and(is_unusable);
    head.extend(compares.then_some("tax on mean latency"));
    head.extend((compares || marked).then_some(""));
    let mut grid = Grid::new(&head);
    grid.head.iter_mut().skip(1).for_each(|field| field.is_figure = true);
    if compares {
        grid.head[1].is_figure = false;
    }
    if compares || marked {
        grid.head.last_mut().into_iter().for_each(|field| field.is_figure = false);
    }
    for workload in &test.workloads {
        let mut first = true;
        for course in &test.series {
            let Some(at) = course.points.iter().position(|point| point.workload.name == workload.name) else {
                continue;
            };
            let point = &course.points[at];
            let point_label = if first { sweep::point_label(test.shape, point) } else { String::new() };
            first = false;
            let mut row = vec![words(point_label)];
            row.extend(compares.then(|| words(course.target)));
            row.extend(figures(judgement, test.shape, course, at).map(figure));
            if compares {
                row.extend(tax_and_verdict(run, judgement, &workload.name, course.target));
            } else if marked {
                row.push(words(marks::marks(run, judgement, &workload.name, course.target).join(", ")));
            }
            grid.rows.push(row);
        }
    }
    grid
}

fn figures(judgement: &Judgement, shape: SuiteShape, course: &TargetSeries<'_>, at: usize) -> [String; 6] {
    let point = &course.points[at];
    let of = |metric| {
        judgement.summary(CellKey { workload: &point.workload.name, target: course.target })?.of(metric)
    };
    let last = match shape {
        SuiteShape::Depths => or_unknown(point.in_flight(), human::count),
        _ => sweep::against_half(course, at).map_or_else(String::new, |ratio| format!("{ratio:.2}")),
    };
    [
        or_unknown(point.iops, human::count),
        or_unknown(point.bytes_per_s, megabytes),
        or_unknown(point.latency_ns, human::time),
        or_unknown(of(Metric::LATENCY_P50), human::time),
        or_unknown(of(Metric::LATENCY_P99), human::time),
        last,
    ]
}

/// Builds a map of MB/s by file size and record size; unusable cells are marked.
fn map(run: &Run, judgement: &Judgement, course: &TargetSeries<'_>) -> Grid {
    let map = sweep::Map::of(course);
    let unusable = |file: Bytes, record: Bytes| {
        let here =
            |p: &&SuiteCell<'_>| p.workload.size.unwrap_or_default() == file && p.block_size() == record;
        let point = course.points.iter().find(here);
        point.is_some_and(|p| {
            judgement.is_unusable(run, CellKey { workload: &p.workload.name, target: course.target })
        })
    };
    let heads: Vec<String> =
        ["file \\ record".into()].into_iter().chain(map.records.iter().map(ToString::to_string)).collect();
    let mut grid = Grid::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    grid.head.iter_mut().skip(1).for_each(|field| field.is_figure = true);
    for (file, values) in map.files.iter().zip(&map.bytes_per_s) {
        let row = values.iter().zip(&map.records).map(|(value, record)| {
            let sign = if unusable(*file, *record) { UNUSABLE } else { "" };
            figure(value.map_or_else(String::new, |value| format!("{}{sign}", megabytes(value))))
        });
        grid.rows.push([words(file.to_string())].into_iter().chain(row).collect());
    }
    grid
}

/// Counts for each target how many cells are slower, faster, the same or undecided against the baseline.
fn verdicts(run: &Run, judgement: &Judgement, test: &SuiteTest<'_>) -> Vec<String> {
    let names: std::collections::HashSet<&str> = test.workloads.iter().map(|w| w.name.as_str()).collect();
    let of_target = |target: &str| -> Option<String> {
        let all: Vec<&Comparison> = judgement
            .comparisons
            .iter()
            .filter(|c| {
                c.target == target && c.metric == Metric::BYTES_PER_S && names.contains(c.workload.as_str())
            })
            .collect();
        let counted = |verdict: Verdict, word: &str| {
            let count = all.iter().filter(|c| c.ratio.verdict == verdict).count();
            (count > 0).then(|| format!("{word} in {count}"))
        };
        let said: Vec<String> = [
            counted(Verdict::Slower, "slower"),
            counted(Verdict::Faster, "faster"),
            counted(Verdict::Same, "the same"),
            counted(Verdict::Undecided, "undecided"),
        ]
        .into_iter()
        .flatten()
        .collect();
        (!all.is_empty()).then(|| {
            format!("{target} against {}, of {} cells: {}.", run.plan.baseline, all.len(), listed(&said))
        })
    };
    run.plan.targets.iter().filter_map(|target| of_target(&target.name)).collect()
}
