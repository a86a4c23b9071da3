//! Error rate and power of variances shared by a family.

use std::collections::BTreeSet;

use iotax_analysis::stats::moderated::prior;
use iotax_analysis::stats::paired::Differences;
use iotax_analysis::stats::sequential::Looks;
use iotax_analysis::stats::{ALPHA, Estimate, MARGIN};
use iotax_testkit::thorough;

use crate::page;
use crate::sequential::{LADDER, holm};
use crate::simulate::{Noise, Random, percent, seeded, standard_error};

const RUNS: u32 = 3_000;
const POWER_RUNS: u32 = 300;
const WORKLOADS: usize = 5;
const ROUNDS: [u32; 3] = [4, 8, 22];

/// Standard deviation of a measurement, by workload and by target, the baseline first.
type Spread = fn(usize, usize) -> f64;

const SPREADS: [(&str, Spread); 5] = [
    ("3% everywhere", |_, _| 0.03),
    ("3%, targets 4.5%", |_, target| if target == 0 { 0.03 } else { 0.045 }),
    ("1% to 5% by workload", |workload, _| 0.01 * (workload + 1) as f64),
    ("1%, one workload 15%", |workload, _| if workload == 0 { 0.15 } else { 0.01 }),
    ("1%, one target 15%", |_, target| if target == 1 { 0.15 } else { 0.01 }),
];

/// Log ratios to the baseline by comparison, target by target, and round.
fn run(spread: Spread, noise: Noise, effects: &[f64], random: &mut Random) -> Vec<Vec<f64>> {
    let mut all = vec![Vec::new(); effects.len() * WORKLOADS];
    for _ in 0..LADDER[LADDER.len() - 1] {
        for workload in 0..WORKLOADS {
            let baseline = noise.draw(spread(workload, 0), random);
            for (target, effect) in effects.iter().enumerate() {
                let figure = effect + noise.draw(spread(workload, target + 1), random);
                all[target * WORKLOADS + workload].push(figure - baseline);
            }
        }
    }
    all
}

/// The p-values of "no more than `edge`" after `rounds` rounds, with or without the family's prior.
fn p_values(run: &[Vec<f64>], rounds: u32, shared: bool, edge: f64) -> Vec<f64> {
    let member = |logs: &Vec<f64>| Differences::new(logs[..rounds as usize].to_vec()).expect("finite");
    let members: Vec<Differences> = run.iter().map(member).collect();
    let prior = prior(members.iter()).filter(|_| shared);
    members.into_iter().map(|member| member.with(prior).p_value(edge).expect("rounds")).collect()
}

/// Significance levels of a ladder's looks, by look and by number of open comparisons.
fn levels() -> Vec<Vec<f64>> {
    let looks = Looks::new(&LADDER).expect("rising");
    let level = |look, left: u32| looks.nominal(look, ALPHA / f64::from(left.max(1)));
    (0..LADDER.len()).map(|look| (0..=15).map(|left| level(look, left)).collect()).collect()
}

#[test]
fn shared_variances_keep_the_level() {
    let levels = levels();
    let share = |count: u32| f64::from(count) / f64::from(RUNS);
    let most = ALPHA + 3.0 * standard_error(ALPHA, RUNS);
    let mut rows = Vec::new();
    // By default equal spreads and the two with one that strays.
    let spreads: Vec<_> = SPREADS
        .into_iter()
        .enumerate()
        .filter(|(number, _)| thorough() || ![1, 2].contains(number))
        .collect();
    for (_, (name, spread)) in spreads {
        for (shape, noise, targets) in [
            ("lognormal", Noise::Normal, 3),
            ("lognormal, one target", Noise::Normal, 1),
            ("t3", Noise::Student3, 3),
            ("bursts", Noise::Bursts, 3),
        ] {
            let mut random = seeded(900);
            let (mut held, mut wrong, mut wrong_at_looks) = ([0_u32; 3], [0_u32; 3], 0_u32);
            for _ in 0..RUNS {
                let run = run(spread, noise, &vec![0.0; targets], &mut random);
                for (number, rounds) in ROUNDS.into_iter().enumerate() {
                    let p = p_values(&run, rounds, true, 0.0);
                    held[number] += p.iter().map(|p| u32::from(*p >= ALPHA)).sum::<u32>();
                    let mut rejected = BTreeSet::new();
                    holm(&p, &mut rejected, |left| ALPHA / left as f64);
                    wrong[number] += u32::from(!rejected.is_empty());
                }
                let mut rejected = BTreeSet::new();
                for (rounds, levels) in LADDER.into_iter().zip(&levels) {
                    holm(&p_values(&run, rounds, true, 0.0), &mut rejected, |left| levels[left]);
                }
                wrong_at_looks += u32::from(!rejected.is_empty());
            }
            let held = held.map(|count| share(count) / (targets * WORKLOADS) as f64);
            let wrong = wrong.map(share);
            assert!(held.iter().all(|held| *held > 0.945), "{name}, {shape}: {held:?}");
            assert!(
                wrong.iter().all(|wrong| *wrong <= most) && share(wrong_at_looks) <= most,
                "{name}, {shape}: {wrong:?} {wrong_at_looks}"
            );
            let mut row = vec![name.to_owned(), shape.to_owned()];
            row.extend(held.map(percent).into_iter().chain(wrong.map(percent)));
            row.push(percent(share(wrong_at_looks)));
            rows.push(row);
        }
    }
    let head = [
        "noise",
        "shape",
        "intervals hold, 4 rounds",
        "8",
        "22",
        "any false, 4 rounds",
        "8",
        "22",
        "any false at all looks",
    ];
    page::holds_rows_in("statistics.md", "shared variance", &page::table(&head, &rows));
}

#[test]
fn shared_variances_find_more_and_sooner() {
    let levels = levels();
    let effects = [-0.8_f64.ln(), -0.9_f64.ln(), -0.95_f64.ln()];
    let mut rows = Vec::new();
    for (name, spread) in SPREADS {
        let mut early = Vec::new();
        for (variances, shared) in [("each its own", false), ("shared", true)] {
            let mut random = seeded(950);
            // By effect and look: how many are decided.
            let mut found = [[0_u32; LADDER.len()]; 3];
            for _ in 0..POWER_RUNS {
                let run = run(spread, Noise::Normal, &effects, &mut random);
                let mut rejected = BTreeSet::new();
                for (look, (rounds, levels)) in LADDER.into_iter().zip(&levels).enumerate() {
                    let p = p_values(&run, rounds, shared, MARGIN.ln_1p());
                    holm(&p, &mut rejected, |left| levels[left]);
                    rejected.iter().for_each(|index| found[index / WORKLOADS][look] += 1);
                }
            }
            let share = |count: u32| format!("{:.0}", 100.0 * f64::from(count) / f64::from(POWER_RUNS * 5));
            let mut row = vec![name.to_owned(), variances.to_owned()];
            row.extend(found.map(|found| [0, 3, 7].map(|look| share(found[look])).join(", ")));
            rows.push(row);
            early.push(found[0][0]);
        }
        // Obvious effects are found at the first look, and never later than by each variance alone.
        assert!(early[1] + POWER_RUNS / 20 >= early[0], "{name}: {early:?}");
        assert!(name != SPREADS[0].0 || early[1] > 5 * early[0], "{name}: {early:?}");
    }
    let head = ["noise", "variances", "20% slower", "10% slower", "5% slower"];
    page::holds("shared variance, found", &page::table(&head, &rows));
}
