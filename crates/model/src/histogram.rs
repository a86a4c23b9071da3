//! A latency histogram with log-linear buckets: bounded memory, and quantiles with a known maximum error.

use std::ops::Range;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Log2 of the number of buckets per power of two.
const SUB_BITS: u32 = 7;
const SUB: u64 = 1 << SUB_BITS;
/// Number of bits of the largest value that the buckets resolve: `2^MAX_BITS` ns is about 18 minutes. The last bucket also counts all
/// larger values; minimum, maximum and mean stay exact.
const MAX_BITS: u32 = 40;
/// Number of buckets of a histogram in which all buckets are allocated.
pub const BUCKETS: usize = ((MAX_BITS - SUB_BITS + 1) as usize) << SUB_BITS;
/// Maximum relative error of a quantile up to about 18 minutes (2^40 ns). A bucket's width is at most `1/2^SUB_BITS` of its lowest value,
/// and quantiles report its middle. Values below 256 ns are exact.
pub const RELATIVE_ERROR: f64 = 0.5 / SUB as f64;

/// Counts of values, usually latencies in nanoseconds. Memory is 8 bytes per allocated bucket, at most 34 KiB. The buckets from the lowest
/// to the highest in use are allocated, or all of them at creation. Adding a value takes a few instructions, and allocates only when the
/// value lies outside the allocated buckets.
#[derive(Debug, Clone)]
pub struct Histogram {
    /// Index of the bucket that `buckets[0]` counts.
    start: usize,
    buckets: Vec<u64>,
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { start: 0, buckets: Vec::new(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

/// Compares the counted values; the range of allocated buckets does not matter.
impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        let whole = |h: &Self| (h.count, h.sum, h.min, h.max);
        whole(self) == whole(other) && self.nonzero().eq(other.nonzero())
    }
}

impl Eq for Histogram {}

/// Returns the index of the bucket that counts `value`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the result is below BUCKETS")]
fn index_of(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let exponent = value.ilog2();
    if exponent >= MAX_BITS {
        return BUCKETS - 1;
    }
    let shift = exponent - SUB_BITS;
    (((shift as usize) + 1) << SUB_BITS) + ((value >> shift) - SUB) as usize
}

/// Returns the lowest value of a bucket and the bucket's width.
fn edge_and_width(index: usize) -> (u64, u64) {
    let index = index as u64;
    if index < SUB {
        return (index, 1);
    }
    let shift = (index >> SUB_BITS) - 1;
    ((SUB + (index & (SUB - 1))) << shift, 1 << shift)
}

impl Histogram {
    /// Creates an empty histogram, which allocates buckets as values are added.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty histogram with all buckets allocated, so that adding a value never allocates memory.
    #[must_use]
    pub fn with_all_room() -> Self {
        Self { buckets: vec![0; BUCKETS], ..Self::default() }
    }

    /// Extends the allocated buckets just enough to include the indices `wanted`.
    fn cover(&mut self, wanted: Range<usize>) {
        if self.buckets.is_empty() {
            (self.start, self.buckets) = (wanted.start, vec![0; wanted.len()]);
            return;
        }
        let end = self.start + self.buckets.len();
        let (below, above) = (self.start.saturating_sub(wanted.start), wanted.end.saturating_sub(end));
        self.buckets.reserve_exact(below + above);
        self.buckets.resize(self.buckets.len() + above, 0);
        self.buckets.splice(..0, std::iter::repeat_n(0, below));
        self.start -= below;
    }

    /// Counts a value `times` times in a bucket that is not allocated yet.
    #[cold]
    #[inline(never)]
    fn add_outside(&mut self, index: usize, times: u64) {
        self.cover(index..index + 1);
        self.buckets[index - self.start] += times;
    }

    /// Counts one value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.add_many(value, 1);
    }

