//! Simulates runs from a model: the logarithm of the value that each cell measures in each round.

use std::fmt::Write as _;

use iotax_analysis::stats::moderated::prior;
use iotax_analysis::stats::paired::Differences;
use iotax_model::Plan;
use iotax_model::schedule::round_order;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The source of random numbers.
pub(crate) type Random = Xoshiro256PlusPlus;

/// Values by round, target and workload.
pub(crate) type ByCell<T> = Vec<Vec<Vec<T>>>;

pub(crate) fn seeded(seed: u64) -> Random {
    Random::seed_from_u64(seed)
}

/// Distribution of a single measurement.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Noise {
    /// Lognormal.
    Normal,
    /// Student's t with 3 degrees of freedom: its fourth moment is infinite.
    Student3,
    /// Lognormal, with one measurement in 20 slower by 50%, as in a neighbour's burst.
    Bursts,
}

impl Noise {
    /// Draws the deviation of the logarithm. `sd` is only a scale if the standard deviation is not finite.
    pub(crate) fn draw(self, sd: f64, random: &mut Random) -> f64 {
        match self {
            Self::Normal => sd * normal(random),
            Self::Student3 => {
                let squares: f64 = (0..3).map(|_| normal(random).powi(2)).sum();
                sd * normal(random) / (squares / 3.0).sqrt()
            }
            Self::Bursts => {
                let burst = if random.random::<f64>() < 0.05 { 1.5_f64.ln() } else { 0.0 };
                sd * normal(random) + burst
            }
        }
    }
}

/// Standard normal, by Marsaglia's polar method.
pub(crate) fn normal(random: &mut impl Rng) -> f64 {
    loop {
        let (x, y) = (random.random::<f64>() * 2.0 - 1.0, random.random::<f64>() * 2.0 - 1.0);
        let s = x * x + y * y;
        if s > 0.0 && s < 1.0 {
            return x * (-2.0 * s.ln() / s).sqrt();
        }
    }
}

/// The model of the figures, as components of their logarithm.
#[derive(Clone, Copy)]
pub(crate) struct Model {
    pub(crate) noise: Noise,
    /// Standard deviation of one measurement of the baseline.
    pub(crate) sd: f64,
    /// The same for the other targets, as a factor.
    pub(crate) uneven: f64,
    /// Standard deviation of the component shared by a whole round.
    pub(crate) rounds: f64,
    /// Change from the run's first measurement to its last.
    pub(crate) drift: f64,
}

/// A plan, and with it the order of a run's cells.
pub(crate) struct Design {
    pub(crate) plan: Plan,
    pub(crate) targets: usize,
    pub(crate) workloads: usize,
}

impl Design {
    pub(crate) fn new(targets: usize, workloads: usize) -> Self {
        let mut text = String::from("name = \"simulated\"\n");
        for target in 0..targets {
            let _ = write!(text, "[[target]]\nname = \"t{target}\"\npath = \"/t{target}\"\n");
        }
        for depth in 1..=workloads {
            let _ = write!(text, "[[workload]]\nrw = \"randread\"\niodepth = {depth}\n");
        }
        Self { plan: Plan::from_toml(&text).expect("a plan"), targets, workloads }
    }

    /// Simulates the logarithms of a run's figures, by round, target and workload. `effects` are the targets' true log ratios.
    pub(crate) fn run(&self, model: Model, effects: &[f64], rounds: u32, random: &mut Random) -> ByCell<f64> {
        self.run_in_order(model, effects, rounds, random).0
    }

    /// Same, with each measurement's position in the run's order.
    pub(crate) fn run_in_order(
        &self,
        model: Model,
        effects: &[f64],
        rounds: u32,
        random: &mut Random,
    ) -> (ByCell<f64>, ByCell<u32>) {
        let seed = random.random();
        let mut order = 0;
        let last = f64::from(rounds) * (self.targets * self.workloads) as f64 - 1.0;
        (1..=rounds)
            .map(|round| {
                let shared = model.rounds * normal(random);
                let mut figures = vec![vec![0.0; self.workloads]; self.targets];
                let mut orders = vec![vec![0; self.workloads]; self.targets];
                for cell in round_order(&self.plan, seed, round) {
                    let when = f64::from(order) / last.max(1.0);
                    order += 1;
                    let sd = if cell.target == 0 { model.sd } else { model.uneven * model.sd };
                    let noise = model.noise.draw(sd, random);
                    figures[cell.target][cell.workload] =
                        effects[cell.target] + shared + model.drift * when + noise;
                    orders[cell.target][cell.workload] = order;
                }
                (figures, orders)
            })
            .unzip()
    }
}

/// Compares a target with the baseline (target 0) as the judgement does.
pub(crate) fn compared(run: &[Vec<Vec<f64>>], target: usize, workload: usize) -> Differences {
    let pairs: Vec<(f64, f64)> =
        run.iter().map(|round| (round[target][workload].exp(), round[0][workload].exp())).collect();
    Differences::of_log_ratios(&pairs).expect("positive and finite")
}

/// Compares all targets with the baseline on all workloads as the judgement compares a family: with the family's prior for the variances.
pub(crate) fn family(run: &[Vec<Vec<f64>>]) -> Vec<Differences> {
    let first = &run[0];
    let cells =
        (1..first.len()).flat_map(|target| (0..first[0].len()).map(move |workload| (target, workload)));
    let members: Vec<Differences> = cells.map(|(target, workload)| compared(run, target, workload)).collect();
    let prior = prior(members.iter());
    members.into_iter().map(|member| member.with(prior)).collect()
}

/// The standard error of a share counted in `trials` trials.
pub(crate) fn standard_error(share: f64, trials: u32) -> f64 {
    (share * (1.0 - share) / f64::from(trials)).sqrt()
}

/// `5.3%`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}
