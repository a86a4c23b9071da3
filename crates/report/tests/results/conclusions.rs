//! Tests of the conclusions from a run, with a synthetic run for each possible sentence.

use iotax_analysis::judge;
use iotax_model::Run;
use iotax_model::workload::Workload;
use iotax_report::sentences::conclusions;

use iotax_testkit::runs::observed::both_ladders;
use iotax_testkit::runs::{HOST, Truth, bench, damaged, ladder, measurement, run};

/// Returns the conclusions from a run.
pub(crate) fn sentences(run: &Run) -> Vec<String> {
    conclusions(run, &judge(run))
}

/// The sentences, one a line.
fn said(run: &Run) -> String {
    sentences(run).join("\n")
}

fn guest(slowdown: f64, noise: f64) -> Truth {
    Truth { slowdown, noise, cpu_ns: 9_800.0 }
}

fn two(slowdown: f64, noise: f64, rounds: u32) -> Run {
    run(
        &[("host-file", HOST), ("vm-raw", guest(slowdown, noise))],
        &["randread-4k-qd1", "seqwrite-1m"],
        rounds,
        false,
    )
}

/// Replaces the measurements of one target on one workload.
fn otherwise(run: &mut Run, target: &str, workload: &str, truth: Truth) {
    let asked: Workload = run.plan.workloads.iter().find(|w| w.name == workload).expect("planned").clone();
    for m in run.measurements.iter_mut().filter(|m| m.target == target && m.workload == workload) {
        let anew = measurement(&asked, target, truth, m.round, target.len());
        *m = iotax_model::record::Measurement { order: m.order, started_at_ms: m.started_at_ms, ..anew };
    }
}

#[test]
fn a_clear_win() {
    insta::assert_snapshot!(said(&two(1.42, 0.005, 5)));
}

#[test]
fn a_dead_heat() {
    insta::assert_snapshot!(said(&two(1.001, 0.003, 5)));
}

#[test]
fn faster_than_the_baseline() {
    insta::assert_snapshot!(said(&two(0.4, 0.003, 5)));
}

#[test]
fn undecided() {
    insta::assert_snapshot!(said(&two(1.05, 0.06, 3)));
}

#[test]
fn undecided_on_one_workload_only() {
    let mut run = two(1.42, 0.005, 5);
    otherwise(&mut run, "vm-raw", "seqwrite-1m", guest(1.04, 0.03));
    insta::assert_snapshot!(said(&run));
}

#[test]
fn many_pairs_undecided_are_counted() {
    let mut run = both_ladders();
    for m in &mut run.measurements {
        let stray = f64::from((m.round * 7 + m.order * 3) % 11) / 40.0;
        for tally in m.outcome.tallies.read.iter_mut().chain(&mut m.outcome.tallies.write) {
            let mean = tally.latency.mean().expect("I/O") * (1.0 + stray);
            tally.latency = iotax_model::Histogram::new();
            tally.latency.add_many(iotax_testkit::runs::whole(mean), tally.ios);
        }
    }
    insta::assert_snapshot!(said(&run));
}

#[test]
fn one_round_alone() {
    insta::assert_snapshot!(said(&two(1.3, 0.01, 1)));
}

#[test]
fn mixed_signs_over_workloads() {
    let mut run = two(1.42, 0.005, 5);
    otherwise(&mut run, "vm-raw", "seqwrite-1m", guest(0.7, 0.004));
    insta::assert_snapshot!(said(&run));
}

#[test]
fn targets_that_no_layer_tells_apart() {
    let truths = [("host-file", HOST), ("vm-device", guest(1.3, 0.004)), ("vm-lvm", guest(2.5, 0.004))];
    let mut run = run(&truths, &["randread-4k-qd1", "randwrite-4k-qd32"], 5, false);
    run.plan.targets.remove(2);
    run.measurements.retain(|m| m.target != "vm-lvm");
    insta::assert_snapshot!(said(&run));
}

#[test]
fn a_given_rate_is_told_by_latency() {
    let mut run = two(1.42, 0.005, 5);
    run.plan.workloads.iter_mut().for_each(|w| w.rate_iops = Some(1000));
    insta::assert_snapshot!(said(&run));
}

#[test]
fn an_emulated_ladder() {
    insta::assert_snapshot!(said(&ladder(true)));
}

#[test]
fn nine_rungs() {
    insta::assert_snapshot!(said(&both_ladders()));
}

#[test]
fn a_target_that_was_never_measured() {
    let mut run = two(1.42, 0.005, 5);
    run.measurements.retain(|m| m.target == "host-file");
    insta::assert_snapshot!(said(&run));
}

#[test]
fn one_target_compares_nothing() {
    insta::assert_snapshot!(said(&bench()));
}

/// Tests that rounds without completed I/O have no figures, and prevent a verdict.
#[test]
fn a_target_that_stood_still_in_some_rounds() {
    let mut run = two(1.001, 0.003, 5);
    for m in run.measurements.iter_mut().filter(|m| m.target == "vm-raw" && m.round % 2 == 0) {
        m.outcome.tallies = iotax_model::record::Tallies::default();
    }
    insta::assert_snapshot!(said(&run));
}

#[test]
fn reads_that_a_cache_answered() {
    let mut run = two(0.3, 0.004, 5);
    for m in run.measurements.iter_mut().filter(|m| m.target == "vm-raw" && m.workload == "randread-4k-qd1") {
        m.host.as_mut().expect("observed").disks.get_mut("vda").expect("its disk").read_bytes /= 1000;
    }
    insta::assert_snapshot!(said(&run));
}

#[test]
fn unsteady_measurements_are_judged_all_the_same() {
    let mut run = two(1.42, 0.005, 5);
    for m in run.measurements.iter_mut().filter(|m| m.target == "vm-raw") {
        let half = m.samples.len() / 2;
        for sample in &mut m.samples[..half] {
            let tallies = &mut sample.tallies;
            for tally in tallies.read.iter_mut().chain(&mut tallies.write) {
                tally.ios /= 2;
            }
        }
    }
    let warned = judge(&run).warnings.iter().filter(|w| w.kind == iotax_model::WarningKind::Unsteady).count();
    assert_eq!(warned, 10);
    insta::assert_snapshot!(said(&run));
}

#[test]
fn damaged_data_is_not_praised() {
    let mut run = bench();
    run.measurements[0].outcome.verify = Some(damaged());
    insta::assert_snapshot!(said(&run));
}
