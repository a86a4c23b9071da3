//! Demands are kept, missed or open, and say why.

use iotax_analysis::demands::{DemandOnTarget, Kept, NoFigure, all_of, demands};
use iotax_analysis::judge;
use iotax_model::plan::Demand;
use iotax_model::record::{Measurement, Tally};
use iotax_model::{CellKey, Histogram, Run};
use iotax_testkit::runs::{HOST, Truth, run};

const QD1: &str = "randread-4k-qd1";

fn two(demanded: &[&str], slowdown: f64, noise: f64) -> Run {
    let mut run =
        run(&[("host-file", HOST), ("vm-raw", Truth { slowdown, noise, ..HOST })], &[QD1], 5, false);
    let demand = |keep: &&str| Demand { workload: None, keep: keep.parse().expect(keep), source: None };
    run.plan.require = demanded.iter().map(demand).collect();
    run
}

fn on<'a>(all: &'a [DemandOnTarget<'a>], target: &str) -> &'a DemandOnTarget<'a> {
    all.iter().find(|demand| demand.target == target).expect("demanded")
}

/// Mean latency of the baseline, in nanoseconds.
fn host_mean() -> f64 {
    let run = two(&[], 1.0, 0.004);
    let judgement = judge(&run);
    judgement
        .summary(CellKey { workload: QD1, target: "host-file" })
        .and_then(|host| host.latency.mean())
        .expect("measured")
}

#[test]
fn a_limit_between_two_targets_is_kept_by_one_and_missed_by_the_other() {
    let limit = (host_mean() * 1.1).round();
    for keep in [format!("mean <= {limit}ns"), format!("read mean <= {limit}ns")] {
        let run = two(&[&keep], 1.25, 0.004);
        let judgement = judge(&run);
        let all = demands(&run, &judgement);
        assert_eq!(all.len(), 2);
        let (host, guest) = (on(&all, "host-file"), on(&all, "vm-raw"));
        assert_eq!((host.kept, guest.kept), (Kept::Yes, Kept::No), "{all:?}");
        assert_eq!((all_of(&all, "host-file"), all_of(&all, "vm-raw")), (Kept::Yes, Kept::No));
        assert!((host.room().expect("known") - 1.1).abs() < 0.01, "{host:?}");
        assert!((guest.room().expect("known") - 1.1 / 1.25).abs() < 0.01, "{guest:?}");
        assert_eq!(host.workload, QD1);
    }
}

#[test]
fn of_a_rate_more_is_better() {
    let run = two(&["iops >= 1000000"], 1.0, 0.004);
    let judgement = judge(&run);
    let all = demands(&run, &judgement);
    let missed = on(&all, "vm-raw");
    assert_eq!(missed.kept, Kept::No);
    let room = missed.figure.expect("measured") / 1e6;
    assert!((missed.room().expect("known") - room).abs() < 1e-9);
    let run = two(&["iops >= 1"], 1.0, 0.004);
    assert_eq!(on(&demands(&run, &judge(&run)), "vm-raw").kept, Kept::Yes);
}

#[test]
fn a_limit_within_the_interval_is_open_and_one_of_many_decides() {
    let limit = (host_mean() * 1.25).round();
    let within = format!("mean <= {limit}ns");
    let run = two(&[&within, "iops >= 1"], 1.25, 0.05);
    let judgement = judge(&run);
    let all = demands(&run, &judgement);
    let open = on(&all, "vm-raw");
    assert_eq!((open.kept, open.missing), (Kept::Undecided, None), "{open:?}");
    assert_eq!((all_of(&all, "host-file"), all_of(&all, "vm-raw")), (Kept::Yes, Kept::Undecided));
    let run = two(&[&within, "iops >= 1000000"], 1.25, 0.05);
    let judgement = judge(&run);
    assert_eq!(all_of(&demands(&run, &judgement), "vm-raw"), Kept::No, "one that is missed decides");
}

#[test]
fn too_few_for_a_percentile_may_be_enough_for_a_no() {
    let known = host_mean();
    for (limit, missed) in [(known / 2.0, true), (known * 1000.0, false)] {
        let run = two(&[&format!("p99.99 <= {limit:.0}ns")], 1.0, 0.004);
        // Too few for this percentile, and nearly all beyond one limit.
        let few = |m: &Measurement| m.outcome.tallies.latency().count() < 100_000;
        assert!(run.measurements.iter().all(few));
        let judgement = judge(&run);
        let all = demands(&run, &judgement);
        let one = on(&all, "host-file");
        let is_beyond = matches!(one.missing, Some(NoFigure::Beyond { longer, of }) if longer * 2 > of);
        assert_eq!((one.kept == Kept::No, is_beyond), (missed, missed), "{one:?}");
        assert_eq!(one.figure, None);
    }
}

#[test]
fn what_is_unknown_is_no_answer_and_has_its_reason() {
    let run = two(&["write p99 <= 1s"], 1.0, 0.004);
    assert_eq!(on(&demands(&run, &judge(&run)), "vm-raw").missing, Some(NoFigure::NotMeasured));
    let run = two(&["p99.999 <= 1s"], 1.0, 0.004);
    let judgement = judge(&run);
    let all = demands(&run, &judgement);
    let few = on(&all, "vm-raw");
    let Some(NoFigure::TooFew { needed: 1_000_000, seconds: Some(seconds) }) = few.missing else {
        panic!("{few:?}");
    };
    let done = |m: &Measurement| m.outcome.tallies.latency().count() as f64 / m.outcome.duration_ns as f64;
    let slowest = run.measurements.iter().filter(|m| m.target == "vm-raw").map(done).fold(f64::MAX, f64::min);
    assert!((seconds as f64 - 1e-3 / slowest).abs() <= 1.0, "{seconds} s at {slowest} per ns");
    assert_eq!(few.kept, Kept::Undecided);
    let mut run = two(&["mean <= 1s"], 1.0, 0.004);
    run.measurements.retain(|m| m.round == 1);
    let judgement = judge(&run);
    let all = demands(&run, &judgement);
    let once = on(&all, "vm-raw");
    assert_eq!((once.kept, once.missing, once.interval), (Kept::Undecided, Some(NoFigure::OneRound), None));
    assert!(once.figure.is_some());
    run.measurements.retain(|m| m.target != "vm-raw");
    assert_eq!(on(&demands(&run, &judge(&run)), "vm-raw").missing, Some(NoFigure::NotMeasured));
}

#[test]
fn the_time_of_a_direct_sync_is_that_of_the_write_before_it_too() {
    for (direct, kept) in [(true, Kept::No), (false, Kept::Yes)] {
        let mut run = two(&["sync mean <= 10ms"], 1.0, 0.004);
        run.plan.workloads[0].direct = direct;
        let of = |ns| {
            let mut times = Histogram::new();
            times.add_many(ns, 1000);
            times
        };
        for m in &mut run.measurements {
            let tallies = &mut m.outcome.tallies;
            tallies.sync = Some(Tally { ios: 1000, latency: of(1_000_000), ..Tally::default() });
            tallies.commit = Some(of(25_000_000));
        }
        let judgement = judge(&run);
        assert_eq!(on(&demands(&run, &judgement), "vm-raw").kept, kept, "direct = {direct}");
    }
}
