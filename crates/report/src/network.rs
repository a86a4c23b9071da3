//! Builds the tables of network workloads, for all outputs that contain tables.

use iotax_model::net::NetTest;
use iotax_model::units::human;
use iotax_model::{CellKey, Histogram, Workload};

use super::figure::{change_with, evenness, gigabits, grouped, share, tax};
use iotax_analysis::network::StreamTotals;
use iotax_analysis::percentile::percentile;
use iotax_analysis::{Comparison, Judgement, Metric, Network, Summary};
use iotax_model::Run;

/// A table of a network workload. Columns that are unknown in every row are left out.
#[derive(Debug)]
pub(super) struct Table<'a> {
    /// Column names except that of the first column, which holds the row names.
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Row<'a>>,
}

/// A row of a [`Table`].
#[derive(Debug)]
pub(super) struct Row<'a> {
    /// Target of the row, which determines its colour.
    pub(super) target: &'a str,
    pub(super) name: String,
    pub(super) figures: Vec<Option<String>>,
    /// Comparison with the baseline by the workload's headline metric; `None` for the baseline, and in additional rows of a target.
    pub(super) comparison: Option<&'a Comparison>,
}

impl<'a> Table<'a> {
    fn new(head: &[&str], rows: Vec<Row<'a>>) -> Option<Self> {
        let known = |at: usize| rows.iter().any(|row| row.figures[at].is_some());
        let keep: Vec<bool> = (0..head.len()).map(known).collect();
        let kept = |at: &usize| keep[*at];
        let rows: Vec<Row<'a>> = rows
            .into_iter()
            .map(|row| {
                let figures = (0..row.figures.len()).filter(kept).map(|at| row.figures[at].clone()).collect();
                Row { figures, ..row }
            })
            .collect();
        let head =
            head.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(name, _)| (*name).to_owned()).collect();
        (!rows.is_empty()).then_some(Self { head, rows })
    }
}

/// The data of one table row: a target's figures on a network workload.
struct Cell<'a> {
    workload: &'a Workload,
    summary: &'a Summary,
    network: Option<&'a Network>,
    comparison: Option<&'a Comparison>,
    is_baseline: bool,
}

/// A column: its name, and the function that formats a row's value; `None` if unknown.
type Column = (&'static str, fn(&Cell<'_>) -> Option<String>);

/// Columns for TCP and UDP streams.
const STREAMS: [Column; 9] = [
    ("Gbit/s", |cell| cell.summary.of(Metric::BYTES_PER_S).map(gigabits)),
    ("packets/s", |cell| {
        // For TCP, the kernel chooses the packet size.
        let is_udp = cell.workload.kind.traffic().is_some_and(|net| net.test == NetTest::Udp);
        cell.summary.of(Metric::IOPS).filter(|_| is_udp).map(human::count)
    }),
    ("vs baseline", |cell| against(cell, |c| Some(change_with(c.ratio.mean, c.ratio.interval)))),
    ("CPU/GiB", |cell| cell.summary.of(Metric::CPU_PER_GIB).map(human::time)),
    ("CPU/packet", |cell| cell.summary.of(Metric::CPU_PER_IO).map(human::time)),
    ("guest/GiB", |cell| cell.network?.guest_cpu_per_gib.map(human::time)),
    ("lost", |cell| worst_share(cell, StreamTotals::loss)),
    ("jitter", |cell| worst(cell, |totals| totals.jitter_ns).map(human::time)),
    ("retransmits", |cell| worst_share(cell, StreamTotals::retransmit_share)),
];

