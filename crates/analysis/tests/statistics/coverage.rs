//! Coverage of the 95% interval.

use iotax_analysis::stats::{ALPHA, Estimate};
use iotax_testkit::thorough;

use crate::page;
use crate::simulate::{Design, Model, Noise, compared, percent, seeded, standard_error};

const RUNS: u32 = 10_000;
/// The true ratio.
const TRUTH: f64 = 1.07;

const MODELS: [(&str, Model); 5] = [
    ("noise of 5%", Model { noise: Noise::Normal, sd: 0.05, rounds: 0.0, drift: 0.0, uneven: 1.5 }),
    ("and rounds of 20%", Model { noise: Noise::Normal, sd: 0.05, rounds: 0.2, drift: 0.0, uneven: 1.5 }),
    ("and a drift of 30%", Model { noise: Noise::Normal, sd: 0.05, rounds: 0.2, drift: 0.3, uneven: 1.5 }),
    ("the same, noise t3", Model { noise: Noise::Student3, sd: 0.05, rounds: 0.2, drift: 0.3, uneven: 1.5 }),
    ("the same, bursts", Model { noise: Noise::Bursts, sd: 0.05, rounds: 0.2, drift: 0.3, uneven: 1.5 }),
];

/// The share of runs whose interval contains the true ratio.
fn coverage(model: Model, rounds: u32) -> f64 {
    let design = Design::new(4, 5);
    let mut random = seeded(100 + u64::from(rounds));
    let held = (0..RUNS)
        .filter(|_| {
            let run = design.run(model, &[0.0, TRUTH.ln(), 0.0, 0.0], rounds, &mut random);
            let interval = compared(&run, 1, 0).interval(ALPHA).expect("several rounds");
            (interval.low..=interval.high).contains(&TRUTH.ln())
        })
        .count();
    held as f64 / f64::from(RUNS)
}

#[test]
fn the_interval_holds_the_truth_as_often_as_it_says() {
    let mut rows = Vec::new();
    // The more rounds, the more exact is the theory.
    for rounds in if thorough() { vec![3, 5, 10] } else { vec![3, 5] } {
        let shares = MODELS.map(|(_, model)| coverage(model, rounds));
        for ((name, model), share) in MODELS.iter().zip(shares) {
            // The promise of normal theory; under heavier tails at least 93% is claimed.
            let slack = 4.0 * standard_error(1.0 - ALPHA, RUNS);
            let low = if model.noise == Noise::Normal { 0.95 - slack } else { 0.93 };
            assert!((low..=0.97 + slack).contains(&share), "{rounds} rounds, {name}: {share}");
            if model.noise == Noise::Normal {
                assert!((0.93..=0.97).contains(&share), "{rounds} rounds, {name}: {share}");
            }
        }
        rows.push([vec![rounds.to_string()], shares.map(percent).to_vec()].concat());
    }
    let head: Vec<&str> = ["rounds"].into_iter().chain(MODELS.map(|(name, _)| name)).collect();
    page::holds_rows_in("statistics.md", "coverage", &page::table(&head, &rows));
}
