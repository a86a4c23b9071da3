//! Exports runs as a data set: one Parquet file per run and table, in Hive-style directories by month. DuckDB and pandas read any number of
//! runs as one table.

use std::slice::from_ref;

use iotax_analysis::Judgement;
use iotax_analysis::time::utc;
use iotax_model::record::{Sample, Tally, TargetRecord};
use iotax_model::{Histogram, Run, TargetSpec};
use iotax_report::columns;
use iotax_report::mark::Mark;
use iotax_report::table::{DataTable, UnixMs, run_number, seconds};
use iotax_report::tables::{self, MeasurementRow, cell_columns, latency, rows_of, span};

use super::written;

/// A table of the data set: its name, and how its rows are built.
struct Table {
    /// Name of the table, which is also its directory.
    name: &'static str,
    /// Text in the `created_by` field of the table's files.
    author: &'static str,
    /// Builds the rows of a run; the strings are the run's tags.
    made: fn(&(Run, Judgement), &[String]) -> DataTable,
}

/// A file of the data set to be written.
#[derive(Debug, Clone)]
pub struct DatasetFile {
    /// Path within the data set's directory: `runs/year=2026/month=11/run-17-20261120T120000Z-1188f.parquet`.
    pub path: String,
    /// Mark that identifies the file as written by iotax.
    pub mark: Mark,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

/// Returns the names of all tables of the data set.
pub fn table_names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|table| table.name)
}

const TABLES: [Table; 6] = [
    Table { name: "runs", author: "iotax, a row for each run", made: runs },
    Table {
        name: "environment",
        author: "iotax, a row for each fact of a machine",
        made: |(run, _), _| environment(run),
    },
    Table { name: "targets", author: "iotax, a row for each target", made: |(run, _), _| targets(run) },
    Table {
        name: "measurements",
        author: super::AUTHOR,
        made: |judged, _| tables::measurements(from_ref(judged)),
    },
    Table {
        name: "samples",
        author: "iotax, a row for each interval and direction",
        made: |judged, _| samples(from_ref(judged)),
    },
    Table {
        name: "histograms",
        author: "iotax, a row for each bucket of a histogram",
        made: |judged, _| histograms(from_ref(judged)),
    },
];

/// Builds the data set files of a run. Their names depend on the run's number, start and seed, so that a second export replaces them.
#[must_use]
pub fn files(judged: &(Run, Judgement), tags: &[String]) -> Vec<DatasetFile> {
    let (run, _) = judged;
    let began = utc(run.started_at_ms);
    let (year, month) = (&began[..4], &began[5..7]);
    let compact: String = began.chars().filter(char::is_ascii_alphanumeric).collect();
    let each = TABLES.iter().map(|table| DatasetFile {
        path: format!(
            "{}/year={year}/month={month}/run-{}-{compact}-{:x}.parquet",
            table.name, run.id, run.seed
        ),
        mark: super::mark(table.author),
        bytes: written(table.author, &(table.made)(judged, tags)),
    });
    each.collect()
}

struct TaggedRun<'a> {
    run: &'a Run,
    tags: &'a [String],
}

fn runs((run, _): &(Run, Judgement), tags: &[String]) -> DataTable {
    let columns = columns!(TaggedRun<'_>, |row|
        "run" => run_number(row.run),
        "name" => row.run.plan.name.as_str(),
        "state" => row.run.state.word(),
        "started_at" => UnixMs(row.run.started_at_ms),
        // A seed may exceed 2^63.
        "seed" => row.run.seed.to_string(),
        "rounds" => row.run.measurements.iter().map(|m| m.round).max(),
        "baseline" => row.run.plan.baseline.as_str(),
        "control" => row.run.plan.control.clone(),
        "machine" => row.run.environment.hostname.clone(),
        "user" => row.run.environment.user.clone(),
        "tags" => row.tags.join(" "),
        "source" => row.run.source.imported().map(ToString::to_string),
    );
    DataTable::new(columns, [TaggedRun { run, tags }])
}

struct Fact<'a> {
    run: &'a Run,
    name: String,
    value: String,
}

