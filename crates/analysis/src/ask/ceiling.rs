//! Estimates the highest rate from the capacity, where windows are too short for the queue to reach its steady-state length.
//!
//! Close to the capacity a queue takes many windows to reach that length. A short window that starts with an empty
//! queue therefore meets a latency limit at rates that the target cannot sustain. The closed loop gives the capacity.
//! The mean wait at rates around it gives the variance of the arriving work. A queue under heavy traffic behaves like a
//! Brownian motion reflected at 0, also while it still grows (J. F. C. Kingman, "The single server queue in heavy
//! traffic", Proceedings of the Cambridge Philosophical Society 57, 1961; J. M. Harrison, Brownian Motion and
//! Stochastic Flow Systems, 1985, section 1.9). Capacity and variance together determine the share of late I/Os in the
//! long run, see [`Tail`].

use iotax_model::plan::Slo;
use iotax_model::units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use statrs::function::erf::erfc;

use super::root::{DRAWS, Draws, FEWEST_ROUNDS, NEAR, widening};
use super::trials::trials;
use super::{Condition, Measured};

/// Range of rates, as shares of the capacity, whose windows are used to estimate the variance of the work.
const AROUND: (f64, f64) = (0.8, 1.15);
/// Largest rate, as a share of the capacity, at which the response time counts as that of an idle target.
const IDLE: f64 = 0.5;
/// A queue reaches its steady-state length in a window of `SETTLED * variance / unused²` seconds. `unused` is the
/// unused share of the capacity.
const SETTLED: f64 = 24.0;
/// Number of points in a window at which the expected wait is evaluated; the mean of these waits is the expected wait of the window.
const MOMENTS: u32 = 4;
const HALVINGS: u32 = 14;
/// Iterations of Newton's method for the decay of a `Tail`.
const STEPS: u32 = 6;
/// Largest relative rounding error of an offered rate: the search rounds the rates that it tries to three digits.
const RESOLUTION: f64 = 0.005;
/// Assumed error of the model, as a share of the unused capacity at the estimated rate.
const MODEL: f64 = 0.2;
/// Largest number of I/Os that may complete at once without counting as a burst.
const BURST: f64 = 10.0;
/// Position of the estimate on a logarithmic scale: 0 is the rate for the observed burst length, 1 is the capacity,
/// which an endless burst would sustain.
const LONGER: f64 = 0.4;
/// Upper bound of the variance estimate, as a multiple of the variance of random arrivals alone.
const MOST_VARIANCE: f64 = 1e6;
/// Upper bound of the burst estimate, in seconds of work.
const MOST_SAVED: f64 = 10.0;
/// Number of subintervals in the numerical integration of [`rest`].
const PARTS: u32 = 8;

/// An open-loop measurement at one rate.
#[derive(Debug, Clone, Copy)]
struct Window {
    rate: f64,
    /// Mean response time in seconds.
    response: f64,
    /// Length of the window in seconds, without the warm-up.
    length: f64,
    /// Length of the warm-up before the window, in seconds.
    ramp: f64,
}

/// Closed-loop and open-loop measurements of one round.
#[derive(Debug, Clone, Default)]
struct Round {
    /// I/Os per second of each closed-loop window.
    closed: Vec<f64>,
    open: Vec<Window>,
}

/// Model of a target as a queue with random arrivals, built from its measurements.
pub(super) struct Queue {
    rounds: Vec<Round>,
    /// Mean response time in seconds at the lowest rate tried up to half of the capacity; 0 if no such rate was tried.
    base: f64,
}

/// The highest rate at which a target meets a condition.
pub(super) struct Ceiling {
    /// The estimated highest rate, in I/Os per second.
    pub(super) rate: f64,
    /// Highest rate, in I/Os per second, at which windows are long enough for the queue to reach its steady-state length.
    pub(super) observed_to: f64,
    /// The rate if bursts are no longer than observed, in I/Os per second.
    least: f64,
    /// The capacity if a burst was observed, because longer bursts are possible; otherwise the same as `least`.
    most: f64,
    capacity: f64,
}

