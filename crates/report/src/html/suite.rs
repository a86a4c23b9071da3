//! Shows the tests of a suite, one section each: sweeps over sizes and depths, and maps and surfaces over file and record sizes.

use iotax_model::suite::SuiteShape;
use iotax_model::units::human;
use maud::{Markup, html};

use super::chart::{Across, Axis, Cell, Chart, ChartId, Panel, Plot, Unit};
use super::{colour, colours, surface, taxes};
use crate::figure::or_unknown;
use crate::sweep::{self, Map};
use iotax_analysis::Judgement;
use iotax_analysis::suite::{SuiteCell, SuiteTest, TargetSeries};
use iotax_model::Run;

/// Builds one section per test of the suite.
pub(super) fn sections(run: &Run, judgement: &Judgement, tests: &[SuiteTest<'_>]) -> Markup {
    html! { @for (index, test) in tests.iter().enumerate() { (section(run, judgement, test, index + 1)) } }
}

fn section(run: &Run, judgement: &Judgement, test: &SuiteTest<'_>, number: usize) -> Markup {
    let here = ChartId { run: run.id, workload: test.name, number };
    let remarks = run.plan.known_suite().into_iter().flat_map(|suite| suite.remarks_on(test.name));
    let remarks: Vec<&str> = remarks.collect();
    html! {
        section id=(format!("w{number}")) {
            h2 { (sweep::title(test)) }
            @for sentence in sweep::sentences(test) { p { (sentence) } }
            @for remark in &remarks { p.note { "Note: " (remark) "." } }
            @match test.shape {
                SuiteShape::Files => @for course in &test.series { (maps(run, test, course, here)) },
                SuiteShape::Depths => div.pair {
                    (over_points(run, test).figure(here))
                    (latency_by_rate(run, test).figure(here))
                },
                SuiteShape::Sizes | SuiteShape::Each | SuiteShape::Methods | SuiteShape::Limits => (over_points(run, test).figure(here)),
            }
            details {
                summary { "All figures of this test" }
                (taxes::table(run, judgement, &test.workloads, &format!("All of {}", test.name)))
            }
        }
    }
}

/// Builds the section with UnixBench's index of its file copies.
pub(super) fn indexes(run: &Run) -> Markup {
    html! {
        @for (target, rows) in sweep::indexes(run) {
            section {
                h2 { "UnixBench's index of " (target) }
                div.wide tabindex="0" role="region" aria-label=(format!("UnixBench's index of {target}")) {
                    table {
                        thead { tr { @for name in sweep::INDEX_HEAD { th { (name) } } } }
                        tbody { @for row in &rows { tr { @for field in row { td { (field) } } } } }
                    }
                }
            }
        }
    }
}

fn axis(label: &str, unit: Unit, log: bool) -> Axis {
    Axis { label: label.into(), unit, log, at_least: 0.0 }
}

/// Builds a chart of each target's figures by size or depth, with a panel per figure.
fn over_points(run: &Run, test: &SuiteTest<'_>) -> Chart {
    let each = test.series.iter().flat_map(|course| course.points.iter().map(move |point| (course, point)));
    let row = |(course, point): (&TargetSeries<'_>, &SuiteCell<'_>)| -> Vec<Cell> {
        vec![
            course.target.into(),
            sweep::point_label(test.shape, point).as_str().into(),
            point.iops.into(),
            point.bytes_per_s.into(),
            point.latency_ns.map(|ns| ns / 1e3).into(),
        ]
    };
    let rows: Vec<Vec<Cell>> = each.map(row).collect();
    let (key, title, head, label) = if test.shape == SuiteShape::Depths {
        ("depths", "IOPS and latency by outstanding I/Os", "outstanding", "outstanding I/Os")
    } else {
        ("sizes", "IOPS, bandwidth and latency by block size", "block_size", "block size")
    };
    let panel = |column, axis| Panel { column, axis, height: 130, ends: None };
    let mut panels = vec![
        panel(2, axis("I/Os per second", Unit::Count, true)),
        panel(3, axis("bandwidth", Unit::Rate, false)),
        panel(4, axis("mean latency", Unit::Time, true)),
    ];
    if test.shape == SuiteShape::Depths {
        // With a single block size, the bandwidth line would only repeat the IOPS line.
        panels.remove(1);
        panels[0].axis.log = false;
    }
    Chart {
        key: key.into(),
        title: title.into(),
        note: "means over the rounds".into(),
        message: most(test),
        columns: ["target", head, "iops", "bytes_per_s", "latency_us"].map(Into::into).into(),
        colours: colours(run, &rows),
        rows,
        plot: Plot::Lines {
            series: 0,
            across: Across::Words { column: 1, label: label.into() },
            panels,
            marks: true,
        },
    }
}

/// Names the highest IOPS and bandwidth of each target.
fn most(test: &SuiteTest<'_>) -> String {
    let of = |course: &TargetSeries<'_>| {
        let iops = course.points.iter().filter_map(|point| point.iops).reduce(f64::max);
        let rate = course.points.iter().filter_map(|point| point.bytes_per_s).reduce(f64::max);
        let (iops, rate) = (or_unknown(iops, human::count), or_unknown(rate, human::rate));
        format!("{}: up to {iops} IOPS and {rate}", course.target)
    };
    test.series.iter().map(of).collect::<Vec<_>>().join("; ")
}

