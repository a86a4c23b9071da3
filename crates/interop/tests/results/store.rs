//! The store keeps what it was given, and nothing else.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use iotax_model::Run;
use iotax_model::RunState;
use iotax_model::record::{Environment, ErrorCount, Pressure};
use iotax_model::{Warning, WarningKind};
use iotax_store::{NewRun, Store, StoreError};
use tempfile::TempDir;

use crate::synthetic::{self, HOST, ladder};

pub(crate) fn fill(store: &mut Store, run: &Run) -> i64 {
    let new = NewRun {
        plan: &run.plan,
        seed: run.seed,
        started_at_ms: run.started_at_ms,
        fleet: run.fleet.as_ref(),
    };
    let id = store.create_run(&new).expect("created");
    store.set_environment(id, &run.environment).expect("known");
    for target in &run.targets {
        store.put_target(id, target).expect("stored");
    }
    for measurement in &run.measurements {
        store.put_measurement(id, measurement).expect("stored");
    }
    for warning in &run.warnings {
        store.put_warning(id, warning).expect("stored");
    }
    store.set_state(id, run.state).expect("known");
    id
}

#[test]
fn a_measurement_that_was_made_up_for_is_no_longer_incomplete() {
    let temp = TempDir::new().expect("directory");
    let mut store = Store::open(&temp.path().join("s.db")).expect("opened");
    let mut run = ladder(false);
    let late = run.measurements.remove(0);
    let failed = |round| Warning {
        kind: WarningKind::Incomplete,
        target: Some(late.target.clone()),
        workload: Some(late.workload.clone()),
        round: Some(round),
        evidence: "the guest died".into(),
        remedy: "resume".into(),
    };
    run.warnings = vec![failed(late.round), failed(late.round + 100)];
    let id = fill(&mut store, &run);
    store.put_measurement(id, &late).expect("stored");
    assert_eq!(store.load(id).expect("loaded").warnings, [failed(late.round + 100)]);
}

pub(crate) fn rich() -> Run {
    let mut run = ladder(true);
    run.seed = u64::MAX;
    run.warnings.push(Warning {
        kind: WarningKind::Holes,
        target: Some("vm-raw".into()),
        workload: None,
        round: Some(2),
        evidence: "3 clusters".into(),
        remedy: "fill it".into(),
    });
    let odd = &mut run.measurements[0];
    odd.outcome.errors.push(ErrorCount {
        error: "EIO".into(),
        direction: "read".into(),
        count: 1,
        first_offset: 1 << 40,
        last_offset: Some(8192),
    });
    odd.outcome.notes.push("no registered buffers".into());
    odd.host_duration_ns = None;
    odd.host_cache = None;
    let host = odd.host.as_mut().expect("observed");
    host.cpu = None;
    host.pressure = Some(Pressure { io_some_ns: 5, ..Pressure::default() });
    run.measurements[1].host = None;
    run.measurements[1].host_samples.clear();
    run.measurements[2].samples.clear();
    run
}

#[test]
fn a_run_reads_back_as_it_was_written() {
    let dir = TempDir::new().expect("temporary directory");
    let path = dir.path().join("iotax.db");
    let run = rich();
    let id = fill(&mut Store::open(&path).expect("new"), &run);
    let read = Store::open(&path).expect("reopened").load(id).expect("known");
    assert_eq!(read, Run { id, ..run });
}

#[test]
fn runs_are_listed_in_order() {
    let dir = TempDir::new().expect("temporary directory");
    let mut store = Store::open(&dir.path().join("iotax.db")).expect("new");
    assert_eq!((store.runs().expect("empty").len(), store.latest().expect("empty")), (0, None));
    let first = fill(&mut store, &synthetic::bench());
    let second = fill(&mut store, &ladder(false));
    store.set_state(second, RunState::Interrupted).expect("known");
    store.set_repeat(second, 9).expect("known");
    let runs: Vec<_> = store.runs().expect("two").into_iter().map(|(_, run)| run.expect("sound")).collect();
    assert_eq!(runs.iter().map(|r| r.id).collect::<Vec<_>>(), [first, second]);
    assert_eq!((runs[0].measured, runs[0].planned, runs[0].state), (1, 1, RunState::Complete));
    assert_eq!((runs[1].measured, runs[1].planned, runs[1].state), (60, 9 * 12, RunState::Interrupted));
    assert_eq!(runs[1].targets, ["host-file", "vm-raw", "vm-qcow2", "vm-qcow2-snapshot"]);
    assert_eq!(store.latest().expect("two"), Some(second));
    assert_eq!(store.load(second).expect("known").plan.repeat, 9);
    assert!(store.set_repeat(second, 0).expect_err("no plan").to_string().contains("repeat = 0"));
}

