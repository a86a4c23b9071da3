//! The rate at which a run of equal targets calls one of them different.

use iotax_analysis::stats::verdict::{Verdict, decide};
use iotax_analysis::stats::{ALPHA, MARGIN};
use iotax_testkit::thorough;

use crate::page;
use crate::simulate::{Design, Model, Noise, family, percent, seeded, standard_error};

const RUNS: u32 = 1_500;

const NOISES: [(&str, Noise); 3] = [
    ("lognormal", Noise::Normal),
    ("t with 3 degrees of freedom", Noise::Student3),
    ("bursts", Noise::Bursts),
];

/// The share of runs with a false "slower" or "faster" among 15 comparisons, and the share of comparisons with the verdict "same".
fn wrong(noise: Noise, rounds: u32, margin: f64) -> (f64, f64) {
    let design = Design::new(4, 5);
    let model = Model { noise, sd: 0.01, rounds: 0.1, drift: 0.1, uneven: 1.5 };
    let mut random = seeded(200 + u64::from(rounds));
    let (mut wrong, mut same, mut all) = (0, 0, 0);
    for _ in 0..RUNS {
        let run = design.run(model, &[0.0; 4], rounds, &mut random);
        let members = family(&run);
        let family: Vec<_> = members.iter().map(|d| (d, true)).collect();
        let verdicts: Vec<Verdict> = decide(&family, ALPHA, margin).into_iter().map(|d| d.verdict).collect();
        wrong += u32::from(verdicts.iter().any(|v| matches!(v, Verdict::Slower | Verdict::Faster)));
        same += verdicts.iter().filter(|v| **v == Verdict::Same).count();
        all += verdicts.len();
    }
    (f64::from(wrong) / f64::from(RUNS), same as f64 / all as f64)
}

/// The share of decided comparisons for targets that are 50% slower, under the same noise.
fn finds_what_is_obvious(rounds: u32) -> f64 {
    const RUNS: u32 = 200;
    let design = Design::new(4, 5);
    let model = Model { noise: Noise::Normal, sd: 0.01, rounds: 0.1, drift: 0.1, uneven: 1.5 };
    let effect = 1.5_f64.ln();
    let mut random = seeded(250 + u64::from(rounds));
    let mut found = 0;
    for _ in 0..RUNS {
        let run = design.run(model, &[0.0, effect, effect, effect], rounds, &mut random);
        let members = family(&run);
        let family: Vec<_> = members.iter().map(|d| (d, false)).collect();
        let decided = decide(&family, ALPHA, MARGIN);
        found += decided.iter().filter(|d| d.verdict == Verdict::Slower).count();
    }
    found as f64 / f64::from(15 * RUNS)
}

#[test]
fn a_against_a_is_called_different_no_more_often_than_stated() {
    let mut rows = Vec::new();
    // The more rounds, the more exact is the theory.
    for rounds in if thorough() { vec![3, 5, 10] } else { vec![3, 5] } {
        for (name, noise) in NOISES {
            let (without, _) = wrong(noise, rounds, 0.0);
            let (within, same) = wrong(noise, rounds, MARGIN);
            let most = ALPHA + 3.0 * standard_error(ALPHA, RUNS);
            assert!(without <= most && within <= most, "{rounds} rounds, {name}: {without} {within}");
            // A procedure that never speaks would pass too.
            if noise == Noise::Normal {
                assert!(finds_what_is_obvious(rounds) > 0.99, "{rounds} rounds");
            }
            rows.push(vec![
                rounds.to_string(),
                name.into(),
                percent(without),
                percent(within),
                percent(same),
            ]);
        }
    }
    let head = [
        "rounds",
        "noise",
        "runs with a false difference, margin 0",
        "margin 2%",
        "comparisons called the same",
    ];
    page::holds_rows_in("statistics.md", "family", &page::table(&head, &rows));
}
