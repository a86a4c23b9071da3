//! Within a measurement: warm-up and correlation.

use iotax_analysis::stats::series::series;
use iotax_model::record::{Sample, Tallies, Tally};

use crate::page;
use crate::simulate::{Random, normal, percent, seeded};

const RUNS: u32 = 300;

/// Simulates autocorrelated rates around 1: `phi` is the correlation with the previous rate, `tau` the decay of an initial transient, in
/// intervals.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "about a million")]
fn samples(n: u32, phi: f64, extra: f64, tau: f64, random: &mut Random) -> Vec<Sample> {
    let mut stray = normal(random);
    (0..n)
        .map(|i| {
            let rate = 1.0 + 0.05 * stray + extra * (-f64::from(i) / tau).exp();
            stray = phi * stray + (1.0 - phi * phi).sqrt() * normal(random);
            let read = Tally { ios: (1e6 * rate) as u64, ..Tally::default() };
            Sample {
                at_ns: 0,
                duration_ns: 1_000_000_000,
                tallies: Tallies { read: Some(read), ..Tallies::default() },
                oldest_ns: None,
                failed: 0,
                directions: Vec::new(),
            }
        })
        .collect()
}

#[test]
fn effective_sizes_are_about_those_of_theory() {
    let mut rows = Vec::new();
    for n in [30, 60, 300] {
        let mut row = vec![n.to_string()];
        for phi in [0.0, 0.5, 0.8] {
            let mut random = seeded(700);
            let sizes: Vec<f64> = (0..RUNS / 3)
                .map(|_| {
                    series(&samples(n, phi, 0.0, 1.0, &mut random), Tallies::ios).expect("enough").effective
                })
                .collect();
            let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
            let theory = f64::from(n) * (1.0 - phi) / (1.0 + phi);
            // Short series overstate it where the correlation is long.
            if f64::from(n) >= 60.0 / (1.0 - phi) {
                assert!((0.6..1.5).contains(&(mean / theory)), "{n} {phi}: {mean}, not {theory}");
            }
            row.push(format!("{mean:.0} of {theory:.0}"));
        }
        rows.push(row);
    }
    page::holds("effective", &page::table(&["intervals", "no correlation", "0.5", "0.8"], &rows));
}

#[test]
fn a_warm_up_is_found_where_there_is_one() {
    let mut rows = Vec::new();
    for (name, extra, tau) in [
        ("none", 0.0, 1.0),
        ("half as fast again, 5 intervals", 0.5, 5.0),
        ("twice as fast, 5", 1.0, 5.0),
        ("half as fast, 5", -0.5, 5.0),
        ("twice as fast, 60", 1.0, 60.0),
    ] {
        let mut random = seeded(710);
        let (mut cut, mut reported, mut seconds) = (0, 0, Vec::new());
        for _ in 0..RUNS {
            let found =
                series(&samples(60, 0.3, extra, tau, &mut random), Tallies::ios).expect("enough").warm_up;
            let Some(found) = found else { continue };
            cut += 1;
            if (found.ratio - 1.0).abs() > 0.1 && !found.unsettled {
                reported += 1;
                seconds.push(found.ns as f64 / 1e9);
            }
        }
        let share = |count: u32| f64::from(count) / f64::from(RUNS);
        match name {
            "none" => assert!(share(reported) < 0.02, "{}", share(reported)),
            "twice as fast, 5" | "half as fast, 5" => {
                assert!(share(reported) > 0.7, "{name}: {}", share(reported));
            }
            _ => {}
        }
        let length = iotax_analysis::stats::median(&seconds).map_or("-".into(), |s| format!("{s:.0}"));
        rows.push(vec![name.into(), percent(share(cut)), percent(share(reported)), length]);
    }
    let head = ["beginning", "some cut", "named as warm-up", "length, median of intervals"];
    page::holds("warm-up", &page::table(&head, &rows));
}
