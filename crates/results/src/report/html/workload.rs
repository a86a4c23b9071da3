//! One workload: its table and its charts.

use iotax_model::Workload;
use iotax_model::record::{HostActivity, Measurement, Sample};
use iotax_model::units::human;
use maud::{Markup, html};

use super::axis::{HALF, WHOLE, trimmed, unit};
use super::chart::{Across, Axis, Bar, Series, bars, linear_ticks, lines};
use super::{colour, guests, is_emulated, layers, within};
use crate::judge::figures::{bottom_disks, percentile};
use crate::judge::{Comparison, Judgement, Metric, Summary, Tax};
use crate::report::figure::{UNKNOWN, counted, megabytes, or_unknown, tax, title};
use crate::report::words::margin;
use crate::stats::verdict::Verdict;
use crate::store::Run;

/// With more points, a chart's points have no tooltips: they would be most of the file.
const MOST_MARKS: usize = 600;

/// The section; nothing if the workload was not measured.
pub(super) fn section(run: &Run, judgement: &Judgement, workload: &Workload) -> Markup {
    let summaries: Vec<&Summary> = run
        .plan
        .targets
        .iter()
        .filter_map(|target| judgement.summary(&workload.name, &target.name))
        .collect();
    html! {
        @if !summaries.is_empty() {
            section {
                h2 { (title(workload)) small { (workload.name) } }
                div.wide { (table(run, judgement, &summaries)) }
                (layers::steps(judgement, &workload.name))
                div.pair {
                    @if judgement.edges.is_empty() {
                        (tax_bars(run, judgement, workload))
                    } @else {
                        (layers::ladder(run, judgement, &workload.name))
                    }
                    (percentiles(run, &summaries))
                }
                (guests::several(run, judgement, &workload.name))
                (within::within(judgement, &workload.name))
                (timeline(run, workload))
            }
        }
    }
}

fn table(run: &Run, judgement: &Judgement, summaries: &[&Summary]) -> Markup {
    let compares = run.plan.targets.len() > 1;
    html! {
        table {
            thead {
                tr {
                    th { "target" } th { "IOPS" } th { "MB/s" } th { "mean" } th { "p50" } th { "p99" } th { "p99.9" }
                    @if !compares { th { "max" } }
                    @if compares { th { "tax on mean latency" } }
                    th { "host CPU" br; "per I/O" }
                    @if compares { th.verdict { "verdict" } }
                }
            }
            tbody { @for summary in summaries { (row(run, judgement, summary, compares)) } }
        }
    }
}