impl Queue {
    /// Builds the model; `None` without a closed-loop measurement.
    pub(super) fn of(measured: &Measured<'_>) -> Option<Self> {
        let capacity = measured.capacity()?;
        let most = Nanos(1);
        let response = |rate: f64, m| {
            let (found, _) = trials(&[(rate, m)], Condition::Slo(Slo::Mean { most }));
            found.first().filter(|trial| trial.of > 0.0).map(|trial| trial.bad / trial.of / 1e9)
        };
        let mut rounds = std::collections::BTreeMap::<u32, Round>::new();
        for (round, iops) in measured.closed() {
            rounds.entry(round).or_default().closed.push(iops);
        }
        let mut base: Option<(f64, f64)> = None;
        for (rate, m) in &measured.open {
            let Some(response) = response(*rate, m) else { continue };
            if *rate <= IDLE * capacity && base.is_none_or(|(lowest, _)| *rate < lowest) {
                base = Some((*rate, response));
            }
            if (AROUND.0..=AROUND.1).contains(&(rate / capacity)) {
                let length = m.outcome.duration_ns as f64 / 1e9;
                let window = Window { rate: *rate, response, length, ramp: measured.ramp_s };
                rounds.entry(m.round).or_default().open.push(window);
            }
        }
        let base = base.map_or(0.0, |(_, response)| response);
        Some(Self { rounds: rounds.into_values().collect(), base })
    }

    /// Estimates the highest rate that a condition allows; `None` without windows at rates near the capacity.
    pub(super) fn ceiling(&self, condition: Condition) -> Option<Ceiling> {
        self.by(&self.rounds.iter().collect::<Vec<_>>(), condition)
    }

    /// Returns bootstrap samples of the highest rate; `None` for fewer than four rounds, or without windows at rates near the capacity.
    pub(super) fn draws(&self, condition: Condition) -> Option<Draws> {
        let ceiling = self.ceiling(condition)?;
        let (n, known) = (self.rounds.len(), ceiling.rate.ln());
        let coarse = RESOLUTION + MODEL * (1.0 - ceiling.least / ceiling.capacity).max(0.0);
        if n < FEWEST_ROUNDS {
            return None;
        }
        let wider = widening(n)?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(n as u64);
        let draw = |i: usize| {
            let sample: Vec<&Round> = (0..n).map(|_| &self.rounds[random.random_range(0..n)]).collect();
            // Half of the draws assume the shortest possible burst, the other half an endless one.
            let rate = |ceiling: Ceiling| {
                if i.is_multiple_of(2) { ceiling.least } else { ceiling.most }
            };
            let found = self.by(&sample, condition).map_or(known, |ceiling| rate(ceiling).ln());
            let fine = wider * (found - known);
            // Rounding of the rates and errors of the model are spread evenly, since the rounds cannot show them.
            known + fine + coarse * (2.0 * random.random::<f64>() - 1.0)
        };
        // Far below `observed_to`, windows are more reliable than the model.
        let floor = (ceiling.observed_to * (-NEAR).exp()).ln();
        let drawn = (0..DRAWS).map(draw).map(|ln: f64| ln.max(floor)).collect();
        Some(Draws { known, drawn })
    }

    fn by(&self, rounds: &[&Round], condition: Condition) -> Option<Ceiling> {
        let closed: Vec<f64> = rounds.iter().flat_map(|round| round.closed.iter().copied()).collect();
        let capacity = mean(&closed)?;
        let Work { variance, saved } = self.work(rounds, capacity)?;
        let length =
            rounds.iter().flat_map(|round| &round.open).map(|window| window.length).fold(1.0, f64::max);
        let closed = without_chance(&closed, capacity, (variance - 1.0 / capacity) / length);
        // The variance says nothing about rates below those it was estimated from.
        let observed_to = capacity * (1.0 - (SETTLED * variance / length).sqrt()).max(AROUND.0);
        let beyond =
            |time: f64, rate: f64, of: f64| Tail::of(rate / of, variance * capacity).beyond(time * of);
        let longest = |most: Nanos| most.0 as f64 / 1e9 - self.base;
        let exceeds = |rate: f64| match condition {
            Condition::Slo(Slo::Percentile { percent, most }) => {
                let late = closed.iter().map(|of| beyond(longest(most) + saved, rate, *of));
                late.sum::<f64>() / closed.len() as f64 > 1.0 - percent / 100.0
            }
            Condition::Slo(Slo::Mean { most }) => {
                let wait = |of: &f64| {
                    beyond(saved, rate, *of) * variance * rate
                        / of
                        / (2.0 * (1.0 - rate / of).max(f64::MIN_POSITIVE))
                };
                closed.iter().map(wait).sum::<f64>() / closed.len() as f64 > longest(most)
            }
            Condition::Slo(Slo::NoErrors) | Condition::KeepsUp => rate > capacity,
        };
        let rate = halved((0.0, capacity), exceeds);
        // A burst may be longer than the pause before a window allows, so the rate is between this one and the capacity.
        let most = if saved * capacity > BURST { capacity } else { rate };
        Some(Ceiling { rate: rate * (most / rate).powf(LONGER), least: rate, most, observed_to, capacity })
    }

