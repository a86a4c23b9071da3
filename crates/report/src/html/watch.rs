//! Shows the cost of events: the load over time, with events and marks as lines and gaps shaded.

use maud::{Markup, html};

use super::COLOURS;
use super::chart::{Axis, Cell, Chart, ChartId, Panel, Plot, Unit};
use crate::figure::{UNKNOWN, change_with};
use crate::watch::{
    LEGEND, PRICES, SIDE_BY_SIDE, SIGHTS, failures, first_writes, from_to, gap_from_to, heading,
    heading_of_all, is_repeated, is_side_by_side, longest_gap, price_comparison, recovery, recovery_of_price,
    sentences, side_by_side, sights, summary, timeouts, verdict, verdicts_of_all,
};
use iotax_analysis::watch::{
    Episode, FigureChange, Price, PriceComparison, episodes, price_comparisons, prices,
};
use iotax_model::Run;
use iotax_model::record::{Sample, Tally};
use iotax_model::units::human;

/// Builds a section per measured window, after a summary if the watch is repeated or its targets ran side by side; empty for a run that is
/// not a watch.
pub(super) fn sections(run: &Run) -> Markup {
    let Some(watch) = run.plan.watch() else { return html! {} };
    let all = episodes(run);
    let prices = prices(run, &all);
    let compared = price_comparisons(run, &all);
    html! {
        @if is_repeated(run) {
            section id="v0" {
                h2 { "What each event costs" }
                @if !prices.is_empty() { (price_table(&prices)) }
                @for table in price_comparison::tables(&compared) { (comparison_table(run, table)) }
                @for line in summary(run, watch, &all) { p { (line) } }
            }
        }
        @if is_side_by_side(run) && !all.is_empty() {
            section id="v0" {
                h2 { (heading_of_all(run)) }
                div.wide tabindex="0" role="region" aria-label="All targets" {
                    table {
                        thead { tr { @for name in SIDE_BY_SIDE { th scope="col" { (name) } } } }
                        tbody { @for row in side_by_side(run, &all) { tr { @for text in &row { td { (text) } } } } }
                    }
                }
                @for line in verdicts_of_all(watch, &all) { p { (line) } }
            }
        }
        @for (number, episode) in (1..).zip(in_plan(run, &all)) {
            section id=(format!("v{number}")) {
                h2 { (heading(run, episode)) }
                @for sentence in sentences(run, watch, episode) { p { (sentence) } }
                @if !episode.verdicts.is_empty() {
                    ul { @for judged in &episode.verdicts { li { (verdict(judged)) } } }
                }
                (events(episode))
                (of_timeouts(episode))
                (chart(run, episode).figure(ChartId { run: run.id, workload: &format!("{}-watch", episode.measurement.target), number }))
                (layers(episode))
                (observations(episode))
            }
        }
    }
}

/// Sorts the measured windows by round and by the plan's order of targets, if the targets ran at the same time; else keeps the run's order.
fn in_plan<'a, 'b>(run: &Run, all: &'b [Episode<'a>]) -> Vec<&'b Episode<'a>> {
    let index_of = |name: &str| run.plan.targets.iter().position(|target| target.name == name);
    let mut all: Vec<&Episode<'_>> = all.iter().collect();
    if run.plan.is_together() {
        all.sort_by_key(|episode| (episode.measurement.round, index_of(&episode.measurement.target)));
    }
    all
}

