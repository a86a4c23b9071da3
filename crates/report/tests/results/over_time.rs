//! Tests of changes over a run and within a measurement, and of outliers.

use iotax_analysis::judge;
use iotax_model::Run;
use iotax_model::{Warning, WarningKind};
use iotax_report::{document, terminal};

use iotax_testkit::runs::{HOST, Truth, measurement, run};

/// Three targets with some noise; `slower` returns the slowdown of each round.
fn slowed(rounds: u32, slower: impl Fn(u32, &str) -> f64) -> Run {
    let truths = [("host-file", 1.0), ("vm-raw", 1.4), ("vm-qcow2", 1.5)];
    let truths = truths.map(|(name, slowdown)| (name, Truth { slowdown, noise: 0.005, cpu_ns: 4_100.0 }));
    let mut run = run(&truths, &["randread-4k-qd1"], rounds, false);
    let workload = run.plan.workloads[0].clone();
    for m in &mut run.measurements {
        let index = truths.iter().position(|(name, _)| *name == m.target).expect("planned");
        let truth = truths[index].1;
        let truth = Truth { slowdown: truth.slowdown * slower(m.round, &m.target), ..truth };
        let (order, at) = (m.order, m.started_at_ms);
        *m = measurement(&workload, &m.target, truth, m.round, 2 * index);
        (m.order, m.started_at_ms) = (order, at);
    }
    run
}

fn text(run: &Run) -> String {
    let text = terminal::set(&document::run(run, &judge(run)), 100, false);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn outliers(run: &Run) -> Vec<Warning> {
    judge(run).warnings.into_iter().filter(|w| w.kind == WarningKind::Outlier).collect()
}

#[test]
fn a_drift_is_estimated_and_shown() {
    // 1.5% more with each of 8 rounds; the middles of the first and last round are 7/8 of the run apart.
    let run = slowed(8, |round, _| 1.015_f64.powi(round.cast_signed()));
    let judgement = judge(&run);
    let drift = judgement.effects[0].drift.expect("eight rounds");
    let truth = 1.015_f64.powf(23.0 / 3.0) - 1.0;
    assert!((drift.change - truth).abs() < 0.01 && drift.p < 0.001, "{drift:?}, not {truth}");
    assert!(drift.interval.low < truth && truth < drift.interval.high, "{drift:?}");
    let text = text(&run);
    assert!(text.contains("Over the run: mean latency rose by 1"), "{text}");
    assert!(text.contains("Comparisons are made within rounds, which takes this out."), "{text}");
    // And it is taken out: the ratio is that of a run without it.
    let still = judge(&slowed(8, |_, _| 1.0));
    let ratio = |j: &iotax_analysis::Judgement| j.comparisons[2].ratio.mean;
    assert!((ratio(&judgement) / ratio(&still) - 1.0).abs() < 1e-3);
}

#[test]
fn a_round_that_was_slower_is_named() {
    let run = slowed(6, |round, _| if round == 4 { 1.2 } else { 1.0 });
    let judgement = judge(&run);
    let effects = &judgement.effects[0];
    assert_eq!((effects.rounds, effects.furthest), (6, 4));
    // The rounds' mean is moved by a sixth of it.
    let truth = 1.2_f64.powf(5.0 / 6.0) - 1.0;
    assert!((effects.furthest_by - truth).abs() < 0.01, "{effects:?}");
    assert!(effects.rounds_p.is_some_and(|p| p < 1e-6), "{effects:?}");
    assert!(text(&run).contains("Over the run: an I/O of round 4 took 1"), "{}", text(&run));
    assert_eq!(outliers(&run), [], "all targets share it");
}

#[test]
fn a_quiet_run_says_nothing_of_it() {
    let run = slowed(8, |_, _| 1.0);
    assert!(!text(&run).contains("Over the run"), "{}", text(&run));
    assert_eq!(outliers(&run), []);
    let effects = &judge(&run).effects[0];
    assert!(effects.spread < 0.01 && effects.rest.is_some_and(|rest| rest < 0.01), "{effects:?}");
    // Two rounds have no line through them, and one has no parts.
    assert_eq!(judge(&slowed(2, |_, _| 1.0)).effects[0].drift, None);
    assert_eq!(judge(&slowed(1, |_, _| 1.0)).effects, []);
}

/// Tests that missing rounds of a target do not appear as a change.
#[test]
fn missing_measurements_do_not_bend_rounds() {
    let mut run = slowed(6, |round, _| if round == 4 { 1.2 } else { 1.0 });
    let whole = judge(&run).effects[0].furthest_by;
    run.measurements.retain(|m| !(m.target == "vm-qcow2" && m.round > 3));
    assert!((judge(&run).effects[0].furthest_by - whole).abs() < 0.01);
    // Targets that no round joins have nothing in common.
    run.measurements.retain(|m| (m.target == "host-file") == (m.round <= 3));
    assert_eq!(judge(&run).effects, []);
}

#[test]
fn one_measurement_that_sticks_out_is_flagged_and_kept() {
    let run = slowed(6, |round, target| if (round, target) == (3, "vm-raw") { 1.5 } else { 1.0 });
    let found = outliers(&run);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].target.as_deref(), found[0].round), (Some("vm-raw"), Some(3)));
    assert!(
        found[0].evidence.contains("(+50%)") || found[0].evidence.contains("(+49%)"),
        "{}",
        found[0].evidence
    );
    assert_eq!(judge(&run).comparisons[0].rounds, 6, "it counts");
    // A single target has outliers too, although nothing is known of rounds.
    let mut alone = run.clone();
    alone.measurements.retain(|m| m.target == "vm-raw");
    assert_eq!(outliers(&alone).len(), 1);
    // With two targets, the one at fault is named.
    let mut two = run.clone();
    two.measurements.retain(|m| m.target != "vm-qcow2");
    let blamed: Vec<_> = outliers(&two).into_iter().map(|w| w.target).collect();
    assert_eq!(blamed, [Some("vm-raw".to_owned())]);
    // A deviation that both share belongs to the round.
    let shared = |round: u32, target: &str| {
        if round != 3 {
            1.0
        } else if target == "vm-raw" {
            1.5
        } else {
            1.2
        }
    };
    let mut both = slowed(6, shared);
    both.measurements.retain(|m| m.target != "vm-qcow2");
    let blamed: Vec<_> = outliers(&both).into_iter().map(|w| (w.target, w.evidence)).collect();
    assert_eq!(blamed.len(), 1, "{blamed:?}");
    assert!(blamed[0].1.contains("(+25%)") || blamed[0].1.contains("(+24%)"), "{blamed:?}");
    // Three rounds are too few for outliers, and a deviation of 10% is none.
    let mut few = run;
    few.measurements.retain(|m| m.round <= 3);
    assert_eq!(outliers(&few), []);
    assert_eq!(
        outliers(&slowed(6, |round, target| if (round, target) == (3, "vm-raw") { 1.05 } else { 1.0 })),
        []
    );
}

