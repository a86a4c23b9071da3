//! Estimates the rate at which a condition is just met, from trials at rates around it.
//!
//! A condition limits a share that grows with the rate, such as the share of late I/Os. All trials contribute to the
//! estimate. Around the root, the logarithm of the share is modelled as a line over the logarithm of the rate. The
//! slope is estimated within rounds, from how each round's late I/Os are divided among its rates. A round that is slow
//! as a whole therefore does not count as an effect of the rate. The height of the line comes from all trials. Trials
//! are placed on both sides of the current estimate, ever closer. This is the sequential design of C. F. J. Wu
//! ("Efficient sequential designs with binary data", Journal of the American Statistical Association 80, 1985) with
//! counts in place of binary data.
//!
//! The interval comes from a bootstrap over rounds, widened as T. Hesterberg recommends for few rounds ("What teachers should know about
//! the bootstrap", The American Statistician 69, 2015).

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::stats::paired::Interval;

/// Distance from the estimate, as a difference of natural logarithms, within which trials contribute to the fitted line.
pub(super) const NEAR: f64 = 0.1;
/// Bounds of the slope (of log share over log rate) that is estimated from the nearest trials on both sides of the neighbourhood. Without
/// trials on both sides the slope is [`UNTOLD`].
const WIDE: (f64, f64) = (0.5, 40.0);
const UNTOLD: f64 = 5.0;
/// The slope near the root is at least the slope between more distant trials divided by this factor; flatter lines are taken for noise.
const LESS: f64 = 2.0;
/// Largest slope, for a target that meets the condition up to some rate and fails just above it.
const STEEPEST: f64 = 80.0;
/// Number of bisection steps that find the slope.
const HALVINGS: u32 = 40;
/// Number of refinements: each new estimate changes which trials are near it, so the fit is repeated.
const REFINEMENTS: u32 = 4;
/// Number of bootstrap samples of the rounds.
pub(super) const DRAWS: usize = 499;
/// Factors that widen resampled intervals downwards and upwards, from simulations: late I/Os are clustered in few rounds, so resampled
/// rounds vary too little.
const TOGETHER: (f64, f64) = (1.55, 1.1);
/// Minimum number of rounds for a bootstrap over rounds.
pub(super) const FEWEST_ROUNDS: usize = 4;

/// One trial of a condition: a window at one rate, and the share of its I/Os that counts against the condition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trial {
    /// Number of the round; all trials of a round are close in time.
    pub(super) round: u32,
    /// Scheduled I/Os per second.
    pub(super) rate: f64,
    /// Numerator of the share: late, failed or unstarted I/Os, or nanoseconds of response time.
    pub(super) bad: f64,
    /// Denominator of the share: number of I/Os.
    pub(super) of: f64,
}

/// The rate at which a condition is just met, or a bound on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Root {
    /// The condition fails at all rates tried. Holds the lowest rate tried, in I/Os per second.
    Below(f64),
    /// The condition holds at all rates tried. Holds the highest rate tried, in I/Os per second.
    Above(f64),
    /// An estimate from the trials at rates near the result.
    At {
        /// The estimated rate, in I/Os per second.
        rate: f64,
        /// Centre of the neighbourhood whose trials the estimate uses, in I/Os per second.
        middle: f64,
    },
}

/// Estimates the rate at which the share of bad I/Os reaches `limit`, from all trials; `None` without trials.
pub(super) fn root(trials: &[Trial], limit: f64) -> Option<Root> {
    let coarse = between(trials, limit)?;
    let Root::At { rate: coarse, .. } = coarse else { return Some(coarse) };
    let mut around = Neighbourhood::of(trials, coarse);
    for _ in 0..REFINEMENTS {
        let Some(better) = around.root(limit) else { break };
        // Noise can flatten the line and move its root far away, where no trial would correct it.
        let next = Neighbourhood::of(trials, better.clamp(coarse * (-NEAR).exp(), coarse * NEAR.exp()));
        if next.rounds.0.len() < around.rounds.0.len().min(FEWEST_ROUNDS) {
            break;
        }
        around = next;
    }
    let rate = around.root(limit).unwrap_or(coarse);
    Some(Root::At { rate: rate.clamp(coarse * (-NEAR).exp(), coarse * NEAR.exp()), middle: around.middle })
}

/// The logarithms of an estimated rate and of its bootstrap samples over the rounds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Draws {
    pub(super) known: f64,
    pub(super) drawn: Vec<f64>,
}