/// Builds a chart of latency against IOPS, with the knee marked.
fn latency_by_rate(run: &Run, test: &SuiteTest<'_>) -> Chart {
    let row = |course: &TargetSeries<'_>, at: usize| -> Vec<Cell> {
        let point = &course.points[at];
        let knee = course.knee.and_then(|knee| knee.at) == Some(at);
        vec![
            course.target.into(),
            sweep::point_label(test.shape, point).as_str().into(),
            point.iops.into(),
            point.latency_ns.map(|ns| ns / 1e3).into(),
            point.in_flight().into(),
            if knee { "knee" } else { "" }.into(),
        ]
    };
    let rows: Vec<Vec<Cell>> = test
        .series
        .iter()
        .flat_map(|course| (0..course.points.len()).map(move |at| row(course, at)))
        .collect();
    Chart {
        key: "knee".into(),
        title: "Latency against IOPS".into(),
        note: "from the smallest depth to the largest; right and low is good".into(),
        message: sweep::sentences(test).join(" "),
        columns: ["target", "outstanding", "iops", "latency_us", "in_flight", "note"].map(Into::into).into(),
        colours: colours(run, &rows),
        rows,
        plot: Plot::Curve {
            series: 0,
            x: 2,
            across: axis("I/Os per second", Unit::Count, false),
            y: 3,
            up: axis("mean latency", Unit::Time, true),
            note: 5,
        },
    }
}

/// Builds the heat map and the surface of one target's bandwidth over file and record sizes.
fn maps(run: &Run, test: &SuiteTest<'_>, course: &TargetSeries<'_>, here: ChartId<'_>) -> Markup {
    let map = Map::of(course);
    html! {
        @if run.plan.targets.len() > 1 {
            h3 class=(colour(run, course.target)) { span.swatch {} (course.target) }
        }
        div.pair {
            (heat(test, course, &map).figure(here))
            (surface::figure(&map, &format!("{} on {}", test.name, course.target)))
        }
    }
}

fn heat(test: &SuiteTest<'_>, course: &TargetSeries<'_>, map: &Map) -> Chart {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for (file, values) in map.files.iter().zip(&map.bytes_per_s) {
        for (record, value) in map.records.iter().zip(values) {
            rows.push(vec![
                record.to_string().as_str().into(),
                file.to_string().as_str().into(),
                (*value).into(),
            ]);
        }
    }
    Chart {
        key: format!("map-{}", course.target),
        title: "MB/s by file and record size".into(),
        note: "file size upwards, record size to the right; an empty field was not measured".into(),
        message: most(test),
        columns: ["record", "file", "bytes_per_s"].map(Into::into).into(),
        rows,
        colours: Vec::new(),
        plot: Plot::Map {
            x: 0,
            across: "record size".into(),
            y: 1,
            up: "file size".into(),
            value: 2,
            unit: Unit::Rate,
        },
    }
}
