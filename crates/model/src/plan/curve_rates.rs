//! Chooses the rates of a curve: closely spaced where latency rises steeply, widely spaced where it is flat.

use super::rates::rounded;

/// Lowest and highest rate of a curve, as shares of a target's capacity.
const SHARES: (f64, f64) = (0.05, 1.1);
/// With several targets, rates that differ by less than this factor are merged.
const APART: f64 = 1.08;
/// Response times are capped at this multiple of the lowest mean when rates are chosen: higher ones only reflect the length of the queue.
const TALL: f64 = 8.0;

/// Capacity and latencies of a target, measured in advance to choose the rates of its curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Scouted {
    /// I/Os per second in a closed loop: the highest rate that the target can sustain.
    pub capacity: f64,
    /// Rates in ascending order with their mean response time, in any unit; `None` if the target did not sustain the rate.
    pub measured: Vec<(u64, Option<f64>)>,
}

impl Scouted {
    /// Creates a target with this capacity, without measured latencies.
    #[must_use]
    pub fn new(capacity: f64) -> Self {
        Self { capacity, measured: Vec::new() }
    }

    /// Returns the rates at which latency is measured before the curve's rates are chosen: 5% to 100% of the capacity.
    #[must_use]
    pub fn first_rates(capacity: f64) -> Vec<u64> {
        let mut rates: Vec<u64> =
            [SHARES.0, 0.3, 0.5, 0.7, 0.85, 1.0].iter().map(|share| rounded(capacity * share)).collect();
        rates.dedup();
        rates
    }

    /// Converts the measurements into points (load, log of latency), each scaled to 0 to 1. Neither coordinate falls from one point to the next.
    fn knots(&self) -> Vec<(f64, f64)> {
        let position = |rate: u64| (rate as f64 / self.capacity - SHARES.0) / (SHARES.1 - SHARES.0);
        let lowest = self.measured.iter().filter_map(|(_, latency)| *latency).reduce(f64::min);
        let height = |latency: &Option<f64>| match latency.zip(lowest) {
            Some((latency, lowest)) => ((latency / lowest).ln() / TALL.ln()).min(1.0),
            None => 1.0,
        };
        let within = self.measured.iter().map(|(rate, latency)| (position(*rate), height(latency)));
        let within: Vec<(f64, f64)> = within.filter(|(position, _)| (0.0..1.0).contains(position)).collect();
        // A stall in a short window can make a low rate look slow. Latency does not fall as load rises, so each rate is capped by those above it.
        let rising = |i: usize| within[i..].iter().map(|knot| knot.1).fold(1.0, f64::min);
        // Below the lowest measured rate, latency is taken to be flat.
        let mut knots = vec![(0.0, if within.is_empty() { 0.0 } else { rising(0) })];
        knots.extend((0..within.len()).map(|i| (within[i].0, rising(i))));
        knots.push((1.0, 1.0));
        knots
    }

    /// Chooses `points` rates at equal distances along the curve of load and log latency.
    fn rates_along(&self, points: u32) -> Vec<f64> {
        let knots = self.knots();
        let length = |from: (f64, f64), to: (f64, f64)| (to.0 - from.0).hypot(to.1 - from.1);
        let whole: f64 = knots.windows(2).map(|two| length(two[0], two[1])).sum();
        let at = |distance: f64| {
            let mut left = distance;
            for two in knots.windows(2) {
                let part = length(two[0], two[1]);
                if left <= part && part > 0.0 {
                    return two[0].0 + (two[1].0 - two[0].0) * left / part;
                }
                left -= part;
            }
            1.0
        };
        let candidates = (0..points).map(|i| at(whole * f64::from(i) / f64::from(points - 1)));
        candidates.map(|position| self.capacity * (SHARES.0 + (SHARES.1 - SHARES.0) * position)).collect()
    }
}

/// Chooses the rates for all targets together: whole numbers in ascending order, without duplicates.
pub(super) fn choose_rates(targets: &[&Scouted], points: u32) -> Vec<u64> {
    let mut rates: Vec<f64> = targets.iter().flat_map(|target| target.rates_along(points)).collect();
    rates.sort_by(f64::total_cmp);
    let alone = targets.len() < 2;
    let mut chosen: Vec<u64> = Vec::new();
    for rate in rates {
        let whole = rounded(rate);
        let far = chosen.last().is_none_or(|last| alone || whole as f64 >= *last as f64 * APART);
        if far && chosen.last() != Some(&whole) {
            chosen.push(whole);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the measurements of a simulated target with this mean response time as a function of load.
    fn simulated(latency: impl Fn(f64) -> Option<f64>) -> Scouted {
        let rates = Scouted::first_rates(10_000.0);
        let measured = rates.into_iter().map(|rate| (rate, latency(rate as f64 / 10_000.0))).collect();
        Scouted { capacity: 10_000.0, measured }
    }

    /// Counts the rates, of twelve, in this range of loads.
    fn between(scouted: &Scouted, loads: std::ops::Range<f64>) -> usize {
        let rates = choose_rates(&[scouted], 12);
        rates.iter().filter(|rate| loads.contains(&(**rate as f64 / 10_000.0))).count()
    }

    #[test]
    fn rates_lie_where_latency_rises() {
        let queue = simulated(|load| (load < 1.0).then(|| 1.0 + load / (2.0 * (1.0 - load))));
        let cliff = simulated(|load| (load < 0.6).then_some(1.0));
        let flat = simulated(|_| Some(1.0));
        for scouted in [&queue, &cliff, &flat, &Scouted::new(10_000.0)] {
            let rates = choose_rates(&[scouted], 12);
            assert_eq!((rates.len(), rates[0], rates[11]), (12, 500, 11_000), "{rates:?}");
        }
        assert!(between(&queue, 0.5..1.05) >= 7, "{:?}", choose_rates(&[&queue], 12));
        assert!(between(&cliff, 0.5..0.7) >= 5, "{:?}", choose_rates(&[&cliff], 12));
        assert!(between(&cliff, 0.0..0.4) >= 2, "{:?}", choose_rates(&[&cliff], 12));
        assert!((2..=4).contains(&between(&flat, 0.4..0.7)), "{:?}", choose_rates(&[&flat], 12));
    }

    #[test]
    fn a_noisy_window_does_not_hide_the_bend() {
        let queue = |load: f64| (load < 1.0).then(|| 1.0 + load / (2.0 * (1.0 - load)));
        let mut noisy = simulated(queue);
        // A stall in the window of the second rate.
        noisy.measured[1].1 = Some(6.0);
        assert!(between(&noisy, 0.5..1.05) >= 7, "{:?}", choose_rates(&[&noisy], 12));
        assert!(choose_rates(&[&noisy], 12).is_sorted());
        // A stall in the window of the first rate.
        noisy.measured[0].1 = Some(3.0);
        let rates = choose_rates(&[&noisy], 12);
        assert!(rates[1] - rates[0] > 500, "{rates:?}");
    }

    #[test]
    fn rates_of_several_targets_that_are_close_are_one() {
        let targets = |capacities: [f64; 2]| capacities.map(Scouted::new);
        let close = targets([10_000.0, 10_100.0]);
        assert_eq!(choose_rates(&close.each_ref(), 8).len(), 8);
        let far = targets([10_000.0, 100_000.0]);
        let far = choose_rates(&far.each_ref(), 8);
        assert!((14..=16).contains(&far.len()), "{far:?}");
        assert!(far.is_sorted());
        assert_eq!(choose_rates(&[&Scouted::new(3.0)], 8), [1, 2, 3], "whole numbers");
    }
}
