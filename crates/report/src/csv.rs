//! Tables for spreadsheets and scripts: one header line, units in the names, unknown values empty.

mod rates;

use std::collections::BTreeMap;

use iotax_model::record::{DiskActivity, HostActivity, Measurement, NicActivity, Tallies};

use crate::mark::{Mark, MarkPosition};
use crate::rows::{self, Value};
use iotax_analysis::Ratio;
use iotax_analysis::compare::{Account, History};
use iotax_analysis::network::word;
use iotax_analysis::percentile::percentile;
use iotax_analysis::stats::paired::Interval;
use iotax_analysis::time::utc;
use iotax_analysis::{Comparison, Judgement};
use iotax_model::Run;

/// A CSV file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sheet {
    /// Its name, such as `measurements.csv`.
    pub name: &'static str,
    /// Its first line, which marks a file as written by iotax.
    pub header: String,
    /// The whole text.
    pub text: String,
}

impl Sheet {
    /// The mark of this sheet: its whole first line, which no other sheet shares.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { format: self.name, place: MarkPosition::Start(format!("{}\n", self.header).into()) }
    }
}

/// One row per comparison with the baseline and per step of the ladder; only steps have a name.
const COMPARISONS: &[&str] = &[
    "run",
    "step",
    "workload",
    "metric",
    "target",
    "baseline",
    "ratio",
    "low",
    "high",
    "confidence",
    "low_95",
    "high_95",
    "sign_flip_p",
    "tax_ns",
    "tax_low_ns",
    "tax_high_ns",
    "verdict",
    "rounds",
    "needed_rounds",
    "withheld",
    "emulated",
];

/// One row per target and workload, over all rounds; the metrics follow these columns.
const CELLS: &[&str] = &["run", "target", "workload", "rounds", "latency_max_ns", "emulated", "source"];

/// The columns that identify a measurement.
const PLACE: &[&str] = &["run", "target", "workload", "round"];

/// The columns that identify an interval of a measurement.
const INTERVAL: &[&str] = &["run", "target", "workload", "round", "at_s", "duration_s"];

/// One row per interval of a measurement, after [`INTERVAL`].
const SAMPLES: &[&str] = &[
    "read_ios",
    "write_ios",
    "trim_ios",
    "sync_ios",
    "meta_ios",
    "bytes",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p99_ns",
    "oldest_ns",
];

/// One row per interval of a measurement and block layer below the target, after [`INTERVAL`].
const DISKS: &[&str] = &["device", "reads", "read_bytes", "writes", "write_bytes", "busy", "mean_wait_ns"];

/// One row per interval of a measurement and network interface, after [`INTERVAL`].
const NICS: &[&str] =
    &["interface", "rx_bytes", "rx_packets", "rx_drops", "tx_bytes", "tx_packets", "tx_drops"];

/// One row per stream of a measurement, after [`PLACE`].
const STREAMS: &[&str] = &[
    "stream",
    "direction",
    "sent_bytes",
    "received_bytes",
    "sent_packets",
    "received_packets",
    "lost",
    "out_of_order",
    "duplicates",
    "jitter_ns",
    "retransmits",
    "rtt_min_ns",
    "rtt_mean_ns",
    "rtt_max_ns",
];

/// One row per cell, metric and run. The mean is in the metric's unit: I/Os or bytes per second, else nanoseconds.
const HISTORY: &[&str] = &[
    "target",
    "workload",
    "metric",
    "run",
    "started_at",
    "emulated",
    "rounds",
    "mean",
    "low_95",
    "high_95",
    "against_first_ratio",
    "against_first_low",
    "against_first_high",
    "against_first_verdict",
    "against_previous_ratio",
    "against_previous_low",
    "against_previous_high",
    "against_previous_verdict",
];

