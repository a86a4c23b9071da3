//! The quality of the advice "needs about N rounds".

use iotax_analysis::stats::paired::Differences;
use iotax_analysis::stats::verdict::{Verdict, decide};
use iotax_analysis::stats::{ALPHA, MARGIN, median};

use crate::page;
use crate::power::{expected, rounds};
use crate::simulate::{percent, seeded, standard_error};

const RUNS: u32 = 1_000;

#[test]
fn the_rounds_said_to_be_needed_are_right_on_average() {
    let mut random = seeded(400);
    let mut rows = Vec::new();
    for (sd, first) in [(0.02, 3), (0.02, 5), (0.03, 3), (0.03, 5), (0.03, 8), (0.05, 5), (0.05, 10)] {
        let (mut undecided, mut advised, mut came_true) = (0_u32, Vec::new(), 0_u32);
        for _ in 0..RUNS {
            let mut pairs = rounds(first, sd, &mut random);
            let decision = |pairs: &[(f64, f64)]| {
                let d = Differences::of_log_ratios(pairs).expect("positive");
                decide(&[(&d, false)], ALPHA, MARGIN).remove(0)
            };
            let now = decision(&pairs);
            if now.verdict != Verdict::Undecided {
                continue;
            }
            undecided += 1;
            let Some(needed) = now.needed_rounds else { continue };
            advised.push(f64::from(needed));
            pairs.extend(rounds(needed - first, sd, &mut random));
            came_true += u32::from(decision(&pairs).verdict != Verdict::Undecided);
        }
        // As many as decide every other time.
        let truth = (2..1000).find(|n| expected(*n, sd) >= 0.5).expect("some number does");
        let middle = median(&advised).expect("some are undecided");
        let share = f64::from(came_true) / advised.len() as f64;
        // The advice is about right early on. Comparisons that are still undecided later were unlucky and need more rounds than most.
        if 2 * first <= truth {
            let off = middle / f64::from(truth);
            assert!((0.75..1.35).contains(&off), "{sd}, {first} rounds: {middle}, not {truth}");
        }
        assert!(middle < 2.0 * f64::from(truth), "{sd}, {first} rounds: {middle}, not {truth}");
        let fewest = 0.5 - 4.0 * standard_error(0.5, undecided);
        assert!((fewest..0.95).contains(&share), "{sd}, {first} rounds: {share} came true");
        rows.push(vec![
            format!("{:.0}%", sd * 100.0),
            first.to_string(),
            percent(f64::from(undecided) / f64::from(RUNS)),
            format!("{middle:.0}"),
            truth.to_string(),
            percent(share),
        ]);
    }
    let head = [
        "noise",
        "rounds so far",
        "undecided",
        "advice, median",
        "decide every other time",
        "decided when followed",
    ];
    page::holds("advice", &page::table(&head, &rows));
}
