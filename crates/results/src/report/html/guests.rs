//! Several guests at once: what each got, the tail against their number, and what a neighbour did.

use iotax_model::units::human;
use maud::{Markup, html};

use super::axis::{HALF, trimmed, unit};
use super::chart::{Across, Axis, Series, lines};
use super::colour;
use crate::judge::crowd::{Member, by_count};
use crate::judge::{Crowd, Judgement};
use crate::report::figure::{UNKNOWN, evenness, megabytes, or_unknown};
use crate::store::Run;

/// The percentiles of the picture.
const SHOWN: [(f64, &str); 3] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")];

/// Everything there is of it; nothing if every target was one guest alone.
pub(super) fn several(run: &Run, judgement: &Judgement, workload: &str) -> Markup {
    let crowds: Vec<&Crowd> = judgement.crowds.iter().filter(|crowd| crowd.workload == workload).collect();
    html! {
        @for noise in judgement.noises.iter().filter(|noise| noise.workload == workload) {
            p.note {
                "Beside " (noise.target) ", " b { (noise.name) } " made " (or_unknown(noise.iops, human::count)) " IOPS, "
                (or_unknown(noise.bytes_per_s, human::rate)) "."
            }
        }
        @if !crowds.is_empty() {
            div.wide { (parts(run, judgement, &crowds)) }
            p.note {
                "Fairness is Jain's index of the guests' I/Os per second: 1 if all got the same, 1/n if one got everything; mean \
                 over the blocks with its 95% interval."
            }
        }
        div.pair {
            @for group in by_count(&run.plan.targets) { (tail(judgement, workload, &group)) }
        }
    }
}

fn parts(run: &Run, judgement: &Judgement, crowds: &[&Crowd]) -> Markup {
    html! {
        table.steps {
            thead {
                tr { th { "guests at once" } th { "IOPS" } th { "MB/s" } th { "p50" } th { "p99" } th { "fairness" } }
            }
            tbody {
                @for crowd in crowds {
                    @for member in &crowd.members { (one(member)) }
                    tr {
                        td class=(colour(run, &crowd.target)) { span.swatch {} (crowd.target) ", all" }
                        @if let Some(all) = judgement.summary(&crowd.workload, &crowd.target) {
                            td { (or_unknown(all.iops, human::count)) }
                            td { (or_unknown(all.bytes_per_s, megabytes)) }
                            td { (or_unknown(all.percentile(0.5), human::time)) }
                            td { (or_unknown(all.percentile(0.99), human::time)) }
                        } @else {
                            @for _ in 0..4 { td { (UNKNOWN) } }
                        }
                        td { (evenness(crowd.fairness)) }
                    }
                }
            }
        }
    }
}

fn one(member: &Member) -> Markup {
    html! {
        tr.member {
            td { "guest " (member.name) }
            td { (or_unknown(member.iops, human::count)) }
            td { (or_unknown(member.bytes_per_s, megabytes)) }
            td { (or_unknown(member.percentile(0.5), human::time)) }
            td { (or_unknown(member.percentile(0.99), human::time)) }
            td {}
        }
    }
}

/// Percentiles of all guests together against their number.
fn tail(judgement: &Judgement, workload: &str, group: &[(u32, &str)]) -> Markup {
    let place = |index: usize| index as f64 + 0.5;
    let series: Vec<Series> = SHOWN
        .iter()
        .enumerate()
        .map(|(number, (q, name))| {
            let points = group.iter().enumerate().filter_map(|(index, (count, target))| {
                let ns = judgement.summary(workload, target)?.percentile(*q).filter(|ns| *ns > 0.0)?;
                Some((place(index), ns, format!("{count} at once, {}", human::time(ns))))
            });
            Series { name: (*name).into(), colour: format!("p{}", number + 1), lines: vec![points.collect()] }
        })
        .collect();
    let ticks =
        group.iter().enumerate().map(|(index, (count, _))| (place(index), count.to_string())).collect();
    let across = Across { end: group.len() as f64, ticks, notches: vec![], marks: true };
    let words = |ns: f64| {
        let (size, name) = unit(ns);
        format!("{} {name}", trimmed(ns / size))
    };
    let label = format!("Latency against the number of guests, from {}", group[0].1);
    let axis = Axis { label: &label, log: true, at_least: 0.0, words: &words };
    let drawn = || series.iter().filter(|s| s.lines.iter().any(|line| !line.is_empty()));
    html! {
        @if drawn().next().is_some() {
            figure {
                figcaption { b { (label) } ", all guests together, logarithmic" }
                ul.legend.parts { @for s in drawn() { li class=(s.colour) { span.swatch {} (s.name) } } }
                (lines(&series, &across, &axis, HALF, 200.0))
            }
        }
    }
}
