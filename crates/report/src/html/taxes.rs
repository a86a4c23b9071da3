//! Shows all cells in one table: each target's figures, its cost over the baseline, and the verdict.

use iotax_model::Workload;
use iotax_model::units::human;
use maud::{Markup, html};

use super::verdict::{verdict, with_interval};
use super::{colour, network};
use crate::document::figures::cells;
use crate::figure::{UNKNOWN, megabytes, or_unknown, rate_of, tax, title_in};
use crate::marks::{failures, marks};
use iotax_analysis::percentile::percentile;
use iotax_analysis::{CellJudgement, Comparison, Judgement, Metric};
use iotax_model::Run;

/// Builds the table of all workloads; empty if nothing was measured.
pub(super) fn section(run: &Run, judgement: &Judgement) -> Markup {
    let compares = compares(run);
    let (networks, on_disks): (Vec<&Workload>, Vec<&Workload>) =
        run.plan.workloads.iter().partition(|workload| workload.kind.is_network());
    html! {
        @if !judgement.cells.is_empty() {
            section id="taxes" {
                h2 {
                    @if compares { "The tax" small { "over " (run.plan.baseline) @if !on_disks.is_empty() { ", per I/O" } } } @else { "What was measured" }
                }
                (table(run, judgement, &on_disks, "All workloads and targets"))
                (network::tables(run, judgement, &networks))
            }
        }
    }
}

/// Builds a table with the figures of some workloads; `name` describes it to screen readers.
pub(super) fn table(run: &Run, judgement: &Judgement, workloads: &[&Workload], name: &str) -> Markup {
    let all = workloads.iter().map(|workload| (*workload, cells(run, judgement, workload)));
    let all: Vec<_> = all.filter(|(_, cells)| !cells.is_empty()).collect();
    let compares = compares(run);
    html! {
        @if !all.is_empty() { div.wide tabindex="0" role="region" aria-label=(name) {
            table.taxes {
                thead { (head(run, compares)) }
                @for (workload, cells) in &all {
                    tbody {
                        tr.workload { th scope="rowgroup" colspan="10" { (title_in(run.source.imported(), workload)) small { (workload.name) } } }
                        @for cell in cells { (row(run, judgement, workload, cell, compares)) }
                        @for line in failures(run, judgement, workload) {
                            tr.member { td colspan="10" { (line) } }
                        }
                    }
                }
            }
        } }
    }
}

/// Returns whether the targets of a run are compared; those of an imported run are not.
fn compares(run: &Run) -> bool {
    !run.source.is_imported() && run.plan.targets.len() > 1
}

/// Returns the head of the column of bytes per second, and the function that formats its values; imported runs may use bits.
fn rate(run: &Run) -> (&'static str, fn(f64) -> String) {
    run.source.imported().map_or(("MB/s", megabytes), rate_of)
}

fn head(run: &Run, compares: bool) -> Markup {
    html! {
        tr {
            th { "target" } th { "IOPS" } th { (rate(run).0) } th { "mean" } th { "p50" } th { "p99" } th { "p99.9" }
            @if !compares { th { "max" } }
            @if compares { th { "tax on mean latency" } }
            th { "host CPU" br; "per I/O" }
            @if compares { th.verdict { "verdict on the mean" } }
        }
    }
}

fn row(
    run: &Run,
    judgement: &Judgement,
    workload: &Workload,
    cell: &CellJudgement,
    compares: bool,
) -> Markup {
    let (s, target) = (&cell.summary, cell.target.as_str());
    let by = |metric| judgement.comparison(cell.key(), metric);
    let comparison = by(Metric::LATENCY_MEAN);
    // The verdict of the interval shown next to it.
    let decides = comparison.or_else(|| by(Metric::headline(workload)));
    let time = |value: Option<f64>| or_unknown(value, human::time);
    html! {
        tr {
            td class=(colour(run, target)) {
                span.swatch {} (target)
                @if !compares && judgement.is_unusable(run, cell.key()) { span.tag { "unusable" } }
            }
            td { (or_unknown(s.of(Metric::IOPS), human::count)) }
            td { (or_unknown(s.of(Metric::BYTES_PER_S), rate(run).1)) }
            td { (time(s.of(Metric::LATENCY_MEAN))) }
            td { (time(s.of(Metric::LATENCY_P50))) }
            td { (time(s.of(Metric::LATENCY_P99))) }
            td { (time(s.of(Metric::LATENCY_P99_9))) }
            @if !compares { td { (time(s.latency.max().map(|max| max as f64))) } }
            @if compares { td { (cost(run, target, comparison)) } }
            td { (time(s.of(Metric::CPU_PER_IO))) }
            @if compares {
                td.verdict {
                    @if let Some(decides) = decides { (verdict(run, decides)) }
                    @for mark in marks(run, judgement, &workload.name, target) { span.tag { (mark) } }
                }
            }
        }
        @if let Some(response) = s.tallies.response() {
            tr.member {
                td { "response times" } td {} td {}
                td { (time(response.mean())) }
                @for q in [0.5, 0.99, 0.999] { td { (time(percentile(&response, q))) } }
                @if !compares { td { (time(response.max().map(|max| max as f64))) } }
                @for _ in 0..if compares { 3 } else { 1 } { td {} }
            }
        }
    }
}

fn cost(run: &Run, target: &str, comparison: Option<&Comparison>) -> Markup {
    html! {
        @match comparison.and_then(|c| c.ratio.tax.as_ref()) {
            _ if target == run.plan.baseline => "baseline",
            None => (UNKNOWN),
            Some(cost) => (with_interval(&tax(cost))),
        }
    }
}
