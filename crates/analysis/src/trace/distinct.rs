//! Estimates the number of distinct values in a stream, from a bounded sample.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher};

/// Number of smallest hashes kept: an error of about 1 / sqrt(8192) = 1.1%.
const KEPT: usize = 8192;

/// Counter of distinct values by the k smallest of their hashes (Bar-Yossef et al., "Counting distinct elements in a data stream", 2002;
/// Beyer et al., "On synopses for distinct-value estimation under multiset operations", 2007).
#[derive(Debug, Default)]
pub(super) struct Distinct {
    smallest: BTreeSet<u64>,
}

impl Distinct {
    pub(super) fn add(&mut self, value: u64) {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(value);
        let hash = hasher.finish();
        if self.smallest.len() < KEPT {
            self.smallest.insert(hash);
        } else if self.smallest.last().is_some_and(|largest| hash < *largest) && self.smallest.insert(hash) {
            self.smallest.pop_last();
        }
    }

    /// Estimates the number of distinct values; exact below [`KEPT`] values.
    pub(super) fn estimate(&self) -> u64 {
        match self.smallest.last() {
            Some(largest) if self.smallest.len() == KEPT => {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
                let estimate = ((KEPT - 1) as f64 / (*largest as f64 / u64::MAX as f64)) as u64;
                estimate
            }
            _ => self.smallest.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_are_counted_and_many_estimated() {
        for (distinct, error) in [(0, 0.0), (1000, 0.0), (8191, 0.0), (100_000, 0.03), (1_000_000, 0.03)] {
            let mut counted = Distinct::default();
            for value in (0..distinct).chain(0..distinct / 2) {
                counted.add(value * 7);
            }
            let off = counted.estimate().abs_diff(distinct) as f64;
            assert!(off <= error * distinct as f64, "{distinct}: {}", counted.estimate());
        }
    }
}
