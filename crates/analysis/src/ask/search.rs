//! Chooses the rates that a search tries in the next round.

use iotax_model::Workload;
use iotax_model::plan::{AskSpec, rounded};

use super::{HighestRate, Measured, Search, measured};
use iotax_model::Run;

/// Number of initial rounds that measure the closed loop; the first round after filling a target often differs.
pub const CAPACITY_ROUNDS: u32 = 2;
/// Rates of the first open-loop trials, as shares of the capacity.
const SHARES: [f64; 6] = [0.05, 0.25, 0.45, 0.65, 0.8, 0.95];
/// Distance of the first pair of rates from the estimate, as a difference of natural logarithms. For the nth pair it is divided by the
/// square root of n.
const FIRST: f64 = 0.08;
/// Smallest distance of a pair of rates from the estimate, as a difference of natural logarithms.
const LEAST: f64 = 0.02;
/// Factor from the highest rate tried to the next one while no rate has failed.
const UP: f64 = 1.1;
/// Factor from the lowest rate tried to the next one while all rates have failed, down to [`LOWEST`] of the capacity.
const DOWN: f64 = 0.4;
/// Lowest rate that is tried, as a share of the capacity.
const LOWEST: f64 = 0.002;

/// Number of windows that must fail at the lowest rate to end the search.
const WINDOWS: usize = 5;

/// The next measurements of a workload on a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A closed-loop measurement.
    Capacity,
    /// Open-loop measurements at these rates, in I/Os per second.
    Rates(Vec<u64>),
    /// A closed-loop measurement, and an open-loop measurement at this rate below the capacity, in I/Os per second. Windows above the
    /// capacity add no information.
    Below(u64),
    /// No measurement: the search ends, because the conditions fail even on an idle target, or the target does no I/O.
    Nothing,
}

/// Returns the next measurements. They depend only on earlier rounds, so a resumed run continues as if it had not been interrupted.
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

/// Returns the measurements of a round after the initial closed-loop rounds, given the earlier rounds.
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
            // A window at the lowest rate holds few I/Os, so several of them must fail.
            let there = before.open.iter().filter(|(tried, _)| *tried <= rate).count();
            if there < WINDOWS { Next::Rates(vec![rounded(rate)]) } else { Next::Nothing }
        }
        HighestRate::Below(rate) => Next::Rates(vec![rounded(rate * DOWN)]),
    }
}

/// Returns the distance of the nth pair of rates (from 1) from the estimate, as a difference of natural logarithms.
pub(super) fn apart(pair: u32) -> f64 {
    (FIRST / f64::from(pair).sqrt()).max(LEAST)
}

/// Returns the rates below and above `at` by a factor of `exp(apart)`, rounded.
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
