//! Tests on histories with known changes.
//!
//! Target and control share noise of 3% from run to run and a slow drift of 10% over the history. Each also has independent noise with
//! heavy tails (Student's t with 3 degrees of freedom), and one run in 33 deviates by 15%, up or down.

use iotax_analysis::stats::median;
use iotax_analysis::trend::{LEAST_RUNS, LEVEL, LevelChange, changes, pending};
use iotax_testkit::thorough;
use rand::RngExt;

use crate::page;
use crate::simulate::{Noise, Random, normal, percent, seeded};

/// Series of each case.
const SERIES: u32 = 400;
/// The required share of steps found, and the allowed share of false alarms on flat series.
const FOUND: f64 = 0.95;
const FALSE: f64 = 0.05;
/// Noise of the ratio from run to run, as half the width that contains 68% of runs.
const NOISES: [f64; 5] = [0.005, 0.01, 0.015, 0.02, 0.03];
/// The highest noise at which steps of 5% must be found in 30 runs, and in 60.
const PROMISED: [(f64, usize); 2] = [(0.01, 30), (0.015, 60)];

struct History {
    target: Vec<f64>,
    control: Vec<f64>,
}

impl History {
    /// A history without a change.
    fn flat(runs: usize, noise: f64, random: &mut Random) -> Self {
        // Each of both has half of the variance; t with 3 degrees holds 68% within 1.2 of its scale.
        let own = |random: &mut Random| {
            let stray = if random.random::<f64>() < 0.5 / 33.0 { 0.15 } else { 0.0 };
            let sign = if random.random::<bool>() { 1.0 } else { -1.0 };
            Noise::Student3.draw(noise / 2_f64.sqrt() / 1.2, random) + sign * stray
        };
        let day = |i: usize, random: &mut Random| 0.03 * normal(random) + 0.1 * i as f64 / runs as f64;
        let each = (0..runs).map(|i| {
            let day = day(i, random);
            (day + own(random), day + own(random))
        });
        let (target, control) = each.unzip();
        Self { target, control }
    }

    /// Changes the target by a ratio from this run on.
    fn stepped(mut self, at: usize, ratio: f64) -> Self {
        self.target[at..].iter_mut().for_each(|value| *value += ratio.ln());
        self
    }

    fn followed(&self) -> Vec<f64> {
        self.target.iter().zip(&self.control).map(|(target, control)| target - control).collect()
    }
}

fn share(times: u32, mut is_so: impl FnMut() -> bool) -> f64 {
    f64::from((0..times).map(|_| u32::from(is_so())).sum::<u32>()) / f64::from(times)
}

/// Returns the change found at most three runs from the true step; `None` if there is none.
fn found(changes: &[LevelChange], at: usize) -> Option<&LevelChange> {
    changes.iter().find(|change| change.at.abs_diff(at) <= 3)
}

/// Draws the run of a change, with at least ten runs on each side.
fn change_point(runs: usize, random: &mut Random) -> usize {
    random.random_range(10..=runs - 10)
}

#[test]
fn steps_of_five_percent_are_found() {
    let mut rows = Vec::new();
    for (noise, at_noise) in NOISES.into_iter().zip((2_001_000..).step_by(100)) {
        for (percent_of_step, seed) in [2_u8, 3, 5, 10].into_iter().zip(at_noise..) {
            let step = f64::from(percent_of_step) / 100.0;
            // By default the smallest step at the most noise for which something is promised: larger steps and less noise are easier.
            let is_at_the_edge =
                percent_of_step == 5 && PROMISED.iter().any(|(most, _)| (noise - most).abs() < 1e-9);
            if !thorough() && !is_at_the_edge {
                continue;
            }
            let mut random = seeded(seed);
            let mut row = vec![format!("{}%", noise * 100.0), format!("{:.0}%", step * 100.0)];
            for runs in [30, 60, 100] {
                let power = share(SERIES, || {
                    let at = change_point(runs, &mut random);
                    let history = History::flat(runs, noise, &mut random).stepped(at, 1.0 + step);
                    found(&changes(&history.followed()), at).is_some()
                });
                let is_promised = PROMISED.iter().any(|(most, least)| noise <= *most && runs >= *least);
                if step >= 0.05 && is_promised {
                    assert!(power >= FOUND, "{noise} {step} {runs}: {power}");
                }
                row.push(percent(power));
            }
            let alone = share(SERIES, || {
                let at = change_point(100, &mut random);
                let history = History::flat(100, noise, &mut random).stepped(at, 1.0 + step);
                found(&changes(&history.target), at).is_some()
            });
            row.push(percent(alone));
            rows.push(row);
        }
    }
    let head = ["noise", "step", "30 runs", "60", "100", "100, no control"];
    page::holds_rows_in("trend.md", "power", &page::table(&head, &rows));
}

/// Tests a single analysis at the end, and one after every run.
#[test]
fn flat_series_hardly_alarm() {
    let mut random = seeded(2002);
    let mut rows = Vec::new();
    for runs in [30, 60, 100] {
        let (mut once, mut ever, mut alone) = (0, 0, 0);
        for _ in 0..SERIES {
            let history = History::flat(runs, 0.015, &mut random);
            alone += u32::from(!changes(&history.target).is_empty());
            let values = history.followed();
            let alarms = |length: usize| !changes(&values[..length]).is_empty();
            once += u32::from(alarms(runs));
            ever += u32::from((LEAST_RUNS..=runs).any(alarms));
        }
        let of_all = |count: u32| f64::from(count) / f64::from(SERIES);
        assert!(of_all(once) <= FALSE && of_all(ever) <= FALSE, "{runs}: {once} {ever}");
        assert!(of_all(once) <= LEVEL * 6.0, "{runs}: {once}");
        rows.push(vec![
            runs.to_string(),
            percent(of_all(once)),
            percent(of_all(ever)),
            percent(of_all(alone)),
        ]);
    }
    let head = [
        "runs",
        "alarms, looked at once",
        "ever alarms, looked at after each run",
        "once, without the control",
    ];
    page::holds_in("trend.md", "flat", &page::table(&head, &rows));
}

