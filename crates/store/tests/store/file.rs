//! Tests of a store in a file: foreign files, missing permissions, leftovers of a killed process.

use std::io::{BufRead, BufReader};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Command, Stdio};

use iotax_model::RunState;
use iotax_store::{NewRun, Store, StoreError};
use iotax_testkit::require;
use tempfile::TempDir;

use iotax_testkit::runs::{self, HOST};

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

#[test]
fn the_newest_run_is_withdrawn_if_nothing_was_measured_in_it() {
    let dir = TempDir::new().expect("temporary directory");
    let mut store = Store::open(&dir.path().join("iotax.db")).expect("new");
    let run = runs::bench();
    let new = NewRun { plan: &run.plan, seed: 1, started_at_ms: 0, fleet: None };
    let ids: Vec<i64> = (0..3).map(|_| store.create_run(&new).expect("created")).collect();
    assert_eq!(ids, [1, 2, 3]);
    let m = runs::measurement(&run.plan.workloads[0], "disk.img", HOST, 1, 0);
    store.put_measurement(2, &m).expect("stored");
    store.set_state(3, RunState::Failed).expect("known");
    // In order: not the newest, the newest, then one that holds something.
    let gone = [1, 3, 2].map(|run| store.withdraw(run).expect("asked"));
    assert_eq!(gone, [false, true, false]);
    assert_eq!(store.runs().expect("nothing is lost").len(), 2);
    assert_eq!(store.create_run(&new).expect("its number is free again"), 3);
}

const VICTIM: &str = "IOTAX_TEST_STORE_TO_BE_KILLED";

#[test]
#[ignore = "not a test of its own: what_was_stored_survives_sigkill starts it and kills it"]
fn victim() {
    let path = std::env::var(VICTIM).expect("started by its test");
    let mut store = Store::open(Path::new(&path)).expect("new");
    let mut run = runs::bench();
    run.plan.repeat = 1000;
    let new = NewRun { plan: &run.plan, seed: 1, started_at_ms: 0, fleet: None };
    let id = store.create_run(&new).expect("created");
    for round in 1.. {
        let m = runs::measurement(&run.plan.workloads[0], "disk.img", HOST, round, 0);
        store.put_measurement(id, &m).expect("stored");
        println!("\nstored {round}");
    }
}

#[test]
fn what_was_stored_survives_sigkill() {
    let dir = TempDir::new().expect("temporary directory");
    let path = dir.path().join("iotax.db");
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--ignored", "--exact", "file::victim", "--nocapture"])
        .env(VICTIM, &path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let acknowledged = lines
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
    assert!(last >= acknowledged, "told of {acknowledged}, found {last}");
    assert_eq!(rounds, (1..=last).collect::<Vec<_>>());
    assert!(run.measurements.iter().all(|m| m.samples.len() == m.host_samples.len() && m.host.is_some()));
}

/// The name of a socket with which any user could formerly block a run.
fn abstract_name(store: &Path, run: i64) -> SocketAddr {
    let file = std::fs::metadata(store).expect("there");
    let name = format!("iotax-run-{}-{}-{run}", file.dev(), file.ino());
    SocketAddr::from_abstract_name(name).expect("short")
}

#[test]
fn a_claim_is_a_file_of_its_own_that_nobody_else_can_hold_and_no_kill_leaves_in_the_way() {
    let dir = TempDir::new().expect("temporary directory");
    let path = dir.path().join("iotax.db");
    let store = Store::open(&path).expect("new");
    let names = || {
        let names =
            std::fs::read_dir(dir.path()).expect("lists").map(|entry| entry.expect("entry").file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().expect("text")).collect();
        names.sort();
        names
    };
    let _held = UnixDatagram::bind_addr(&abstract_name(&path, 1)).expect("anybody can");
    let claim = store.claim(1).expect("no socket holds it");
    assert_eq!(names(), ["iotax.db", "iotax.db-claim-1"]);
    let file = dir.path().join("iotax.db-claim-1");
    assert_eq!(
        std::fs::metadata(&file).expect("there").mode() & 0o777,
        0o600,
        "who can open a file can lock it"
    );
    // By another name, too.
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).expect("linked");
    let again = Store::open(&link).expect("the same");
    assert!(matches!(again.claim(1), Err(StoreError::Claimed { run: 1 })));
    let other = again.claim(2).expect("another run");
    drop((claim, other));
    std::fs::remove_file(&link).expect("made");
    assert_eq!(names(), ["iotax.db"]);
    // Leftovers of a killed process, and files planted by others.
    for run in [1, 7] {
        std::fs::write(dir.path().join(format!("iotax.db-claim-{run}")), "").expect("left");
    }
    std::fs::write(dir.path().join("iotax.db-claim-of-mine"), "").expect("written");
    assert!(again.claim(1).is_err(), "it is not there any more");
    drop(store.claim(1).expect("nobody holds it"));
    assert_eq!(names(), ["iotax.db", "iotax.db-claim-of-mine"]);
    let planted = dir.path().join("iotax.db-claim-3");
    std::os::unix::fs::symlink(dir.path().join("made"), &planted).expect("linked");
    assert!(matches!(store.claim(3), Err(StoreError::Open { .. })), "no link is followed");
    assert!(!dir.path().join("made").exists());
}

