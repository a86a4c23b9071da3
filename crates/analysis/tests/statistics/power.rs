//! The probability that a difference of 5% is found.

use iotax_analysis::stats::paired::Differences;
use iotax_analysis::stats::verdict::{Verdict, decide};
use iotax_analysis::stats::{ALPHA, MARGIN};
use statrs::distribution::{ChiSquared, ContinuousCDF, Normal, StudentsT};

use crate::page;
use crate::simulate::{Design, Model, Noise, Random, family, normal, percent, seeded, standard_error};

const RUNS: u32 = 2_000;
const FAMILIES: u32 = 300;
/// The true ratio.
pub(crate) const TRUTH: f64 = 1.05;
const ROUNDS: [u32; 6] = [3, 5, 8, 10, 15, 20];
/// Standard deviations of one measurement; a log ratio has that of two.
const NOISES: [f64; 4] = [0.01, 0.02, 0.03, 0.05];

/// Simulates `n` rounds of target and baseline.
pub(crate) fn rounds(n: u32, sd: f64, random: &mut Random) -> Vec<(f64, f64)> {
    (0..n).map(|_| (TRUTH * (sd * normal(random)).exp(), (sd * normal(random)).exp())).collect()
}

/// The theoretical probability that a single comparison finds it: the normal probability that Student's t exceeds its quantile,
/// averaged over the distribution of the estimated standard deviation.
pub(crate) fn expected(n: u32, sd: f64) -> f64 {
    const SLICES: u32 = 400;
    let degrees = f64::from(n - 1);
    let spread = ChiSquared::new(degrees).expect("degrees");
    let quantile = StudentsT::new(0.0, 1.0, degrees).expect("degrees").inverse_cdf(1.0 - ALPHA / 2.0);
    let shift = (TRUTH.ln() - MARGIN.ln_1p()) * f64::from(n).sqrt() / (sd * 2_f64.sqrt());
    let slices = (0..SLICES).map(|i| (f64::from(i) + 0.5) / f64::from(SLICES));
    let found =
        slices.map(|p| Normal::standard().cdf(shift - quantile * (spread.inverse_cdf(p) / degrees).sqrt()));
    found.sum::<f64>() / f64::from(SLICES)
}

#[test]
fn a_difference_of_five_percent_is_found_as_often_as_theory_says() {
    let mut random = seeded(300);
    let mut rows = Vec::new();
    for sd in NOISES {
        let mut row = vec![format!("{:.0}%", sd * 100.0)];
        for n in ROUNDS {
            let found = (0..RUNS).filter(|_| {
                let d = Differences::of_log_ratios(&rounds(n, sd, &mut random)).expect("positive");
                // For latencies more is worse.
                decide(&[(&d, false)], ALPHA, MARGIN)[0].verdict == Verdict::Slower
            });
            let share = found.count() as f64 / f64::from(RUNS);
            let theory = expected(n, sd);
            let slack = 4.0 * standard_error(theory, RUNS) + 1e-3;
            assert!((share - theory).abs() < slack, "{n} rounds, {sd}: {share}, not {theory}");
            row.push(percent(share));
        }
        rows.push(row);
    }
    let rounds = ROUNDS.map(|n| format!("{n} rounds"));
    let head: Vec<&str> = ["noise"].into_iter().chain(rounds.iter().map(String::as_str)).collect();
    page::holds("power", &page::table(&head, &rows));
}

/// Same, for one of three targets that is slower on all five workloads, among 15 comparisons.
#[test]
fn a_family_finds_less_than_one_alone() {
    let design = Design::new(4, 5);
    let mut rows = Vec::new();
    for sd in NOISES {
        let mut row = vec![format!("{:.0}%", sd * 100.0)];
        for n in ROUNDS {
            let mut random = seeded(310 + u64::from(n));
            // The model gives targets half as much noise again; the same in all here.
            let model = Model { noise: Noise::Normal, sd, rounds: 0.1, drift: 0.1, uneven: 1.0 };
            let mut found = 0;
            for _ in 0..FAMILIES {
                let run = design.run(model, &[0.0, TRUTH.ln(), 0.0, 0.0], n, &mut random);
                let members = family(&run);
                let family: Vec<_> = members.iter().map(|d| (d, false)).collect();
                let decided = decide(&family, ALPHA, MARGIN);
                found += decided[..5].iter().filter(|d| d.verdict == Verdict::Slower).count();
            }
            let share = found as f64 / f64::from(5 * FAMILIES);
            let alone = expected(n, sd);
            // The five share their baseline: as uncertain as if there were only as many runs.
            let slack = 4.0 * standard_error(alone, FAMILIES) + 1e-3;
            assert!(share <= alone + slack, "{n} rounds, {sd}: {share}, alone {alone}");
            row.push(percent(share));
        }
        rows.push(row);
    }
    let rounds = ROUNDS.map(|n| format!("{n} rounds"));
    let head: Vec<&str> = ["noise"].into_iter().chain(rounds.iter().map(String::as_str)).collect();
    page::holds("power in a family", &page::table(&head, &rows));
}