/// All sheets of these runs; a sheet without rows is only its header.
#[must_use]
pub fn sheets(runs: &[(Run, Judgement)]) -> Vec<Sheet> {
    let each = |rows: fn(&Run, &Judgement) -> Vec<Row>| {
        runs.iter().flat_map(move |(run, judgement)| rows(run, judgement)).collect::<Vec<_>>()
    };
    let figures = rows::figures(runs);
    let cells_head =
        CELLS.iter().map(|name| (*name).to_owned()).chain(figures.iter().map(|figure| figure.id_with_unit()));
    vec![
        sheet(
            "measurements.csv",
            rows::columns(figures).into_iter().map(|(name, _)| name),
            each(measurements),
        ),
        sheet("comparisons.csv", COMPARISONS.iter().copied(), each(comparisons)),
        sheet("cells.csv", cells_head, each(cells)),
        sheet("samples.csv", INTERVAL.iter().chain(SAMPLES).copied(), each(|run, _| samples(run))),
        sheet("disks.csv", INTERVAL.iter().chain(DISKS).copied(), each(|run, _| disks(run))),
        sheet("nics.csv", INTERVAL.iter().chain(NICS).copied(), each(|run, _| nics(run))),
        sheet("streams.csv", PLACE.iter().chain(STREAMS).copied(), each(|run, _| streams(run))),
        sheet("curves.csv", rates::CURVES.iter().copied(), each(|run, _| rates::curves(run))),
        sheet("answers.csv", rates::ANSWERS.iter().copied(), each(|run, _| rates::answers(run))),
    ]
}

/// Every cell over several runs.
#[must_use]
pub fn history(accounts: &[Account], history: &History) -> Sheet {
    let rows = history.tracks.iter().flat_map(|track| {
        track.points.iter().map(|point| {
            let account = &accounts[point.run];
            let mut row = vec![
                track.target.clone(),
                track.workload.clone(),
                track.metric.word().to_owned(),
                account.id.to_string(),
                account.started_at.clone(),
                point.emulated.to_string(),
                point.rounds.to_string(),
                point.mean.to_string(),
                low(point.band),
                high(point.band),
            ];
            row.extend(change(point.since_first.as_ref()));
            row.extend(change(point.since_previous.as_ref()));
            row
        })
    });
    sheet("history.csv", HISTORY.iter().copied(), rows)
}

type Row = Vec<String>;

/// Fields with a comma or a quote are quoted (RFC 4180).
fn sheet(
    name: &'static str,
    header: impl IntoIterator<Item = impl Into<String>>,
    rows: impl IntoIterator<Item = Row>,
) -> Sheet {
    let header: Row = header.into_iter().map(Into::into).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    let written = writer
        .write_record(&header)
        .and_then(|()| rows.into_iter().try_for_each(|row| writer.write_record(row)))
        .map_err(|error| error.to_string())
        .and_then(|()| writer.into_inner().map_err(|error| error.to_string()));
    let text = written.expect("memory takes everything, and every row has a field for each name");
    Sheet { name, header: header.join(","), text: String::from_utf8(text).expect("made of strings") }
}