#[test]
fn a_run_is_running_as_long_as_a_process_has_it() {
    let dir = TempDir::new().expect("temporary directory");
    let path = dir.path().join("iotax.db");
    let mut store = Store::open(&path).expect("new");
    let mut run = synthetic::bench();
    run.state = RunState::Running;
    let (id, other) = (fill(&mut store, &run), fill(&mut store, &run));
    let states = || {
        let runs = Store::open_to_read(&path).expect("there").runs().expect("two");
        [id, other].map(|id| {
            runs.iter().find(|(run, _)| *run == id).expect("listed").1.as_ref().expect("sound").state
        })
    };
    assert_eq!(states(), [RunState::Interrupted; 2]);
    let claim = store.claim(other).expect("free");
    // However often somebody asks.
    for _ in 0..1000 {
        assert_eq!(store.load(other).expect("known").state, RunState::Running);
    }
    assert_eq!(states(), [RunState::Interrupted, RunState::Running]);
    let refused = store.claim(other).expect_err("taken").to_string();
    assert!(refused.contains("run 2 is still going on in another process"), "{refused}");
    drop(claim);
    assert_eq!(states(), [RunState::Interrupted; 2]);
}

#[test]
fn a_run_can_be_read_while_it_is_written() {
    let dir = TempDir::new().expect("temporary directory");
    let path = dir.path().join("iotax.db");
    let mut writer = Store::open(&path).expect("new");
    let run = ladder(false);
    let id = fill(&mut writer, &Run { measurements: run.measurements[..5].to_vec(), ..run.clone() });
    let reader = Store::open_to_read(&path).expect("open beside the writer");
    for measurement in &run.measurements[5..8] {
        writer.put_measurement(id, measurement).expect("not in the reader's way");
    }
    assert_eq!(reader.load(id).expect("known").measurements.len(), 8);
}

#[test]
fn a_target_is_replaced_and_a_measurement_is_not() {
    let dir = TempDir::new().expect("temporary directory");
    let mut store = Store::open(&dir.path().join("iotax.db")).expect("new");
    let run = synthetic::bench();
    let id = fill(&mut store, &run);
    let rebuilt = synthetic::record("disk.img", true);
    store.put_target(id, &rebuilt).expect("replaced");
    assert!(store.put_measurement(id, &run.measurements[0]).is_err(), "the same cell and round twice");
    let warning = Warning {
        kind: WarningKind::Holes,
        target: None,
        workload: None,
        round: None,
        evidence: "e".into(),
        remedy: "r".into(),
    };
    store.put_warning(id, &warning).expect("stored");
    store.put_warning(id, &warning).expect("once is enough");
    let read = store.load(id).expect("known");
    assert_eq!((read.targets, read.measurements.len(), read.warnings.len()), (vec![rebuilt], 1, 1));
}

#[test]
fn an_unknown_run_names_the_known_ones() {
    let dir = TempDir::new().expect("temporary directory");
    let mut store = Store::open(&dir.path().join("iotax.db")).expect("new");
    let text = |error: StoreError| error.to_string();
    assert!(
        text(store.load(3).expect_err("none")).contains("no run 3: the store is empty; see `iotax list`")
    );
    fill(&mut store, &synthetic::bench());
    assert!(text(store.load(3).expect_err("one")).contains("holds only run 1"));
    fill(&mut store, &synthetic::bench());
    assert!(text(store.load(3).expect_err("two")).contains("holds runs 1 to 2"));
    let refused = [
        store.set_state(3, RunState::Failed).expect_err("unknown"),
        store.set_repeat(3, 2).expect_err("unknown"),
        store.set_environment(3, &Environment::default()).expect_err("unknown"),
        store.put_target(3, &synthetic::record("a", false)).expect_err("unknown"),
        store.put_measurement(3, &synthetic::bench().measurements[0]).expect_err("unknown"),
    ];
    assert!(
        refused.iter().all(|error| matches!(error, StoreError::UnknownRun { run: 3, .. })),
        "{refused:?}"
    );
}

