//! Measures how long a store takes to list and load 10,000 runs, and to compute a trend over 1,000 runs of 20 cells (5 targets with 4
//! workloads each). Started by `scripts/bench-store`.

use std::time::Instant;

use iotax_analysis::Metric;
use iotax_analysis::trend::{PastRun, TrendQuestion, trends};
use iotax_model::Run;
use iotax_model::record::Environment;
use iotax_testkit::postgres::{PostgresOptions, PostgresServer};
use iotax_testkit::{require, runs};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tempfile::TempDir;

use crate::database::{Database, Purpose, transact};
use crate::error::Fault;
use crate::head::{Head, Measured};
use crate::sealed::{HeadRow, MeasurementRow};
use crate::{Filter, Location, Store, counter, new_uuid, run_figures};

/// Number of runs inserted per transaction. A real run has one transaction per measurement.
const AT_ONCE: u32 = 50;

/// Packs the head and the measurements of a run as the store does.
fn packed(run: Run) -> Result<(Head, Vec<MeasurementRow>), Fault> {
    let rows = run.measurements.iter().map(MeasurementRow::new).collect::<Result<Vec<_>, _>>()?;
    let mut measured = Measured::default();
    rows.iter().for_each(|row| measured.add(row.identity()));
    let head = Head {
        uuid: new_uuid()?,
        revision: 1,
        plan: run.plan,
        seed: run.seed,
        started_at_ms: run.started_at_ms,
        state: run.state,
        environment: Environment { hostname: Some("lab-7".into()), ..run.environment },
        targets: run.targets,
        warnings: run.warnings,
        phases: run.phases,
        source: None,
        fleet: None,
        measured,
    };
    Ok((head, rows))
}

fn insert(database: &mut dyn Database, head: &Head, rows: &[MeasurementRow]) -> Result<i64, Fault> {
    let id = counter::next(database)?;
    HeadRow::new(head)?.insert(database, id)?;
    rows.iter().try_for_each(|row| row.insert(database, id))?;
    Ok(id)
}

