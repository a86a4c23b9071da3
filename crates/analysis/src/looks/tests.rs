//! Error rate and power of the looks, simulated with the replay that judges runs.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::metric::Family;
use crate::stats::normal;
use crate::stats::verdict::Verdict;

/// Numbers of rounds at the looks, spaced as by a plan.
const LOOKS: [u32; 10] = [4, 5, 6, 8, 10, 12, 15, 18, 22, 26];
const MAX_ROUNDS: u32 = 26;
const WORKLOADS: usize = 2;
/// Standard deviation of the logarithm of one measurement.
const NOISE: f64 = 0.01;

fn plan(targets: usize, margin: &str) -> Plan {
    let target = |n| format!("[[target]]\nname = \"t{n}\"\nfile = {{ dir = \"/srv\" }}\n");
    // In an open loop only the latency must be decided: one comparison for each pair and workload.
    let workload = |n| format!("[[workload]]\nname = \"w{n}\"\nrate_iops = 100\n");
    let head = format!("repeat = 4\nmargin = \"{margin}\"\n[until_decided]\nmax_rounds = {MAX_ROUNDS}\n");
    let tables = (0..=targets).map(target).chain((0..WORKLOADS).map(workload)).collect::<String>();
    Plan::from_toml(&(head + &tables)).expect("a plan")
}

/// Simulates all rounds of a run whose targets are slower than the baseline by these log ratios on every workload. All
/// comparisons share the baseline's noise.
fn cases(random: &mut impl Rng, pairs: &[Pair], truths: &[f64]) -> Vec<PendingComparison> {
    let mut cases = Vec::new();
    for workload in 0..WORKLOADS {
        let mut figure = || (NOISE * normal(random)).exp();
        let baseline: Vec<f64> = (0..MAX_ROUNDS).map(|_| figure()).collect();
        for (pair, truth) in pairs.iter().zip(truths) {
            let rounds = (1..).zip(&baseline);
            let figures = rounds.map(|(round, base)| (round, truth.exp() * figure(), *base)).collect();
            let metric = Metric::LATENCY_MEAN;
            cases.push(PendingComparison {
                workload,
                pair: *pair,
                metric,
                figures,
                unusable: Vec::new(),
                empty: Vec::new(),
                late: Vec::new(),
            });
        }
    }
    cases
}

/// A source of simulated runs whose true log ratios are `truths`.
struct Simulation {
    plan: Plan,
    pairs: Vec<Pair>,
    truths: Vec<f64>,
    levels: Levels,
    random: Xoshiro256PlusPlus,
}

impl Simulation {
    fn new(truths: &[f64], margin: &str) -> Self {
        let plan = plan(truths.len(), margin);
        assert_eq!(plan.looks(), LOOKS);
        let pairs = pairs(&plan, &[]);
        let levels = Levels::new(&LOOKS).expect("they rise");
        Self { plan, pairs, truths: truths.to_vec(), levels, random: Xoshiro256PlusPlus::seed_from_u64(5) }
    }

    /// Simulates a run. Returns the true log ratio and the decision for every comparison, and the number of rounds.
    fn run(&mut self) -> (Vec<(f64, LookDecision)>, u32) {
        let cases = cases(&mut self.random, &self.pairs, &self.truths);
        let tried = |_, _| true;
        let replay = Replay { plan: &self.plan, pairs: &self.pairs, cases: &cases, tried: &tried };
        let (latest, status) = replay.run(&mut self.levels);
        let truth = |case: &PendingComparison| self.truths[case.pair.target - 1];
        let latest =
            cases.iter().zip(latest).map(|(case, latest)| (truth(case), latest.expect("a look was taken")));
        (latest.collect(), status.rounds())
    }

    /// Counts the runs, out of `repetitions`, with a decision that `is_wrong`.
    fn count(&mut self, repetitions: u32, is_wrong: impl Fn(f64, &LookDecision) -> bool) -> u32 {
        let wrong =
            |simulation: &mut Self| simulation.run().0.iter().any(|(truth, latest)| is_wrong(*truth, latest));
        (0..repetitions).map(|_| u32::from(wrong(self))).sum()
    }
}

/// Returns the count that a probability of 5% exceeds in `repetitions` tries only one time in a thousand.
fn most(repetitions: u32) -> u32 {
    let repetitions = f64::from(repetitions);
    let bound = repetitions * ALPHA + 3.1 * (repetitions * ALPHA * (1.0 - ALPHA)).sqrt();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive count")]
    let bound = bound as u32;
    bound
}

/// Checks a true ratio at the edge of the margin. There both "the same" and "slower" are wrong, so no other true ratio gives more wrong
/// verdicts.
#[test]
fn at_the_edge_of_the_margin_any_statement_is_rare() {
    let edge = 0.02_f64.ln_1p();
    for (truths, margin) in [(vec![edge; 3], "2%"), (vec![edge], "2%"), (vec![0.0; 3], "0.01%")] {
        let wrong = Simulation::new(&truths, margin).count(2000, |_, latest| latest.is_decided());
        eprintln!("{truths:?} {margin}: {wrong} of 2000");
        assert!(wrong <= most(2000), "{truths:?} {margin}: {wrong}");
        assert!(wrong >= 40, "{truths:?} {margin}: {wrong}: the looks would have no power");
    }
}

