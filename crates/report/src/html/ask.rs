//! Shows the result of a rate search: the highest rate that meets the conditions, and latency against rate around it.

use maud::{Markup, html};

use super::chart::{Axis, Cell, Chart, ChartId, Plot, Unit};
use super::{COLOURS, colours};
use crate::ask::{heading, sentences};
use iotax_analysis::ask::{Answers, HighestRate, answers};
use iotax_model::Run;
use iotax_model::plan::{AskSpec, Slo};
use iotax_model::units::Nanos;

/// Builds a section per searched workload; empty for other runs.
pub(super) fn sections(run: &Run) -> Markup {
    let Some(ask) = run.plan.ask() else { return html! {} };
    html! {
        @for (number, answers) in (1..).zip(answers(run)) {
            section id=(format!("a{number}")) {
                h2 { (heading(ask, &answers)) }
                ul { @for sentence in sentences(run, ask, &answers) { li { (sentence) } } }
                div.pair {
                    @for slo in &ask.slo {
                        @if let Slo::Percentile { most, .. } | Slo::Mean { most } = slo {
                            (chart(run, ask, &answers, slo, *most)
                                .figure(ChartId { run: run.id, workload: &answers.work.name, number }))
                        }
                    }
                }
            }
        }
    }
}

/// Builds the chart of one condition: its latency against the rate, with the limit as a line.
fn chart(run: &Run, ask: &AskSpec, answers: &Answers<'_>, slo: &Slo, most: Nanos) -> Chart {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for answer in &answers.targets {
        let rates: Vec<f64> = answer.steps.iter().map(|step| step.rate).collect();
        let is_next = |rate: f64| {
            let HighestRate::Rate(located) = answer.found else { return false };
            let distance = |rate: f64| (rate - located.at).abs();
            rates.iter().all(|other| distance(*other) >= distance(rate))
        };
        rows.extend(answer.steps.iter().filter_map(|step| {
            let us = step.latency(slo)? / 1e3;
            let note = if is_next(step.rate) { "answer" } else { "" };
            Some(vec![answer.target.into(), step.rate.into(), us.into(), note.into()])
        }));
    }
    let mut colours = colours(run, &rows);
    colours.push((slo.to_string(), format!("t{}", run.plan.targets.len() % COLOURS)));
    let all = || answers.targets.iter().flat_map(|answer| &answer.steps).map(|step| step.rate);
    for end in [all().reduce(f64::min), all().reduce(f64::max)].into_iter().flatten() {
        rows.push(vec![slo.to_string().as_str().into(), end.into(), (most.0 as f64 / 1e3).into(), "".into()]);
    }
    let axis = |label: &str, unit: Unit, log: bool| Axis { label: label.into(), unit, log, at_least: 0.0 };
    Chart {
        key: format!("ask-{}", slo.figure()),
        title: format!("Response time against load, {}", slo.figure()),
        note: "close rates together; the flat line is the limit".into(),
        message: heading(ask, answers),
        columns: ["target", "offered", "response_us", "note"].map(Into::into).into(),
        colours,
        rows,
        plot: Plot::Curve {
            series: 0,
            x: 1,
            across: axis("I/Os per second due", Unit::Count, true),
            y: 2,
            up: axis("response time", Unit::Time, true),
            note: 3,
        },
    }
}
