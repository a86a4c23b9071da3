//! Checks whether a measurement's rate is steady.

use iotax_model::record::{Sample, Tallies};

use super::median;

/// Number of rounds in the steady-state window of SNIA's specification.
const ROUNDS: usize = 5;
/// Largest difference between two rates in a steady window, as a share of the mean.
const RANGE: f64 = 0.20;
/// Largest rise or fall of the fitted line over the window, as a share of the mean.
const DRIFT: f64 = 0.10;
/// Range of five normal values, in standard deviations, that is exceeded with probability 1/200: a quantile of the studentized range.
const RANGE_BY_CHANCE: f64 = 4.89;
/// Rise of a line through five normal values, in standard deviations, that is exceeded with probability 1/200: the two-sided normal
/// quantile 2.81 times the rise's own standard deviation, 4 / sqrt(10).
const DRIFT_BY_CHANCE: f64 = 3.55;

/// Variation of a measurement's I/O rate over the fifths of its window. Below, each fifth is called a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steadiness {
    /// Largest minus smallest rate, as a share of the mean.
    pub range: f64,
    /// Rise (or fall, if negative) of the least-squares line from the first round to the last, as a share of the mean.
    pub drift: f64,
    /// Mean count in a round: I/Os, or bytes of streams.
    pub count: f64,
}

impl Steadiness {
    /// Applies the window of the SNIA Solid State Storage Performance Test Specification: range at most 20% of the mean, and slope
    /// times window at most 10%. The specification applies it to five rounds of a minute; here the rounds are the
    /// fifths of one measurement. `scatter` is the standard deviation of a single fifth by chance, as a share of the mean: changes
    /// that it explains are ignored.
    #[must_use]
    pub fn is_steady(self, scatter: f64) -> bool {
        let (range, drift) = Self::limits(scatter);
        self.range <= range && self.drift.abs() <= drift
    }

    /// Returns the largest range and the largest drift of a steady window, as shares of the mean; both grow with `scatter`, see
    /// [`Self::is_steady`].
    #[must_use]
    pub fn limits(scatter: f64) -> (f64, f64) {
        (RANGE.max(RANGE_BY_CHANCE * scatter), DRIFT.max(DRIFT_BY_CHANCE * scatter))
    }

    /// Returns the expected standard deviation of a fifth of the window if I/Os arrive at random (Poisson), as a share of the mean.
    #[must_use]
    pub fn poisson(self) -> f64 {
        self.count.max(1.0).sqrt().recip()
    }
}

/// Computes the steadiness of a rate over fifths of a measurement, each with the same number of intervals. `None` for fewer than five whole
/// intervals, or if nothing was counted. Surplus intervals at the beginning are dropped.
#[must_use]
pub fn steadiness(samples: &[Sample], count: impl Fn(&Tallies) -> u64) -> Option<Steadiness> {
    let whole = whole(samples);
    let each = whole.len() / ROUNDS;
    if each == 0 {
        return None;
    }
    let rounds = &whole[whole.len() - each * ROUNDS..];
    let total: u64 = rounds.iter().map(|s| count(&s.tallies)).sum();
    let rates: Vec<f64> = rounds
        .chunks(each)
        .map(|round| {
            let done: u64 = round.iter().map(|s| count(&s.tallies)).sum();
            let ns: u64 = round.iter().map(|s| s.duration_ns).sum();
            done as f64 / (ns as f64 / 1e9)
        })
        .collect();
    of_rates(&rates, total as f64 / ROUNDS as f64)
}

/// Returns the intervals that are at least half as long as the median interval. The last interval is often shorter, and its rate mostly
/// chance.
pub(super) fn whole(samples: &[Sample]) -> Vec<&Sample> {
    let lengths: Vec<f64> = samples.iter().map(|s| s.duration_ns as f64).collect();
    let half = median(&lengths).unwrap_or_default() / 2.0;
    samples.iter().filter(|s| s.duration_ns as f64 >= half && s.duration_ns > 0).collect()
}

fn of_rates(rates: &[f64], count: f64) -> Option<Steadiness> {
    let n = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / n;
    if mean <= 0.0 {
        return None;
    }
    let (low, high) = rates.iter().fold((f64::MAX, f64::MIN), |(l, h), r| (l.min(*r), h.max(*r)));
    let middle = (n - 1.0) / 2.0;
    let across: f64 = rates.iter().enumerate().map(|(i, r)| (i as f64 - middle) * (r - mean)).sum();
    let along: f64 = (0..rates.len()).map(|i| (i as f64 - middle).powi(2)).sum();
    Some(Steadiness { range: (high - low) / mean, drift: across / along * (n - 1.0) / mean, count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::record::{Tallies, Tally};

    fn sample(duration_ns: u64, ios: u64) -> Sample {
        Sample {
            at_ns: 0,
            duration_ns,
            tallies: Tallies { read: Some(Tally { ios, ..Tally::default() }), ..Tallies::default() },
            oldest_ns: None,
            failed: 0,
            directions: Vec::new(),
        }
    }

    #[test]
    fn the_window_is_snias() {
        let flat = of_rates(&[100.0, 101.0, 99.0, 100.0, 100.0], 1e6).expect("five");
        assert!(flat.is_steady(0.0), "{flat:?}");
        let spread = of_rates(&[100.0, 125.0, 100.0, 100.0, 100.0], 1e6).expect("five");
        assert!(!spread.is_steady(0.0) && spread.range > RANGE, "{spread:?}");
        // A range of 16% is fine, a steady fall of 16% is not.
        let falling = of_rates(&[108.0, 104.0, 100.0, 96.0, 92.0], 1e6).expect("five");
        assert!(falling.range <= RANGE && (falling.drift + 0.16).abs() < 1e-9, "{falling:?}");
        assert!(!falling.is_steady(0.0));
    }

    #[test]
    fn what_the_schedule_scatters_is_no_movement() {
        // Forty I/Os a round, at random moments: 16% is one standard deviation.
        let rates = [40.0, 50.0, 30.0, 36.0, 44.0];
        let few = of_rates(&rates, 40.0).expect("five");
        assert!(few.is_steady(few.poisson()) && !few.is_steady(0.0), "{few:?}");
        let many = of_rates(&rates, 4000.0).expect("five");
        assert!(!many.is_steady(many.poisson()), "{many:?}");
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(of_rates(&[0.0; 5], 0.0), None);
        assert_eq!(steadiness(&[], Tallies::ios), None);
        assert_eq!(steadiness(&vec![sample(1_000_000_000, 500); 4], Tallies::ios), None);
    }

    #[test]
    fn noise_within_a_round_is_not_drift_between_rounds() {
        // Intervals alternate by a third, rounds of two do not.
        let mut samples: Vec<Sample> =
            (0..11).map(|i| sample(100_000_000, if i % 2 == 0 { 500 } else { 700 })).collect();
        assert!(steadiness(&samples, Tallies::ios).is_some_and(|found| found.is_steady(0.0)));
        samples[10] = sample(100_000_000, 2000);
        assert!(!steadiness(&samples, Tallies::ios).is_some_and(|found| found.is_steady(0.0)));
    }

    #[test]
    fn a_stub_at_the_end_is_left_out() {
        let mut samples = vec![sample(1_000_000_000, 500); 6];
        samples.push(sample(1_000_000, 3));
        assert_eq!(
            steadiness(&samples, Tallies::ios),
            Some(Steadiness { range: 0.0, drift: 0.0, count: 500.0 })
        );
    }
}
