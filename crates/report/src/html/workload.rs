//! Shows one workload: latencies, guests, breakdowns, and figures over time.

use iotax_model::Workload;
use iotax_model::record::Measurement;
use maud::{Markup, html};

use super::clock::Clock;
use super::{
    amplification, chart_id, guests, heat, latency, latency_breakdown, network, steady_state, timeline,
};
use crate::document::certainty::over_the_run;
use crate::document::figures;
use crate::figure::title_in;
use iotax_analysis::{CellJudgement, Judgement};
use iotax_model::Run;

/// Maximum number of intervals in all timelines of a report together: more would bloat the file and look the same.
const INTERVALS: usize = 6_000;

/// Maximum number of intervals in all heat maps together: fewer than in timelines, because each has dozens of latency bins.
const COLUMNS: usize = 1_500;

/// Builds the section of a workload; empty if it was not measured.
pub(super) fn section(run: &Run, judgement: &Judgement, workload: &Workload) -> Markup {
    let targets: Vec<&str> = run.plan.targets.iter().map(|target| target.name.as_str()).collect();
    let cells = figures::cells(run, judgement, workload);
    // Includes rounds before the steady state, to show how it was reached.
    let measurements =
        || -> Vec<&Measurement> { run.measurements.iter().filter(|m| m.workload == workload.name).collect() };
    let here = chart_id(run, &workload.name);
    let clock = |most: usize| Clock::new(measurements(), &targets, most / run.plan.workloads.len().max(1));
    let moved = over_the_run(judgement, &workload.name, run.plan.margin.share(), targets.len() > 1);
    html! {
        @if !cells.is_empty() {
            section id=(format!("w{}", here.number)) {
                h2 { (title_in(run.source.imported(), workload)) small { (workload.name) } }
                div.pair {
                    (network::throughput(run, workload).figure(here))
                    (latency::percentiles(run, &cells).figure(here))
                    (latency::distribution(run, workload, &cells).figure(here))
                }
                @if let Some(suite) = run.plan.known_suite() {
                    @for remark in suite.remarks_on(suite.test(workload)) { p.note { "Note: " (remark) "." } }
                }
                @if let Some(missing) = latency::not_given(&cells) { p.note { (missing) } }
                @for line in crate::fidelity::lines(run, &workload.name) { p.note { (line) } }
                (all_figures(judgement, workload, &cells))
                (network::details(run, judgement, workload))
                (steady_state::section(run, workload))
                (guests::several(run, judgement, here, workload))
                (latency_breakdown::section(judgement, here, workload))
                (amplification::section(run, judgement, &workload.name))
                @if let Some(moved) = moved { p.note { (moved) } }
                @if let Some(map) = heat::heat(run, &clock(COLUMNS)) { (map.figure(here)) }
                (timeline::timeline(run, workload, &clock(INTERVALS)).figure(here))
            }
        }
    }
}

/// Builds a table of all known figures, initially collapsed.
fn all_figures(judgement: &Judgement, workload: &Workload, cells: &[&CellJudgement]) -> Markup {
    html! {
        details {
            summary { "All figures" }
            div.wide tabindex="0" role="region" aria-label="All figures" { table {
                thead { tr { th { "over all rounds" } @for cell in cells { th { (cell.target) } } } }
                tbody {
                    @for (name, values) in figures::rows(judgement, workload, cells) {
                        tr { td { (name) } @for value in values { td { (value) } } }
                    }
                }
            } }
        }
    }
}