/// The value, or nothing if it is unknown.
fn known(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn seconds(ns: u64) -> String {
    (ns as f64 / 1e9).to_string()
}

fn low(interval: Option<Interval>) -> String {
    known(interval.map(|i| i.low))
}

fn high(interval: Option<Interval>) -> String {
    known(interval.map(|i| i.high))
}

/// I/Os by direction, in the order of [`Tallies::WORDS`].
fn by_direction(tallies: &Tallies) -> impl Iterator<Item = String> {
    tallies.each().map(|(_, tally)| known(tally.map(|tally| tally.ios)))
}

fn place(run: &Run, m: &Measurement) -> Row {
    vec![run.id.to_string(), m.target.clone(), m.workload.clone(), m.round.to_string()]
}

/// `true` if the target's CPU was emulated; empty if the target was never built.
fn emulated(run: &Run, target: &str) -> String {
    known(rows::emulated(run, target))
}

fn measurements(run: &Run, judgement: &Judgement) -> Vec<Row> {
    let text = |value: Value| match value {
        Value::Unknown => String::new(),
        Value::Text(text) => text,
        Value::Whole(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::Flag(value) => value.to_string(),
        Value::Instant(ms) => utc(ms),
    };
    rows::measurements(run, judgement).into_iter().map(|row| row.into_iter().map(text).collect()).collect()
}

fn comparisons(run: &Run, judgement: &Judgement) -> Vec<Row> {
    let row = |step: String, c: &Comparison| {
        let tax = c.ratio.tax.and_then(|tax| tax.interval);
        vec![
            run.id.to_string(),
            step,
            c.workload.clone(),
            c.metric.word().to_owned(),
            c.target.clone(),
            c.baseline.clone(),
            c.ratio.mean.to_string(),
            low(c.ratio.interval),
            high(c.ratio.interval),
            known(c.ratio.confidence),
            low(c.ratio.interval_95),
            high(c.ratio.interval_95),
            known(c.ratio.sign_flip_p),
            known(c.ratio.tax.map(|tax| tax.ns)),
            low(tax),
            high(tax),
            c.ratio.verdict.word().to_owned(),
            c.rounds.to_string(),
            known(c.ratio.needed_rounds),
            known(c.ratio.withheld.as_ref()),
            emulated(run, &c.target),
        ]
    };
    let steps = judgement.steps.iter().map(|c| row(known(judgement.edge(c).map(|edge| &edge.name)), c));
    judgement.comparisons.iter().map(|c| row(String::new(), c)).chain(steps).collect()
}

fn cells(run: &Run, judgement: &Judgement) -> Vec<Row> {
    let row = |cell: &iotax_analysis::CellJudgement| {
        let s = &cell.summary;
        let mut row = vec![
            run.id.to_string(),
            cell.target.clone(),
            cell.workload.clone(),
            s.rounds.to_string(),
            known(s.latency.max()),
            emulated(run, &cell.target),
            known(run.source.as_ref().map(ToString::to_string)),
        ];
        row.extend(judgement.figures.iter().map(|figure| known(s.of(*figure))));
        row
    };
    judgement.cells.iter().map(row).collect()
}

fn samples(run: &Run) -> Vec<Row> {
    let of = |m: &Measurement| {
        let place = place(run, m);
        let rows = m.samples.iter().map(move |sample| {
            let latency = sample.tallies.latency();
            let mut row = place.clone();
            row.extend([seconds(sample.at_ns), seconds(sample.duration_ns)]);
            row.extend(by_direction(&sample.tallies));
            row.push(sample.tallies.bytes().to_string());
            row.extend([known(latency.mean()), known(percentile(&latency, 0.5))]);
            row.extend([known(percentile(&latency, 0.99)), known(sample.oldest_ns)]);
            row
        });
        rows.collect::<Vec<_>>()
    };
    run.measurements.iter().flat_map(of).collect()
}

/// A row for each of the machine's parts (disks, NICs) in each interval: its name and its counters.
fn of_machine<T>(
    run: &Run,
    parts: fn(&HostActivity) -> &BTreeMap<String, T>,
    figures: impl Fn(&T) -> Vec<String>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for m in &run.measurements {
        for activity in &m.host_samples {
            for (name, part) in parts(activity) {
                let mut row = place(run, m);
                row.extend([seconds(activity.at_ns), seconds(activity.duration_ns), name.clone()]);
                row.extend(figures(part));
                rows.push(row);
            }
        }
    }
    rows
}

fn disks(run: &Run) -> Vec<Row> {
    let figures = |disk: &DiskActivity| {
        let counts = [disk.reads, disk.read_bytes, disk.writes, disk.write_bytes];
        let rest = [disk.busy.to_string(), known(disk.mean_wait_ns)];
        counts.map(|n| n.to_string()).into_iter().chain(rest).collect()
    };
    of_machine(run, |activity| &activity.disks, figures)
}

fn nics(run: &Run) -> Vec<Row> {
    let figures = |nic: &NicActivity| {
        let counts = [nic.rx_bytes, nic.rx_packets, nic.rx_drops, nic.tx_bytes, nic.tx_packets, nic.tx_drops];
        counts.map(|n| n.to_string()).to_vec()
    };
    of_machine(run, |activity| &activity.nics, figures)
}

fn streams(run: &Run) -> Vec<Row> {
    let mut rows = Vec::new();
    for m in &run.measurements {
        let flows = m.outcome.carried.iter().flat_map(|carried| &carried.flows);
        for (number, flow) in (1_u32..).zip(flows) {
            let mut row = place(run, m);
            row.extend([number.to_string(), word(flow.upload).to_owned()]);
            let counts = [
                flow.sent_bytes,
                flow.received_bytes,
                flow.sent_packets,
                flow.received_packets,
                flow.lost,
                flow.out_of_order,
                flow.duplicates,
                flow.jitter_ns,
                flow.retransmits,
            ];
            row.extend(counts.map(known));
            row.extend([0, 1, 2].map(|at| known(flow.rtt_ns.map(|rtt| rtt[at]))));
            rows.push(row);
        }
    }
    rows
}

fn change(change: Option<&Ratio>) -> [String; 4] {
    let Some(change) = change else { return Default::default() };
    [change.mean.to_string(), low(change.interval), high(change.interval), change.word().to_owned()]
}
