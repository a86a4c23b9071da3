//! What each layer costs: a picture of the ladder, and its steps in figures.

use iotax_model::record::Measurement;
use iotax_model::units::human;
use maud::{Markup, html};

use super::axis::{HALF, trimmed, unit};
use super::colour;
use super::waterfall::{Fall, waterfall};
use super::workload::{tax_in_words, verdict};
use crate::judge::{Edge, Judgement, Metric, Tax};
use crate::report::figure::{UNKNOWN, or_unknown, signed_time, tax};
use crate::store::Run;

/// A label above a bar with more characters would leave the picture.
const LABEL: usize = 58;

/// The ladder from its lowest rung up.
pub(super) fn ladder(run: &Run, judgement: &Judgement, workload: &str) -> Markup {
    let mut rungs: Vec<Fall> = Vec::new();
    for target in &run.plan.targets {
        if step_to(judgement, workload, &target.name).is_none()
            && let Some(mean) = geometric_mean(run, workload, &target.name)
        {
            rungs.push(Fall {
                name: target.name.clone(),
                colour: colour(run, &target.name),
                from: 0.0,
                to: mean,
                ends: None,
                words: human::time(mean),
                beneath: None,
            });
            add_above(run, judgement, workload, &mut rungs);
        }
    }
    let most = rungs.iter().map(|rung| rung.to).fold(0.0, f64::max);
    let (size, name) = unit(most);
    html! {
        figure {
            figcaption {
                b { "Mean latency, layer by layer" } ", " (name) ", from the lowest rung up, with intervals"
            }
            (waterfall(&rungs, "Mean latency, layer by layer, from the lowest rung up", &|value| trimmed(value / size), HALF))
        }
    }
}

/// The edge on which a target is drawn, and what it costs.
fn step_to<'a>(judgement: &'a Judgement, workload: &str, target: &str) -> Option<(&'a Edge, Tax)> {
    let cost = |edge| judgement.step(workload, edge, Metric::LatencyMean)?.tax;
    judgement.edges.iter().filter(|edge| edge.to == target).find_map(|edge| Some((edge, cost(edge)?)))
}

/// Adds all that stands on the last rung.
fn add_above(run: &Run, judgement: &Judgement, workload: &str, rungs: &mut Vec<Fall>) {
    let Some(place) = rungs.len().checked_sub(1) else { return };
    let (beneath, from) = (rungs[place].name.clone(), rungs[place].to);
    for target in &run.plan.targets {
        let step = step_to(judgement, workload, &target.name).filter(|(edge, _)| edge.from == beneath);
        let Some((edge, cost)) = step else { continue };
        let full = format!("{} {}", edge.name, tax(&cost));
        let short = || edge.name.chars().take(LABEL).collect();
        rungs.push(Fall {
            name: target.name.clone(),
            colour: colour(run, &target.name),
            from,
            to: from + cost.ns,
            ends: cost.interval.map(|i| (from + i.low, from + i.high)),
            words: if full.chars().count() <= LABEL { full } else { short() },
            beneath: Some(place),
        });
        add_above(run, judgement, workload, rungs);
    }
}

/// Over the blocks, as the steps have it; absent if nothing was measured.
fn geometric_mean(run: &Run, workload: &str, target: &str) -> Option<f64> {
    let of_cell = |m: &&Measurement| m.workload == workload && m.target == target;
    let logs: Vec<f64> = run
        .measurements
        .iter()
        .filter(of_cell)
        .filter_map(|m| Some(Metric::LatencyMean.of(m)?.ln()))
        .collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// One row per edge; nothing if none was measured.
pub(super) fn steps(run: &Run, judgement: &Judgement, workload: &str) -> Markup {
    let steps: Vec<_> = judgement
        .edges
        .iter()
        .filter_map(|edge| Some((edge, judgement.step(workload, edge, Metric::LatencyMean)?)))
        .collect();
    html! {
        @if !steps.is_empty() {
            div.wide {
                table.steps {
                    thead {
                        tr {
                            th { "layer by layer" } th.left { "what is compared" } th { "mean latency" }
                            th { "host CPU" br; "per I/O" } th.verdict { "verdict" }
                        }
                    }
                    tbody {
                        @for (edge, latency) in steps {
                            @let cpu = judgement.step(workload, edge, Metric::CpuPerIo).and_then(|step| step.tax);
                            tr {
                                td { (edge.name) }
                                td.left { (edge.to) " \u{2212} " (edge.from) }
                                td {
                                    @match &latency.tax { Some(cost) => (tax_in_words(cost)), None => (UNKNOWN) }
                                }
                                td { (or_unknown(cpu.map(|cpu| cpu.ns), signed_time)) }
                                td.verdict { (verdict(run, latency)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
