//! Shows rate limits in front of a storage target, with the measured rates that reveal them and a picture of the rate over time.

use iotax_analysis::limits::{LimitsOnTarget, RateCourse, limits as find};
use iotax_model::Run;
use maud::{Markup, html};

use super::chart::{Axis, Cell, Chart, ChartId, Plot, Unit};
use super::page::set;
use crate::document::limits;

/// Builds the section on rate limits; empty for runs of another suite, and without a sustained rate.
pub(super) fn section(run: &Run) -> Markup {
    let page = limits::section(run);
    html! {
        @if !page.parts.is_empty() {
            section id="limits" {
                (set(&page))
                @for (number, found) in (1..).zip(find(run)) {
                    @if let Some(course) = &found.course {
                        (chart(&found, course).figure(ChartId { run: run.id, workload: "limits", number }))
                    }
                }
            }
        }
    }
}

/// Builds the chart of one measurement: the measured rate over time, with the burst rate and the sustained rate that were found.
fn chart(found: &LimitsOnTarget<'_>, course: &RateCourse<'_>) -> Chart {
    const MEASURED: &str = "measured";
    let (levels, which) = match course.levels.burst {
        Some(_) => ("burst, then sustained", "the measurement with the longest burst"),
        None => ("sustained", "the first measurement; none has a burst"),
    };
    let end = course.rates.last().map_or(0.0, |(at, _)| *at);
    let row = |series: &str, at: f64, rate: f64| -> Vec<Cell> {
        vec![series.into(), at.into(), rate.into(), "".into()]
    };
    let mut rows: Vec<Vec<Cell>> = course.rates.iter().map(|(at, rate)| row(MEASURED, *at, *rate)).collect();
    let sustained = course.levels.sustained;
    match course.levels.burst {
        Some(burst) => {
            rows.extend(
                [(0.0, burst.rate), (burst.seconds, burst.rate)].map(|(at, rate)| row(levels, at, rate)),
            );
            rows.push(row(levels, burst.seconds, sustained));
        }
        None => rows.push(row(levels, 0.0, sustained)),
    }
    rows.push(row(levels, end, sustained));
    let axis = |label: &str| Axis { label: label.into(), unit: Unit::Count, log: false, at_least: 0.0 };
    Chart {
        key: "course".into(),
        title: format!("{}, {}, round {}", found.target, course.workload.name, course.round),
        note: which.into(),
        message: "The rate over time, and the levels found in it".into(),
        columns: ["series", "seconds", "ios_per_s", "note"].map(Into::into).into(),
        colours: [(MEASURED, "t0"), (levels, "t1")].map(|(name, class)| (name.into(), class.into())).into(),
        rows,
        plot: Plot::Curve {
            series: 0,
            x: 1,
            across: axis("seconds of the measured window"),
            y: 2,
            up: axis("I/Os per second"),
            note: 3,
        },
    }
}
