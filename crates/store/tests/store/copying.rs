//! Tests of copying runs between stores.

use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use iotax_model::{Run, RunState};
use iotax_store::{Copied, Notes, Store, StoreError};
use iotax_testkit::require;

use crate::both::{fill, rich};
use crate::test_store::TestStore;
use iotax_testkit::runs;

/// Tests a copy from a file to a database and back to another file: nothing changes.
#[test]
fn a_run_comes_back_from_a_server_bit_for_bit() {
    require!(file iotax_testkit::postgres::PROGRAM);
    let (from, over, to) = (TestStore::file(), TestStore::postgres(), TestStore::file());
    let mut store = from.open();
    fill(&mut store, &runs::bench());
    let run = rich();
    let id = fill(&mut store, &run);
    let notes = Notes { tags: vec!["a".into(), "b".into()], text: "on Tuesday".into() };
    store.set_notes(id, &notes).expect("kept");
    let (mut server, mut back) = (over.open(), to.open());
    let measurements = run.measurements.len() as u64;
    assert_eq!(store.copy_run(id, &mut server).expect("copied"), Copied::Added { run: 1, measurements });
    assert_eq!(server.copy_run(1, &mut back).expect("copied"), Copied::Added { run: 1, measurements });
    assert!(back.load(1).expect("there") == Run { id: 1, ..run });
    assert_eq!(back.notes(1).expect("there"), notes);
    let prints =
        [store.fingerprint(id), server.fingerprint(1), back.fingerprint(1)].map(|one| one.expect("read"));
    assert!(prints.iter().all(|print| *print == prints[0]), "{prints:?}");
    // Again in any direction: nothing is added.
    assert_eq!(store.copy_run(id, &mut server).expect("again"), Copied::Same { run: 1 });
    assert_eq!(back.copy_run(1, &mut store).expect("back"), Copied::Same { run: id });
    assert_eq!(server.runs().expect("listed").len(), 1);
    back.change_notes(1, |notes| notes.tags.push("c".into())).expect("kept");
    assert_eq!(back.copy_run(1, &mut server).expect("newer"), Copied::Noted { run: 1 });
    assert_eq!(store.copy_run(id, &mut server).expect("older"), Copied::Same { run: 1 });
    assert_eq!(server.notes(1).expect("there").tags, ["a", "b", "c"]);
}

fn a_run_that_grew_is_completed(at: &TestStore) {
    let from = TestStore::file();
    let (mut store, mut copy) = (from.open(), at.open());
    let mut run = runs::ladder(false);
    run.state = RunState::Interrupted;
    let mut rest = run.measurements.split_off(50);
    let id = fill(&mut store, &run);
    assert_eq!(store.copy_run(id, &mut copy).expect("copied"), Copied::Added { run: 1, measurements: 50 });
    let last = rest.pop().expect("some");
    store.put_measurements(id, &rest).expect("stored");
    store.set_state(id, RunState::Complete).expect("known");
    let claim = copy.claim(1).expect("free");
    assert!(
        matches!(store.copy_run(id, &mut copy), Err(StoreError::Claimed { run: 1 })),
        "somebody works on the copy"
    );
    drop(claim);
    assert_eq!(store.copy_run(id, &mut copy).expect("more"), Copied::Completed { run: 1, measurements: 9 });
    assert_eq!(store.copy_run(id, &mut copy).expect("again"), Copied::Same { run: 1 });
    let (mine, theirs) = (store.load(id).expect("there"), copy.load(1).expect("there"));
    assert!(mine == Run { id, ..theirs });
    // The copy went on, and the original does not know: nothing is taken away.
    copy.put_measurement(1, &last).expect("stored");
    assert_eq!(store.copy_run(id, &mut copy).expect("less"), Copied::Same { run: 1 });
    assert_eq!(copy.load(1).expect("there").measurements.len(), 60);
    let mut other = last.clone();
    other.order += 1;
    store.put_measurement(id, &other).expect("stored");
    let refused = store.copy_run(id, &mut copy).expect_err("both went on").to_string();
    assert!(
        refused.contains("run 1 and its copy, run 1 of") && refused.contains("neither was changed"),
        "{refused}"
    );
}

