//! Runs as a data set: one file for each run and table, in Hive's directories by month, so that DuckDB and pandas read any number of runs
//! as one table.

use iotax_analysis::Judgement;
use iotax_analysis::percentile::percentile;
use iotax_analysis::time::utc;
use iotax_model::record::{Environment, Measurement, Tally};
use iotax_model::{Histogram, Run};
use iotax_report::mark::{Mark, MarkPosition};
use iotax_report::rows::{self, Kind, Value};

use super::written;

/// A table of the data set.
struct Table {
    /// Its directory.
    name: &'static str,
    /// The author that its files name.
    author: &'static str,
    columns: fn(&Judgement) -> Vec<(String, Kind)>,
    rows: fn(&Run, &Judgement, &[String]) -> Vec<Vec<Value>>,
}

/// A file of the data set.
#[derive(Debug, Clone)]
pub struct DatasetFile {
    /// Its directory and name below that of the data set: `runs/year=2026/month=11/run-17-20261120T120000Z-1188f.parquet`.
    pub path: String,
    /// Marks it as written by iotax.
    pub mark: Mark,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// The names of the tables.
pub fn table_names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|table| table.name)
}

const TABLES: [Table; 6] = [
    Table { name: "runs", author: "iotax, a row for each run", columns: |_| named(RUNS), rows: runs },
    Table {
        name: "environment",
        author: "iotax, a row for each fact of a machine",
        columns: |_| named(ENVIRONMENT),
        rows: |run, _, _| environment(run),
    },
    Table {
        name: "targets",
        author: "iotax, a row for each target",
        columns: |_| named(TARGETS),
        rows: |run, _, _| targets(run),
    },
    Table {
        name: "measurements",
        author: super::AUTHOR,
        columns: |judgement| rows::columns(&judgement.figures),
        rows: |run, judgement, _| rows::measurements(run, judgement),
    },
    Table {
        name: "samples",
        author: "iotax, a row for each interval and direction",
        columns: |_| named(SAMPLES),
        rows: |run, _, _| of_measurements(run, samples),
    },
    Table {
        name: "histograms",
        author: "iotax, a row for each bucket of a histogram",
        columns: |_| named(HISTOGRAMS),
        rows: |run, _, _| of_measurements(run, histograms),
    },
];

const RUNS: &[(&str, Kind)] = &[
    ("run", Kind::Whole),
    ("name", Kind::Text),
    ("state", Kind::Text),
    ("started_at", Kind::Instant),
    ("seed", Kind::Text),
    ("rounds", Kind::Whole),
    ("baseline", Kind::Text),
    ("control", Kind::Text),
    ("machine", Kind::Text),
    ("user", Kind::Text),
    ("tags", Kind::Text),
    ("source", Kind::Text),
];

const ENVIRONMENT: &[(&str, Kind)] = &[("run", Kind::Whole), ("fact", Kind::Text), ("value", Kind::Text)];

const TARGETS: &[(&str, Kind)] = &[
    ("run", Kind::Whole),
    ("target", Kind::Text),
    ("stack", Kind::Text),
    ("settings_json", Kind::Text),
    ("emulated", Kind::Flag),
    ("guest_kernel", Kind::Text),
    ("boot_s", Kind::Number),
    ("allocated_bytes", Kind::Whole),
    ("command_line", Kind::Text),
];

const SAMPLES: &[(&str, Kind)] = &[
    ("run", Kind::Whole),
    ("target", Kind::Text),
    ("workload", Kind::Text),
    ("round", Kind::Whole),
    ("at_s", Kind::Number),
    ("duration_s", Kind::Number),
    ("direction", Kind::Text),
    ("ios", Kind::Whole),
    ("bytes", Kind::Whole),
    ("latency_mean_ns", Kind::Number),
    ("latency_p50_ns", Kind::Number),
    ("latency_p99_ns", Kind::Number),
];

const HISTOGRAMS: &[(&str, Kind)] = &[
    ("run", Kind::Whole),
    ("target", Kind::Text),
    ("workload", Kind::Text),
    ("round", Kind::Whole),
    ("direction", Kind::Text),
    ("time", Kind::Text),
    ("low_ns", Kind::Whole),
    ("high_ns", Kind::Whole),
    ("count", Kind::Whole),
];

/// The files of a run. Its name in each directory follows from its number, start and seed, so that a second export replaces it.
#[must_use]
pub fn files(run: &Run, judgement: &Judgement, tags: &[String]) -> Vec<DatasetFile> {
    let began = utc(run.started_at_ms);
    let (year, month) = (&began[..4], &began[5..7]);
    let compact: String = began.chars().filter(char::is_ascii_alphanumeric).collect();
    let each = TABLES.iter().map(|table| DatasetFile {
        path: format!(
            "{}/year={year}/month={month}/run-{}-{compact}-{:x}.parquet",
            table.name, run.id, run.seed
        ),
        mark: Mark { format: "parquet", place: MarkPosition::ParquetAuthor(table.author) },
        bytes: written(table.author, &(table.columns)(judgement), &(table.rows)(run, judgement, tags)),
    });
    each.collect()
}