const CLAIMED: &str = "IOTAX_TEST_STORE_TO_BE_CLAIMED";

#[test]
#[ignore = "not a test of its own: two_network_namespaces_do_not_work_on_one_run starts it"]
fn claimant() {
    let path = std::env::var(CLAIMED).expect("started by its test");
    let store = Store::open(Path::new(&path)).expect("there");
    assert!(matches!(store.claim(1), Err(StoreError::Claimed { run: 1 })));
    assert_eq!(store.load(1).expect("there").state, RunState::Running);
}

#[test]
fn two_network_namespaces_do_not_work_on_one_run() {
    require!(root);
    require!(program "unshare");
    let dir = TempDir::new().expect("temporary directory");
    let path = dir.path().join("iotax.db");
    let mut store = Store::open(&path).expect("new");
    let run = runs::bench();
    let new = NewRun { plan: &run.plan, seed: 1, started_at_ms: 0, fleet: None };
    let id = store.create_run(&new).expect("created");
    let _claim = store.claim(id).expect("free");
    let elsewhere = Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe().expect("this test"))
        .args(["--ignored", "--exact", "file::claimant"])
        .env(CLAIMED, &path)
        .output()
        .expect("unshare");
    assert!(elsewhere.status.success(), "{}", String::from_utf8_lossy(&elsewhere.stdout));
}

/// The state of the run that another user must see.
const EXPECTED: &str = "IOTAX_TEST_EXPECTED_STATE";

#[test]
#[ignore = "not a test of its own: another_user_tells_a_run_from_what_a_killed_one_left starts it"]
fn onlooker() {
    let path = std::env::var(CLAIMED).expect("started by its test");
    let store = Store::open_to_read(Path::new(&path)).expect("readable");
    assert_eq!(
        store.load(1).expect("there").state.word(),
        std::env::var(EXPECTED).expect("started by its test")
    );
}

#[test]
fn another_user_tells_a_run_from_what_a_killed_one_left() {
    require!(root);
    require!(program "setpriv");
    let is_complete =
        std::fs::read_link("/proc/self/ns/pid").is_ok_and(|own| own.ends_with("pid:[4026531836]"));
    if !is_complete {
        iotax_testkit::skip!("the list of locks in this PID namespace is not complete");
    }
    let dir = TempDir::new().expect("temporary directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("ours");
    let path = dir.path().join("iotax.db");
    let mut store = Store::open(&path).expect("new");
    let run = runs::bench();
    let new = NewRun { plan: &run.plan, seed: 1, started_at_ms: 0, fleet: None };
    let id = store.create_run(&new).expect("created");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("ours");
    let sees = |state: RunState| {
        // By a copy: the directory of the tests may be closed to others.
        let program = dir.path().join("onlooker");
        std::fs::copy(std::env::current_exe().expect("this test"), &program).expect("copied");
        let checked = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .args(["--ignored", "--exact", "file::onlooker"])
            .env(CLAIMED, &path)
            .env(EXPECTED, state.word())
            .output()
            .expect("setpriv");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    };
    let claim = store.claim(id).expect("free");
    sees(RunState::Running);
    drop(claim);
    sees(RunState::Interrupted);
    std::fs::write(dir.path().join(format!("iotax.db-claim-{id}")), "").expect("left by a killed process");
    std::fs::set_permissions(
        dir.path().join(format!("iotax.db-claim-{id}")),
        std::fs::Permissions::from_mode(0o600),
    )
    .expect("ours");
    sees(RunState::Interrupted);
}
