//! Shows concurrent guests or jobs: the share of each, tail latency by number of guests, and the load of neighbours.

use iotax_model::units::human;
use iotax_model::{CellKey, Workload};
use maud::{Markup, html};

use super::chart::{Across, Cell, Chart, ChartId, Panel, Plot, file_name};
use super::colour;
use super::latency::logarithmic;
use crate::figure::{UNKNOWN, evenness, or_unknown, rate};
use crate::neighbours;
use iotax_analysis::fairness::{Contender, by_count};
use iotax_analysis::{GroupFairness, Judgement, MemberKind, Metric};
use iotax_model::Run;

const SHOWN: [Metric; 3] = [Metric::LATENCY_P50, Metric::LATENCY_P99, Metric::LATENCY_P99_9];

/// Builds the tables and charts of guests, jobs and neighbours; empty if every target was a single guest or job without neighbours.
pub(super) fn several(run: &Run, judgement: &Judgement, here: ChartId<'_>, on: &Workload) -> Markup {
    let workload = here.workload;
    let crowds: Vec<_> = judgement.on(workload, |cell| cell.guests.as_ref()).collect();
    let jobs: Vec<_> = judgement.on(workload, |cell| cell.jobs.as_ref()).collect();
    html! {
        @for (target, noise) in judgement.on(workload, |cell| cell.neighbour.as_ref()) {
            p.note {
                "Beside " (target) ", " b { (noise.name) } " made " (neighbours::made(run, noise, on))
                @if let Some(together) = neighbours::together(target, noise) { "; " (together) } "."
            }
        }
        @if !crowds.is_empty() {
            div.wide tabindex="0" { (parts(run, judgement, &crowds, on)) }
            p.note {
                "Fairness is Jain's index of the guests' I/Os per second, or bytes of streams: 1 if all got the same, 1/n if one got everything; mean \
                 over the rounds with its 95% interval."
            }
        }
        @if !jobs.is_empty() {
            div.wide tabindex="0" { (parts(run, judgement, &jobs, on)) }
            p.note { "Each job's rates are over the time in which it ran; the totals are over the whole window." }
        }
        div.pair {
            @for group in by_count(&run.plan.targets) { (tail(judgement, workload, &group).figure(here)) }
        }
    }
}

fn parts(run: &Run, judgement: &Judgement, crowds: &[(&str, &GroupFairness)], on: &Workload) -> Markup {
    let (name, in_rate) = rate(on);
    let is_of_guests = crowds.iter().all(|(_, crowd)| crowd.of == MemberKind::Guests);
    html! {
        table.steps {
            thead {
                tr {
                    th { (crowds[0].1.member_word()) "s at once" }
                    th { (Metric::IOPS.column(on)) } th { (name) } th { "p50" } th { "p99" }
                    @if is_of_guests { th { "fairness" } }
                }
            }
            tbody {
                @for (target, crowd) in crowds {
                    @for member in &crowd.members { (one(member, crowd, in_rate)) }
                    tr {
                        td class=(colour(run, target)) { span.swatch {} (target) ", all" }
                        @if let Some(all) = judgement.summary(CellKey { workload: &on.name, target }) {
                            td { (or_unknown(all.of(Metric::IOPS), human::count)) }
                            td { (or_unknown(all.of(Metric::BYTES_PER_S), in_rate)) }
                            td { (or_unknown(all.of(Metric::LATENCY_P50), human::time)) }
                            td { (or_unknown(all.of(Metric::LATENCY_P99), human::time)) }
                        } @else {
                            @for _ in 0..4 { td { (UNKNOWN) } }
                        }
                        @if is_of_guests { td { (evenness(crowd.fairness)) } }
                    }
                }
            }
        }
    }
}

fn one(member: &Contender, crowd: &GroupFairness, in_rate: fn(f64) -> String) -> Markup {
    html! {
        tr.member {
            td { @if crowd.member_word() == "guest" { "guest " } (member.name) }
            td { (or_unknown(member.iops, human::count)) }
            td { (or_unknown(member.bytes_per_s, in_rate)) }
            td { (or_unknown(member.percentile(0.5), human::time)) }
            td { (or_unknown(member.percentile(0.99), human::time)) }
            @if crowd.of == MemberKind::Guests { td {} }
        }
    }
}

/// Builds a chart of latency percentiles over all guests, by the number of guests.
fn tail(judgement: &Judgement, workload: &str, group: &[(u32, &str)]) -> Chart {
    let (mut rows, mut words) = (Vec::new(), Vec::new());
    for (count, target) in group {
        let Some(summary) = judgement.summary(CellKey { workload, target }) else { continue };
        for metric in SHOWN {
            let name = metric.name();
            let Some(ns) = summary.of(metric).filter(|ns| *ns > 0.0) else { continue };
            rows.push(vec![name.into(), (*count).into(), Cell::from(ns / 1e3)]);
            words.push(format!("{count} at once, {name} {}", human::time(ns)));
        }
    }
    let label = format!("Latency against the number of guests, from {}", group[0].1);
    let colours = SHOWN.iter().enumerate().map(|(n, metric)| (metric.name().into(), format!("t{}", n + 1)));
    Chart {
        key: file_name(&format!("guests-{}", group[0].1)),
        title: label,
        note: "all guests together, logarithmic".into(),
        message: words.join("; "),
        columns: ["percentile", "guests", "latency_us"].map(Into::into).into(),
        rows,
        colours: colours.collect(),
        plot: Plot::Lines {
            series: 0,
            across: Across::Words { column: 1, label: "guests at once".into() },
            panels: vec![Panel { column: 2, axis: logarithmic(""), height: 200, ends: None }],
            marks: true,
        },
    }
}