fn named(columns: &[(&str, Kind)]) -> Vec<(String, Kind)> {
    columns.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect()
}

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

fn known<T>(value: Option<T>, kind: impl FnOnce(T) -> Value) -> Value {
    value.map_or(Value::Unknown, kind)
}

fn id(run: &Run) -> Value {
    known(u64::try_from(run.id).ok(), Value::Whole)
}

fn seconds(ns: u64) -> Value {
    Value::Number(ns as f64 / 1e9)
}

fn runs(run: &Run, _: &Judgement, tags: &[String]) -> Vec<Vec<Value>> {
    let rounds = run.measurements.iter().map(|m| m.round).max();
    let e = &run.environment;
    vec![vec![
        id(run),
        text(run.plan.name.as_str()),
        text(run.state.word()),
        Value::Instant(run.started_at_ms),
        // A seed may be beyond 2^63.
        text(run.seed.to_string()),
        known(rounds, |rounds| Value::Whole(rounds.into())),
        text(run.plan.baseline.as_str()),
        known(run.plan.control.clone(), Value::Text),
        known(e.hostname.clone(), Value::Text),
        known(e.user.clone(), Value::Text),
        text(tags.join(" ")),
        known(run.source.as_ref(), |source| text(source.to_string())),
    ]]
}

/// The facts by the names that JSON has for them.
fn environment(run: &Run) -> Vec<Vec<Value>> {
    let Environment { mitigations, .. } = &run.environment;
    let mut facts: Vec<(String, String)> = Vec::new();
    if let Ok(serde_json::Value::Object(all)) = serde_json::to_value(&run.environment) {
        for (name, value) in all {
            match value {
                serde_json::Value::String(value) => facts.push((name, value)),
                serde_json::Value::Number(value) => facts.push((name, value.to_string())),
                _ => {}
            }
        }
    }
    facts.extend(mitigations.iter().map(|(name, state)| (format!("mitigation {name}"), state.clone())));
    facts.into_iter().map(|(name, value)| vec![id(run), Value::Text(name), Value::Text(value)]).collect()
}

fn targets(run: &Run) -> Vec<Vec<Value>> {
    let row = |spec: &iotax_model::TargetSpec| {
        let record = run.targets.iter().find(|record| record.name == spec.name);
        let stack = record.map(|record| {
            record.layers.iter().map(|layer| layer.name.as_str()).collect::<Vec<_>>().join(" > ")
        });
        let allocated =
            record.and_then(|record| record.allocation.as_ref()).map(|found| found.written + found.unwritten);
        vec![
            id(run),
            text(spec.name.as_str()),
            known(stack, Value::Text),
            known(serde_json::to_string(spec).ok(), Value::Text),
            known(record.map(|record| record.emulated), Value::Flag),
            known(record.and_then(|record| record.guest_kernel.clone()), Value::Text),
            known(record.and_then(|record| record.boot_ns), seconds),
            known(allocated, Value::Whole),
            known(record.and_then(|record| record.command_line.clone()), Value::Text),
        ]
    };
    run.plan.targets.iter().map(row).collect()
}

/// Rows of all measurements, each after the columns that identify it.
fn of_measurements(run: &Run, of: fn(&Measurement) -> Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    let of_one = |m: &Measurement| {
        let place =
            [id(run), text(m.target.as_str()), text(m.workload.as_str()), Value::Whole(m.round.into())];
        of(m).into_iter().map(|rest| place.iter().cloned().chain(rest).collect()).collect::<Vec<_>>()
    };
    run.measurements.iter().flat_map(of_one).collect()
}

fn samples(m: &Measurement) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for sample in &m.samples {
        for (direction, tally) in sample.tallies.each() {
            let Some(tally) = tally else { continue };
            rows.push(vec![
                seconds(sample.at_ns),
                seconds(sample.duration_ns),
                text(direction),
                Value::Whole(tally.ios),
                Value::Whole(tally.bytes),
                known(tally.latency.mean(), Value::Number),
                known(percentile(&tally.latency, 0.5), Value::Number),
                known(percentile(&tally.latency, 0.99), Value::Number),
            ]);
        }
    }
    rows
}

fn histograms(m: &Measurement) -> Vec<Vec<Value>> {
    let buckets = |direction: &str, time: &str, histogram: &Histogram| -> Vec<Vec<Value>> {
        let row = |(low, width, count): (u64, u64, u64)| {
            let high = low.saturating_add(width - 1);
            vec![text(direction), text(time), Value::Whole(low), Value::Whole(high), Value::Whole(count)]
        };
        histogram.bars().map(row).collect()
    };
    let of = |(direction, tally): (&str, &Tally)| {
        let mut rows = buckets(direction, "service", &tally.latency);
        rows.extend(tally.response.iter().flat_map(|response| buckets(direction, "response", response)));
        rows
    };
    m.outcome.tallies.each().filter_map(|(direction, tally)| Some((direction, tally?))).flat_map(of).collect()
}