impl Draws {
    /// Fits the trials around `middle`; `None` for fewer than four rounds there, if no round has two rates, if the fitted rate is at the
    /// edge of the neighbourhood, or if all samples are equal. The seed depends only on the number of rounds, so that samples for two
    /// targets are paired.
    pub(super) fn new(trials: &[Trial], limit: f64, middle: f64) -> Option<Self> {
        let around = Neighbourhood::of(trials, middle);
        let (rounds, slopes) = (&around.rounds, around.slopes);
        let n = rounds.0.len();
        if n < FEWEST_ROUNDS {
            return None;
        }
        let known = around.root(limit)?.ln();
        // A root at the edge of the neighbourhood was clamped, so its true position is unknown.
        if (known - middle.ln()).abs() > NEAR * 0.99 {
            return None;
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(n as u64);
        let wider = widening(n)?;
        let mut drawn = Vec::with_capacity(DRAWS);
        for _ in 0..DRAWS {
            let sample = Rounds((0..n).map(|_| rounds.0[random.random_range(0..n)].clone()).collect());
            let found = on_line(&sample, slopes, limit, middle).map_or(known, f64::ln);
            let together = if found < known { TOGETHER.0 } else { TOGETHER.1 };
            drawn.push(known + together * wider * (found - known));
        }
        let differ = drawn.iter().any(|one| one.total_cmp(&drawn[0]).is_ne());
        differ.then_some(Self { known, drawn })
    }

    /// Mixes two sets of bootstrap samples: every other sample of the result comes from `other`.
    pub(super) fn and(self, other: Self) -> Self {
        let pairs = self.drawn.into_iter().zip(other.drawn).enumerate();
        let drawn = pairs.map(|(i, (own, other))| if i % 2 == 0 { own } else { other }).collect();
        Self { known: f64::midpoint(self.known, other.known), drawn }
    }

    /// Returns the interval of the rate at confidence `1 - alpha`, in I/Os per second.
    pub(super) fn interval(&self, alpha: f64) -> Interval {
        middle(self.drawn.clone(), alpha).map(f64::exp)
    }

    /// Returns the logarithm of the ratio of this rate to the `other` rate, and its interval at confidence `1 - alpha`.
    pub(super) fn relative(&self, other: &Self, alpha: f64) -> (f64, Interval) {
        let ratios = self.drawn.iter().zip(&other.drawn).map(|(own, other)| own - other).collect();
        (self.known - other.known, middle(ratios, alpha))
    }
}

/// Returns the interval that contains the middle `1 - alpha` of the values.
fn middle(mut values: Vec<f64>, alpha: f64) -> Interval {
    values.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place among the values")]
    let outside = (values.len() as f64 * alpha / 2.0) as usize;
    Interval { low: values[outside], high: values[values.len() - 1 - outside] }
}

/// Returns the factor by which a bootstrap interval from `n` rounds must be widened, because slope and height of the line are both
/// estimated. `n` must be at least 2; `None` for 2.
pub(super) fn widening(n: usize) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, (n - 2) as f64).ok()?.inverse_cdf(0.975);
    Some(t / 1.959_964 * (n as f64 / (n - 2) as f64).sqrt())
}

/// Sorts trials by rate and merges neighbours until the share never falls with the rate: the pool-adjacent-violators algorithm.
fn rising(trials: &[Trial]) -> Vec<Trial> {
    let mut sorted = trials.to_vec();
    sorted.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let mut blocks: Vec<(Trial, f64)> = Vec::new();
    for trial in sorted {
        let mut block = (trial, 1.0);
        while let Some((last, weight)) = blocks.last().copied()
            && (last.rate.total_cmp(&block.0.rate).is_eq() || last.bad * block.0.of > block.0.bad * last.of)
        {
            blocks.pop();
            let all = weight + block.1;
            let rate = ((last.rate.ln() * weight + block.0.rate.ln() * block.1) / all).exp();
            let joined = Trial { rate, bad: last.bad + block.0.bad, of: last.of + block.0.of, ..trial };
            block = (joined, all);
        }
        blocks.push(block);
    }
    blocks.into_iter().map(|(trial, _)| trial).collect()
}