fn row(run: &Run, judgement: &Judgement, s: &Summary, compares: bool) -> Markup {
    let comparison = judgement.comparison(&s.workload, &s.target, Metric::LatencyMean);
    let time = |value: Option<f64>| or_unknown(value, human::time);
    html! {
        tr {
            td class=(colour(run, &s.target)) { span.swatch {} (s.target) }
            td { (or_unknown(s.iops, human::count)) }
            td { (or_unknown(s.bytes_per_s, megabytes)) }
            td { (time(s.latency.mean())) }
            td { (time(s.percentile(0.5))) }
            td { (time(s.percentile(0.99))) }
            td { (time(s.percentile(0.999))) }
            @if !compares { td { (time(s.latency.max().map(|max| max as f64))) } }
            @if compares { td { (cost(run, s, comparison)) } }
            td { (time(s.host_cpu_per_io)) }
            @if compares {
                td.verdict {
                    @if let Some(comparison) = comparison { (verdict(comparison)) }
                    @if is_emulated(run, &s.target) { span.tag { "emulated" } }
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

fn cost(run: &Run, s: &Summary, comparison: Option<&Comparison>) -> Markup {
    html! {
        @match comparison.and_then(|c| c.tax.as_ref()) {
            _ if s.target == run.plan.baseline => "baseline",
            None => (UNKNOWN),
            Some(cost) => (tax_in_words(cost)),
        }
    }
}

/// With its interval set apart.
pub(super) fn tax_in_words(cost: &Tax) -> Markup {
    let words = tax(cost);
    html! {
        @match words.split_once(" [") {
            Some((estimate, range)) => { (estimate) " " span.range { "[" (range) } },
            None => (words),
        }
    }
}

pub(super) fn verdict(c: &Comparison) -> Markup {
    let more = c.needed_blocks.map(|needed| needed.saturating_sub(c.blocks));
    html! {
        b class=(c.verdict.word()) title=[c.withheld.as_deref()] { (c.word()) }
        @match (c.verdict, more) {
            (Verdict::Same, _) => span.range { " (" (margin()) ")" },
            (Verdict::Undecided, Some(more)) => span.range { " (about " (counted(more, "more block")) ")" },
            _ => {},
        }
    }
}

fn tax_bars(run: &Run, judgement: &Judgement, workload: &Workload) -> Markup {
    let found: Vec<Bar> = run
        .plan
        .targets
        .iter()
        .filter_map(|target| {
            let comparison = judgement.comparison(&workload.name, &target.name, Metric::LatencyMean)?;
            let cost = comparison.tax.as_ref()?;
            Some(Bar {
                name: target.name.clone(),
                colour: colour(run, &target.name),
                value: cost.ns,
                ends: cost.interval.map(|i| (i.low, i.high)),
                words: format!("{}, {}", tax(cost), comparison.word()),
            })
        })
        .collect();
    let most = found.iter().map(|bar| bar.value.abs()).fold(0.0, f64::max);
    let (size, name) = unit(most);
    let label = format!("Tax on mean latency over {}", run.plan.baseline);
    html! {
        @if !found.is_empty() {
            figure {
                figcaption { b { (label) } ", " (name) " per I/O, with intervals" @if found.iter().any(|bar| bar.ends.is_none()) { "; a bar without one has none that says anything" } }
                (bars(&found, &label, &|value| trimmed(value / size), HALF))
            }
        }
    }
}

fn percentiles(run: &Run, summaries: &[&Summary]) -> Markup {
    const SHOWN: [(f64, &str); 6] =
        [(0.5, "p50"), (0.9, "p90"), (0.95, "p95"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99")];
    let series: Vec<Series> = summaries
        .iter()
        .map(|s| {
            let points = SHOWN.iter().enumerate().filter_map(|(i, (q, name))| {
                let ns = s.percentile(*q).filter(|ns| *ns > 0.0)?;
                Some((i as f64 + 0.5, ns, format!("{name} {}", human::time(ns))))
            });
            Series { name: s.target.clone(), colour: colour(run, &s.target), lines: vec![points.collect()] }
        })
        .collect();
    let ticks = SHOWN.iter().enumerate().map(|(i, (_, name))| (i as f64 + 0.5, (*name).to_owned())).collect();
    let across = Across { end: SHOWN.len() as f64, ticks, notches: vec![], marks: true };
    let words = |ns: f64| {
        let (size, name) = unit(ns);
        format!("{} {name}", trimmed(ns / size))
    };
    let axis = Axis { label: "Latency by percentile", log: true, at_least: 0.0, words: &words };
    html! {
        figure {
            figcaption { b { "Latency by percentile" } ", all blocks together, logarithmic" }
            (lines(&series, &across, &axis, HALF, 220.0))
        }
    }
}

/// Where each block's seconds lie on the common axis.
struct Clock {
    blocks: Vec<u32>,
    /// From one block's start to the next, in seconds.
    pitch: f64,
}

impl Clock {
    fn of(measurements: &[&Measurement]) -> Self {
        let mut blocks: Vec<u32> = measurements.iter().map(|m| m.block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let longest = measurements
            .iter()
            .flat_map(|m| m.samples.iter().map(|s| s.at_ns).chain(m.host_samples.iter().map(|h| h.at_ns)))
            .max()
            .unwrap_or(1);
        Self { blocks, pitch: longest.max(1) as f64 / 1e9 * 1.05 }
    }

    /// The middle of an interval.
    fn at(&self, block: u32, end_ns: u64, length_ns: u64) -> f64 {
        let index = self.blocks.iter().position(|b| *b == block).unwrap_or_default();
        index as f64 * self.pitch + (end_ns as f64 - length_ns as f64 / 2.0) / 1e9
    }

    fn across(&self) -> Across {
        let places = || self.blocks.iter().enumerate().map(|(i, block)| (i as f64 * self.pitch, block));
        let (ticks, notches) = if self.blocks.len() == 1 {
            let seconds = linear_ticks(0.0, self.pitch, 8.0).2.into_iter().filter(|s| *s <= self.pitch);
            (seconds.map(|s| (s, format!("{} s", trimmed(s)))).collect(), vec![])
        } else {
            // Few enough to read.
            let step = self.blocks.len().div_ceil(12);
            let shown =
                places().step_by(step).map(|(x, block)| (x + self.pitch / 2.1, format!("block {block}")));
            (shown.collect(), places().skip(1).map(|(x, _)| x - self.pitch * 0.024).collect())
        };
        Across { end: self.pitch * self.blocks.len() as f64, ticks, notches, marks: false }
    }
}

/// A figure of one interval of a measurement: the interval's end and length, and the figure.
type Point = (u64, u64, f64);

fn timeline(run: &Run, workload: &Workload) -> Markup {
    let measurements: Vec<&Measurement> =
        run.measurements.iter().filter(|m| m.workload == workload.name).collect();
    let clock = Clock::of(&measurements);
    let chart = |axis: &Axis<'_>, caption: &str, height: f64, points: &dyn Fn(&Measurement) -> Vec<Point>| {
        let series: Vec<Series> = run
            .plan
            .targets
            .iter()
            .map(|target| Series {
                name: target.name.clone(),
                colour: colour(run, &target.name),
                lines: measurements
                    .iter()
                    .filter(|m| m.target == target.name)
                    .map(|m| {
                        let place = |(end, length, value): Point| {
                            (
                                clock.at(m.block, end, length),
                                value,
                                format!("block {}, {}", m.block, (axis.words)(value)),
                            )
                        };
                        points(m).into_iter().map(place).collect()
                    })
                    .collect(),
            })
            .collect();
        let count: usize = series.iter().flat_map(|s| &s.lines).map(Vec::len).sum();
        html! {
            @if count > 0 {
                figure {
                    figcaption { b { (axis.label) } (caption) }
                    (lines(&thinned(series, count), &clock.across(), axis, WHOLE, height))
                }
            }
        }
    };
    let axis = |label, at_least, words| Axis { label, log: false, at_least, words };
    let percent = |v: f64| format!("{v:.0}%");
    let rate = |v: f64| human::rate(v);
    let cpus = |v: f64| trimmed(v);
    html! {
        (chart(&axis("I/Os per second", 0.0, &human::count), ", interval by interval", 170.0, &|m| {
            m.samples.iter().filter_map(sample_point).collect()
        }))
        (chart(&axis("Device busy", 100.0, &percent), ", share of the interval", 96.0, &|m| activity(m, &|h| {
            bottom_disks(run, &m.target, h).map(|(_, disk)| disk.busy * 100.0).reduce(f64::max)
        })))
        (chart(&axis("Device throughput", 0.0, &rate), ", reads and writes", 96.0, &|m| activity(m, &|h| {
            let moved = bottom_disks(run, &m.target, h).map(|(_, disk)| disk.read_bytes + disk.write_bytes);
            moved.reduce(|a, b| a + b).map(|bytes| bytes as f64 / (h.duration_ns as f64 / 1e9))
        })))
        (chart(&axis("Host CPUs busy", 1.0, &cpus), ", all programs and guests", 96.0, &|m| activity(m, &|h| {
            Some(h.cpu?.busy_ns() as f64 / h.duration_ns as f64)
        })))
    }
}

/// Points that are drawn only as lines have no words.
fn thinned(mut series: Vec<Series>, count: usize) -> Vec<Series> {
    if count > MOST_MARKS {
        series.iter_mut().flat_map(|s| &mut s.lines).flatten().for_each(|point| point.2.clear());
    }
    series
}

fn sample_point(sample: &Sample) -> Option<Point> {
    let ios: u64 = sample.tallies.ios();
    let seconds = sample.duration_ns as f64 / 1e9;
    (seconds > 0.0).then(|| (sample.at_ns, sample.duration_ns, ios as f64 / seconds))
}

fn activity(m: &Measurement, figure: &dyn Fn(&HostActivity) -> Option<f64>) -> Vec<Point> {
    m.host_samples
        .iter()
        .filter(|h| h.duration_ns > 0)
        .filter_map(|h| Some((h.at_ns, h.duration_ns, figure(h)?)))
        .collect()
}