/// Inserts copies of one run, each with another UUID. Its measurements are packed only once.
fn grow(database: &mut dyn Database, runs: u32) -> Result<(), Fault> {
    let (mut head, rows) = packed(runs::ladder(false))?;
    assert_eq!(rows.len(), 60);
    for _ in 0..runs.div_ceil(AT_ONCE) {
        transact(database, Purpose::Write, &mut |database| {
            for _ in 0..AT_ONCE {
                head.uuid = new_uuid()?;
                insert(database, &head, &rows)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Inserts runs of 5 targets, 4 workloads and 5 rounds whose figures differ. In the later half of the runs, the last target is 5% slower.
fn grow_history(database: &mut dyn Database, runs: u32) -> Result<(), Fault> {
    const TARGETS: [&str; 5] = ["host-file", "vm-raw", "vm-qcow2", "vm-qcow2-snapshot", "vm-lvm"];
    const WORKLOADS: [&str; 4] = ["randread-4k-qd1", "randread-4k-qd32", "randwrite-4k-qd32", "seqread-1m"];
    let mut random = Xoshiro256PlusPlus::seed_from_u64(20);
    for number in 0..runs {
        let truths = TARGETS.map(|target| {
            let step = if target == "vm-lvm" && number >= runs / 2 { 1.05 } else { 1.0 };
            let noise = 1.0 + random.random_range(-0.01..0.01);
            (target, runs::Truth { slowdown: step * noise, ..runs::HOST })
        });
        let (mut head, rows) = packed(runs::run(&truths, &WORKLOADS, 5, false))?;
        head.plan.control = Some("host-file".into());
        transact(database, Purpose::Write, &mut |database| {
            let id = insert(database, &head, &rows)?;
            run_figures::refresh(database, id, &head)
        })?;
    }
    Ok(())
}

/// Computes the trend over all runs of the store, as `iotax trend` does.
fn follow(store: &Store) -> usize {
    let runs = store.list(&Filter::default()).expect("listed");
    let past = runs.iter().rev().map(|run| {
        let (head, figures) = store.load_figures(run.id).expect("sound");
        PastRun::with(&head, figures, run.tags.clone(), store.notes(run.id).expect("read").text)
    });
    let past: Vec<PastRun> = past.collect();
    let metrics = vec![Metric::LATENCY_MEAN, Metric::LATENCY_P99];
    let found = trends(&past, &TrendQuestion { metrics, ..TrendQuestion::default() });
    found.trends.iter().map(|trend| trend.changes.len()).sum()
}

fn measure_trend(name: &str, location: &Location) {
    const RUNS: u32 = 1000;
    let mut store = Store::open(location).expect("made");
    grow_history(store.database.get_mut().as_mut(), RUNS).expect("stored");
    let store = Store::open_to_read(location).expect("there");
    let timed = |what: &str, work: &dyn Fn() -> usize| {
        let begun = Instant::now();
        let found = work();
        eprintln!("{name}: {what}: {:.2} s, {found} found", begun.elapsed().as_secs_f64());
    };
    for _ in 0..3 {
        timed("figures of 1,000 runs", &|| {
            (1..=i64::from(RUNS)).filter(|run| store.load_figures(*run).is_ok()).count()
        });
        timed("a trend over them", &|| follow(&store));
    }
    timed("the same runs whole", &|| (1..=i64::from(RUNS)).filter(|run| store.load(*run).is_ok()).count());
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn measure(name: &str, location: &Location, bytes: impl Fn() -> u64) {
    let runs: u32 = std::env::var("IOTAX_BENCH_RUNS").map_or(10_000, |runs| runs.parse().expect("a number"));
    let mut store = Store::open(location).expect("made");
    let begun = Instant::now();
    grow(store.database.get_mut().as_mut(), runs).expect("stored");
    let (seconds, size) = (begun.elapsed().as_secs_f64(), bytes() / u64::from(runs));
    eprintln!("{name}: {runs} runs of 60 measurements stored in {seconds:.0} s, {size} bytes a run");
    let sql = "SELECT CAST(sum(length(content)) AS BIGINT), CAST(sum(length(latency)) AS BIGINT), \
               CAST(sum(length(figures)) AS BIGINT) FROM measurement WHERE run = 1";
    let row = store.database.get_mut().query(sql, &[]).expect("asked").pop();
    eprintln!("{name}: of a run: content, latency, figures: {row:?}");
    let timed = |what: &str, work: &mut dyn FnMut() -> usize| {
        let mut times = Vec::new();
        let mut count = 0;
        for _ in 0..7 {
            let begun = Instant::now();
            count = work();
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        eprintln!("{name}: {what}: {:.1} ms (median of 7), {count} found", median(&mut times));
    };
    timed("open to read", &mut || usize::from(Store::open_to_read(location).is_ok()));
    let store = Store::open_to_read(location).expect("there");
    let list = |filter: &Filter| store.list(filter).expect("listed").len();
    timed("list of all", &mut || list(&Filter::default()));
    timed("list of 100", &mut || list(&Filter { limit: Some(100), ..Filter::default() }));
    timed("list by a word", &mut || list(&Filter { text: "qcow2".into(), ..Filter::default() }));
    timed("a run", &mut || store.load(i64::from(runs / 2)).expect("there").measurements.len());
}

#[test]
#[ignore = "a benchmark: scripts/bench-store"]
fn a_file() {
    let directory = TempDir::new_in(std::env::var("IOTAX_BENCH_DIR").unwrap_or_else(|_| "/var/tmp".into()));
    let directory = directory.expect("temporary directory");
    let path = directory.path().join("iotax.db");
    let bytes = || std::fs::metadata(&path).expect("there").len();
    measure("SQLite", &path.as_path().into(), bytes);
}

#[test]
#[ignore = "a benchmark: scripts/bench-store"]
fn a_trend_in_a_file() {
    let directory = TempDir::new_in(std::env::var("IOTAX_BENCH_DIR").unwrap_or_else(|_| "/var/tmp".into()));
    let path = directory.as_ref().expect("temporary directory").path().join("iotax.db");
    measure_trend("SQLite", &path.as_path().into());
}

#[test]
#[ignore = "a benchmark: scripts/bench-store"]
fn a_trend_on_a_server() {
    require!(file iotax_testkit::postgres::PROGRAM);
    let server = PostgresServer::with(&PostgresOptions {
        settings: &[("fsync", "off"), ("shared_buffers", "256MB")],
        ..PostgresOptions::default()
    });
    measure_trend("PostgreSQL", &server.database().as_str().into());
}

#[test]
#[ignore = "a benchmark: scripts/bench-store"]
fn a_server() {
    require!(file iotax_testkit::postgres::PROGRAM);
    let server = PostgresServer::with(&PostgresOptions {
        settings: &[("fsync", "off"), ("shared_buffers", "256MB")],
        ..PostgresOptions::default()
    });
    let url = server.database();
    let name = url.rsplit('/').next().expect("a name").to_owned();
    let sql = format!("SELECT pg_database_size('{name}')");
    let bytes = || server.sql("postgres", &sql).parse().expect("a number");
    measure("PostgreSQL", &url.as_str().into(), bytes);
}
