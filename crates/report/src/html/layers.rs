//! Shows the cost of each layer: charts of the ladder in time and CPU time, and a table of its steps.

use std::collections::HashMap;

use iotax_model::units::human;
use iotax_model::{CellKey, Workload};
use maud::{Markup, html};

use super::chart::{Axis, Chart, Label, Plot, Unit};
use super::verdict::{verdict, with_interval};
use super::{chart_id, colour};
use crate::figure::{cpu_unit, or_unknown, signed_time, step_in_words, tax, title};
use iotax_analysis::stats::paired::Interval;
use iotax_analysis::{Edge, Judgement, Metric, Tax};
use iotax_model::Run;

/// A target as a bar in the ladder's chart. It differs from the rung below by one layer or setting. Times are in nanoseconds.
struct Rung {
    name: String,
    /// Text above the bar: the added layer and its cost; for the lowest rung its mean.
    words: String,
    /// Name of the layer that this target adds; empty for the lowest rung.
    layer: String,
    /// Start of the bar: the end of the bar of the rung below, or 0.
    from: f64,
    /// Length of the bar: the added time, negative if the target is faster than the rung below; for the lowest rung its mean.
    adds: f64,
    /// Confidence interval of the bar's end; `None` if unknown.
    ends: Option<Interval>,
    /// Index of the rung below, which is earlier in the list; `None` for the lowest rung.
    beneath: Option<usize>,
}

/// For each target, the step of the ladder that leads to it in the chart, and the cost of this step.
type Steps<'a> = HashMap<&'a str, (&'a Edge, Tax)>;

/// Builds for each workload the charts of the ladder and the table of its steps; empty if nothing was compared.
pub(super) fn section(run: &Run, judgement: &Judgement) -> Markup {
    let compared = |workload: &&Workload| {
        let both = judgement.steps.iter().chain(&judgement.comparisons);
        both.into_iter().any(|c| c.workload == workload.name)
    };
    let workloads: Vec<&Workload> = run.plan.workloads.iter().filter(compared).collect();
    html! {
        @if !workloads.is_empty() {
            section id="layers" {
                h2 { "What each layer costs" small { "added time" @if workloads.iter().all(|workload| !workload.kind.is_network()) { " per I/O" } ", with intervals" } }
                @for workload in workloads {
                    h3 { (title(workload)) small { (workload.name) } }
                    div.pair {
                        (ladder(run, judgement, workload, Metric::LATENCY_MEAN).figure(chart_id(run, &workload.name)))
                        (ladder(run, judgement, workload, Metric::cpu(workload)).figure(chart_id(run, &workload.name)))
                    }
                    (steps(run, judgement, workload))
                }
            }
        }
    }
}

/// Builds the chart of a ladder from the lowest rung up; without steps it shows each target's added time over the baseline.
fn ladder(run: &Run, judgement: &Judgement, on: &Workload, metric: Metric) -> Chart {
    let workload = on.name.as_str();
    let (what, key) = match &on.kind {
        _ if metric.is_cpu() => (format!("Host CPU time per {}", cpu_unit(on)), "cpu"),
        kind if kind.is_network() => ("Mean round trip".into(), "latency"),
        _ => ("Mean latency".into(), "latency"),
    };
    let (rungs, key, title, note) = if judgement.edges.is_empty() {
        let key = if key == "cpu" { "tax-on-cpu" } else { "tax" };
        let title = format!("Tax on {}{} over {}", what[..1].to_lowercase(), &what[1..], run.plan.baseline);
        (taxes(run, judgement, workload, metric), key, title, "with intervals")
    } else {
        let key = if key == "cpu" { "layers-cpu" } else { "layers" };
        (rungs(run, judgement, workload, metric), key, format!("{what}, layer by layer"), "with intervals")
    };
    // A single rung has nothing to be compared with.
    let rungs = if rungs.iter().any(|rung| !rung.layer.is_empty()) { rungs } else { vec![] };
    let without = rungs.iter().any(|rung| !rung.layer.is_empty() && rung.ends.is_none());
    let us = |ns: f64| ns / 1e3;
    let message: Vec<String> = rungs.iter().map(|rung| format!("{}: {}", rung.name, rung.words)).collect();
    let beneath = |rung: &Rung| rung.beneath.map_or(String::new(), |index| rungs[index].name.clone());
    Chart {
        key: key.into(),
        title,
        note: format!(
            "{note}{}",
            if without { "; none is drawn where too few rounds are usable" } else { "" }
        ),
        message: message.join("; "),
        columns: ["target", "over", "layer", "from_us", "adds_us", "end_low_us", "end_high_us"]
            .map(Into::into)
            .into(),
        rows: rungs
            .iter()
            .map(|rung| {
                vec![
                    rung.name.as_str().into(),
                    beneath(rung).as_str().into(),
                    rung.layer.as_str().into(),
                    us(rung.from).into(),
                    us(rung.adds).into(),
                    rung.ends.map(|ends| us(ends.low)).into(),
                    rung.ends.map(|ends| us(ends.high)).into(),
                ]
            })
            .collect(),
        colours: rungs.iter().map(|rung| (rung.name.clone(), colour(run, &rung.name))).collect(),
        plot: Plot::Bars {
            name: 0,
            series: 0,
            from: Some(3),
            value: 4,
            ends: Some((5, 6)),
            labels: rungs
                .iter()
                .map(|rung| Label {
                    name: rung.name.clone(),
                    words: rung.words.clone(),
                    beneath: rung.beneath,
                })
                .collect(),
            axis: Axis { label: String::new(), unit: Unit::Time, log: false, at_least: 0.0 },
        },
    }
}

/// Returns a bar per target: its cost over the baseline, for plans without ladder steps.
fn taxes(run: &Run, judgement: &Judgement, workload: &str, metric: Metric) -> Vec<Rung> {
    let rung = |name: &str| {
        let comparison = judgement.comparison(CellKey { workload, target: name }, metric)?;
        let cost = comparison.ratio.tax.as_ref()?;
        Some(Rung {
            name: name.into(),
            words: format!("{}, {}", tax(cost), comparison.ratio.word()),
            layer: format!("all over {}", run.plan.baseline),
            from: 0.0,
            adds: cost.ns,
            ends: cost.interval,
            beneath: None,
        })
    };
    run.plan.targets.iter().filter_map(|target| rung(&target.name)).collect()
}

fn rungs(run: &Run, judgement: &Judgement, workload: &str, metric: Metric) -> Vec<Rung> {
    let mut rungs: Vec<Rung> = Vec::new();
    let steps = steps_to(judgement, workload, metric);
    for target in &run.plan.targets {
        if !steps.contains_key(target.name.as_str())
            && let Some(mean) =
                judgement.summary(CellKey { workload, target: &target.name }).and_then(|cell| cell.of(metric))
        {
            rungs.push(Rung {
                name: target.name.clone(),
                words: human::time(mean),
                layer: String::new(),
                from: 0.0,
                adds: mean,
                ends: None,
                beneath: None,
            });
            add_above(run, &steps, &mut rungs);
        }
    }
    rungs
}

/// Selects for each target the first step of the ladder that leads to it and has a known cost.
fn steps_to<'a>(judgement: &'a Judgement, workload: &str, metric: Metric) -> Steps<'a> {
    let of_it = judgement.steps.iter().filter(|c| c.workload == workload && c.metric == metric);
    let costs: HashMap<_, Tax> =
        of_it.filter_map(|c| Some(((c.target.as_str(), c.baseline.as_str()), c.ratio.tax?))).collect();
    let mut steps = Steps::new();
    for edge in &judgement.edges {
        if let Some(cost) = costs.get(&(edge.to.as_str(), edge.from.as_str())) {
            steps.entry(&edge.to).or_insert((edge, *cost));
        }
    }
    steps
}