fn a_running_run_is_not_copied(at: &TestStore) {
    let to = TestStore::file();
    let mut store = at.open();
    let mut run = runs::bench();
    run.state = RunState::Running;
    let id = fill(&mut store, &run);
    let claim = store.claim(id).expect("free");
    assert!(matches!(store.copy_run(id, &mut to.open()), Err(StoreError::Claimed { run: 1 })));
    drop(claim);
    store.copy_run(id, &mut to.open()).expect("nobody works on it");
    assert_eq!(to.open().load(1).expect("there").state, RunState::Interrupted);
}

fn two_that_push_the_same_at_once_make_one_copy(at: &TestStore) {
    let from = TestStore::file();
    let mut store = from.open();
    for _ in 0..5 {
        fill(&mut store, &runs::ladder(false));
    }
    drop(at.open());
    let barrier = Barrier::new(3);
    let added: usize = thread::scope(|scope| {
        let pushers = [0, 1, 2].map(|_| {
            scope.spawn(|| {
                let from = Store::open_to_read(&from.location).expect("there");
                let mut to = at.open();
                barrier.wait();
                let copied = (1..=5).map(|run| from.copy_run(run, &mut to).expect("copied"));
                copied.filter(|copied| matches!(copied, Copied::Added { .. })).count()
            })
        });
        pushers.into_iter().map(|pusher| pusher.join().expect("no panic")).sum()
    });
    let there = at.open();
    let listed = there.runs().expect("listed");
    assert_eq!((added, listed.len()), (5, 5));
    assert!(
        listed
            .iter()
            .all(|(_, run)| run.as_ref().is_ok_and(|run| run.damage.is_none() && run.measured == 60))
    );
}

const VICTIM: &str = "IOTAX_TEST_PUSH_TO_BE_KILLED";

#[test]
#[ignore = "not a test of its own: a_push_that_is_killed_leaves_no_half_run starts it and kills it"]
fn victim() {
    let locations = std::env::var(VICTIM).expect("started by its test");
    let (from, to) = locations.split_once(' ').expect("two places");
    let from = Store::open_to_read(from).expect("there");
    let mut to = Store::open(to).expect("there");
    for (run, _) in from.runs().expect("listed") {
        from.copy_run(run, &mut to).expect("copied");
    }
}

fn a_push_that_is_killed_leaves_no_half_run(at: &TestStore) {
    let from = TestStore::file();
    let mut store = from.open();
    for _ in 0..12 {
        fill(&mut store, &runs::ladder(false));
    }
    let there = at.open();
    let count = || there.list(&iotax_store::Filter::default()).expect("listed").len();
    let begun = Instant::now();
    // Killed at some point of some run, again and again until all are there.
    for wait in [1, 7, 13] {
        let before = count();
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--ignored", "--exact", "copying::victim", "--nocapture"])
            .env(VICTIM, format!("{} {}", from.location, at.location))
            .stdout(Stdio::null())
            .spawn()
            .expect("starts");
        while count() < before + 2 && child.try_wait().expect("asked").is_none() {
            assert!(begun.elapsed() < Duration::from_mins(2), "nothing is copied");
            thread::sleep(Duration::from_millis(wait));
        }
        child.kill().expect("running or ended");
        child.wait().expect("ended");
        let listed = there.runs().expect("listed");
        let is_whole = |run: &Result<iotax_store::RunSummary, StoreError>| {
            run.as_ref().is_ok_and(|run| run.damage.is_none() && run.measured == 60)
        };
        assert!(listed.len() >= 2 && listed.iter().all(|(_, run)| is_whole(run)), "{listed:?}");
    }
    let mut to = at.open();
    for run in 1..=12 {
        store.copy_run(run, &mut to).expect("copied");
        let id = match store.copy_run(run, &mut to).expect("again") {
            Copied::Same { run } => run,
            other => panic!("{other:?}"),
        };
        assert_eq!(store.fingerprint(run).expect("read"), to.fingerprint(id).expect("read"));
    }
    assert_eq!(count(), 12);
}

crate::test_store::both! {
    a_push_that_is_killed_leaves_no_half_run,
    a_run_that_grew_is_completed,
    a_running_run_is_not_copied,
    two_that_push_the_same_at_once_make_one_copy,
}