/// Builds the table of facts about the machine: those that are a text or a number, with the names that they have in JSON, and the
/// mitigations.
fn environment(run: &Run) -> DataTable {
    let columns = columns!(Fact<'_>, |row|
        "run" => run_number(row.run),
        "fact" => row.name.clone(),
        "value" => row.value.clone(),
    );
    let mut facts: Vec<Fact<'_>> = Vec::new();
    if let Ok(serde_json::Value::Object(all)) = serde_json::to_value(&run.environment) {
        for (name, value) in all {
            match value {
                serde_json::Value::String(value) => facts.push(Fact { run, name, value }),
                serde_json::Value::Number(value) => facts.push(Fact { run, name, value: value.to_string() }),
                _ => {}
            }
        }
    }
    let mitigations = run.environment.mitigations.iter();
    let named = |(name, state): (&String, &String)| (format!("mitigation {name}"), state.clone());
    facts.extend(mitigations.map(named).map(|(name, value)| Fact { run, name, value }));
    DataTable::new(columns, facts)
}

struct TargetRow<'a> {
    run: &'a Run,
    spec: &'a TargetSpec,
    record: Option<&'a TargetRecord>,
}

impl TargetRow<'_> {
    fn stack(&self) -> Option<String> {
        let names = self.record?.layers.iter().map(|layer| layer.name.as_str());
        Some(names.collect::<Vec<_>>().join(" > "))
    }

    fn allocated(&self) -> Option<u64> {
        let found = self.record?.allocation.as_ref()?;
        Some(found.written + found.unwritten)
    }
}

fn targets(run: &Run) -> DataTable {
    let columns = columns!(TargetRow<'_>, |row|
        "run" => run_number(row.run),
        "target" => row.spec.name.as_str(),
        "stack" => row.stack(),
        "settings_json" => serde_json::to_string(row.spec).ok(),
        "emulated" => row.record.map(|record| record.emulated),
        "guest_kernel" => row.record.and_then(|record| record.guest_kernel.clone()),
        "boot_s" => row.record.and_then(|record| record.boot_ns).map(seconds),
        "allocated_bytes" => row.allocated(),
        "command_line" => row.record.and_then(|record| record.command_line.clone()),
    );
    let rows = run.plan.targets.iter().map(|spec| TargetRow {
        run,
        spec,
        record: run.targets.iter().find(|record| record.name == spec.name),
    });
    DataTable::new(columns, rows)
}

struct Moved<'a> {
    sample: &'a Sample,
    direction: &'static str,
    tally: &'a Tally,
}

fn samples(runs: &[(Run, Judgement)]) -> DataTable {
    type Row<'a> = MeasurementRow<'a, Moved<'a>>;
    let span = span(|row: &Row<'_>| (row.datum.sample.at_ns, row.datum.sample.duration_ns));
    let counts = columns!(Row<'_>, |row|
        "direction" => row.datum.direction,
        "ios" => row.datum.tally.ios,
        "bytes" => row.datum.tally.bytes,
    );
    let latency = latency(|row: &Row<'_>| &row.datum.tally.latency);
    let rows = rows_of(runs, |m| {
        let each = m.samples.iter().flat_map(|sample| {
            let tallies = sample.tallies.each();
            tallies.filter_map(move |(direction, tally)| Some(Moved { sample, direction, tally: tally? }))
        });
        each.collect()
    });
    DataTable::new(cell_columns().into_iter().chain(span).chain(counts).chain(latency), rows)
}

struct Bar {
    direction: &'static str,
    /// Kind of latency: `service` (from submission) or `response` (from when the I/O was due).
    time: &'static str,
    low_ns: u64,
    high_ns: u64,
    count: u64,
}

fn histograms(runs: &[(Run, Judgement)]) -> DataTable {
    let columns = columns!(MeasurementRow<'_, Bar>, |row|
        "direction" => row.datum.direction,
        "time" => row.datum.time,
        "low_ns" => row.datum.low_ns,
        "high_ns" => row.datum.high_ns,
        "count" => row.datum.count,
    );
    let bars = |direction, time, histogram: &Histogram| {
        let bar = move |(low_ns, width, count): (u64, u64, u64)| Bar {
            direction,
            time,
            low_ns,
            high_ns: low_ns.saturating_add(width - 1),
            count,
        };
        histogram.bars().map(bar).collect::<Vec<_>>()
    };
    let of = |(direction, tally): (&'static str, Option<&Tally>)| {
        let service = tally.map(|tally| bars(direction, "service", &tally.latency));
        let response = tally.and_then(|tally| tally.response.as_ref());
        let response = response.map(|response| bars(direction, "response", response));
        service.into_iter().chain(response).flatten().collect::<Vec<_>>()
    };
    let rows = rows_of(runs, |m| m.outcome.tallies.each().flat_map(of).collect());
    DataTable::new(cell_columns().into_iter().chain(columns), rows)
}