    /// Counts one value `times` times.
    #[inline]
    pub fn add_many(&mut self, value: u64, times: u64) {
        let index = index_of(value);
        // An index below the first bucket wraps around to one beyond the last.
        match self.buckets.get_mut(index.wrapping_sub(self.start)) {
            Some(bucket) => *bucket += times,
            None => self.add_outside(index, times),
        }
        self.count += times;
        self.sum = self.sum.saturating_add(value.saturating_mul(times));
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds all values of another histogram to this one.
    pub fn merge(&mut self, other: &Self) {
        let is_used = |count: &u64| *count > 0;
        let (Some(first), Some(last)) =
            (other.buckets.iter().position(is_used), other.buckets.iter().rposition(is_used))
        else {
            return;
        };
        let theirs = &other.buckets[first..=last];
        let lowest = other.start + first;
        self.cover(lowest..lowest + theirs.len());
        for (mine, theirs) in self.buckets[lowest - self.start..].iter_mut().zip(theirs) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Removes all values, and keeps the allocated buckets.
    pub fn clear(&mut self) {
        self.buckets.fill(0);
        (self.count, self.sum, self.min, self.max) = (0, 0, u64::MAX, 0);
    }

    /// Returns the number of values counted.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the exact sum of all values; `u64::MAX` if it would exceed that.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the exact smallest value; `None` for an empty histogram.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// Returns the exact largest value; `None` for an empty histogram.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// Returns the exact arithmetic mean; `None` for an empty histogram.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// Returns the standard deviation around the exact mean, with each value taken as the middle of its bucket; `None` for an empty
    /// histogram.
    #[must_use]
    pub fn stddev(&self) -> Option<f64> {
        let mean = self.mean()?;
        let squares: f64 =
            self.nonzero().map(|(index, count)| (middle(index) - mean).powi(2) * count as f64).sum();
        Some((squares / self.count as f64).sqrt())
    }

    /// Returns the nearest-rank quantile `q` (0 to 1) with a relative error of at most [`RELATIVE_ERROR`], never outside the exact minimum
    /// and maximum. Returns the maximum if the quantile is above about 18 minutes (2^40 ns), and `None` for an empty histogram.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the rank is between 1 and count"
    )]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        for (index, count) in self.nonzero() {
            seen += count;
            if seen >= rank {
                // The last bucket has no upper edge: only the maximum is known there.
                let value = if index == BUCKETS - 1 { self.max as f64 } else { middle(index) };
                return Some(value.clamp(self.min as f64, self.max as f64));
            }
        }
        Some(self.max as f64)
    }

    /// Returns the non-empty buckets as (index, count), in ascending order.
    pub fn nonzero(&self) -> impl Iterator<Item = (usize, u64)> {
        (self.start..).zip(self.buckets.iter().copied()).filter(|(_, count)| *count > 0)
    }

    /// Returns the non-empty buckets in ascending order, each with its lowest value and width in nanoseconds and its count.
    pub fn bars(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.nonzero().map(|(index, count)| {
            let (edge, width) = edge_and_width(index);
            (edge, width, count)
        })
    }
}

fn middle(index: usize) -> f64 {
    let (edge, width) = edge_and_width(index);
    edge as f64 + (width - 1) as f64 / 2.0
}

