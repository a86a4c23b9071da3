//! The rates at which tuning recommends settings without effect, and finds those that have one.

use iotax_analysis::tune::{Candidate, ConfirmedGain, Tried, choose, confirm, mixed, screen};
use iotax_model::Histogram;
use iotax_model::Run;
use iotax_model::RunState;
use iotax_model::plan::Plan;
use iotax_model::record::{Environment, Measurement, Outcome as Measured, RunSource, Tallies, Tally};

use crate::page;
use crate::simulate::{Design, Model, Noise, Random, percent, seeded, standard_error};

/// Number of simulated tunings without an effect, and with one.
const RUNS: u32 = 200;
const PLANTED: u32 = 50;
const I_OS: u64 = 1_000;
/// Candidates of a screening, on two workloads.
const CANDIDATES: usize = 6;
const WORKLOADS: usize = 2;
const SCREENING: u32 = 6;
const CONFIRMATION: u32 = 12;
/// Settings of a mixed screening, and its rounds.
const SETTINGS: usize = 11;
const MIXED: u32 = 3;

/// A measurement with this logarithm of the time per I/O.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "about a million")]
fn measurement(target: &str, workload: &str, round: u32, order: u32, log: f64) -> Measurement {
    let ns = (1e6 * log.exp()) as u64;
    let mut latency = Histogram::new();
    latency.add_many(ns, I_OS);
    let read = Tally { ios: I_OS, bytes: 4096 * I_OS, latency, response: None };
    Measurement {
        target: target.into(),
        workload: workload.into(),
        round,
        order,
        outcome: Measured {
            duration_ns: ns * I_OS,
            tallies: Tallies { read: Some(read), ..Tallies::default() },
            ..Measured::default()
        },
        ..Measurement::default()
    }
}

/// A run of targets with these log ratios of the times to the first target's.
fn run(effects: &[f64], rounds: u32, model: Model, random: &mut Random) -> Run {
    let Design { plan, .. } = Design::new(effects.len(), WORKLOADS);
    let design = Design::new(effects.len(), WORKLOADS);
    let (figures, orders) = design.run_in_order(model, effects, rounds, random);
    let mut measurements = Vec::new();
    for (round, (figures, orders)) in (1..).zip(figures.iter().zip(&orders)) {
        for (t, target) in plan.targets.iter().enumerate() {
            for (w, workload) in plan.workloads.iter().enumerate() {
                let (log, order) = (figures[t][w], orders[t][w]);
                measurements.push(measurement(&target.name, &workload.name, round, order, log));
            }
        }
    }
    Run {
        id: 1,
        state: RunState::Complete,
        seed: 1,
        started_at_ms: 0,
        plan: Plan { repeat: rounds, ..plan },
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

fn candidates(number: usize) -> Vec<Candidate> {
    let candidate = |index: usize| Candidate {
        target: format!("t{}", index + 1),
        key: format!("setting{index}"),
        value: "1".into(),
    };
    (0..number).map(candidate).collect()
}

/// A screening by mixes, with one setting per effect.
fn mixed_screening(effects: &[f64], model: Model, random: &mut Random) -> (Run, Vec<Tried>) {
    let mixes = mixed::mixes(effects.len()).expect("a design");
    let sum =
        |mix: &Vec<bool>| mix.iter().zip(effects).filter(|(has, _)| **has).map(|(_, effect)| effect).sum();
    let screening = run(&mixes.iter().map(sum).collect::<Vec<f64>>(), MIXED, model, random);
    let tried = mixed::screen(&screening, &candidates(effects.len()), &mixes, None);
    (screening, tried)
}

/// Simulates a whole tuning. Returns the recommended candidates, and whether the screening chose any.
fn tuned(effects: &[f64], model: Model, random: &mut Random) -> (Vec<usize>, bool) {
    let (screening, tried) = if effects.len() > CANDIDATES {
        mixed_screening(effects, model, random)
    } else {
        let screening = run(&[&[0.0], effects].concat(), SCREENING, model, random);
        let tried = screen(&screening, &candidates(effects.len()), None);
        (screening, tried)
    };
    assert!(tried.iter().all(|one| one.comparisons.len() == WORKLOADS));
    let chosen = choose(&tried, screening.plan.margin.share());
    if chosen.is_empty() {
        return (chosen, false);
    }
    let together: f64 = chosen.iter().map(|index| effects[*index]).sum();
    let confirmed = confirm(&run(&[0.0, together], CONFIRMATION, model, random), None);
    (if confirmed.outcome == ConfirmedGain::Pays { chosen } else { vec![] }, true)
}

#[test]
fn settings_without_effect_are_not_recommended_and_a_gain_is_found() {
    let mut rows = Vec::new();
    for (name, noise, sd, number) in [
        ("lognormal, 3%", Noise::Normal, 0.03, CANDIDATES),
        ("t with 3 degrees of freedom, 2%", Noise::Student3, 0.02, CANDIDATES),
        ("1% and bursts of 50%", Noise::Bursts, 0.01, CANDIDATES),
        ("lognormal, 3%; eleven settings in 12 mixes", Noise::Normal, 0.03, SETTINGS),
    ] {
        let model = Model { noise, sd, uneven: 1.0, rounds: 0.05, drift: 0.05 };
        let mut random = seeded(900);
        let (mut recommended, mut screened, mut found, mut alone) = (0, 0, 0, 0);
        for _ in 0..RUNS {
            let (wrong, chosen) = tuned(&vec![0.0; number], model, &mut random);
            recommended += u32::from(!wrong.is_empty());
            screened += u32::from(chosen);
        }
        for _ in 0..PLANTED {
            let mut effects = vec![0.0; number];
            effects[3] = -1.1_f64.ln();
            let (right, _) = tuned(&effects, model, &mut random);
            found += u32::from(right.contains(&3));
            alone += u32::from(right == [3]);
        }
        let share = |count: u32| f64::from(count) / f64::from(RUNS);
        let of_planted = |count: u32| f64::from(count) / f64::from(PLANTED);
        let most = 0.05 + 3.0 * standard_error(0.05, RUNS);
        assert!(share(recommended) <= most, "{name}: {}", share(recommended));
        if noise == Noise::Normal {
            assert!(of_planted(found) >= 0.9, "{name}: {}", of_planted(found));
        }
        rows.push(vec![
            name.into(),
            percent(share(screened)),
            percent(share(recommended)),
            percent(of_planted(found)),
            percent(of_planted(alone)),
        ]);
    }
    let head = [
        "noise",
        "no effect: a candidate goes on to the confirmation",
        "no effect: one is recommended",
        "one of all gains 10%: it is recommended",
        "and no other with it",
    ];
    page::holds("tune", &page::table(&head, &rows));
}