#[test]
fn spikes_do_not_alarm() {
    let mut random = seeded(2003);
    let mut rows = Vec::new();
    let mut case = |name: &str, spikes: &[usize]| {
        let ever = share(SERIES, || {
            let mut values = History::flat(60, 0.015, &mut random).followed();
            spikes.iter().for_each(|at| values[*at] += 1.5_f64.ln());
            // Looked at from the first spike on.
            (spikes[0] + 1..=60).any(|length| !changes(&values[..length]).is_empty())
        });
        assert!(ever <= if spikes.len() < 3 { FALSE } else { 2.0 * FALSE }, "{name}: {ever}");
        rows.push(vec![name.into(), percent(ever)]);
    };
    case("one", &[30]);
    case("two, ten runs apart", &[30, 40]);
    case("two in a row", &[30, 31]);
    // Nearly a level: one of those that are called a change after four or five runs.
    case("three in a row", &[30, 31, 32]);
    page::holds_in("trend.md", "spikes", &page::table(&["runs of +50% among 60", "ever alarms"], &rows));
}

#[test]
fn a_change_of_the_machine_is_not_blamed_on_the_target() {
    let mut random = seeded(2004);
    let (mut blamed, mut seen) = (0, 0);
    for _ in 0..SERIES {
        let mut history = History::flat(60, 0.015, &mut random);
        for side in [&mut history.target, &mut history.control] {
            side[30..].iter_mut().for_each(|value| *value += 1.2_f64.ln());
        }
        blamed += u32::from(!changes(&history.followed()).is_empty());
        seen += u32::from(!changes(&history.control).is_empty());
    }
    let of_all = |count: u32| f64::from(count) / f64::from(SERIES);
    assert!(of_all(blamed) <= FALSE / 2.0 && of_all(seen) >= FOUND, "{blamed} {seen}");
}

/// The delay until a step is reported, the rate of early hints, and the number of runs they request.
#[test]
fn a_step_is_named_as_soon_as_it_can_be() {
    let mut random = seeded(2005);
    let mut rows = Vec::new();
    let within = |runs: f64| if runs < 40.0 { format!("{runs:.0}") } else { "more than 40".into() };
    for noise in NOISES {
        for before in [20, 50] {
            let mut delays = Vec::new();
            let (mut hinted, mut needed) = (0, Vec::new());
            for _ in 0..SERIES {
                let values = History::flat(before + 40, noise, &mut random).stepped(before, 1.05).followed();
                let names = |after: &usize| found(&changes(&values[..before + after]), before).is_some();
                delays.push((1..=40).find(names).unwrap_or(40) as f64);
                let early = &values[..before + 2];
                let hint = pending(early, &changes(early));
                hinted += u32::from(hint.is_some_and(|hint| hint.shift > 0.0));
                needed.extend(hint.and_then(|hint| hint.needed).map(|more| more as f64));
            }
            delays.sort_by(f64::total_cmp);
            let at = |percent: usize| delays[(percent * (delays.len() - 1) + 50) / 100];
            if noise <= PROMISED[0].0 {
                assert!(at(95) <= 12.0, "{noise} {before}: {delays:?}");
            }
            rows.push(vec![
                format!("{}%", noise * 100.0),
                before.to_string(),
                within(at(50)),
                within(at(95)),
                percent(f64::from(hinted) / f64::from(SERIES)),
                median(&needed).map_or("-".into(), |more| format!("{more:.0}")),
            ]);
        }
    }
    let head = [
        "noise",
        "runs before",
        "runs after, median",
        "in 95%",
        "pending after 2 runs",
        "more runs asked for, median",
    ];
    page::holds_in("trend.md", "delay", &page::table(&head, &rows));
}

#[test]
fn intervals_hold_the_truth() {
    let mut random = seeded(2006);
    let mut rows = Vec::new();
    for (noise, step) in [(0.005, 0.05), (0.015, 0.05), (0.015, 0.03), (0.03, 0.1)] {
        let (mut all, mut position_held, mut size_held, mut widths) = (0, 0, 0, Vec::new());
        for _ in 0..SERIES {
            let at = change_point(60, &mut random);
            let history = History::flat(60, noise, &mut random).stepped(at, 1.0 + step);
            let found = changes(&history.followed());
            let [change] = found.as_slice() else { continue };
            all += 1;
            position_held += u32::from((change.between.0..=change.between.1).contains(&at));
            let truth = (1.0 + step).ln();
            size_held += u32::from((change.interval.low..=change.interval.high).contains(&truth));
            widths.push((change.between.1 - change.between.0 + 1) as f64);
        }
        let of_all = |count: u32| f64::from(count) / f64::from(all);
        let (position, size) = (of_all(position_held), of_all(size_held));
        assert!(position >= 0.93 && size >= 0.91, "{noise} {step}: {position} {size} of {all}");
        rows.push(vec![
            format!("{}%", noise * 100.0),
            format!("{:.0}%", step * 100.0),
            percent(position),
            format!("{:.0}", median(&widths).unwrap_or_default()),
            percent(size),
        ]);
    }
    let head = ["noise", "step", "runs named hold it", "how many, median", "size within its interval"];
    page::holds_in("trend.md", "intervals", &page::table(&head, &rows));
}