/// Columns for network round trips.
const TRIPS: [Column; 12] = [
    ("trips/s", |cell| cell.summary.of(Metric::IOPS).map(human::count)),
    ("min", |cell| cell.summary.latency.min().map(|ns| human::time(ns as f64))),
    ("mean", |cell| cell.summary.of(Metric::LATENCY_MEAN).map(human::time)),
    ("p50", |cell| cell.summary.of(Metric::LATENCY_P50).map(human::time)),
    ("p99", |cell| cell.summary.of(Metric::LATENCY_P99).map(human::time)),
    ("p99.9", |cell| cell.summary.of(Metric::LATENCY_P99_9).map(human::time)),
    ("max", |cell| cell.summary.latency.max().map(|ns| human::time(ns as f64))),
    ("mdev", |cell| {
        let exact = cell.network.and_then(|network| network.mdev_ns);
        exact.or_else(|| cell.summary.latency.stddev()).map(human::time)
    }),
    ("lost", |cell| {
        let probes = cell.network?.probes?;
        iotax_analysis::network::share(probes.sent.checked_sub(probes.received)?, probes.sent).map(share)
    }),
    ("tax on mean", |cell| against(cell, |c| c.ratio.tax.as_ref().map(tax))),
    ("CPU/trip", |cell| cell.summary.of(Metric::CPU_PER_IO).filter(|_| !is_loaded(cell)).map(human::time)),
    ("guest/trip", |cell| cell.network?.guest_cpu_per_io.filter(|_| !is_loaded(cell)).map(human::time)),
];

/// Columns that terminal tables leave out when they compare targets, to save width.
const WIDE: [&str; 7] = ["CPU/packet", "trips/s", "min", "mean", "p99.9", "mdev", "guest/trip"];

fn is_loaded(cell: &Cell<'_>) -> bool {
    cell.workload.kind.traffic().is_some_and(|net| net.loaded)
}

fn against(cell: &Cell<'_>, words: fn(&Comparison) -> Option<String>) -> Option<String> {
    if cell.is_baseline {
        cell.comparison.is_none().then(|| "baseline".into())
    } else {
        words(cell.comparison?)
    }
}

/// Returns the larger of a figure's values for upload and download; `None` if neither is known.
fn worst(cell: &Cell<'_>, figure: fn(&StreamTotals) -> Option<f64>) -> Option<f64> {
    cell.network?.directions.iter().filter_map(figure).reduce(f64::max)
}

fn worst_share(cell: &Cell<'_>, figure: fn(&StreamTotals) -> Option<f64>) -> Option<String> {
    worst(cell, figure).map(share)
}

/// Builds the table of throughput or round-trip times: a row per target, and a row of response times below it where they are known. `None`
/// for other workloads, or if no target was measured. `wide` keeps the columns that a comparison otherwise leaves out.
pub(super) fn figures<'a>(
    run: &'a Run,
    judgement: &'a Judgement,
    workload: &'a Workload,
    wide: bool,
) -> Option<Table<'a>> {
    let is_rtt = workload.kind.traffic()?.test.is_rtt();
    let compares = run.plan.targets.len() > 1;
    let columns: &[Column] = if is_rtt { &TRIPS } else { &STREAMS };
    let leading = Metric::leading(workload);
    let fits = |(name, _): &&Column| wide || !compares || !WIDE.contains(name);
    let columns: Vec<Column> = columns.iter().filter(fits).copied().collect();
    let mut rows = Vec::new();
    for target in &run.plan.targets {
        let Some(judged) = judgement.cell(CellKey { workload: &workload.name, target: &target.name }) else {
            continue;
        };
        let summary = &judged.summary;
        let comparison = judgement.comparison(judged.key(), leading);
        let cell = Cell {
            workload,
            summary,
            network: judged.network.as_ref(),
            comparison,
            is_baseline: compares && target.name == run.plan.baseline,
        };
        let values = columns.iter().map(|(_, of)| of(&cell)).collect();
        rows.push(Row { target: &target.name, name: target.name.clone(), figures: values, comparison });
        if let Some(response) = summary.tallies.response() {
            let values = columns.iter().map(|(name, _)| of_response(name, &response)).collect();
            let name = format!("{}, response", target.name);
            rows.push(Row { target: &target.name, name, figures: values, comparison: None });
        }
    }
    Table::new(&columns.iter().map(|(name, _)| *name).collect::<Vec<_>>(), rows)
}

