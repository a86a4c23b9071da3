//! Tests of comparing the cost of an event on two targets, on synthetic runs.

use iotax_analysis::judge;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::watch::{EventFigure, PriceComparison, episodes, price_comparisons, prices};
use iotax_model::plan::{Design, WatchSpec};
use iotax_model::record::{Blackout, Happened, IoClass, Occurrence};
use iotax_model::{Nanos, Run, Workload};
use iotax_report::{document, terminal};

use crate::conclusions::sentences;
use crate::json::checked;
use iotax_testkit::runs::{HOST, Truth, measurement, run, whole};

const MS: u64 = 1_000_000;
/// Differences of operations by round, with a sum of zero.
const STRAYS: [f64; 5] = [0.01, -0.02, 0.0, 0.02, -0.01];

/// A commit at 2 s that takes `ms` and slows the load by a factor, and the same load without it.
fn watched(truths: &[(&str, f64, f64)], rounds: u32) -> Run {
    let targets: Vec<(&str, Truth)> = truths.iter().map(|(name, ..)| (*name, HOST)).collect();
    let mut run = run(&targets, &["randread-4k-qd1"], rounds, false);
    let load = Workload { blackout: Some(Nanos(100 * MS)), ..run.plan.workloads[0].clone() };
    let control = Workload { name: "control".into(), ..load.clone() };
    let watch = WatchSpec {
        events: vec!["commit@2s = true".parse().expect("an event")],
        control: Some("control".into()),
        ..WatchSpec::default()
    };
    run.plan.design = Design::Watch(watch);
    run.plan.workloads = vec![load.clone(), control.clone()];
    run.measurements.clear();
    for round in 1..=rounds {
        for (phase, (name, ms, slower)) in truths.iter().enumerate() {
            let stray = STRAYS[(round as usize + phase) % STRAYS.len()].exp();
            // Of one phase, so that seconds and rounds stray alike on all targets.
            let mut with = measurement(&load, name, HOST, round, 0);
            let slow = Truth { slowdown: *slower, ..HOST };
            let slow = measurement(&load, name, slow, round, 0);
            with.samples[2..4].clone_from_slice(&slow.samples[2..4]);
            with.outcome.blackouts = Some(vec![]);
            let took = whole(ms * stray * MS as f64);
            let what = Happened::Event { name: "commit".into(), duration_ns: Some(took), failure: None };
            with.occurrences.push(Occurrence { at_ns: 2000 * MS, what });
            let mut without = measurement(&control, name, HOST, round, 0);
            without.outcome.blackouts = Some(vec![]);
            run.measurements.extend([with, without]);
        }
    }
    for sample in run.measurements.iter_mut().flat_map(|m| &mut m.samples) {
        for tally in [&mut sample.tallies.read, &mut sample.tallies.write].into_iter().flatten() {
            tally.response = Some(tally.latency.clone());
        }
    }
    run
}

fn of<'a>(all: &'a [PriceComparison<'_>], target: &str, figure: EventFigure) -> &'a PriceComparison<'a> {
    all.iter().find(|one| one.target == target && one.figure == figure).expect("compared")
}

