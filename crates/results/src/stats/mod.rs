//! The statistics: what counts as a difference, and what does not.
//!
//! The unit of replication is the measurement, one per block; the seconds inside it are correlated and never
//! treated as independent. [`paired`] compares two targets within blocks, [`verdict`] decides a family of such
//! comparisons together, [`sequential`] lets it be decided more than once, [`steady`] looks inside one measurement.

pub mod paired;
pub mod sequential;
pub mod steady;
pub mod verdict;

/// The share of reports that may hold a false statement within one family of comparisons.
pub const ALPHA: f64 = 0.05;

/// The margin of practical equivalence: ratios from `1 / (1 + MARGIN)` to `1 + MARGIN` count as the same.
pub const MARGIN: f64 = 0.02;

/// The median of the values; absent if there are none.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[sorted.len() / 2 - 1], upper)
    } else {
        upper
    })
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
