//! Tests that all outputs show the same mean of a cell.

use iotax_analysis::compare::{Account, Track, compare, history};
use iotax_analysis::trend::RunFigures;
use iotax_analysis::{Metric, judge};
use iotax_model::record::{Measurement, Stop};
use iotax_model::{CellKey, Run};
use iotax_report::json::{document, read};
use iotax_report::terminal;

use crate::compare::{account, question, side};
use iotax_testkit::runs::{HOST, Truth, run};

const WORK: &str = "randread-4k-qd1";
const TARGETS: [&str; 3] = ["host-file", "vm-raw", "vm-qcow2"];
const TWICE: Truth = Truth { slowdown: 2.0, ..HOST };

/// A run of six rounds; in the last three, all targets are slower by a factor of two.
fn half_slow() -> Run {
    let mut run = run(&TARGETS.map(|name| (name, HOST)), &[WORK], 6, false);
    let slow = self::run(&TARGETS.map(|name| (name, TWICE)), &[WORK], 6, false);
    run.measurements
        .iter_mut()
        .zip(slow.measurements)
        .filter(|(m, _)| m.round > 3)
        .for_each(|(m, slow)| *m = slow);
    run
}

fn is(m: &Measurement, target: &str, round: u32) -> bool {
    m.target == target && m.round == round
}

fn shown(run: &Run, target: &str) -> f64 {
    judge(run)
        .summary(CellKey { workload: WORK, target })
        .and_then(|summary| summary.of(Metric::IOPS))
        .expect("measured")
}

/// Asserts that the report, the list, comparisons and several runs side by side show the same mean, also from a document.
fn assert_agree(run: &Run) {
    let list = RunFigures::of(run, &[Metric::IOPS]);
    let of_document = read::account(&document(run, &judge(run)).to_string(), "a.json").expect("read");
    for target in TARGETS {
        let report = shown(run, target);
        let same = |what: &str, value: Option<f64>| {
            assert!(
                value.is_some_and(|value| (value / report - 1.0).abs() < 1e-9),
                "{what}: {value:?}, {report}"
            );
        };
        same("list", list.mean(run, target, WORK, Metric::IOPS));
        for account in [&account(run), &of_document] {
            let other = Account { seed: 1, ..account.clone() };
            let compared =
                compare(&side(account, None), &side(&other, None), &question()).expect("comparable");
            let index = compared.targets.iter().position(|pair| pair.a == target).expect("matched");
            same("compare", compared.cell(index, 0, Metric::IOPS).map(|cell| cell.a));
            let history = history(&[account.clone(), other], 0.02);
            let track = history.tracks.iter().find(|track| is_track(track, target)).expect("followed");
            let point = &track.points[0];
            same("side by side", Some(point.mean));
            assert!(
                point.band.is_some_and(|band| band.low < point.mean && point.mean < band.high),
                "{point:?}"
            );
        }
    }
}

fn is_track(track: &Track, target: &str) -> bool {
    track.target == target && track.metric == Metric::IOPS
}

#[test]
fn a_target_that_was_left_out_of_slow_rounds_shows_one_mean_everywhere() {
    let whole = half_slow();
    assert_agree(&whole);
    let mut run = whole.clone();
    run.measurements.retain(|m| m.target != "vm-qcow2" || m.round <= 3);
    assert_agree(&run);
    // The rounds that it missed would have been as slow for it as for the others.
    assert!((shown(&run, "vm-qcow2") / shown(&whole, "vm-qcow2") - 1.0).abs() < 0.01);
}

#[test]
fn an_unusable_measurement_moves_no_mean() {
    let mut without = half_slow();
    without.measurements.retain(|m| m.target != "vm-qcow2" || m.round <= 3);
    let mut run = without.clone();
    without.measurements.retain(|m| !is(m, "vm-raw", 2));
    let spoilt = run.measurements.iter_mut().find(|m| is(m, "vm-raw", 2)).expect("measured");
    spoilt.outcome.stop = Some(Stop::Stalled);
    spoilt.outcome.duration_ns *= 10;
    assert_agree(&run);
    for target in TARGETS {
        assert!((shown(&run, target) / shown(&without, target) - 1.0).abs() < 1e-9, "{target}");
    }
    let judgement = judge(&run);
    assert_eq!(judgement.effects, judge(&without).effects);
    let comparison =
        judgement.comparison(CellKey { workload: WORK, target: "vm-raw" }, Metric::IOPS).expect("told");
    let (ratio, interval) = (comparison.ratio.mean, comparison.ratio.interval_95.expect("five rounds"));
    assert!(
        comparison.ratio.withheld.is_some() && interval.low < ratio && ratio < interval.high,
        "{comparison:?}"
    );
}

#[test]
fn a_target_without_a_usable_measurement_keeps_its_figures_and_moves_no_other() {
    let mut run = half_slow();
    run.measurements.retain(|m| m.target != "vm-qcow2" || m.round <= 3);
    let mut without = run.clone();
    without.measurements.retain(|m| m.target != "vm-raw");
    for m in run.measurements.iter_mut().filter(|m| m.target == "vm-raw") {
        m.outcome.stop = Some(Stop::Stalled);
        m.outcome.duration_ns *= 10;
    }
    assert!((shown(&run, "vm-raw") * 10.0 / shown(&half_slow(), "vm-raw") - 1.0).abs() < 0.01);
    for target in ["host-file", "vm-qcow2"] {
        assert!((shown(&run, target) / shown(&without, target) - 1.0).abs() < 1e-9, "{target}");
    }
    let other = Run { seed: 1, ..run.clone() };
    let accounts = [account(&run), account(&other)];
    let history = history(&accounts, 0.02);
    let track = history.tracks.iter().find(|track| is_track(track, "vm-raw")).expect("followed");
    assert!((track.points[0].mean / shown(&run, "vm-raw") - 1.0).abs() < 1e-9);
}

#[test]
fn the_scatter_of_a_target_alone_is_that_of_its_usable_measurements() {
    let text = |run: &Run| terminal::set(&iotax_report::document::answer(run, &judge(run)), 200, false);
    let scatter = |text: &str| text.split("scatter ").nth(1).expect("said")[..4].to_owned();
    let mut run = half_slow();
    run.plan.targets.retain(|target| target.name == "vm-raw");
    run.measurements.retain(|m| m.target == "vm-raw" && m.round <= 3);
    let whole = scatter(&text(&run));
    let extra = Measurement { round: 4, ..run.measurements[0].clone() };
    run.measurements.push(extra);
    run.measurements[3].outcome.stop = Some(Stop::Stalled);
    run.measurements[3].outcome.duration_ns *= 10;
    assert_eq!(scatter(&text(&run)), whole, "{}", text(&run));
}
