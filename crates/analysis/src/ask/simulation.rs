//! Tests of searches on simulated systems with a known answer, compared with bisection of as many trials.

use iotax_testkit::thorough;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::root::{Draws, Root, Trial, root};
use crate::stats::{ALPHA, normal};

/// The condition: at most 1% of I/Os are late.
const LIMIT: f64 = 0.01;
/// Load, as a share of the capacity, at which 1% of I/Os are late on average, on a server with random service times.
const LOAD: f64 = 0.8;
/// Number of rounds: six trials at rates far apart, then two trials a round.
const ROUNDS: u32 = 40;
const TRIALS: usize = 6 + 2 * (ROUNDS as usize - 1);
/// Number of bisection steps, which share the trials equally.
const STEPS: usize = 10;
/// Additional share of late I/Os in a window with a burst.
const BURST: f64 = 0.04;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Trouble {
    /// The capacity is constant, and the share of late I/Os varies little between windows.
    None,
    /// The capacity scatters by 2% from window to window, and the share of late I/Os by 60%.
    Noise,
    /// As with `Noise`, and the capacity swings by 3% over the run.
    Drift,
    /// As with `Noise`, and one window in 25 has many more late I/Os.
    Bursts,
    /// As with `Noise`, and the capacity falls by 6% after a random window.
    Step,
}

struct System {
    trouble: Trouble,
    random: Xoshiro256PlusPlus,
    capacity: f64,
    phase: f64,
    step_at: usize,
    /// The capacity of each window so far.
    path: Vec<f64>,
}

impl System {
    fn new(seed: u64, trouble: Trouble) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let capacity = 5000.0 * (0.2 * normal(&mut random)).exp();
        let phase = random.random::<f64>() * std::f64::consts::TAU;
        let step_at = random.random_range(TRIALS / 5..TRIALS * 4 / 5);
        Self { trouble, random, capacity, phase, step_at, path: Vec::new() }
    }

    fn scatter(&self) -> f64 {
        if self.trouble == Trouble::None { 0.0 } else { 0.02 }
    }

    /// Simulates an open-loop window of one second at a rate.
    fn trial(&mut self, round: u32, rate: f64) -> Trial {
        let passed = self.path.len();
        let capacity = match self.trouble {
            Trouble::Drift => {
                self.capacity * (0.03 * (9.0 * passed as f64 / TRIALS as f64 + self.phase).sin()).exp()
            }
            Trouble::Step if passed >= self.step_at => self.capacity * 0.94,
            _ => self.capacity,
        };
        self.path.push(capacity);
        let factor = if self.trouble == Trouble::None { 0.3 } else { 0.6 };
        let jitter = (self.scatter() * normal(&mut self.random)).exp();
        let uneven = (factor * normal(&mut self.random) - factor * factor / 2.0).exp();
        let burst = self.trouble == Trouble::Bursts && self.random.random::<f64>() < 1.0 / 25.0;
        let share = late(rate, capacity * jitter) * uneven + if burst { BURST } else { 0.0 };
        let of = self.count(rate).max(1.0);
        let bad = self.count(of * share.min(1.0)).min(of);
        Trial { round, rate, bad, of }
    }

    /// Draws a Poisson number; a rounded normal number for large means.
    fn count(&mut self, mean: f64) -> f64 {
        if mean > 60.0 {
            return (mean + mean.sqrt() * normal(&mut self.random)).round().max(0.0);
        }
        let (end, mut left, mut count) = ((-mean).exp(), self.random.random::<f64>(), 0.0);
        while left > end {
            left *= self.random.random::<f64>();
            count += 1.0;
        }
        count
    }

    /// Returns the rate at which the limit is met on average over all windows so far.
    fn truth(&self) -> f64 {
        let quantiles: Vec<(f64, f64)> =
            (-10..=10).map(|i| f64::from(i) / 4.0).map(|z| (z, (-z * z / 2.0).exp())).collect();
        let weight: f64 = quantiles.iter().map(|(_, weight)| weight).sum();
        let share = |rate: f64| {
            let of = |capacity: &f64| -> f64 {
                let jittered =
                    quantiles.iter().map(|(z, w)| w * late(rate, capacity * (self.scatter() * z).exp()));
                jittered.sum::<f64>() / weight
            };
            let mean = self.path.iter().map(of).sum::<f64>() / self.path.len() as f64;
            mean + if self.trouble == Trouble::Bursts { BURST / 25.0 } else { 0.0 }
        };
        let (mut low, mut high) = (0.2 * self.capacity, 1.1 * self.capacity);
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if share(middle) > LIMIT { high = middle } else { low = middle }
        }
        low
    }
}