/// Checks that the error does not grow when a decided comparison passes its share of the error to the others.
#[test]
fn shares_that_are_passed_on_are_no_new_ones() {
    let edge = 0.02_f64.ln_1p();
    let truths = [edge, 0.0, 0.3, edge];
    let at_the_edge = |truth: f64, latest: &LookDecision| (truth - edge).abs() < 1e-12 && latest.is_decided();
    let wrong = Simulation::new(&truths, "2%").count(2000, at_the_edge);
    eprintln!("{truths:?}: {wrong} of 2000");
    assert!(wrong <= most(2000), "{wrong}");
}

/// Simulates independent percentiles and CPU times with the same true log ratio, and tests them at every look. Returns
/// the number of decided comparisons in each of `repetitions` runs, and the number of comparisons in a run.
fn further_metrics(truth: f64, margin: &str, repetitions: u32) -> (Vec<usize>, usize) {
    let mut simulation = Simulation::new(&[truth; 2], margin);
    let is_further = |metric: &Metric| metric.family() == Family::Further;
    let further: Vec<Metric> = Metric::compared()
        .filter(|metric| is_further(metric) && metric.compares(&simulation.plan.workloads[0]))
        .collect();
    let targets = 0..simulation.plan.targets.len();
    let cells: Vec<Cell> =
        targets.flat_map(|target| (0..WORKLOADS).map(move |workload| Cell { target, workload })).collect();
    let decided = (0..repetitions).map(|_| {
        let by_metric = further.iter().flat_map(|metric| {
            let cases = cases(&mut simulation.random, &simulation.pairs, &simulation.truths);
            cases.into_iter().map(|case| PendingComparison { metric: *metric, ..case })
        });
        let cases: Vec<PendingComparison> = by_metric.collect();
        let mut latest = vec![None; cases.len()];
        let tried = |_, _| true;
        let replay =
            Replay { plan: &simulation.plan, pairs: &simulation.pairs, cases: &cases, tried: &tried };
        // No run waits for these metrics, so the looks are called directly.
        for (look, rounds) in LOOKS.into_iter().enumerate() {
            replay.decide_at(look, rounds, &cells, &mut simulation.levels, &mut latest);
        }
        latest.iter().flatten().filter(|latest| latest.is_decided()).count()
    });
    (decided.collect(), further.len() * simulation.pairs.len() * WORKLOADS)
}

#[test]
fn further_metrics_together_err_as_seldom_as_one() {
    let (decided, comparisons) = further_metrics(0.0, "0.01%", 1000);
    let wrong = decided.iter().filter(|decided| **decided > 0).count();
    eprintln!("{comparisons} comparisons: {wrong} of 1000 runs");
    assert!(wrong <= most(1000) as usize, "{wrong}");
    let (decided, comparisons) = further_metrics(0.05_f64.ln_1p(), "2%", 100);
    let found = decided.iter().filter(|decided| **decided == comparisons).count();
    eprintln!("a difference of 5%: {found} of 100 runs find all");
    assert!(found >= 90, "{found}");
}

#[test]
fn a_against_a_is_never_called_different_by_more_than_the_margin() {
    let different =
        |_: f64, latest: &LookDecision| matches!(latest.decision.verdict, Verdict::Slower | Verdict::Faster);
    assert_eq!(Simulation::new(&[0.0; 3], "2%").count(2000, different), 0);
}

/// Checks that a difference of 5% between measurements that scatter by 1% is found before the last round, by intervals that include the
/// truth.
#[test]
fn a_difference_is_found_early_and_its_interval_holds_the_truth() {
    let truth = 0.05_f64.ln_1p();
    let mut simulation = Simulation::new(&[truth; 3], "2%");
    let (repetitions, mut found, mut covered, mut rounds) = (1000, 0, 0, 0);
    for _ in 0..repetitions {
        let (latest, end) = simulation.run();
        rounds += end;
        found += u32::from(latest.iter().all(|(_, latest)| latest.decision.verdict == Verdict::Slower));
        covered += u32::from(latest.iter().all(|(_, latest)| {
            latest.decision.interval.is_some_and(|interval| (interval.low..=interval.high).contains(&truth))
        }));
    }
    let mean = f64::from(rounds) / f64::from(repetitions);
    eprintln!("found {found}, covered {covered} of {repetitions}; {mean:.1} rounds on average");
    assert!(found >= 990, "{found}");
    assert!(covered >= repetitions - most(repetitions), "{covered}");
    assert!(mean < 16.0, "{mean} rounds");
}

#[test]
fn the_verdict_can_be_read_off_its_interval_at_every_level() {
    let edge = 0.02_f64.ln_1p();
    for truth in [0.0, edge, 0.03, 0.05, -0.05, 0.5] {
        let mut simulation = Simulation::new(&[truth; 2], "2%");
        for (_, latest) in (0..100).flat_map(|_| simulation.run().0) {
            let interval = latest.decision.interval.expect("four rounds or more");
            let read = if interval.low > edge {
                Verdict::Slower
            } else if interval.high < -edge {
                Verdict::Faster
            } else if interval.low > -edge && interval.high < edge {
                Verdict::Same
            } else {
                Verdict::Undecided
            };
            assert_eq!(read, latest.decision.verdict, "{latest:?}");
        }
    }
}