fn price_table(prices: &[Price<'_>]) -> Markup {
    let percent = |change: Option<&FigureChange>| {
        change
            .map(|change| format!(" ({})", change_with(change.ratio(), change.interval)))
            .unwrap_or_default()
    };
    html! {
        div.wide tabindex="0" role="region" aria-label="What each event costs" {
            table {
                thead { tr { @for name in ["event", "target", "took", "longest gap", "mean", "p99", "normal after"] { th scope="col" { (name) } } } }
                tbody {
                    @for price in prices {
                        tr {
                            td { (price.event) }
                            td { (price.target) }
                            td { (price.took_ns.map(human::time).unwrap_or_default()) }
                            td { @if let Some((without, with)) = price.gap_ns { (gap_from_to(without, with)) } @else { (UNKNOWN) } }
                            @for change in [&price.mean, &price.p99] {
                                td { (from_to(change.as_ref(), human::time)) (percent(change.as_ref())) }
                            }
                            td { (price.recovery_ns.map_or_else(|| UNKNOWN.into(), recovery_of_price)) }
                        }
                    }
                }
            }
        }
        @for line in prices.iter().filter_map(first_writes) { p { (line) } }
        p.note { (PRICES) }
    }
}

/// Builds a table that compares each event's cost on each target with its cost on the baseline, or with that of an alternative.
fn comparison_table(run: &Run, compared: &[PriceComparison<'_>]) -> Markup {
    let heading = price_comparison::heading(run, compared);
    html! {
        h3 { (heading) }
        div.wide tabindex="0" role="region" aria-label=(heading) {
            table {
                thead { tr {
                    th scope="col" { "event" }
                    th scope="col" { "target" }
                    @for figure in price_comparison::figures(compared) { th scope="col" { (price_comparison::column(figure)) } }
                } }
                tbody {
                    @for row in price_comparison::rows(compared) {
                        tr {
                            td { (row.event) }
                            td { (row.target) }
                            @for one in &row.cells { td { (price_comparison::cell(*one, true)) } }
                        }
                    }
                }
            }
        }
        @for line in price_comparison::notes(run, compared) { p.note { (line) } }
    }
}

/// Builds a table of the longest gap as observed at each layer: the load and each watched block device.
fn layers(episode: &Episode<'_>) -> Markup {
    let rows = sights(episode);
    html! {
        @if !rows.is_empty() {
            table {
                thead { tr { @for name in SIGHTS { th scope="col" { (name) } } } }
                tbody { @for row in &rows { tr { @for text in row { td { (text) } } } } }
            }
        }
    }
}

fn events(episode: &Episode<'_>) -> Markup {
    let time = |ns: Option<u64>| ns.map_or_else(String::new, |ns| human::time(ns as f64));
    html! {
        @if !episode.effects.is_empty() {
            div.wide tabindex="0" role="region" aria-label="Events" {
                table {
                    thead { tr { @for name in ["event", "at", "took", "failed", "longest gap", "normal after"] { th scope="col" { (name) } } } }
                    tbody {
                        @for effect in &episode.effects {
                            tr {
                                td { (effect.name) }
                                td { (time(Some(effect.at_ns))) }
                                td { @if effect.is_mark { "mark" } @else if effect.duration_ns.is_none() { "not begun" } @else { (time(effect.duration_ns)) } }
                                td { (effect.failed) }
                                td { (longest_gap(effect).unwrap_or_default()) }
                                td { (recovery(effect)) }
                            }
                        }
                    }
                }
            }
            p.note { (LEGEND) }
            @for line in failures(episode) { p { (line) } }
        }
    }
}

fn of_timeouts(episode: &Episode<'_>) -> Markup {
    html! {
        @if let Some(line) = timeouts::line(episode) {
            p { (line) }
            details {
                summary { "Timeouts" }
                div.wide tabindex="0" role="region" aria-label="Timeouts" {
                    table {
                        thead { tr { @for name in timeouts::COLUMNS.iter().chain(&["then", "source"]) { th scope="col" { (name) } } } }
                        tbody {
                            @for one in &episode.timeouts {
                                tr { @for text in timeouts::row(one) { td { (text) } } td { (one.then) } td { (one.source) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn observations(episode: &Episode<'_>) -> Markup {
    html! {
        @if episode.observations().next().is_some() {
            details {
                summary { "What was seen" }
                table {
                    tbody {
                        @for one in episode.observations() {
                            tr { td { (human::time(one.at_ns as f64)) } td { (one.source) } td { (one.text) } }
                        }
                    }
                }
            }
        }
    }
}

const OLDEST: &str = "oldest in flight";

fn chart(run: &Run, episode: &Episode<'_>) -> Chart {
    let m = episode.measurement;
    let (reads, ios) = if episode.is_network() { ("round trips", "Round trips") } else { ("reads", "I/Os") };
    let rows: Vec<Vec<Cell>> =
        m.whole_samples().flat_map(|sample| of_sample(reads, sample, episode.host_span(sample))).collect();
    let names = [reads, "writes", OLDEST];
    let has = |name: &&str| rows.iter().any(|row| row.first() == Some(&Cell::from(*name)));
    let colours = (0..).zip(names).filter(|(_, name)| has(name));
    let axis = |label: &str, unit: Unit, log: bool| Axis { label: label.into(), unit, log, at_least: 0.0 };
    let panel = |column: usize, axis: Axis, height: u32| Panel { column, axis, height, ends: None };
    let seconds = |ns: u64| ns as f64 / 1e9;
    Chart {
        key: "watch".into(),
        title: "The load over time".into(),
        note: "events and marks as lines, times without a completed I/O shaded".into(),
        message: heading(run, episode),
        columns: ["of", "at_s", "ios_per_s", "response_us", "oldest_s"].map(Into::into).into(),
        colours: colours
            .map(|(at, name): (usize, &str)| (name.into(), format!("t{}", at % COLOURS)))
            .collect(),
        rows,
        plot: Plot::Course {
            series: 0,
            x: 1,
            across: axis("seconds", Unit::Count, false),
            panels: vec![
                panel(2, axis(&format!("{ios} per second"), Unit::Count, false), 120),
                panel(3, axis("Mean response time", Unit::Time, true), 140),
                panel(4, axis("Age of the oldest I/O in flight, seconds", Unit::Count, false), 100),
            ],
            events: episode
                .effects
                .iter()
                .map(|effect| (seconds(effect.at_ns), effect.name.into()))
                .collect(),
            shaded: episode
                .gaps
                .iter()
                .flatten()
                .map(|gap| (seconds(gap.at_ns), seconds(gap.end_ns())))
                .collect(),
        },
    }
}

/// Returns the rows of one interval: reads, writes, and the oldest I/O in flight.
fn of_sample(reads: &str, sample: &Sample, (begin_ns, end_ns): (u64, u64)) -> Vec<Vec<Cell>> {
    let at = Cell::from(end_ns as f64 / 1e9);
    let of = |name: &str, tally: Option<&Tally>| -> Option<Vec<Cell>> {
        let tally = tally?;
        let rate = tally.ios as f64 * 1e9 / (end_ns - begin_ns).max(1) as f64;
        let mean = tally.response.as_ref().and_then(iotax_model::Histogram::mean).map(|ns| ns / 1e3);
        Some(vec![name.into(), at.clone(), rate.into(), mean.into(), Cell::Unknown])
    };
    let oldest = sample.oldest_ns.unwrap_or_default() as f64 / 1e9;
    let oldest = vec![OLDEST.into(), at.clone(), Cell::Unknown, Cell::Unknown, oldest.into()];
    let tallies = &sample.tallies;
    [of(reads, tallies.read.as_ref()), of("writes", tallies.write.as_ref()), Some(oldest)]
        .into_iter()
        .flatten()
        .collect()
}