/// A measurement with `intervals` intervals of 250 ms; the first ones have a different rate.
fn starting(ratio_percent: u64, first: usize, intervals: usize) -> Run {
    let mut run = run(&[("disk.img", HOST)], &["randread-4k-qd32"], 1, false);
    let m = &mut run.measurements[0];
    let sample = m.samples[0].clone();
    m.samples = (0..intervals)
        .map(|i| {
            let mut sample = sample.clone();
            sample.duration_ns = 250_000_000;
            let read = sample.tallies.read.as_mut().expect("it reads");
            // Some order that is none.
            let wobble = 100 + (i as u64 * 7919 + 13).pow(2) % 5;
            read.ios = 600 * wobble * if i < first { ratio_percent } else { 100 };
            sample
        })
        .collect();
    run
}

#[test]
fn a_warm_up_is_named_with_the_ramp_time_that_leaves_it_out() {
    let run = starting(60, 15, 60);
    let found: Vec<Warning> = judge(&run).warnings;
    let unsteady = found.iter().find(|w| w.kind == WarningKind::Unsteady).expect("it starts slowly");
    assert!(
        unsteady.evidence.contains("the first 3.8 s, at 60% of the later rate, look like warm-up (MSER-5)"),
        "{unsteady:?}"
    );
    let ramp_time = run.plan.workloads[0].ramp_time.as_secs_f64();
    assert!(unsteady.remedy.contains("set ramp_time = "), "{unsteady:?} {ramp_time}");
    // A rate that falls all the way has no warm-up to cut.
    let mut falling = starting(100, 0, 60);
    for (i, sample) in falling.measurements[0].samples.iter_mut().enumerate() {
        sample.tallies.read.as_mut().expect("it reads").ios = 6_000_000 - 50_000 * i as u64;
    }
    let found = judge(&falling).warnings;
    let unsteady = found.iter().find(|w| w.kind == WarningKind::Unsteady).expect("it falls");
    assert!(!unsteady.evidence.contains("MSER"), "{unsteady:?}");
    assert!(!judge(&starting(100, 0, 60)).warnings.iter().any(|w| w.kind == WarningKind::Unsteady));
}