    /// Estimates the variance of the arriving work from the waits at rates around the capacity; `None` without a window there. The variance
    /// is at least that of random arrivals. If waits are shorter than random arrivals alone cause, the target served a burst.
    fn work(&self, rounds: &[&Round], capacity: f64) -> Option<Work> {
        let windows: Vec<(f64, &Window)> = rounds
            .iter()
            .flat_map(|round| {
                let capacity = mean(&round.closed).unwrap_or(capacity);
                round.open.iter().map(move |window| (window.rate / capacity - 1.0, window))
            })
            .collect();
        if windows.is_empty() {
            return None;
        }
        let waited: f64 = windows.iter().map(|(_, window)| (window.response - self.base).max(0.0)).sum();
        let expected =
            |work: Work| -> f64 { windows.iter().map(|(drift, window)| window.expected(*drift, work)).sum() };
        let least = 1.0 / capacity;
        if expected(Work { variance: least, saved: 0.0 }) <= waited {
            let more = |factor: f64| expected(Work { variance: least * factor.exp(), saved: 0.0 }) > waited;
            return Some(Work {
                variance: least * halved((0.0, MOST_VARIANCE.ln()), more).exp(),
                saved: 0.0,
            });
        }
        let few = |saved: f64| expected(Work { variance: least, saved }) < waited;
        Some(Work { variance: least, saved: halved((0.0, MOST_SAVED), few) })
    }
}

/// Model of the work, in seconds of service time, that arrives at a target.
#[derive(Debug, Clone, Copy)]
struct Work {
    /// Variance, at the capacity, of the work that arrives in one second, in seconds² per second.
    variance: f64,
    /// Seconds of work that a burst completes at once.
    saved: f64,
}

/// Shrinks measured capacities towards `capacity` by the part of their scatter that is chance. `chance` is the variance of their natural
/// logarithms that chance alone explains; two standard errors are added to it.
fn without_chance(closed: &[f64], capacity: f64, chance: f64) -> Vec<f64> {
    let strays = |of: &f64| (of / capacity).ln().powi(2);
    let degrees = (closed.len() as f64 - 1.0).max(1.0);
    let variance = closed.iter().map(strays).sum::<f64>() / degrees;
    let most = chance.max(0.0) * (1.0 + 2.0 * (2.0 / degrees).sqrt());
    let real = (1.0 - most / variance.max(f64::MIN_POSITIVE)).max(0.0).sqrt();
    closed.iter().map(|of| capacity * (of / capacity).powf(real)).collect()
}

/// Finds by bisection the largest value between two bounds for which `exceeds` is false.
fn halved((mut low, mut high): (f64, f64), exceeds: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if exceeds(middle) { high = middle } else { low = middle }
    }
    low
}

/// Distribution of long waits in a queue with random arrivals: the Cramér-Lundberg approximation (S. Asmussen, Applied Probability and
/// Queues, 2003, section XIII.5). Service times are assumed to be gamma distributed, which includes constant and exponential ones.
struct Tail {
    factor: f64,
    decay: f64,
}

impl Tail {
    /// Computes the distribution at `load`, a share of the capacity, for work whose variance is `times` that of random arrivals alone.
    fn of(load: f64, times: f64) -> Self {
        if load >= 1.0 {
            return Self { factor: 1.0, decay: 0.0 };
        }
        let uneven = (times - 1.0).max(1e-6);
        let log = |decay: f64| -(-decay * uneven).ln_1p() / uneven;
        // The decay at which the moment generating function is 1 + decay / load: Newton's method from above it.
        let mut decay = (2.0 * (1.0 - load) / (load * (1.0 + uneven))).min(0.95 / uneven);
        for _ in 0..STEPS {
            let over = (log(decay) - (decay / load).ln_1p()).max(0.0);
            decay -= over / (1.0 / (1.0 - decay * uneven) - 1.0 / (load + decay));
        }
        let moment = log(decay).exp();
        let slope = load * moment / (1.0 - decay * uneven) - 1.0;
        Self { factor: (1.0 - load) / slope * moment * (-decay).exp(), decay }
    }

