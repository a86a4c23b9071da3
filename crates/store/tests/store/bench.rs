//! How long a list and a run take in a store of 10,000 runs: `scripts/bench-store`.

use std::time::Instant;

use iotax_model::Run;
use iotax_store::{Filter, Location, Store};
use iotax_testkit::postgres::{Options, Server};
use iotax_testkit::require;
use tempfile::TempDir;

use crate::both::fill;
use crate::synthetic;

/// Copies of the row of run 1 and of its measurements, all valid: their seals are made anew by the store.
fn grow(store: &mut Store, runs: u32) -> (Run, f64) {
    let run = synthetic::ladder(false);
    assert_eq!(run.measurements.len(), 60);
    let begun = Instant::now();
    for _ in 0..runs {
        let new =
            iotax_store::NewRun { plan: &run.plan, seed: 1, started_at_ms: run.started_at_ms, fleet: None };
        let id = store.create_run(&new).expect("created");
        store.put_measurements(id, &run.measurements).expect("stored");
    }
    (run, begun.elapsed().as_secs_f64())
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn measure(name: &str, place: &Location, bytes: impl Fn() -> u64) {
    let runs: u32 = std::env::var("IOTAX_BENCH_RUNS").map_or(10_000, |runs| runs.parse().expect("a number"));
    let mut store = Store::open(place).expect("made");
    fill(&mut store, &synthetic::ladder(false));
    let empty = bytes();
    let (_, seconds) = grow(&mut store, runs - 1);
    let size = (bytes() - empty) / u64::from(runs - 1);
    println!("{name}: {runs} runs of 60 measurements stored in {seconds:.0} s, {size} bytes a run");
    let timed = |what: &str, work: &mut dyn FnMut() -> usize| {
        let mut times = Vec::new();
        let mut count = 0;
        for _ in 0..7 {
            let begun = Instant::now();
            count = work();
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        println!("{name}: {what}: {:.1} ms (median of 7), {count} found", median(&mut times));
    };
    timed("open to read", &mut || usize::from(Store::open_to_read(place).is_ok()));
    let store = Store::open_to_read(place).expect("there");
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
fn a_server() {
    require!(file iotax_testkit::postgres::PROGRAM);
    let server = Server::with(&Options {
        settings: &[("fsync", "off"), ("shared_buffers", "256MB")],
        ..Options::default()
    });
    let url = server.database();
    let name = url.rsplit('/').next().expect("a name").to_owned();
    let sql = format!("SELECT pg_database_size('{name}')");
    let bytes = || server.sql("postgres", &sql).parse().expect("a number");
    measure("PostgreSQL", &url.as_str().into(), bytes);
}
