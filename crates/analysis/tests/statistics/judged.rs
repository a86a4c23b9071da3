//! Judges complete runs with drift and outliers.

use iotax_analysis::judge;
use iotax_model::Run;
use iotax_model::RunState;
use iotax_model::plan::Plan;
use iotax_model::record::{Environment, Measurement, Outcome, RunSource, Tallies, Tally};
use iotax_model::{Histogram, WarningKind};

use crate::page;
use crate::simulate::{Design, Model, Noise, percent, seeded, standard_error};

const RUNS: u32 = 150;
const I_OS: u64 = 1_000;

/// Builds a run from the logarithms of mean latencies, by round, target and workload, in the order of the schedule.
fn run(plan: &Plan, figures: &[Vec<Vec<f64>>], orders: &[Vec<Vec<u32>>]) -> Run {
    let mut measurements = Vec::new();
    for (round, (figures, orders)) in (1..).zip(figures.iter().zip(orders)) {
        for (target, (figures, orders)) in plan.targets.iter().zip(figures.iter().zip(orders)) {
            for (workload, (log, order)) in plan.workloads.iter().zip(figures.iter().zip(orders)) {
                measurements.push(measurement(&target.name, &workload.name, round, *order, *log));
            }
        }
    }
    Run {
        id: 1,
        state: RunState::Complete,
        seed: 1,
        started_at_ms: 0,
        plan: Plan { repeat: u32::try_from(figures.len()).expect("few"), ..plan.clone() },
        environment: Environment::default(),
        targets: vec![],
        measurements,
        warnings: vec![],
        phases: vec![],
        source: RunSource::Measured,
        fleet: None,
        store: None,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "about a million")]
fn measurement(target: &str, workload: &str, round: u32, order: u32, log: f64) -> Measurement {
    let mut latency = Histogram::new();
    latency.add_many((1e6 * log.exp()) as u64, I_OS);
    let read = Tally { ios: I_OS, bytes: 0, latency, response: None };
    Measurement {
        target: target.into(),
        workload: workload.into(),
        round,
        order,
        outcome: Outcome {
            duration_ns: 1_000_000_000,
            tallies: Tallies { read: Some(read), ..Tallies::default() },
            ..Outcome::default()
        },
        ..Measurement::default()
    }
}

/// Simulates and judges runs of one workload.
fn judged(targets: usize, rounds: u32, model: Model, mut check: impl FnMut(&iotax_analysis::Judgement)) {
    let design = Design::new(targets, 1);
    let mut random = seeded(600 + u64::from(rounds));
    for _ in 0..RUNS {
        let (figures, orders) = design.run_in_order(model, &vec![0.0; targets], rounds, &mut random);
        check(&judge(&run(&design.plan, &figures, &orders)));
    }
}

#[test]
fn a_drift_is_told_from_chance() {
    let mut rows = Vec::new();
    for rounds in [3, 5, 10] {
        for drift in [0.0, 0.1] {
            let model = Model { noise: Noise::Normal, sd: 0.02, uneven: 1.0, rounds: 0.02, drift };
            let (mut held, mut said) = (0, 0);
            judged(4, rounds, model, |judgement| {
                let found = judgement.effects[0].drift.expect("three rounds");
                held += u32::from((found.interval.low..=found.interval.high).contains(&drift.exp_m1()));
                said += u32::from(judgement.effects[0].drifted(0.02).is_some());
            });
            let share = |count: u32| f64::from(count) / f64::from(RUNS);
            let slack = 4.0 * standard_error(0.95, RUNS);
            assert!((share(held) - 0.95).abs() <= slack, "{rounds} rounds, {drift}: {}", share(held));
            if drift == 0.0 {
                assert!(share(said) <= 0.05 + slack, "{rounds} rounds: {}", share(said));
            }
            rows.push(vec![
                rounds.to_string(),
                percent(drift.exp_m1()),
                percent(share(held)),
                percent(share(said)),
            ]);
        }
    }
    let head = ["rounds", "drift", "interval holds it", "said to drift"];
    page::holds("drift", &page::table(&head, &rows));
}

#[test]
fn outliers_are_rare_where_there_are_none() {
    let mut rows = Vec::new();
    for (targets, rounds) in [(1, 5), (2, 5), (4, 5), (4, 10)] {
        let mut row = vec![format!("{targets} x {rounds}")];
        for (noise, sd) in [
            (Noise::Normal, 0.01),
            (Noise::Normal, 0.03),
            (Noise::Normal, 0.1),
            (Noise::Student3, 0.03),
            (Noise::Bursts, 0.01),
        ] {
            let model = Model { noise, sd, uneven: 1.0, rounds: 0.02, drift: 0.05 };
            let mut flagged = 0;
            judged(targets, rounds, model, |judgement| {
                let any = judgement.warnings.iter().any(|w| w.kind == WarningKind::Outlier);
                flagged += u32::from(any);
            });
            let share = f64::from(flagged) / f64::from(RUNS);
            if noise == Noise::Normal {
                assert!(
                    share <= 0.05 + 4.0 * standard_error(0.05, RUNS),
                    "{targets} x {rounds}, {sd}: {share}"
                );
            }
            row.push(percent(share));
        }
        rows.push(row);
    }
    let head = ["targets x rounds", "noise 1%", "3%", "10%", "t3, 3%", "1% and bursts of 50%"];
    page::holds("outliers", &page::table(&head, &rows));
}