/// Adds the targets whose ladder step starts at the last rung, each followed recursively by the targets above it.
fn add_above(run: &Run, steps: &Steps<'_>, rungs: &mut Vec<Rung>) {
    let Some(index) = rungs.len().checked_sub(1) else { return };
    let (beneath, from) = (rungs[index].name.clone(), rungs[index].from + rungs[index].adds);
    for target in &run.plan.targets {
        let step = steps.get(target.name.as_str()).filter(|(edge, _)| edge.from == beneath);
        let Some((edge, cost)) = step else { continue };
        rungs.push(Rung {
            name: target.name.clone(),
            words: format!("{} {}", edge.name, tax(cost)),
            layer: edge.name.clone(),
            from,
            adds: cost.ns,
            ends: cost.interval.map(|i| i.map(|end| from + end)),
            beneath: Some(index),
        });
        add_above(run, steps, rungs);
    }
}

/// Builds the table of layer costs, with one row per step of the ladder; empty if none was compared.
pub(super) fn steps(run: &Run, judgement: &Judgement, workload: &Workload) -> Markup {
    let (leading, cpu_metric) = (Metric::leading(workload), Metric::cpu(workload));
    let workload_name = &workload.name;
    let steps: Vec<_> = judgement
        .edges
        .iter()
        .filter_map(|edge| Some((edge, judgement.step(workload_name, edge, leading)?)))
        .collect();
    html! {
        @if !steps.is_empty() {
            div.wide tabindex="0" {
                table.steps {
                    thead {
                        tr {
                            th { "layer by layer" } th.left { "what is compared" } th { (leading.column(workload)) }
                            th { @if workload.kind.is_network() { (cpu_metric.column(workload)) } @else { "host CPU" br; "per I/O" } } th.verdict { "verdict" }
                        }
                    }
                    tbody {
                        @for (edge, latency) in steps {
                            @let cpu = judgement.step(workload_name, edge, cpu_metric).and_then(|step| step.ratio.tax);
                            tr {
                                td { (edge.name) }
                                td.left { (edge.to) " \u{2212} " (edge.from) }
                                td {
                                    @match &latency.ratio.tax {
                                        Some(cost) => (with_interval(&tax(cost))),
                                        None => (step_in_words(latency)),
                                    }
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