/// Interpolates between the highest rate that meets the condition and the next higher one tried; `None` without trials.
fn between(trials: &[Trial], limit: f64) -> Option<Root> {
    let trials: Vec<Trial> = trials.iter().copied().filter(|trial| trial.of > 0.0).collect();
    let blocks = rising(&trials);
    let over = blocks.iter().position(|trial| trial.bad > limit * trial.of);
    Some(match over {
        None => Root::Above(trials.iter().map(|trial| trial.rate).reduce(f64::max)?),
        Some(0) => Root::Below(trials.iter().map(|trial| trial.rate).reduce(f64::min)?),
        Some(first) => {
            let share = |trial: &Trial| (trial.bad.max(0.5) / trial.of).ln();
            let (low, high) = (&blocks[first - 1], &blocks[first]);
            let part = (limit.ln() - share(low)) / (share(high) - share(low)).max(f64::MIN_POSITIVE);
            let (from, to) = (low.rate.ln(), high.rate.ln());
            let rate = (from + (to - from) * part.clamp(0.0, 1.0)).exp();
            Root::At { rate, middle: rate }
        }
    })
}

/// Input of the line fit: the trials near a rate, and the allowed slopes.
struct Neighbourhood {
    middle: f64,
    rounds: Rounds,
    /// Smallest and largest allowed slope of log share over log rate.
    slopes: (f64, f64),
}

impl Neighbourhood {
    fn of(trials: &[Trial], at: f64) -> Self {
        let away = |trial: &Trial| (trial.rate / at).ln();
        let blocks = rising(&trials.iter().copied().filter(|trial| trial.of > 0.0).collect::<Vec<_>>());
        let below = blocks.iter().rfind(|block| away(block) < -NEAR);
        let above = blocks.iter().find(|block| away(block) > NEAR);
        let share = |trial: &Trial| (trial.bad.max(0.5) / trial.of).ln();
        let wide = below.zip(above).map(|(low, high)| (share(high) - share(low)) / (away(high) - away(low)));
        let wide = wide.map_or(UNTOLD, |wide| wide.clamp(WIDE.0, WIDE.1));
        Self { middle: at, rounds: Rounds::near(trials, at), slopes: (wide / LESS, STEEPEST) }
    }

    fn root(&self, limit: f64) -> Option<f64> {
        on_line(&self.rounds, self.slopes, limit, self.middle)
    }
}

/// The trials near a rate, by round.
struct Rounds(Vec<Vec<Trial>>);

impl Rounds {
    fn near(trials: &[Trial], at: f64) -> Self {
        let near = |trial: &&Trial| trial.of > 0.0 && (trial.rate / at).ln().abs() <= NEAR;
        let mut near: Vec<Trial> = trials.iter().filter(near).copied().collect();
        near.sort_by_key(|trial| trial.round);
        Self(near.chunk_by(|a, b| a.round == b.round).map(<[Trial]>::to_vec).collect())
    }

    fn all(&self) -> impl Iterator<Item = &Trial> {
        self.0.iter().flatten()
    }
}

/// Returns the rate at which the line through the trials near `at` reaches `limit`, at most [`NEAR`] away from `at`; `None` if no round has
/// two rates.
fn on_line(rounds: &Rounds, slopes: (f64, f64), limit: f64, at: f64) -> Option<f64> {
    let slope = slope(rounds, slopes, at)?;
    let (bad, of) = rounds.all().fold((0.0, 0.0), |(bad, of), trial| {
        (bad + trial.bad, of + trial.of * (trial.rate / at).powf(slope))
    });
    let height = (bad.max(0.5) / of).ln();
    let away = (limit.ln() - height) / slope;
    Some(at * away.clamp(-NEAR, NEAR).exp())
}

/// Returns the slope that maximizes the conditional likelihood within rounds, by bisection of the likelihood's falling
/// derivative. `None` if no round has two rates.
fn slope(rounds: &Rounds, (mut low, mut high): (f64, f64), at: f64) -> Option<f64> {
    let telling: Vec<Vec<(f64, Trial)>> = rounds
        .0
        .iter()
        .filter(|round| round.iter().any(|trial| trial.rate.total_cmp(&round[0].rate).is_ne()))
        .map(|round| round.iter().map(|trial| ((trial.rate / at).ln(), *trial)).collect())
        .collect();
    if telling.is_empty() {
        return None;
    }
    let falls_short = |slope: f64| -> f64 {
        telling
            .iter()
            .map(|round| {
                let weights = round.iter().map(|(x, trial)| (x, trial.of * (slope * x).exp()));
                let (sum, first) = weights.fold((0.0, 0.0), |(sum, first), (x, w)| (sum + w, first + x * w));
                round.iter().map(|(x, trial)| trial.bad * (x - first / sum)).sum::<f64>()
            })
            .sum()
    };
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if falls_short(middle) > 0.0 { low = middle } else { high = middle }
    }
    Some(f64::midpoint(low, high))
}
