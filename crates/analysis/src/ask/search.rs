//! The rates to try next.

use iotax_model::Workload;
use iotax_model::plan::{AskSpec, rounded};

use super::{HighestRate, Measured, Search, measured};
use iotax_model::Run;

/// The first rounds measure the closed loop: the first after a target was filled is often another.
pub const CAPACITY_ROUNDS: u32 = 2;
/// Rates of the later trials, from far below the capacity up to it, as shares of it.
const SHARES: [f64; 6] = [0.05, 0.25, 0.45, 0.65, 0.8, 0.95];
/// Log distance of the first pair of rates from the estimate, and the smallest one. The distance shrinks with the square root of the number
/// of pairs.
const FIRST: f64 = 0.08;
const LEAST: f64 = 0.02;
/// Factor for the next, higher rate while no rate has failed.
const UP: f64 = 1.1;
/// Factor for the next, lower rate while all rates have failed, down to [`LOWEST`] of the capacity.
const DOWN: f64 = 0.4;
const LOWEST: f64 = 0.002;

/// Number of windows that must fail at the lowest rate to end the search.
const WINDOWS: usize = 5;

/// The next measurement of a work on a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The closed loop.
    Capacity,
    /// Open loop at these rates, in I/Os per second.
    Rates(Vec<u64>),
    /// The closed loop, and this rate below it: windows above the capacity add no information.
    Below(u64),
    /// Nothing more: the conditions fail even while the target idles, or it does no I/O.
    Nothing,
}

/// The next measurements, derived from earlier rounds alone, so that a resumed run continues identically.
#[must_use]
pub fn next(run: &Run, ask: &AskSpec, work: &Workload, target: &str, round: u32) -> Next {
    if round <= CAPACITY_ROUNDS {
        return Next::Capacity;
    }
    let mut before = measured(run, work, target);
    before.all.retain(|m| m.round < round);
    before.open.retain(|(_, m)| m.round < round);
    after(&before, ask, round)
}

/// The measurements of a round after the closed loop's first, from those before.
pub(super) fn after(before: &Measured<'_>, ask: &AskSpec, round: u32) -> Next {
    let Some(capacity) = before.capacity() else { return Next::Nothing };
    if before.open.is_empty() {
        let mut rates: Vec<u64> = SHARES.iter().map(|share| rounded(capacity * share)).collect();
        rates.dedup();
        return Next::Rates(rates);
    }
    let apart = apart(round.saturating_sub(CAPACITY_ROUNDS + 1).max(1));
    let search = Search::of(before, ask, false);
    match search.found {
        HighestRate::Unknown => Next::Nothing,
        HighestRate::Rate(located) if search.at_capacity => Next::Below(rounded(located.at * (-apart).exp())),
        HighestRate::Rate(located) => Next::Rates(pair(located.at, apart)),
        HighestRate::AtLeast(rate) => Next::Rates(vec![rounded(rate * UP).max(rounded(rate) + 1)]),
        HighestRate::Below(rate) if rate * DOWN < (LOWEST * capacity).max(1.0) => {
            // At the lowest rate a window holds few I/Os.
            let there = before.open.iter().filter(|(tried, _)| *tried <= rate).count();
            if there < WINDOWS { Next::Rates(vec![rounded(rate)]) } else { Next::Nothing }
        }
        HighestRate::Below(rate) => Next::Rates(vec![rounded(rate * DOWN)]),
    }
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
    fn a_pair_is_on_both_sides() {
        assert_eq!(pair(10_000.0, 0.08), [9230, 10_800]);
        assert_eq!(pair(10.0, 0.02), [10, 11], "whole numbers");
    }
}
