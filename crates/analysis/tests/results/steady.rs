//! Tests with a simulated flash drive that slows down as its spare blocks are used up: the start of its steady state is found, and figures
//! use only rounds from there on.

use iotax_analysis::{Metric, SteadyState, judge};
use iotax_model::plan::{Design, UntilSteady};
use iotax_model::{Bytes, CellKey, Nanos, Run, RunState, Workload};
use iotax_testkit::flash::{Flash, random_pages};
use iotax_testkit::runs::{HOST, Truth, complete, measurement, record, target};

/// Pages of the drive.
const PAGES: usize = 128 * 64;
/// Number of pages programmed per round.
const ROUND: u64 = PAGES as u64 / 4;

/// Simulates a drive's write amplification per round, by which writes are slower than on a fresh drive. `before` is the number of random
/// writes before the first round, `round` the number of pages programmed per round.
fn slowdowns(before: usize, round: u64) -> Vec<f64> {
    let mut drive = Flash::new(PAGES, 64, 16);
    let mut random = random_pages(PAGES);
    for page in (0..PAGES).chain(random.by_ref().take(before)) {
        drive.write(page);
    }
    let mut measured = || {
        let (written, programmed) = drive.counts();
        while drive.counts().1 < programmed + round {
            drive.write(random.next().expect("without end"));
        }
        let now = drive.counts();
        (now.1 - programmed) as f64 / (now.0 - written) as f64
    };
    (0..25).map(|_| measured()).collect()
}

/// A run with a host file at constant speed and a drive with these slowdowns, one per round.
fn run_of(slowdowns: &[f64], noise: f64) -> Run {
    let workload = Workload { runtime: Nanos::from_secs(6), size: Some(Bytes(1 << 30)), ..standard() };
    let names = ["host-file", "drive"];
    let targets = names.map(target).to_vec();
    let records = names.map(|name| record(name, false)).to_vec();
    let rounds = u32::try_from(slowdowns.len()).expect("few");
    let mut run =
        complete("a drive", (targets, records), vec![workload], rounds, |t, workload, round, phase| {
            let slowdown = if t == 0 { 1.0 } else { slowdowns[round as usize - 1] };
            measurement(workload, names[t], Truth { slowdown, noise, ..HOST }, round, phase)
        });
    run.plan.repeat = 5;
    run.plan.design = Design::UntilSteady(UntilSteady::default());
    run
}

fn standard() -> Workload {
    "randwrite-4k-qd32".parse().expect("a standard workload")
}

/// The round after which a run stops.
fn end_of(source: &Run) -> Option<u32> {
    let mut state =
        SteadyState::of(&Run { measurements: vec![], ..source.clone() }).expect("it waits for one");
    (1..=25).find(|round| {
        source.measurements.iter().filter(|m| m.round == *round).for_each(|m| state.add(m));
        *round >= 5 && state.is_reached()
    })
}

/// The round from which the drive's amplification stays within 10% of its steady value.
fn settled(slowdowns: &[f64]) -> u32 {
    let steady = slowdowns[15..].iter().sum::<f64>() / 10.0;
    let unsettled = slowdowns.iter().rposition(|slowdown| (slowdown / steady - 1.0).abs() > 0.1);
    unsettled.map_or(1, |round| u32::try_from(round).expect("few") + 2)
}

#[test]
fn fresh_transition_and_steady_are_told_apart() {
    let drive = slowdowns(0, ROUND);
    // Moving pages costs more at first than in the steady state: all blocks are about as full.
    assert!(drive[0] < 2.0 && drive[1] > 5.0 && settled(&drive) == 3, "{drive:?}");
    for noise in [0.0, 0.01] {
        let end = end_of(&run_of(&drive, noise)).expect("it gets there");
        assert!((settled(&drive) + 4..=settled(&drive) + 5).contains(&end), "{end}, noise {noise}");
        let conditioned = slowdowns(4 * PAGES, ROUND);
        assert_eq!((settled(&conditioned), end_of(&run_of(&conditioned, noise))), (1, Some(5)));
        // Rounds that use only part of the spare blocks are alike: the rule, taken literally, finds a new drive steady.
        let short = slowdowns(0, 160);
        assert!(short[..5].iter().all(|slowdown| *slowdown < 1.001), "{short:?}");
        assert_eq!(end_of(&run_of(&short, noise)), Some(5));
    }
    let few = SteadyState::of(&run_of(&drive[..5], 0.0)).map(|state| state.is_reached());
    assert_eq!(few, Some(false), "five rounds are too few");
}

#[test]
fn figures_are_those_of_the_window() {
    let drive = slowdowns(0, ROUND);
    let run = run_of(&drive[..8], 0.005);
    let judgement = judge(&run);
    let of = |target: &str| {
        judgement
            .summary(CellKey { workload: "randwrite-4k-qd32", target })
            .and_then(|s| s.of(Metric::IOPS))
            .expect("measured")
    };
    let amplification = drive[3..8].iter().product::<f64>().powf(0.2);
    let error = of("host-file") / of("drive") / amplification;
    assert!(
        (0.98..1.02).contains(&error),
        "the drive's five steady rounds are {amplification} times slower: {error}"
    );
    let compared = judgement
        .comparison(CellKey { workload: "randwrite-4k-qd32", target: "drive" }, Metric::LATENCY_MEAN)
        .expect("compared");
    assert!((0.98..1.02).contains(&(compared.ratio.mean / amplification)), "{compared:?}");
    assert_eq!(judgement.grades.len(), run.measurements.len(), "every measurement is graded");
    assert!(run.measured().all(|m| m.round > 3) && run.measured().count() == 10);
}

#[test]
fn what_cannot_be_measured_any_more_is_not_waited_for_and_noise_is() {
    let mut lost = run_of(&slowdowns(4 * PAGES, ROUND)[..16], 0.005);
    lost.measurements.retain(|m| m.target == "host-file" || m.round < 8);
    assert_eq!(SteadyState::of(&lost).map(|state| state.is_reached()), Some(true));
    let missing_one =
        Run { measurements: lost.measurements.into_iter().filter(|m| m.round != 15).collect(), ..lost };
    assert_eq!(SteadyState::of(&missing_one).map(|state| state.is_reached()), Some(false));
    assert_eq!(
        SteadyState::of(&Run { state: RunState::Running, ..run_of(&[1.0; 4], 0.0) }).map(|s| s.is_reached()),
        Some(false)
    );
    assert_eq!(end_of(&run_of(&[1.0; 25], 0.3)), None, "30% of noise is no steady state");
}