    /// Returns the probability of a wait longer than `wait`, which is given in mean service times.
    fn beyond(&self, wait: f64) -> f64 {
        (self.factor * (-self.decay * wait.max(0.0)).exp()).min(1.0)
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

impl Window {
    /// Returns the expected mean wait in the window, in seconds, if it started with an empty queue. `drift` is the excess of the rate over
    /// the capacity, as a share of the capacity.
    fn expected(&self, drift: f64, work: Work) -> f64 {
        // The variance of the arriving work is proportional to the rate.
        let work = Work { variance: work.variance * (1.0 + drift), ..work };
        let moment = |i: u32| self.ramp + self.length * (f64::from(i) + 0.5) / f64::from(MOMENTS);
        let wait = |i| {
            if work.saved > 0.0 {
                rest(drift, work, moment(i))
            } else {
                wait(drift, work.variance.sqrt(), moment(i))
            }
        };
        (0..MOMENTS).map(wait).sum::<f64>() / f64::from(MOMENTS)
    }
}

/// Returns the expected wait beyond the burst `work.saved`, in seconds, `time` seconds after the queue was empty.
/// Integrates over the tail of a reflected Brownian motion.
fn rest(drift: f64, work: Work, time: f64) -> f64 {
    let spread = (work.variance * time).sqrt();
    let settled = work.variance / (2.0 * drift.abs()).max(f64::MIN_POSITIVE);
    let reach = 4.0 * spread.min(settled) + (drift * time - work.saved).max(0.0);
    let width = reach / f64::from(PARTS);
    let above = |i: u32| {
        let x = work.saved + width * (f64::from(i) + 0.5);
        let tail = |z: f64| 0.5 * erfc(z / spread / std::f64::consts::SQRT_2);
        let mirrored = tail(x + drift * time);
        let image = if mirrored > 0.0 { (2.0 * drift * x / work.variance).exp() * mirrored } else { 0.0 };
        tail(x - drift * time) + image
    };
    (0..PARTS).map(above).sum::<f64>() * width
}

/// Returns the expected value of a reflected Brownian motion `time` seconds after it was 0: the expected wait in a queue that was empty.
fn wait(drift: f64, deviation: f64, time: f64) -> f64 {
    let spread = deviation * time.sqrt();
    let z = drift * time / spread;
    let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let below = 0.5 * erfc(-z / std::f64::consts::SQRT_2);
    // For a drift near 0 the quotient approaches 0 / 0, so its limit is used.
    let settled = if z.abs() < 1e-4 {
        spread * density
    } else {
        deviation * deviation / (2.0 * drift) * (2.0 * below - 1.0)
    };
    drift * time * below + spread * density + settled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_are_those_of_known_queues() {
        // Exponential service times: the time in the system, a wait plus a service time, is exponential too.
        let random = Tail::of(0.8, 2.0);
        assert!((random.decay - 0.2).abs() < 1e-6, "{}", random.decay);
        assert!((random.beyond(20.0) - (-0.2_f64 * 21.0).exp()).abs() < 1e-6);
        // Constant service times: the decay solves 0.8 (exp(x) - 1) = x.
        let even = Tail::of(0.8, 1.0).decay;
        assert!((0.8 * even.exp_m1() - even).abs() < 1e-5, "{even}");
        assert!((Tail::of(1.0, 2.0).beyond(1e6) - 1.0).abs() < 1e-9, "nothing is free");
    }

    #[test]
    fn a_queue_grows_to_its_mean_or_with_the_overload() {
        // With 5% of the capacity unused and a variance of 2 ms, the mean wait tends to 20 ms.
        assert!((wait(-0.05, 0.002_f64.sqrt(), 1000.0) - 0.02).abs() < 1e-6);
        let overload = wait(0.05, 0.002_f64.sqrt(), 1000.0);
        assert!((overload - 50.02).abs() < 1e-3, "{overload}");
        let balanced = wait(0.0, 1.0, 1.0);
        assert!((balanced - (2.0 / std::f64::consts::PI).sqrt()).abs() < 1e-9, "{balanced}");
        assert!((wait(1e-9, 1.0, 1.0) - wait(1e-3, 1.0, 1.0)).abs() < 1e-3);
        let saved = rest(-0.05, Work { variance: 0.002, saved: 0.02 }, 1000.0);
        assert!((saved / (0.02 * (-1.0_f64).exp()) - 1.0).abs() < 0.05, "{saved}");
    }
}