/// Serialized form of a histogram, which leaves empty buckets out.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sparse {
    sum_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    min_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    max_ns: Option<u64>,
    buckets: Vec<(u32, u64)>,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let buckets =
            self.nonzero().filter_map(|(index, count)| Some((u32::try_from(index).ok()?, count))).collect();
        Sparse { sum_ns: self.sum, min_ns: self.min(), max_ns: self.max(), buckets }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let sparse = Sparse::deserialize(deserializer)?;
        let mut histogram = Self::new();
        let indices = || sparse.buckets.iter().map(|(index, _)| *index as usize);
        if let (Some(lowest), Some(highest)) = (indices().min(), indices().max()) {
            if highest >= BUCKETS {
                return Err(D::Error::custom(format!("histogram bucket {highest} is not below {BUCKETS}")));
            }
            histogram.cover(lowest..highest + 1);
        }
        for (index, count) in sparse.buckets {
            let bucket = &mut histogram.buckets[index as usize - histogram.start];
            *bucket =
                bucket.checked_add(count).ok_or_else(|| D::Error::custom("histogram count overflows"))?;
            histogram.count = histogram
                .count
                .checked_add(count)
                .ok_or_else(|| D::Error::custom("histogram count overflows"))?;
        }
        if (histogram.count > 0) != (sparse.min_ns.is_some() && sparse.max_ns.is_some()) {
            return Err(D::Error::custom("histogram minimum and maximum do not fit its count"));
        }
        histogram.sum = sparse.sum_ns;
        histogram.min = sparse.min_ns.unwrap_or(u64::MAX);
        histogram.max = sparse.max_ns.unwrap_or(0);
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn latencies() -> impl Strategy<Value = Vec<u64>> {
        // Values of every magnitude, not only large ones.
        prop::collection::vec((0_u32..MAX_BITS, any::<u64>()).prop_map(|(bits, v)| v >> (63 - bits)), 1..300)
    }

    proptest! {
        #[test]
        fn quantiles_stay_within_the_stated_error(mut values in latencies(), q in 0.0_f64..=1.0) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|v| histogram.add(*v));
            values.sort_unstable();
            // The smallest value that is greater than or equal to a share q of all values.
            let enough = |n: usize| n as f64 >= q * values.len() as f64;
            let rank = (1..=values.len()).find(|n| enough(*n)).expect("q is at most 1");
            let truth = values[rank - 1] as f64;
            let read = histogram.quantile(q).expect("not empty");
            prop_assert!((read - truth).abs() <= truth * RELATIVE_ERROR, "{read} for {truth}");
        }

        #[test]
        fn buckets_tile_the_line(value in 0_u64..1 << MAX_BITS) {
            let (edge, width) = edge_and_width(index_of(value));
            prop_assert!(edge <= value && value < edge + width);
            prop_assert!(width == 1 || width as f64 / edge as f64 <= 2.0 * RELATIVE_ERROR);
        }

        #[test]
        fn merging_is_adding_all(a in latencies(), b in latencies()) {
            let fill = |values: &[u64]| { let mut h = Histogram::new(); values.iter().for_each(|v| h.add(*v)); h };
            let mut merged = fill(&a);
            merged.merge(&fill(&b));
            prop_assert_eq!(merged, fill(&[a, b].concat()));
        }

        #[test]
        fn room_is_no_part_of_what_was_counted(a in latencies(), b in latencies()) {
            let (mut grown, mut roomy) = (Histogram::new(), Histogram::with_all_room());
            for value in &a {
                grown.add(*value);
                roomy.add(*value);
            }
            prop_assert_eq!(&grown, &roomy);
            let used = |values: &[u64]| {
                let indices = values.iter().map(|v| index_of(*v));
                indices.clone().min().expect("not empty")..indices.max().expect("not empty") + 1
            };
            prop_assert_eq!(grown.start..grown.start + grown.buckets.len(), used(&a));
            // Merging a fully allocated histogram copies only the used range.
            let mut merged = Histogram::new();
            merged.merge(&roomy);
            prop_assert_eq!(merged.start..merged.start + merged.buckets.len(), used(&a));
            // A cleared histogram keeps its memory and counts correctly.
            for histogram in [&mut grown, &mut roomy] {
                histogram.clear();
                b.iter().for_each(|v| histogram.add(*v));
            }
            prop_assert_eq!(&grown, &roomy);
            prop_assert_eq!(roomy.buckets.len(), BUCKETS);
        }

        #[test]
        fn the_sparse_form_reads_back(values in latencies()) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|v| histogram.add(*v));
            let text = serde_json::to_string(&histogram).expect("serializes");
            prop_assert_eq!(serde_json::from_str::<Histogram>(&text).expect("reads back"), histogram);
        }
    }

    #[test]
    fn nothing_counted_is_unknown_not_zero() {
        let empty = Histogram::new();
        assert_eq!(
            (empty.mean(), empty.quantile(0.5), empty.min(), empty.max(), empty.stddev()),
            (None, None, None, None, None)
        );
    }

    #[test]
    fn values_beyond_the_range_keep_the_exact_maximum() {
        let mut histogram = Histogram::new();
        histogram.add(1 << 50);
        assert_eq!(histogram.quantile(0.99), Some((1_u64 << 50) as f64));
    }

    #[test]
    fn a_forged_sparse_form_is_refused() {
        for text in [
            r#"{"sum_ns":1,"min_ns":1,"max_ns":1,"buckets":[[99999,1]]}"#,
            r#"{"sum_ns":1,"buckets":[[1,1]]}"#,
            r#"{"sum_ns":1,"min_ns":1,"max_ns":1,"buckets":[[1,18446744073709551615],[2,1]]}"#,
        ] {
            assert!(serde_json::from_str::<Histogram>(text).is_err(), "{text}");
        }
    }
}
