//! The error rate of tests after every round.

use std::collections::BTreeSet;

use iotax_analysis::stats::paired::Differences;
use iotax_analysis::stats::sequential::{Looks, Spending};
use iotax_analysis::stats::{ALPHA, Estimate};
use iotax_testkit::thorough;

use crate::page;
use crate::simulate::{Design, Model, Noise, compared, family, percent, seeded, standard_error};

const RUNS: u32 = 6_000;

const MODEL: Model = Model { noise: Noise::Normal, sd: 0.03, rounds: 0.1, drift: 0.1, uneven: 1.5 };

/// The designs on the page: the numbers of rounds at the looks.
fn designs() -> [(&'static str, Vec<u32>); 4] {
    [
        ("after each of 3 to 10", (3..=10).collect()),
        ("after each of 3 to 20", (3..=20).collect()),
        ("after 5, 10, 15 and 20", vec![5, 10, 15, 20]),
        ("after 3, 4 and 5", vec![3, 4, 5]),
    ]
}

/// Applies Holm's procedure at one look. Rejected hypotheses stay rejected and leave a larger share of the error to the others.
pub(crate) fn holm(p: &[f64], rejected: &mut BTreeSet<usize>, level: impl Fn(usize) -> f64) {
    let mut order: Vec<usize> = (0..p.len()).filter(|i| !rejected.contains(i)).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    for index in order {
        if p[index] >= level(p.len() - rejected.len()) {
            return;
        }
        rejected.insert(index);
    }
}

#[test]
fn looking_after_every_round_keeps_the_level() {
    let design = Design::new(4, 5);
    let mut rows = Vec::new();
    for (name, when) in designs() {
        // The one with the most looks takes as long as all others.
        if when.len() > 10 && !thorough() {
            continue;
        }
        let looks = Looks::new(&when).expect("rising");
        let levels: Vec<Vec<f64>> = (0..when.len())
            .map(|look| (0..=15).map(|m| looks.nominal(look, ALPHA / f64::from(m.max(1)))).collect())
            .collect();
        let mut random = seeded(500 + when.len() as u64);
        let (mut naive, mut single, mut any_of_15) = (0, 0, 0);
        for _ in 0..RUNS {
            let run = design.run(MODEL, &[0.0; 4], *when.last().expect("looks"), &mut random);
            let (mut any_naive, mut any_alone, mut rejected) = (false, false, BTreeSet::new());
            for (rounds, levels) in when.iter().zip(&levels) {
                let so_far = &run[..*rounds as usize];
                let p_value = |member: &Differences| member.p_value(0.0).expect("several rounds");
                let p: Vec<f64> = family(so_far).iter().map(p_value).collect();
                let alone = p_value(&compared(so_far, 1, 0));
                any_naive |= alone < ALPHA;
                any_alone |= alone < levels[1];
                holm(&p, &mut rejected, |left| levels[left]);
            }
            naive += u32::from(any_naive);
            single += u32::from(any_alone);
            any_of_15 += u32::from(!rejected.is_empty());
        }
        let share = |count: u32| f64::from(count) / f64::from(RUNS);
        let most = ALPHA + 3.0 * standard_error(ALPHA, RUNS);
        assert!(
            share(single) <= most && share(any_of_15) <= most,
            "{name}: {} {}",
            share(single),
            share(any_of_15)
        );
        // The procedure uses its error budget; without it the error would be far larger.
        assert!(
            share(single) > 0.03 && share(naive) > 1.5 * ALPHA,
            "{name}: {} {}",
            share(single),
            share(naive)
        );
        rows.push(vec![
            name.into(),
            percent(share(naive)),
            percent(share(single)),
            percent(share(any_of_15)),
        ]);
    }
    let head = ["looks", "at 5% each time", "one comparison", "any of 15, with Holm"];
    page::holds_rows_in("statistics.md", "sequential", &page::table(&head, &rows));
}

/// Looks of a 3-minute ladder with 20 cells, whose rounds take about 8 seconds.
pub(crate) const LADDER: [u32; 10] = [4, 5, 6, 7, 9, 11, 13, 15, 18, 22];

/// The share of existing effects decided after about 1, 2 and 3 minutes, by spending function.
#[test]
fn large_effects_end_early_whatever_the_noise() {
    const RUNS: u32 = 300;
    let functions = [
        ("O'Brien-Fleming", Spending::OBrienFleming),
        ("Hwang-Shih-DeCani, -4", Spending::HwangShihDeCani(-4.0)),
        ("Hwang-Shih-DeCani, -1", Spending::CHOSEN),
        ("Pocock", Spending::Pocock),
    ];
    let effects = [0.0, -0.8_f64.ln(), -0.9_f64.ln(), -0.95_f64.ln()];
    let design = Design::new(4, 5);
    let mut rows = Vec::new();
    for (name, spending) in functions {
        let looks = Looks::with(&LADDER, spending).expect("rising");
        let levels: Vec<Vec<f64>> = (0..LADDER.len())
            .map(|look| (0..=15).map(|m| looks.nominal(look, ALPHA / f64::from(m.max(1)))).collect())
            .collect();
        let mut row = vec![name.to_owned()];
        for sd in [0.015, 0.03] {
            let model = Model { sd, ..MODEL };
            let mut random = seeded(700);
            // By effect: how many are decided after 7, 15 and 22 rounds.
            let mut found = [[0_u32; 3]; 3];
            for _ in 0..RUNS {
                let run = design.run(model, &effects, 22, &mut random);
                let mut rejected = BTreeSet::new();
                for (rounds, levels) in LADDER.iter().zip(&levels) {
                    let so_far = &run[..*rounds as usize];
                    let edge = 0.02_f64.ln_1p();
                    let p: Vec<f64> = family(so_far)
                        .iter()
                        .map(|member| member.p_value(edge).expect("several rounds"))
                        .collect();
                    holm(&p, &mut rejected, |left| levels[left]);
                    for (at, _) in [7, 15, 22].iter().enumerate().filter(|(_, n)| *n == rounds) {
                        rejected.iter().for_each(|index| found[index / 5][at] += 1);
                    }
                }
            }
            let share = |count: u32| format!("{:.0}", f64::from(count) / f64::from(RUNS * 5) * 100.0);
            row.extend(found.map(|at| at.map(share).join(", ")));
        }
        rows.push(row);
    }
    let head = [
        "spending function",
        "20% slower, noise 1.5%",
        "10% slower",
        "5% slower",
        "20% slower, noise 3%",
        "10% slower",
        "5% slower",
    ];
    page::holds("spending", &page::table(&head, &rows));
}

#[test]
fn the_page_says_what_a_look_asks_for() {
    let when: Vec<u32> = (3..=20).collect();
    let looks = Looks::new(&when).expect("rising");
    let shown = [3, 4, 5, 6, 8, 10, 15, 20];
    let index_of = |rounds: &u32| when.iter().position(|n| n == rounds).expect("a look");
    let row = |name: &str, alpha: f64| {
        let levels = shown.iter().map(|n| format!("{:.1e}", looks.nominal(index_of(n), alpha)));
        [name.to_owned()].into_iter().chain(levels).collect::<Vec<_>>()
    };
    let rounds = shown.map(|n| format!("{n} rounds"));
    let head: Vec<&str> = [""].into_iter().chain(rounds.iter().map(String::as_str)).collect();
    let rows = [row("alone", ALPHA), row("first of 15", ALPHA / 15.0)];
    page::holds("nominal", &page::table(&head, &rows));
}