#[test]
fn what_is_not_ours_is_refused_and_untouched() {
    let dir = TempDir::new().expect("temporary directory");
    let path = dir.path().join("other");
    let newer = dir.path().join("newer.db");
    Store::open(&newer).expect("new");
    let mut bytes = std::fs::read(&newer).expect("closed and in one file");
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    let mut foreign = bytes.clone();
    foreign[68..72].copy_from_slice(&7_u32.to_be_bytes());
    for (content, words) in [
        (b"dear diary".to_vec(), "is not an iotax store"),
        (foreign, "is not an iotax store"),
        (b"SQLite format 3\0".to_vec(), "is not an iotax store"),
        (bytes, "has version 99"),
    ] {
        std::fs::write(&path, &content).expect("written");
        let error = Store::open(&path).expect_err(words).to_string();
        assert!(error.contains(words) && error.contains("--db") && error.contains("other"), "{error}");
        assert_eq!(std::fs::read(&path).expect("still there"), content);
        assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 2, "no journal was left beside it");
    }
}

#[test]
fn a_place_that_cannot_be_opened_is_named() {
    let dir = TempDir::new().expect("temporary directory");
    let missing = dir.path().join("no/such/dir/iotax.db");
    assert!(Store::open(&missing).expect_err("no directory").to_string().contains("no/such/dir"));
    assert!(matches!(Store::open(dir.path()), Err(StoreError::Open { .. })), "a directory is no store");
    let empty = dir.path().join("empty");
    std::fs::write(&empty, "").expect("written");
    Store::open(&empty).expect("an empty file may become a store");
}

const VICTIM: &str = "IOTAX_TEST_STORE_TO_BE_KILLED";

#[test]
#[ignore = "not a test of its own: what_was_stored_survives_sigkill starts it and kills it"]
fn victim() {
    let path = std::env::var(VICTIM).expect("started by its test");
    let mut store = Store::open(Path::new(&path)).expect("new");
    let mut run = synthetic::bench();
    run.plan.repeat = 1000;
    let new = NewRun { plan: &run.plan, seed: 1, started_at_ms: 0, fleet: None };
    let id = store.create_run(&new).expect("created");
    for round in 1.. {
        let m = synthetic::measurement(&run.plan.workloads[0], "disk.img", HOST, round, 0);
        store.put_measurement(id, &m).expect("stored");
        println!("\nstored {round}");
    }
}

#[test]
fn what_was_stored_survives_sigkill() {
    let dir = TempDir::new().expect("temporary directory");
    let path = dir.path().join("iotax.db");
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--ignored", "--exact", "store::victim", "--nocapture"])
        .env(VICTIM, &path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let told = lines
        .map_while(Result::ok)
        .filter_map(|line| line.strip_prefix("stored ")?.parse::<u32>().ok())
        .nth(6)
        .expect("stores until it is killed");
    child.kill().expect("running");
    child.wait().expect("ended");
    let store = Store::open(&path).expect("sound");
    let run = store.load(1).expect("stored");
    assert_eq!(run.state, RunState::Interrupted, "its process is gone");
    let rounds: Vec<u32> = run.measurements.iter().map(|m| m.round).collect();
    let last = u32::try_from(rounds.len()).expect("a few");
    assert!(last >= told, "told of {told}, found {last}");
    assert_eq!(rounds, (1..=last).collect::<Vec<_>>());
    assert!(run.measurements.iter().all(|m| m.samples.len() == m.host_samples.len() && m.host.is_some()));
}
