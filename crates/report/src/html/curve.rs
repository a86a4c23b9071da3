//! Shows latency against offered load: charts that contain all targets of a workload.

use maud::{Markup, html};

use super::chart::{Axis, Cell, Chart, ChartId, Plot, Unit};
use super::{colours, taxes};
use crate::curve::{heading, legend, sentences};
use iotax_analysis::Judgement;
use iotax_analysis::curve::{Curve, Curves, Located, RatePoint};
use iotax_model::Run;
use iotax_model::units::human;

/// Builds a section per workload with several rates.
pub(super) fn sections(run: &Run, judgement: &Judgement, works: &[Curves<'_>]) -> Markup {
    html! { @for (number, curves) in (1..).zip(works) { (section(run, judgement, curves, number)) } }
}

fn section(run: &Run, judgement: &Judgement, curves: &Curves<'_>, number: usize) -> Markup {
    let here = ChartId { run: run.id, workload: &curves.work.name, number };
    let points = curves.targets.iter().flat_map(|curve| &curve.points);
    let mut workloads = vec![curves.work];
    for point in points {
        if workloads.iter().all(|known| known.name != point.workload.name) {
            workloads.push(point.workload);
        }
    }
    html! {
        section id=(format!("c{number}")) {
            h2 { (heading(curves)) }
            ul { @for sentence in sentences(judgement, curves, &run.plan.baseline) { li { (sentence) } } }
            div.pair {
                (chart(run, curves, "mean", |point| point.response.mean()).figure(here))
                (chart(run, curves, "p99", |point| point.response_quantile(0.99)).figure(here))
            }
            p.note { (legend(false)) }
            details {
                summary { "All figures at these rates" }
                (taxes::table(run, judgement, &workloads, &format!("All of {}", curves.work.name)))
            }
        }
    }
}

/// Formats the note at the measured rate that is nearest to the estimated knee.
fn beside_knee(power: &Located) -> String {
    format!("knee at {}", human::count(power.at))
}

/// Builds a chart of a response time, which `of` selects, against the rate. Only rates that a target sustained are drawn.
fn chart(run: &Run, curves: &Curves<'_>, name: &str, of: impl Fn(&RatePoint<'_>) -> Option<f64>) -> Chart {
    let row = |curve: &Curve<'_>, point: &RatePoint<'_>| -> Vec<Cell> {
        let is_next = |at: f64| {
            let distance = |point: &RatePoint<'_>| (point.offered - at).abs();
            curve.points.iter().all(|other| distance(other) >= distance(point))
        };
        let power = curve.knee.as_ref().and_then(|knee| knee.power.as_ref());
        vec![
            curve.target.into(),
            point.offered.into(),
            point.achieved.into(),
            of(point).map(|ns| ns / 1e3).into(),
            power.filter(|power| is_next(power.at)).map_or(String::new(), beside_knee).as_str().into(),
        ]
    };
    let rows: Vec<Vec<Cell>> = curves
        .targets
        .iter()
        .flat_map(|curve| curve.points.iter().map(move |point| (curve, point)))
        .filter(|(_, point)| point.is_sustained())
        .map(|(curve, point)| row(curve, point))
        .collect();
    let axis = |label: &str, unit: Unit, log: bool| Axis { label: label.into(), unit, log, at_least: 0.0 };
    Chart {
        key: format!("load-{name}"),
        title: format!("Response time against load, {name}"),
        note: "right and low is good; only rates that were sustained".into(),
        message: heading(curves),
        columns: ["target", "offered", "achieved", "response_us", "note"].map(Into::into).into(),
        colours: colours(run, &rows),
        rows,
        plot: Plot::Curve {
            series: 0,
            x: 1,
            across: axis("I/Os per second due", Unit::Count, false),
            y: 3,
            up: axis("response time", Unit::Time, true),
            note: 4,
        },
    }
}
