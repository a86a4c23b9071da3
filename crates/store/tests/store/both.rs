//! Tests that runs are stored and loaded unchanged, in a file and in a database.

use crate::test_store::{TestStore, both};
use iotax_analysis::trend::RunFigures;
use iotax_model::Run;
use iotax_model::RunState;
use iotax_model::record::{Environment, ErrorCount, FleetMember, FleetMode, Pressure};
use iotax_model::{Warning, WarningKind};
use iotax_store::{Filter, NewRun, Notes, Store, StoreError};
use iotax_testkit::runs::{self, ladder};

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

fn a_measurement_that_was_made_up_for_is_no_longer_incomplete(at: &TestStore) {
    let mut store = at.open();
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

/// Tests that figures stored separately are updated on every change of a run.
fn the_figures_of_trends_are_those_of_the_whole_run(at: &TestStore) {
    let mut store = at.open();
    let mut run = ladder(false);
    let late = run.measurements.pop().expect("60 of them");
    let id = fill(&mut store, &run);
    let check = |store: &Store, measured: usize| {
        let whole = store.load(id).expect("loaded");
        assert_eq!(whole.measurements.len(), measured);
        let (head, figures) = store.load_figures(id).expect("read");
        assert!(figures == RunFigures::all(&whole));
        assert!(head == Run { measurements: vec![], ..whole });
    };
    check(&store, 59);
    store.put_measurement(id, &late).expect("stored");
    check(&store, 60);
    store.set_state(id, RunState::Running).expect("known");
    let _claim = store.claim(id).expect("free");
    let (running, figures) = store.load_figures(id).expect("by its measurements");
    assert!(running.state == RunState::Running && figures != RunFigures::default());
    assert!(matches!(store.load_figures(9), Err(StoreError::UnknownRun { run: 9, last: 1, .. })));
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
        in_ramp: 0,
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

fn a_run_reads_back_as_it_was_written(at: &TestStore) {
    let run = rich();
    let id = fill(&mut at.open(), &run);
    let read = at.open().load(id).expect("known");
    assert_eq!(read, Run { id, ..run });
}

fn runs_are_listed_in_order(at: &TestStore) {
    let mut store = at.open();
    assert_eq!((store.runs().expect("empty").len(), store.latest().expect("empty")), (0, None));
    let first = fill(&mut store, &runs::bench());
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

fn a_run_is_running_as_long_as_a_process_has_it(at: &TestStore) {
    let mut store = at.open();
    let mut run = runs::bench();
    run.state = RunState::Running;
    let (id, other) = (fill(&mut store, &run), fill(&mut store, &run));
    let states = || {
        let runs = at.try_read().expect("there").runs().expect("two");
        [id, other].map(|id| {
            runs.iter().find(|(run, _)| *run == id).expect("listed").1.as_ref().expect("sound").state
        })
    };
    assert_eq!(states(), [RunState::Interrupted; 2]);
    let claim = store.claim(other).expect("free");
    // However often it is queried.
    for _ in 0..1000 {
        assert_eq!(store.load(other).expect("known").state, RunState::Running);
    }
    assert_eq!(states(), [RunState::Interrupted, RunState::Running]);
    let refused = store.claim(other).expect_err("taken").to_string();
    assert!(refused.contains("run 2 is still going on in another process"), "{refused}");
    drop(claim);
    assert_eq!(states(), [RunState::Interrupted; 2]);
}

fn a_run_can_be_read_while_it_is_written(at: &TestStore) {
    let mut writer = at.open();
    let run = ladder(false);
    let id = fill(&mut writer, &Run { measurements: run.measurements[..5].to_vec(), ..run.clone() });
    let reader = at.try_read().expect("open beside the writer");
    for measurement in &run.measurements[5..8] {
        writer.put_measurement(id, measurement).expect("not in the reader's way");
    }
    assert_eq!(reader.load(id).expect("known").measurements.len(), 8);
}

fn a_target_is_replaced_and_a_measurement_is_not(at: &TestStore) {
    let mut store = at.open();
    let run = runs::bench();
    let id = fill(&mut store, &run);
    let rebuilt = runs::record("disk.img", true);
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

fn an_unknown_run_names_the_known_ones(at: &TestStore) {
    let store = at.open();
    let text = |error: StoreError| error.to_string();
    assert!(text(store.load(3).expect_err("none")).contains("no run 3: the store is empty; see: iotax list"));
    let mut store = store.named(Some("there/a b.db".into()));
    let said = text(store.load(3).expect_err("none"));
    assert!(said.ends_with("see: iotax list --db 'there/a b.db'"), "{said}");
    fill(&mut store, &runs::bench());
    assert!(text(store.load(3).expect_err("one")).contains("holds only run 1"));
    fill(&mut store, &runs::bench());
    assert!(text(store.load(3).expect_err("two")).contains("holds runs 1 to 2"));
    let refused = [
        store.set_state(3, RunState::Failed).expect_err("unknown"),
        store.set_repeat(3, 2).expect_err("unknown"),
        store.set_environment(3, &Environment::default()).expect_err("unknown"),
        store.put_target(3, &runs::record("a", false)).expect_err("unknown"),
        store.put_measurement(3, &runs::bench().measurements[0]).expect_err("unknown"),
    ];
    assert!(
        refused.iter().all(|error| matches!(error, StoreError::UnknownRun { run: 3, .. })),
        "{refused:?}"
    );
}

fn a_filter_lets_through_what_fits(at: &TestStore) {
    let mut store = at.open();
    let mut run = runs::bench();
    run.environment.hostname = Some("Rechner-ä".into());
    run.plan.name = "100% of_it".into();
    let first = fill(&mut store, &run);
    run.plan.name = "1000 of it".into();
    run.environment.hostname = None;
    run.state = RunState::Running;
    let second = fill(&mut store, &run);
    run.fleet = Some(FleetMember {
        fleet: "f1".into(),
        member: "m".into(),
        mode: FleetMode::Shared,
        link: "ssh://m".into(),
    });
    let third = fill(&mut store, &run);
    let notes = Notes { tags: vec!["nightly".into(), "A".into()], text: "the ÄRGER of Tuesday".into() };
    store.set_notes(second, &notes).expect("kept");
    store.set_notes(third, &Notes { tags: vec!["nightly".into()], text: String::new() }).expect("kept");
    let read = store.notes(second).expect("there");
    assert_eq!(
        (read.tags.as_slice(), read.text.as_str()),
        (&["A".into(), "nightly".into()][..], &*notes.text)
    );
    assert_eq!(store.notes(first).expect("none"), Notes::default());
    let _claim = store.claim(third).expect("free");
    let text = |text: &str| Filter { text: text.into(), ..Filter::default() };
    let tags =
        |tags: &[&str]| Filter { tags: tags.iter().map(|tag| (*tag).into()).collect(), ..Filter::default() };
    let state = |state| Filter { state: Some(state), ..Filter::default() };
    for (filter, expected) in [
        (Filter::default(), vec![third, second, first]),
        (Filter { limit: Some(2), ..Filter::default() }, vec![third, second]),
        (Filter { before: Some(third), limit: Some(1), ..Filter::default() }, vec![second]),
        (text("100%"), vec![first]),
        (text("OF_IT"), vec![first]),
        (text("of it"), vec![third, second, first]),
        (text("rechner-Ä"), vec![first]),
        (text("Ärger tuesday"), vec![second]),
        (text("ärger monday"), vec![]),
        (text("nightly"), vec![third, second]),
        (text("DISK.img"), vec![third, second, first]),
        (text("' OR 1 = 1 --"), vec![]),
        (text("!"), vec![]),
        (tags(&["nightly"]), vec![third, second]),
        (tags(&["nightly", "A"]), vec![second]),
        (tags(&["a"]), vec![]),
        (state(RunState::Running), vec![third]),
        (state(RunState::Interrupted), vec![second]),
        (state(RunState::Complete), vec![first]),
        (Filter { machine: Some("Rechner-ä".into()), ..Filter::default() }, vec![first]),
        (Filter { fleet: Some("f1".into()), ..Filter::default() }, vec![third]),
    ] {
        let found: Vec<i64> = store.list(&filter).expect("listed").iter().map(|run| run.id).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
    let listed = store.list(&Filter::default()).expect("listed");
    assert_eq!(
        (listed[1].tags.len(), listed[0].state, listed[1].state),
        (2, RunState::Running, RunState::Interrupted)
    );
    assert_eq!(listed[0].fleet, run.fleet);
    assert!(matches!(store.set_notes(9, &notes), Err(StoreError::UnknownRun { run: 9, last: 3, .. })));
}

fn a_run_shows_how_far_it_is(at: &TestStore) {
    let mut store = at.open();
    let mut run = runs::bench();
    run.state = RunState::Running;
    let id = fill(&mut store, &run);
    let reader = at.try_read().expect("there");
    let claim = store.claim(id).expect("free");
    assert_eq!(reader.live(id).expect("asked"), None);
    for round in [1, 2] {
        let state = serde_json::json!({ "round": round, "target": "disk\u{0}.img" });
        store.put_live(id, &state).expect("shown");
        assert_eq!(reader.live(id).expect("asked").expect("shown")["round"], round);
    }
    drop(claim);
    assert_eq!(reader.live(id).expect("asked"), None, "nobody works on it");
    let _claim = store.claim(id).expect("free");
    store.set_state(id, RunState::Complete).expect("known");
    assert_eq!(reader.live(id).expect("asked"), None, "removed with the end of the run");
}

fn names_of_any_kind_are_kept(at: &TestStore) {
    let mut store = at.open();
    let mut run = runs::bench();
    run.plan.name = "nul \u{0} and \u{202e} \u{1f4be} '\"\\".into();
    run.environment.hostname = Some("h\u{0}".into());
    let id = fill(&mut store, &run);
    assert!(store.load(id).expect("known") == Run { id, ..run });
    assert_eq!(store.list(&Filter::default()).expect("listed").len(), 1);
    let refused = store.set_notes(id, &Notes { tags: vec!["a\u{0}".into()], text: String::new() });
    assert!(refused.expect_err("no tag").to_string().contains("NUL"));
}

both! {
    the_figures_of_trends_are_those_of_the_whole_run,
    a_measurement_that_was_made_up_for_is_no_longer_incomplete,
    a_run_reads_back_as_it_was_written,
    runs_are_listed_in_order,
    a_run_is_running_as_long_as_a_process_has_it,
    a_run_can_be_read_while_it_is_written,
    a_target_is_replaced_and_a_measurement_is_not,
    an_unknown_run_names_the_known_ones,
    a_filter_lets_through_what_fits,
    a_run_shows_how_far_it_is,
    names_of_any_kind_are_kept,
}