/// Formats the latency column named `column` from response times, which start when each round trip was due. `None` for other columns, or
/// without a round trip.
fn of_response(column: &str, response: &Histogram) -> Option<String> {
    let ns = match column {
        "min" => response.min().map(|ns| ns as f64),
        "mean" => response.mean(),
        "p50" => percentile(response, 0.5),
        "p99" => percentile(response, 0.99),
        "p99.9" => percentile(response, 0.999),
        "max" => response.max().map(|ns| ns as f64),
        "mdev" => response.stddev(),
        _ => None,
    };
    ns.map(human::time)
}

/// Builds the table of uploads and downloads, with one row per target and direction; `None` for other workloads, without streams, or if it
/// would only repeat the totals.
pub(super) fn directions<'a>(
    run: &'a Run,
    judgement: &'a Judgement,
    workload: &'a Workload,
) -> Option<Table<'a>> {
    let net = workload.kind.traffic()?;
    let all = || judgement.on(&workload.name, |cell| cell.network.as_ref());
    let is_notable = |totals: &StreamTotals| {
        totals.streams > 1 || totals.out_of_order > Some(0) || totals.duplicates > Some(0)
    };
    let more =
        all().any(|(_, network)| network.directions.len() > 1 || network.directions.iter().any(is_notable));
    if run.plan.targets.len() > 1 && !more && !net.loaded {
        return None;
    }
    let head = [
        "streams",
        "Gbit/s",
        "packets",
        "lost",
        "reordered",
        "duplicates",
        "jitter",
        "retransmits",
        "TCP's RTT",
        "fairness",
    ];
    let row = |target: &'a str, totals: &'a StreamTotals| {
        let count = |count: Option<u64>| count.map(grouped);
        let figures = vec![
            Some(totals.streams.to_string()),
            totals.bytes_per_s.map(gigabits),
            count(totals.received),
            count(totals.lost),
            count(totals.out_of_order),
            count(totals.duplicates),
            totals.jitter_ns.map(human::time),
            count(totals.retransmits),
            totals.rtt_ns.map(|[_, mean, _]| human::time(mean)),
            totals.fairness.map(|fairness| evenness(Some(fairness))),
        ];
        let name = format!("{target}, {}{}", if net.loaded { "load " } else { "" }, totals.word());
        Row { target, name, figures, comparison: None }
    };
    let rows = all()
        .flat_map(|(target, network)| network.directions.iter().map(move |totals| row(target, totals)))
        .collect();
    Table::new(&head, rows)
}

/// Builds a table with the counters of each network interface on the path; `None` if none was recorded.
pub(super) fn hops<'a>(judgement: &'a Judgement, workload: &'a str) -> Option<Table<'a>> {
    let head = ["received", "packets", "each", "dropped", "sent", "packets", "each", "dropped"];
    let rows = judgement.on(workload, |cell| cell.network.as_ref()).flat_map(|(target, network)| {
        network.hops.iter().map(move |hop| {
            let a = hop.activity;
            let each = |bytes: u64, packets: u64| bytes.checked_div(packets).map(human::bytes);
            let mut figures = Vec::new();
            for (bytes, packets, drops) in
                [(a.rx_bytes, a.rx_packets, a.rx_drops), (a.tx_bytes, a.tx_packets, a.tx_drops)]
            {
                figures.extend([
                    Some(human::bytes(bytes)),
                    Some(human::count(packets as f64)),
                    each(bytes, packets),
                    Some(grouped(drops)),
                ]);
            }
            let facts: Vec<&str> = hop.position.as_deref().into_iter().chain(hop.driver.as_deref()).collect();
            let about = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
            let name = format!("{target}: {}{about}", hop.name);
            Row { target, name, figures, comparison: None }
        })
    });
    Table::new(&head, rows.collect())
}
