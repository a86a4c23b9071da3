//! Tests that trends from separately stored figures equal those from complete runs.

use iotax_analysis::Metric;
use iotax_analysis::trend::{PastRun, RunFigures, TrendQuestion, Trends, trends};
use iotax_model::{Run, RunState};
use iotax_store::{Copied, Store, init};

use crate::both::fill;
use crate::test_store::{TestStore, both};
use iotax_testkit::runs::{self, HOST, Truth};

fn history() -> Vec<Run> {
    let run = |number: u32| {
        let slowdown = if number < 8 { 1.4 } else { 1.6 } + 0.001 * f64::from(number % 3);
        let truths = [("host-file", HOST), ("vm-raw", Truth { slowdown, ..HOST })];
        let mut run = runs::run(&truths, &["randread-4k-qd1", "seqread-1m"], 3, false);
        run.plan.control = Some("host-file".into());
        run
    };
    (0..16).map(run).collect()
}

fn followed(past: &[PastRun]) -> Trends {
    let metrics = Metric::compared().collect();
    trends(past, &TrendQuestion { metrics, ..TrendQuestion::default() })
}

/// Damages all measurements but keeps their number, so that reading one fails.
fn damage_measurements(at: &TestStore, store: &Store, runs: &[i64]) {
    at.sql("UPDATE measurement SET content = (SELECT content FROM run WHERE id = 1)");
    for run in runs {
        assert!(store.load(*run).is_err(), "run {run}");
    }
}

fn trends_of_stored_figures_are_those_of_whole_runs(at: &TestStore) {
    let mut store = at.open();
    let ids: Vec<i64> = history().iter().map(|run| fill(&mut store, run)).collect();
    let metrics: Vec<Metric> = Metric::compared().collect();
    let whole = ids.iter().map(|id| store.load(*id).expect("sound"));
    let whole: Vec<PastRun> = whole.map(|run| PastRun::of(&run, &metrics, vec![], String::new())).collect();
    damage_measurements(at, &store, &ids);
    let stored = ids.iter().map(|id| store.load_figures(*id).expect("stored apart"));
    let stored: Vec<PastRun> =
        stored.map(|(run, figures)| PastRun::with(&run, figures, vec![], String::new())).collect();
    let (from_stored, from_whole) = (followed(&stored), followed(&whole));
    assert!(from_stored == from_whole);
    let changed = |target: &str| {
        let of_target = from_stored.trends.iter().filter(|trend| trend.target == target);
        of_target.filter(|trend| !trend.changes.is_empty()).count()
    };
    assert!(changed("vm-raw") >= 2, "both workloads became slower");
    assert_eq!(changed("host-file"), 0);
}

/// Tests the stored figures of a finished run, a copy, a completed copy, and runs of an earlier version.
fn figures_are_stored_whichever_way_a_run_comes(at: &TestStore) {
    let from = TestStore::file();
    let (mut original, mut store) = (from.open(), at.open());
    let mut run = runs::ladder(false);
    let ended = fill(&mut store, &run);
    let figures = RunFigures::all(&run);
    let copied = fill(&mut original, &run);
    assert_eq!(
        original.copy_run(copied, &mut store).expect("copied"),
        Copied::Added { run: 2, measurements: 60 }
    );
    run.state = RunState::Interrupted;
    let rest = run.measurements.split_off(50);
    let grown = fill(&mut original, &run);
    assert_eq!(
        original.copy_run(grown, &mut store).expect("copied"),
        Copied::Added { run: 3, measurements: 50 }
    );
    original.put_measurements(grown, &rest).expect("stored");
    original.set_state(grown, RunState::Complete).expect("known");
    assert_eq!(
        original.copy_run(grown, &mut store).expect("more"),
        Copied::Completed { run: 3, measurements: 10 }
    );
    let earlier = fill(&mut store, &runs::ladder(false));
    at.sql("DELETE FROM run_figures WHERE run = 4");
    init(&at.location, &[], &[]).expect("brought up to date");
    let of_other_rules = fill(&mut store, &runs::ladder(false));
    at.sql("UPDATE run_figures SET rules = rules - 1 WHERE run = 5");
    assert!(store.load_figures(of_other_rules).expect("taken anew").1 == figures);
    let stored = [ended, 2, 3, earlier];
    damage_measurements(at, &store, &stored);
    for id in stored {
        assert!(store.load_figures(id).expect("stored apart").1 == figures, "run {id}");
    }
    let error = store.load_figures(of_other_rules).expect_err("its figures do not count").to_string();
    assert!(error.contains("run 5 cannot be shown"), "{error}");
}

both! {
    trends_of_stored_figures_are_those_of_whole_runs,
    figures_are_stored_whichever_way_a_run_comes,
}
