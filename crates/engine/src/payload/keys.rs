//! Decides which contents are new and which repeat an earlier one.

use crate::random::nth;

/// A key for each number; equal keys make equal contents.
///
/// The number alone decides whether it repeats an earlier one, and which one. So nothing written has to be remembered, and
/// duplicates lie as far apart as the writes do.
#[derive(Debug)]
pub(super) struct Keys {
    seed: u64,
    /// Share of numbers that repeat an earlier one.
    dedupe_percentage: u64,
}

impl Keys {
    pub(super) fn new(seed: u64, dedupe_percentage: u8) -> Self {
        Self { seed, dedupe_percentage: dedupe_percentage.into() }
    }

    #[inline]
    pub(super) fn key(&self, number: u64) -> u64 {
        nth(self.seed, if self.dedupe_percentage == 0 { number } else { self.original(number) })
    }

    /// The number whose content it has: its own if that is new.
    fn original(&self, number: u64) -> u64 {
        let mut number = number;
        // The earlier one may itself be a repeat; the chain ends at 0 at the latest.
        while self.repeats(number) {
            number = nth(!self.seed, number) % number;
        }
        number
    }

    /// Evenly spaced, so that the share is exact among few numbers too.
    const fn repeats(&self, number: u64) -> bool {
        let place = number % 100;
        number > 0 && (place + 1) * self.dedupe_percentage / 100 > place * self.dedupe_percentage / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_asked_share_repeats_an_earlier_one() {
        for percent in 0..=100 {
            let keys = Keys::new(7, percent);
            let distinct: HashSet<u64> = (0..1000).map(|number| keys.key(number)).collect();
            let share = 100.0 - distinct.len() as f64 / 10.0;
            // The first cannot repeat.
            assert!((share - f64::from(percent)).abs() <= 0.1, "{share} for {percent}");
        }
    }
}
