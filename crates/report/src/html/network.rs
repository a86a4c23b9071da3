//! Shows network workloads: their tables, the throughput of each target, and the interfaces on the path.

use iotax_model::record::{Measurement, TargetRecord};
use iotax_model::units::human;
use iotax_model::{CellKey, Workload};
use maud::{Markup, html};

use super::chart::{Across, Axis, Cell, Chart, Panel, Plot, Unit};
use super::verdict::{verdict, with_interval};
use super::{colour, colours};
use crate::figure::{UNKNOWN, title};
use crate::marks::{failures, marks};
use crate::network::{self, Row, Table};
use iotax_analysis::network::word;
use iotax_analysis::stats::paired::Differences;
use iotax_analysis::stats::{ALPHA, Estimate};
use iotax_analysis::{Judgement, Metric};
use iotax_model::Run;

/// Builds a table of figures for each workload; all must be network workloads.
pub(super) fn tables(run: &Run, judgement: &Judgement, workloads: &[&Workload]) -> Markup {
    let compares = run.plan.targets.len() > 1;
    html! {
        @for workload in workloads {
            @if let Some(table) = network::figures(run, judgement, workload, true) {
                div.wide tabindex="0" role="region" aria-label=(workload.name) {
                    table.taxes {
                        thead {
                            tr {
                                th { "target" }
                                @for name in &table.head { th { (name) } }
                                @if compares { th.verdict { "verdict" } }
                            }
                        }
                        tbody {
                            tr.workload {
                                th scope="rowgroup" colspan=(table.head.len() + 2) { (title(workload)) small { (workload.name) } }
                            }
                            @for row in &table.rows { (one(run, judgement, &workload.name, row, compares)) }
                            @for line in failures(run, judgement, workload) {
                                tr.member { td colspan=(table.head.len() + 2) { (line) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn one(run: &Run, judgement: &Judgement, workload: &str, row: &Row<'_>, compares: bool) -> Markup {
    let is_target = row.name == row.target;
    let marks = if is_target { marks(run, judgement, workload, row.target) } else { vec![] };
    html! {
        tr.member[!is_target] {
            (name(run, row))
            (figures(row, if is_target { UNKNOWN } else { "" }))
            @if compares {
                td.verdict {
                    @if let Some(comparison) = row.comparison { (verdict(run, comparison)) }
                    @for mark in &marks { span.tag { (mark) } }
                }
            }
        }
    }
}

fn name(run: &Run, row: &Row<'_>) -> Markup {
    html! { td class=(colour(run, row.target)) { span.swatch {} (row.name) } }
}

fn figures(row: &Row<'_>, unknown: &str) -> Markup {
    html! {
        @for text in &row.figures {
            td { (with_interval(text.as_deref().unwrap_or(unknown))) }
        }
    }
}

/// Builds the tables of directions, gaps and interfaces; empty for workloads without network traffic.
pub(super) fn details(run: &Run, judgement: &Judgement, workload: &Workload) -> Markup {
    let gaps: Vec<_> = judgement
        .on(&workload.name, |cell| cell.network.as_ref())
        .flat_map(|(target, network)| network.gaps.iter().map(move |(round, gap)| (target, round, gap)))
        .collect();
    html! {
        @if let Some(table) = network::directions(run, judgement, workload) { (plain(run, "direction", &table)) }
        @for (target, round, gap) in gaps {
            p.note {
                b { (target) } ", round " (round) ": nothing arrived in the " (word(gap.upload)) " for "
                (human::time(gap.duration_ns as f64)) ", from " (human::time(gap.at_ns as f64)) " into the window on"
                @if let Some(lost) = gap.lost_bytes { ", " (human::bytes(lost)) " lost" } "."
            }
        }
        @if let Some(table) = network::hops(judgement, &workload.name) {
            details {
                summary { "The way of the packets" }
                (plain(run, "interface, from the client to the server", &table))
                p.note {
                    "Received and sent as the kernel counts it at each interface, over all rounds and with all headers. A packet there may be \
                     many of the wire: how long each is tells what was joined."
                }
            }
        }
    }
}

fn plain(run: &Run, first: &str, table: &Table<'_>) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label=(first) {
            table.steps {
                thead { tr { th { (first) } @for name in &table.head { th { (name) } } } }
                tbody { @for row in &table.rows { tr { (name(run, row)) (figures(row, UNKNOWN)) } } }
            }
        }
    }
}

/// Builds the chart of each target's throughput with its confidence interval; without rows for other work than network streams.
pub(super) fn throughput(run: &Run, workload: &Workload) -> Chart {
    let is_shown = workload.kind.is_network() && Metric::leading(workload) == Metric::BYTES_PER_S;
    let rate = |m: &Measurement| Metric::BYTES_PER_S.of(m).map(|bytes| (bytes * 8.0).ln());
    let of = |target: &str| {
        let cell = CellKey { workload: &workload.name, target };
        let here = run.measured().filter(|m| m.cell() == cell);
        Differences::new(here.filter_map(rate).collect())
    };
    let found = run.plan.targets.iter().filter(|_| is_shown);
    let found: Vec<(&str, Differences)> =
        found.filter_map(|target| Some((target.name.as_str(), of(&target.name)?))).collect();
    let words = |(target, found): &(&str, Differences)| {
        format!("{target}: {}", human::bits(found.mean().exp() / 8.0))
    };
    let rows: Vec<Vec<Cell>> = found
        .iter()
        .map(|(target, found)| {
            let ends = found.interval(ALPHA);
            vec![
                (*target).into(),
                found.mean().exp().into(),
                ends.map(|ends| ends.low.exp()).into(),
                ends.map(|ends| ends.high.exp()).into(),
            ]
        })
        .collect();
    let axis = Axis { label: String::new(), unit: Unit::Bits, log: false, at_least: 0.0 };
    Chart {
        key: "throughput".into(),
        title: "Throughput by target".into(),
        note: "geometric mean of the rounds, with 95% intervals".into(),
        message: found.iter().map(words).collect::<Vec<_>>().join("; "),
        columns: ["target", "bits_per_s", "low_bits_per_s", "high_bits_per_s"].map(Into::into).into(),
        colours: colours(run, &rows),
        rows,
        plot: Plot::Lines {
            series: 0,
            across: Across::Words { column: 0, label: String::new() },
            panels: vec![Panel { column: 1, axis, height: 230, ends: Some((2, 3)) }],
            marks: true,
        },
    }
}

/// Lists a target's network interfaces as they were before the first measurement; empty if none is recorded.
pub(super) fn interfaces(record: &TargetRecord) -> Markup {
    html! {
        @for interface in &record.interfaces {
            @let facts: Vec<String> = [
                Some(format!("{} end", interface.position)).filter(|_| interface.position != "host"),
                interface.driver.clone(),
                interface.mtu.map(|mtu| format!("MTU {mtu}")),
                interface.speed.map(|speed| human::bits(speed as f64 / 8.0)),
                interface.queues.map(|(rx, tx)| format!("{rx} queues in, {tx} out")),
            ].into_iter().flatten().collect();
            p.note { b { (interface.name) } ": " (facts.join(" \u{b7} ")) }
            @if let Some(offloads) = &interface.offloads {
                details { summary { "Offloads of " (interface.name) } p.note { (offloads.join(", ")) } }
            }
        }
    }
}