#[test]
fn an_operation_is_compared_by_what_it_takes_and_by_the_load_meanwhile() {
    let run = watched(&[("host-file", 400.0, 2.0), ("vm-raw", 404.0, 2.0), ("vm-qcow2", 1000.0, 3.0)], 5);
    let episodes = episodes(&run);
    let all = price_comparisons(&run, &episodes);
    let verdict = |target: &str, figure| of(&all, target, figure).ratio.verdict;
    let took = of(&all, "vm-qcow2", EventFigure::Took);
    assert_eq!((took.ratio.verdict, took.rounds, took.baseline), (Verdict::Slower, 5, "host-file"));
    assert!((took.ratio.mean / 2.5 - 1.0).abs() < 0.02, "{took:?}");
    assert!(took.ratio.interval.is_some_and(|i| i.low < 2.5 && i.high > 2.5), "{took:?}");
    for figure in [EventFigure::ResponseMean, EventFigure::ResponseP99, EventFigure::Slowdown] {
        let qcow2 = of(&all, "vm-qcow2", figure);
        assert_eq!(qcow2.ratio.verdict, Verdict::Slower, "{qcow2:?}");
        assert!((1.4..1.6).contains(&qcow2.ratio.mean), "{qcow2:?}");
        assert_eq!(verdict("vm-raw", figure), Verdict::Same);
    }
    // 1% more with strays of 2% each: five rounds do not tell it from the margin.
    let raw = of(&all, "vm-raw", EventFigure::Took);
    assert_eq!(raw.ratio.verdict, Verdict::Undecided, "{raw:?}");
    assert!(raw.ratio.needed_rounds > Some(5), "{raw:?}");
    // Without a gap on either side, both are below the recording threshold.
    assert_eq!(verdict("vm-qcow2", EventFigure::Gap), Verdict::Same);

    let document = checked(&run);
    let compared = document["price_comparisons"].as_array().expect("comparisons");
    assert_eq!(compared.len(), 10, "two targets, five figures");
    let printed = terminal::set(&document::run(&run, &judge(&run)), 200, false);
    assert!(printed.contains("What each event costs against host-file, 5 rounds"), "{printed}");
    assert!(printed.contains("1 of 10 comparisons not decided"), "{printed}");
    assert!(printed.contains("iotax resume 17 --repeat"), "{printed}");
}