/// Returns the share of late I/Os: the wait in the queue is exponential, with a mean that grows towards the capacity.
fn late(rate: f64, capacity: f64) -> f64 {
    let free = 1.0 - (rate / capacity).min(1.0);
    LIMIT.powf(free / (1.0 - LOAD))
}

/// Simulates a search whose rates are placed as by [`super::search`].
fn search(system: &mut System) -> Vec<Trial> {
    let guess = system.capacity * (0.05 * normal(&mut system.random)).exp();
    let mut trials: Vec<Trial> =
        [0.05, 0.25, 0.45, 0.65, 0.8, 0.95].iter().map(|share| system.trial(0, guess * share)).collect();
    for round in 1..ROUNDS {
        let apart = super::search::apart(round);
        let at = match root(&trials, LIMIT).expect("trials") {
            Root::At { rate, .. } => rate,
            Root::Above(rate) => rate * 1.1,
            Root::Below(rate) => rate * 0.4,
        };
        for side in [-apart, apart] {
            let trial = system.trial(round, at * side.exp());
            trials.push(trial);
        }
    }
    trials
}

/// Estimates the highest rate by bisection, with equally many trials at each step. Returns the error: ln(found rate / true rate).
fn bisect(system: &mut System) -> f64 {
    let (mut low, mut high) = (0.02 * system.capacity, 1.05 * system.capacity);
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        let trials: Vec<Trial> = (0..TRIALS / STEPS).map(|_| system.trial(0, middle)).collect();
        let (bad, of) = trials.iter().fold((0.0, 0.0), |(bad, of), trial| (bad + trial.bad, of + trial.of));
        if bad > LIMIT * of { high = middle } else { low = middle }
    }
    (f64::midpoint(low, high) / system.truth()).ln()
}

/// Checks how often the interval contains the true rate, and compares the error of the estimate with that of bisection; docs/ask.md has the results
/// of 1,000 seeds.
#[test]
fn the_interval_holds_the_true_rate_and_halving_needs_twice_the_trials() {
    let seeds: u32 = if thorough() { 1000 } else { 60 };
    for trouble in [Trouble::None, Trouble::Noise, Trouble::Drift, Trouble::Bursts, Trouble::Step] {
        let (mut within, mut known, mut square, mut halving, mut width) = (0, 0, 0.0, 0.0, 0.0);
        for seed in 0..seeds {
            let mut system = System::new(seed.into(), trouble);
            let trials = search(&mut system);
            let truth = system.truth();
            let Some(Root::At { rate, middle }) = root(&trials, LIMIT) else {
                panic!("{trouble:?} {seed}: no root")
            };
            square += (rate / truth).ln().powi(2);
            halving += bisect(&mut System::new(seed.into(), trouble)).powi(2);
            let Some(draws) = Draws::new(&trials, LIMIT, middle) else { continue };
            let ends = draws.interval(ALPHA);
            known += 1;
            within += u32::from((ends.low..=ends.high).contains(&truth));
            width += (ends.high / ends.low).ln() / 2.0;
        }
        let (n, of) = (f64::from(seeds), f64::from(known));
        let (share, error, other) = (f64::from(within) / of, (square / n).sqrt(), (halving / n).sqrt());
        eprintln!(
            "{trouble:?}: {known} of {seeds} intervals, in {:.1}% the truth is within, error {:.2}%, interval of +-{:.2}%, bisection {:.2}%",
            100.0 * share,
            100.0 * error,
            100.0 * width / of,
            100.0 * other
        );
        assert!(of > 0.97 * n, "{trouble:?}: {known} intervals");
        // Three standard errors of a share of 0.9 in 60 are 0.12.
        let slack = 3.0 * (0.9 * 0.1 / n).sqrt();
        assert!(share > 0.91 - slack, "{trouble:?}: {share}");
        // The error falls with the square root of the number of trials: half as many trials make it 1.4 times as large.
        assert!(error * 1.41 < other, "{trouble:?}: {error} {other}");
    }
}
