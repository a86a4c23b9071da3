//! Shows the trend of a series: the target's mean, the ratio to the control, and the changes.

use maud::Markup;

use super::chart::{Axis, Cell, Chart, ChartId, Panel, Plot, Unit};
use crate::figure::change_with;
use crate::sentences::trend::{cell, changed, run};
use iotax_analysis::metric::Unit as MetricUnit;
use iotax_analysis::trend::{PastRun, Trend};

/// Builds the chart of a series by run number: the target's mean, and if there is a control, below it the control's mean and the ratio of
/// the two in percent. Changes are lines labelled with their size, and the runs that may have caused them are shaded. `number` makes ids
/// unique within a page.
#[must_use]
pub fn trend(runs: &[PastRun], trend: &Trend, number: usize) -> Markup {
    let id = |point: usize| runs[trend.points[point].run].id as f64;
    let in_chart = |value: f64| if trend.metric.is_time() { value / 1e3 } else { value };
    let (of, unit, column) = match trend.metric.definition().unit {
        MetricUnit::Nanoseconds => ("time", Unit::Time, "us"),
        MetricUnit::BytesPerSecond => ("bytes per second", Unit::Rate, "bytes_per_s"),
        _ => ("per second", Unit::Count, "figure"),
    };
    let axis = |label: &str, unit: Unit, log: bool| Axis { label: label.into(), unit, log, at_least: 0.0 };
    let panel = |column: usize, label: &str, unit: Unit| Panel {
        column,
        axis: axis(label, unit, true),
        height: 160,
        ends: None,
    };
    let mut panels = vec![panel(2, of, unit)];
    if let Some(control) = &trend.control {
        panels.push(panel(3, control, unit));
        panels.push(panel(4, "of the control", Unit::Percent));
    }
    let rows = trend.points.iter().enumerate().map(|(i, point)| {
        let ratio = trend.control.is_some().then_some(point.followed * 100.0);
        vec![
            Cell::from(trend.target.as_str()),
            id(i).into(),
            in_chart(point.mean).into(),
            point.control.map(in_chart).into(),
            ratio.into(),
        ]
    });
    let said: Vec<String> = trend.changes.iter().map(|change| changed(runs, trend, change)).collect();
    let chart = Chart {
        key: format!("trend-{}", trend.metric.word()),
        title: format!("{}, {}", cell(trend), trend.metric.name_on(&trend.workload)),
        // Once per page.
        note: if number == 1 { "changes as lines, the runs that each may have come with shaded" } else { "" }
            .into(),
        message: if said.is_empty() { "no change".into() } else { said.join(" ") },
        columns: ["target", "run", column, &format!("control_{column}"), "percent_of_control"]
            .map(Into::into)
            .into(),
        rows: rows.collect(),
        colours: vec![(trend.target.clone(), "t0".into())],
        plot: Plot::Course {
            series: 0,
            x: 1,
            across: axis("run", Unit::Ordinal, false),
            panels,
            events: trend
                .changes
                .iter()
                .map(|change| {
                    (
                        id(change.at),
                        format!(
                            "{}: {}",
                            run(runs, trend, change.at),
                            change_with(change.ratio, Some(change.interval))
                        ),
                    )
                })
                .collect(),
            shaded: trend
                .changes
                .iter()
                .filter(|change| change.last_before + 1 < change.first_after)
                .map(|change| (id(change.last_before + 1), id(change.first_after)))
                .collect(),
        },
    };
    let newest = runs.last().map_or(0, |run| run.id);
    chart.figure(ChartId { run: newest, workload: &trend.workload.name, number })
}