#[test]
fn a_backup_by_fleecing_is_compared_with_a_plain_one_on_the_same_target() {
    let mut run = watched(&[("host-file", 400.0, 4.0), ("vm-raw", 400.0, 3.0)], 5);
    if let Design::Watch(watch) = &mut run.plan.design {
        watch.events = ["backup", "backup-fleecing"].map(|event| event.parse().expect("an event")).into();
    }
    for m in run.measurements.iter_mut().filter(|m| m.workload != "control") {
        let mut backup = m.occurrences.remove(0);
        for (at_ns, operation) in [(2000 * MS, "backup"), (5000 * MS, "backup-fleecing")] {
            if let Happened::Event { name, .. } = &mut backup.what {
                *name = operation.into();
            }
            m.occurrences.push(Occurrence { at_ns, ..backup.clone() });
        }
    }
    let episodes = episodes(&run);
    let all = price_comparisons(&run, &episodes);
    let (targets, events) = all.split_at(10);
    assert!(targets.iter().all(|one| one.event == one.baseline_event && one.baseline == "host-file"));
    assert_eq!(events.len(), 10, "two targets, five figures");
    for (target, slower) in [("host-file", 4.0), ("vm-raw", 3.0)] {
        let mean = of(events, target, EventFigure::ResponseMean);
        assert_eq!((mean.event, mean.baseline_event), ("backup-fleecing", "backup"));
        assert_eq!((mean.baseline, mean.ratio.verdict), (target, Verdict::Faster), "{mean:?}");
        assert!((mean.ratio.mean * slower - 1.0).abs() < 0.1, "{mean:?}");
        assert_eq!(of(events, target, EventFigure::Took).ratio.verdict, Verdict::Same);
    }

    let document = checked(&run);
    let compared = document["price_comparisons"].as_array().expect("comparisons");
    assert_eq!(compared[10]["baseline_event"], "backup", "{compared:?}");
    let printed = terminal::set(&document::run(&run, &judge(&run)), 200, false);
    for words in [
        "What each event costs against host-file, 5 rounds",
        "What backup-fleecing costs against backup, 5 rounds",
        "Change against backup, in the seconds of the event",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
}

#[test]
fn a_gap_counts_and_an_operation_that_failed_has_no_verdict() {
    let mut run = watched(&[("host-file", 400.0, 1.0), ("vm-raw", 400.0, 1.0)], 3);
    let raw = |m: &&mut iotax_model::record::Measurement| m.target == "vm-raw" && m.workload != "control";
    for m in run.measurements.iter_mut().filter(raw) {
        let gap = Blackout { of: IoClass::Reads, at_ns: 2100 * MS, duration_ns: 300 * MS, ended: true };
        m.outcome.blackouts = Some(vec![gap]);
    }
    {
        let episodes = episodes(&run);
        let all = price_comparisons(&run, &episodes);
        let gap = of(&all, "vm-raw", EventFigure::Gap);
        assert!((gap.ratio.mean / 3.0 - 1.0).abs() < 1e-9, "300 ms against less than 100 ms: {gap:?}");
        assert_eq!(gap.ratio.verdict, Verdict::Slower);
    }
    let failed = run.measurements.iter_mut().find(|m| m.round == 2 && m.workload != "control").expect("one");
    failed.occurrences[0].what = Happened::Event {
        name: "commit".into(),
        duration_ns: Some(MS),
        failure: Some("exit status 1".into()),
    };
    let episodes = episodes(&run);
    let all = price_comparisons(&run, &episodes);
    for one in &all {
        assert_eq!(one.ratio.verdict, Verdict::Undecided, "{one:?}");
        assert_eq!(one.ratio.withheld.as_deref(), Some("host-file, round 2: commit failed"), "{one:?}");
    }
    assert!(!all.is_empty(), "there is something to withhold");
}

#[test]
fn an_operation_that_outlasts_its_windows_is_named_with_what_it_takes_and_without_a_price() {
    let run = watched(&[("host-file", 400.0, 2.0), ("vm-raw", 600_000.0, 2.0)], 3);
    let episodes = episodes(&run);
    let all = prices(&run, &episodes);
    let [finished, unfinished] = all.as_slice() else { panic!("{all:?}") };
    assert!(finished.rounds == 3 && finished.mean.is_some(), "{finished:?}");
    assert!(
        unfinished.rounds == 0 && unfinished.mean.is_none() && unfinished.gap_ns.is_none(),
        "{unfinished:?}"
    );
    assert!(unfinished.took_ns.is_some_and(|ns| ns > 5e11), "{unfinished:?}");
    checked(&run);
    let printed = sentences(&run).join("\n");
    assert!(printed.contains("commit on vm-raw: no price: it takes "), "{printed}");
    assert!(printed.contains("was seen to its end in no round; give a longer runtime"), "{printed}");
    assert!(printed.contains("an event went on after the load in 3"), "{printed}");
}

#[test]
fn a_single_round_compares_no_prices() {
    let run = watched(&[("host-file", 400.0, 2.0), ("vm-raw", 900.0, 2.0)], 1);
    assert_eq!(price_comparisons(&run, &episodes(&run)), []);
}

/// Doubled from the snapshot's end at 2.4 s until 4 s.
#[test]
fn writes_after_a_snapshot_have_a_price_and_an_end() {
    let mut run = watched(&[("host-file", 400.0, 2.0)], 5);
    if let Design::Watch(watch) = &mut run.plan.design {
        watch.events = vec!["snapshot@2s".parse().expect("an event")];
    }
    for m in &mut run.measurements {
        m.samples.iter_mut().for_each(|sample| sample.tallies.write = sample.tallies.read.take());
        for occurrence in &mut m.occurrences {
            if let Happened::Event { name, .. } = &mut occurrence.what {
                *name = "snapshot".into();
            }
        }
    }
    let episodes = episodes(&run);
    let all = prices(&run, &episodes);
    let writes = all[0].first_writes.expect("writes");
    assert_eq!((writes.slower_ns, writes.outlasts()), (1000 * MS, false), "{writes:?}");
    // The second from 2 s to 3 s holds the snapshot itself, and the one after it is slower; fewer I/Os complete in it.
    assert!((1.1..1.5).contains(&writes.mean.ratio()) && writes.mean.is_decided(), "{writes:?}");
    let document = checked(&run);
    assert_eq!(document["prices"][0]["first_writes"]["slower_ns"], 1000 * MS);
    let told = sentences(&run).join("\n");
    assert!(
        told.contains("snapshot on host-file: writes in the ") && told.contains("), slower for 1"),
        "{told}"
    );

    // Other events have no such line.
    let commit = watched(&[("host-file", 400.0, 2.0)], 5);
    assert_eq!(prices(&commit, &iotax_analysis::watch::episodes(&commit))[0].first_writes, None);
}
