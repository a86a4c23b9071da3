//! Bucket layout of the latency histograms that `bpf/latency.bpf.c` fills in the kernel.

/// Binary logarithm of the number of buckets per power of two: 4 means 16 buckets.
const SUB_BITS: u32 = 4;
/// Binary logarithm of the lower end of the first bucket in nanoseconds: 2^10 ns is about 1 us. Shorter latencies count in the first bucket
/// too.
const FIRST_POWER: u32 = 10;
/// Number of powers of two with buckets; longer latencies count in the last bucket.
const POWERS: usize = 26;

/// Number of buckets in a histogram.
pub const COUNT: usize = POWERS << SUB_BITS;

/// Largest relative error of a percentile within the range of the buckets: half the width of a bucket, since a percentile is reported as
/// the middle of its bucket.
pub const RELATIVE_ERROR: f64 = 1.0 / 32.0;

/// Returns the middle of a bucket in nanoseconds.
fn middle_ns(index: u16) -> f64 {
    let power = FIRST_POWER + (u32::from(index) >> SUB_BITS);
    let step = f64::from(index & ((1 << SUB_BITS) - 1)) + 0.5;
    let width = f64::from(1u32 << SUB_BITS);
    2f64.powi(i32::try_from(power).unwrap_or(i32::MAX)) * (1.0 + step / width)
}

/// Returns a latency percentile in nanoseconds (`share` 0.99 for p99) as the middle of its bucket; `None` without I/Os. `buckets` must be in
/// ascending order of index.
pub fn percentile_ns(buckets: &[(u16, u64)], share: f64) -> Option<f64> {
    let all: u64 = buckets.iter().map(|(_, count)| count).sum();
    let wanted = share * all as f64;
    let mut seen = 0;
    buckets.iter().find_map(|(index, count)| {
        seen += count;
        (seen > 0 && seen as f64 >= wanted).then(|| middle_ns(*index))
    })
}

/// Returns the mean latency in nanoseconds, computed from the middles of the buckets; `None` without I/Os.
pub fn mean_ns(buckets: &[(u16, u64)]) -> Option<f64> {
    let all: u64 = buckets.iter().map(|(_, count)| count).sum();
    let sum: f64 = buckets.iter().map(|(index, count)| middle_ns(*index) * *count as f64).sum();
    (all > 0).then(|| sum / all as f64)
}

/// Returns the I/Os that were added to each bucket between two readings; `None` if any count decreased.
pub fn since(earlier: &[(u16, u64)], later: &[(u16, u64)]) -> Option<Vec<(u16, u64)>> {
    let count = |index: u16| {
        let at = earlier.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        Some(earlier[at].1)
    };
    let is_lost = |(index, _): &(u16, u64)| later.binary_search_by_key(index, |(index, _)| *index).is_err();
    if earlier.iter().any(is_lost) {
        return None;
    }
    let mut difference = Vec::new();
    for (index, total) in later {
        let new = total.checked_sub(count(*index).unwrap_or(0))?;
        if new > 0 {
            difference.push((*index, new));
        }
    }
    Some(difference)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bucket index that the BPF program uses for a time in nanoseconds.
    fn bucket_of(ns: u64) -> u16 {
        if ns < 1 << FIRST_POWER {
            return 0;
        }
        let power = ns.ilog2();
        if power as usize >= FIRST_POWER as usize + POWERS {
            return u16::try_from(COUNT - 1).expect("few");
        }
        let index = u64::from((power - FIRST_POWER) << SUB_BITS) + ((ns >> (power - SUB_BITS)) & 15);
        u16::try_from(index).expect("few")
    }

    #[test]
    fn a_bucket_is_within_its_error_of_all_its_times() {
        let mut ns = 1100;
        while ns < 1u64 << 36 {
            let middle = middle_ns(bucket_of(ns));
            assert!((middle / ns as f64 - 1.0).abs() <= RELATIVE_ERROR + 1e-9, "{ns} {middle}");
            ns += ns / 37;
        }
    }

    #[test]
    fn a_percentile_is_that_of_the_ios_since() {
        let (fast, slow) = (bucket_of(100_000), bucket_of(5_000_000));
        let before = vec![(fast, 1000)];
        let after = vec![(fast, 1098), (slow, 2)];
        let new = since(&before, &after).expect("forwards");
        assert_eq!(new, [(fast, 98), (slow, 2)]);
        let p50 = percentile_ns(&new, 0.5).expect("I/Os");
        let p99 = percentile_ns(&new, 0.99).expect("I/Os");
        assert!((p50 / 1e5 - 1.0).abs() < 0.04 && (p99 / 5e6 - 1.0).abs() < 0.04, "{p50} {p99}");
        assert_eq!(percentile_ns(&[], 0.99), None);
        assert_eq!(since(&after, &before), None, "backwards");
        assert_eq!(since(&[(fast, 2)], &[(fast, 1)]), None, "backwards");
    }
}
