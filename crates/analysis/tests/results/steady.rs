//! A drive that slows down as it fills: its steady state is found where it begins, and figures are made of it alone.

use iotax_analysis::{Metric, SteadyState, judge};
use iotax_model::plan::{Design, UntilSteady};
use iotax_model::{Bytes, CellKey, Nanos, Run, RunState, Workload};
use iotax_testkit::runs::{HOST, Truth, complete, measurement, record, target};

/// Fresh for five rounds, then each round takes longer, until three times as long from round 12 on. The host file never changes.
fn slowdown(round: u32) -> f64 {
    1.0 + 2.0 * f64::from(round.clamp(5, 12) - 5) / 7.0
}

fn run_of(rounds: u32, noise: f64) -> Run {
    let workload = Workload { runtime: Nanos::from_secs(6), size: Some(Bytes(1 << 30)), ..standard() };
    let names = ["host-file", "drive"];
    let targets = names.map(target).to_vec();
    let records = names.map(|name| record(name, false)).to_vec();
    let mut run =
        complete("a drive", (targets, records), vec![workload], rounds, |t, workload, round, phase| {
            let slowdown = if t == 0 { 1.0 } else { slowdown(round) };
            measurement(workload, names[t], Truth { slowdown, noise, ..HOST }, round, phase)
        });
    run.plan.repeat = 5;
    run.plan.design = Design::UntilSteady(UntilSteady::default());
    run
}

fn standard() -> Workload {
    "randwrite-4k-qd32".parse().expect("a standard workload")
}

/// The first round after which a run stops.
fn end_of(source: &Run) -> Option<u32> {
    let mut state =
        SteadyState::of(&Run { measurements: vec![], ..source.clone() }).expect("it waits for one");
    (1..=25).find(|round| {
        source.measurements.iter().filter(|m| m.round == *round).for_each(|m| state.add(m));
        *round >= 5 && state.is_reached()
    })
}

#[test]
fn fresh_transition_and_steady_are_told_apart() {
    for noise in [0.0, 0.01] {
        // Five fresh rounds in a row are steady by the rule, as it is written: it takes a conditioned drive.
        assert_eq!(end_of(&run_of(25, noise)), Some(5));
        // Begun in the transition it ends once five rounds change little: the last two of the way, and three at its end.
        let mut late = run_of(25, noise);
        late.measurements.retain(|m| m.round > 4);
        late.measurements.iter_mut().for_each(|m| m.round -= 4);
        let end = end_of(&late).expect("it gets there") + 4;
        assert!((15..=16).contains(&end), "{end}, noise {noise}");
    }
}

#[test]
fn figures_are_those_of_the_window() {
    let run = run_of(16, 0.005);
    let judgement = judge(&run);
    let of = |target: &str| {
        judgement
            .summary(CellKey { workload: "randwrite-4k-qd32", target })
            .and_then(|s| s.of(Metric::IOPS))
            .expect("measured")
    };
    let ratio = of("host-file") / of("drive");
    assert!((2.9..3.1).contains(&ratio), "the drive's five steady rounds take three times as long: {ratio}");
    let compared = judgement
        .comparison(CellKey { workload: "randwrite-4k-qd32", target: "drive" }, Metric::LATENCY_MEAN)
        .expect("compared");
    assert!((2.9..3.1).contains(&compared.ratio.mean), "{compared:?}");
    assert_eq!(judgement.grades.len(), run.measurements.len(), "every measurement is graded");
    assert!(run.measured().all(|m| m.round > 11) && run.measured().count() == 10);
}

#[test]
fn what_cannot_be_measured_any_more_is_not_waited_for_and_noise_is() {
    let mut lost = run_of(16, 0.005);
    lost.measurements.retain(|m| m.target == "host-file" || m.round < 8);
    assert_eq!(SteadyState::of(&lost).map(|state| state.is_reached()), Some(true));
    let missing_one =
        Run { measurements: lost.measurements.into_iter().filter(|m| m.round != 15).collect(), ..lost };
    assert_eq!(SteadyState::of(&missing_one).map(|state| state.is_reached()), Some(false));
    assert_eq!(
        SteadyState::of(&Run { state: RunState::Running, ..run_of(4, 0.0) }).map(|s| s.is_reached()),
        Some(false)
    );
    assert_eq!(end_of(&run_of(25, 0.3)), None, "30% of noise is no steady state");
}
