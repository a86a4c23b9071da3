//! Tests that late replays are left out of comparisons, and that no verdict is based on replays that skipped I/Os.

use iotax_analysis::phases::phased_comparisons;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Grade, Judgement, Metric, judge};
use iotax_model::record::{ReplayPhase, Replayed};
use iotax_model::trace::ReplayOffsets;
use iotax_model::{CellKey, Run, WarningKind};
use iotax_testkit::runs::{HOST, Truth, run};

const WORK: &str = "randread-4k-qd1";
const ROUNDS: u32 = 8;

fn replays(late: &[(&str, u32)]) -> Run {
    let slower = Truth { slowdown: 1.25, noise: 0.004, ..HOST };
    let mut run = run(&[("host-file", HOST), ("vm-raw", slower)], &[WORK], ROUNDS, false);
    for m in &mut run.measurements {
        m.outcome.replayed = Some(Replayed { due: 1000, begun: 1000, ..Replayed::default() });
    }
    late.iter().for_each(|(target, round)| {
        spoil(&mut run, target, *round, |replayed| replayed.late_p99_ns = 2_000_000);
    });
    run
}

/// Changes the replay statistics of a measurement and makes it ten times slower.
fn spoil(run: &mut Run, target: &str, round: u32, change: fn(&mut Replayed)) {
    let measurement = run.measurements.iter_mut().find(|m| m.target == target && m.round == round);
    let outcome = &mut measurement.expect("measured").outcome;
    outcome.duration_ns *= 10;
    change(outcome.replayed.as_mut().expect("a replay"));
}

fn iops(judgement: &Judgement) -> (u32, f64, Verdict, Option<&str>) {
    let one =
        judgement.comparison(CellKey { workload: WORK, target: "vm-raw" }, Metric::IOPS).expect("compared");
    (one.rounds, one.ratio.mean, one.ratio.verdict, one.ratio.withheld.as_deref())
}

#[test]
fn a_few_late_replays_are_left_out_with_their_pairs() {
    let whole = judge(&replays(&[]));
    let (rounds, ratio, verdict, withheld) = iops(&whole);
    assert_eq!((rounds, verdict, withheld), (ROUNDS, Verdict::Slower, None));
    let run = replays(&[("vm-raw", 2), ("host-file", 5)]);
    let judgement = judge(&run);
    let left = iops(&judgement);
    assert_eq!((left.0, left.2, left.3), (ROUNDS - 2, Verdict::Slower, None));
    assert!((left.1 / ratio - 1.0).abs() < 0.01, "{} {ratio}", left.1);
    let late = judgement.grades.iter().filter(|grade| **grade == Grade::Unusable).count();
    assert_eq!(late, 2, "they stay marked");
    assert!(!judgement.is_unusable(&run, CellKey { workload: WORK, target: "vm-raw" }));
}

#[test]
fn a_machine_that_is_late_in_most_rounds_gets_no_verdict() {
    let late: Vec<(&str, u32)> = (1..=5).map(|round| ("vm-raw", round)).collect();
    let run = replays(&late);
    let judgement = judge(&run);
    let (_, _, verdict, withheld) = iops(&judgement);
    assert_eq!(verdict, Verdict::Undecided);
    assert!(withheld.is_some_and(|why| why.contains("unfaithful_replay")), "{withheld:?}");
    assert!(judgement.is_unusable(&run, CellKey { workload: WORK, target: "vm-raw" }));
    let all: Vec<(&str, u32)> = (1..=ROUNDS).map(|round| ("vm-raw", round)).collect();
    assert!(iops(&judge(&replays(&all))).3.is_some());
}

#[test]
fn one_replay_that_lacks_ios_withholds_the_verdict() {
    let mut run = replays(&[]);
    spoil(&mut run, "vm-raw", 3, |replayed| replayed.not_begun = 50);
    assert!(iops(&judge(&run)).3.is_some_and(|why| why.contains("50 of 1000 I/Os had not begun")));
}

#[test]
fn a_replay_at_other_offsets_says_by_how_much_and_is_judged() {
    let mut run = replays(&[]);
    let workload = &mut run.plan.workloads[0];
    (workload.read_iolog, workload.replay_offsets) = (Some("day.parquet".into()), ReplayOffsets::Compress);
    for m in &mut run.measurements {
        let replayed = m.outcome.replayed.as_mut().expect("a replay");
        (replayed.moved, replayed.moved_mean_bytes) = (750, Some(3 << 29));
        (replayed.recorded_sequential, replayed.sequential) = (400, 10);
    }
    let judgement = judge(&run);
    let scaled =
        judgement.warnings.iter().find(|warning| warning.kind == WarningKind::ScaledReplay).expect("told");
    assert_eq!(
        scaled.evidence,
        "750 of 1000 I/Os lay elsewhere than in the trace (replay_offsets = compress), 1.50 GiB away on average; 40% of all were sequential in the trace, 1% \
         in the replay"
    );
    assert!(scaled.remedy.contains("working_set"), "{}", scaled.remedy);
    let (_, _, verdict, withheld) = iops(&judgement);
    assert_eq!((verdict, withheld), (Verdict::Slower, None));
}

#[test]
fn the_phase_in_which_a_target_is_slower_is_named_and_no_other() {
    let mut run = replays(&[("vm-raw", 3)]);
    run.plan.workloads[0].read_iolog = Some("day.parquet".into());
    for m in &mut run.measurements {
        let replayed = m.outcome.replayed.as_mut().expect("a replay");
        replayed.phase_ns = 1_000_000_000;
        // A little noise, other in each measurement and phase.
        let phase = |index: u64| {
            let noise = (u64::from(m.round) * 7 + index * 3 + m.target.len() as u64) % 5;
            let slow = if index == 2 && m.target == "vm-raw" { 190 } else { 100 };
            ReplayPhase {
                ios: 500,
                response_mean_ns: Some(slow * (10_000 + 10 * noise)),
                ..ReplayPhase::default()
            }
        };
        replayed.phases = (0..5).map(phase).collect();
    }
    let compared = phased_comparisons(&run);
    assert_eq!((compared.len(), compared[0].target, compared[0].phases.len()), (1, "vm-raw", 5));
    for phase in &compared[0].phases {
        let is_slow = phase.from_ns == 2_000_000_000;
        let (verdict, truth) = if is_slow { (Verdict::Slower, 1.9) } else { (Verdict::Same, 1.0) };
        assert_eq!(phase.ratio.verdict, verdict, "{phase:?}");
        assert!((phase.ratio.mean / truth - 1.0).abs() < 0.01, "{phase:?}");
        assert_eq!(phase.to_ns - phase.from_ns, 1_000_000_000);
    }
}
