//! The rates to try next.

use iotax_model::Workload;
use iotax_model::plan::{AskSpec, rounded};

use super::{Found, Search, measured};
use iotax_model::Run;

/// The first rounds measure the closed loop: the first after a target was filled is often another.
pub const CAPACITY_ROUNDS: u32 = 2;
/// Then rates from far below to the capacity, as shares of it.
const SHARES: [f64; 6] = [0.05, 0.25, 0.45, 0.65, 0.8, 0.95];
/// The distance of the first pair of rates from the estimate as a logarithm, which falls with the root of the number of pairs, and the
/// least one.
const FIRST: f64 = 0.08;
const LEAST: f64 = 0.02;
/// Where no rate fails, the next is higher by this factor, up to so many times the capacity.
const UP: f64 = 1.1;
const MOST: f64 = 2.0;
/// Where all fail, the next is lower by this factor, as long as it is above this share of the capacity.
const DOWN: f64 = 0.4;
const LOWEST: f64 = 0.002;

/// So many windows decide that they fail even there.
const WINDOWS: usize = 5;
/// So many windows in a closed loop decide what a target can do.
const CLOSED: usize = 5;

/// What to measure next of a work on a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The closed loop.
    Capacity,
    /// These rates, in I/Os per second.
    Rates(Vec<u64>),
    /// Nothing: the conditions fail while the target idles, or hold whatever it is asked for, or it does no I/O.
    Nothing,
}

/// What to measure in a round, by the rounds before it alone, so that a resumed run goes on as it would have.
#[must_use]
pub fn next(run: &Run, ask: &AskSpec, work: &Workload, target: &str, round: u32) -> Next {
    if round <= CAPACITY_ROUNDS {
        return Next::Capacity;
    }
    let mut before = measured(run, work, target);
    before.all.retain(|m| m.round < round);
    before.open.retain(|(_, m)| m.round < round);
    let Some(capacity) = before.capacity() else { return Next::Nothing };
    if before.open.is_empty() {
        let mut rates: Vec<u64> = SHARES.iter().map(|share| rounded(capacity * share)).collect();
        rates.dedup();
        return Next::Rates(rates);
    }
    let apart = apart(round.saturating_sub(CAPACITY_ROUNDS + 1).max(1));
    match Search::of(&before, ask).found {
        Found::Unknown => Next::Nothing,
        Found::Rate(located) => Next::Rates(pair(located.at, apart)),
        Found::AtLeast(rate) => upwards(rate, capacity, before.all.len() - before.open.len()),
        Found::Below(rate) if rate * DOWN < (LOWEST * capacity).max(1.0) => {
            // At the lowest rate a window holds few I/Os.
            let there = before.open.iter().filter(|(tried, _)| *tried <= rate).count();
            if there < WINDOWS { Next::Rates(vec![rounded(rate)]) } else { Next::Nothing }
        }
        Found::Below(rate) => Next::Rates(vec![rounded(rate * DOWN)]),
    }
}

/// What follows where no rate up to this one fails, after so many windows in a closed loop.
fn upwards(rate: f64, capacity: f64, closed: usize) -> Next {
    if rate * UP <= MOST * capacity {
        return Next::Rates(vec![rounded(rate * UP).max(rounded(rate) + 1)]);
    }
    // A target that keeps up with twice what it can do was measured in a stall.
    if closed < CLOSED { Next::Capacity } else { Next::Nothing }
}

/// The distance of the rates of the nth pair, from 1, from the estimate as a logarithm.
pub(super) fn apart(pair: u32) -> f64 {
    (FIRST / f64::from(pair).sqrt()).max(LEAST)
}

/// Two rates around one.
fn pair(at: f64, apart: f64) -> Vec<u64> {
    let low = rounded(at * (-apart).exp());
    vec![low, rounded(at * apart.exp()).max(low + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_that_was_measured_in_a_stall_is_measured_again() {
        assert_eq!(upwards(1500.0, 1000.0, 2), Next::Rates(vec![1650]));
        assert_eq!(upwards(1950.0, 1000.0, 2), Next::Capacity);
        assert_eq!(upwards(1950.0, 10_000.0, 3), Next::Rates(vec![2150]), "the best of the windows counts");
        assert_eq!(upwards(1950.0, 1000.0, CLOSED), Next::Nothing);
    }

    #[test]
    fn a_pair_is_on_both_sides() {
        assert_eq!(pair(10_000.0, 0.08), [9230, 10_800]);
        assert_eq!(pair(10.0, 0.02), [10, 11], "whole numbers");
    }
}
