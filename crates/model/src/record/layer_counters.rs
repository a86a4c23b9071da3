//! Counters that layers keep themselves, such as a cache's hits.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts over a window from a layer's own counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerCounters {
    /// The layer's name in a stack, such as `dm-cache`.
    pub layer: String,
    /// Counts by name, such as `read hits`.
    pub counts: BTreeMap<String, u64>,
}

impl LayerCounters {
    /// Name of the count of flushes that a layer acknowledged.
    pub const FLUSHES: &str = "flushes";
    /// Name of the count of acknowledged flushes that the layer skipped on purpose, because of the setting `drop_flush`.
    pub const DROPPED_FLUSHES: &str = "dropped flushes";

    /// Layer name of the ARC, ZFS's cache in memory. Its counts cover all pools of a machine.
    pub const ARC: &str = "ZFS ARC";
    /// Name of the count of data blocks that were read and found in the ARC.
    pub const ARC_HITS: &str = "data hits";
    /// Name of the count of data blocks that were read and not found in the ARC.
    pub const ARC_MISSES: &str = "data misses";
    /// Name of the count of data blocks that ZFS read ahead from its disks.
    pub const ARC_PREFETCHED: &str = "data prefetched";

    /// Returns the count with this name; 0 if the layer has no such count.
    #[must_use]
    pub fn of(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }

    /// Returns the counts since an earlier reading of the same layer; `None` if a counter went backwards.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Option<Self> {
        for (name, count) in &mut self.counts {
            *count = count.checked_sub(earlier.of(name))?;
        }
        Some(self)
    }

    /// Adds up the counts of all `parts`, such as guests or rounds of one target: each has the same layers in the same order. Leaves out a layer
    /// that a part does not have at its place, because its sum is unknown.
    #[must_use]
    pub fn sum(parts: &[Vec<Self>]) -> Vec<Self> {
        let Some((first, rest)) = parts.split_first() else { return Vec::new() };
        let of_all = |(place, one): (usize, &Self)| {
            let mut sum = one.clone();
            for part in rest {
                let other = part.get(place).filter(|other| other.layer == one.layer)?;
                for (name, count) in &other.counts {
                    *sum.counts.entry(name.clone()).or_default() += count;
                }
            }
            Some(sum)
        };
        first.iter().enumerate().filter_map(of_all).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(hits: u64, misses: u64) -> LayerCounters {
        let counts = [("hits".to_owned(), hits), ("misses".to_owned(), misses)].into();
        LayerCounters { layer: "dm-cache".into(), counts }
    }

    #[test]
    fn counts_are_of_the_window_and_add_up_by_layer() {
        let window = cache(30, 7).since(&cache(10, 7));
        assert_eq!(window, Some(cache(20, 0)));
        assert_eq!(cache(10, 7).since(&cache(10, 8)), None, "made anew meanwhile");
        let other = LayerCounters { layer: "nfs".into(), ..cache(1, 1) };
        let sums = LayerCounters::sum(&[vec![cache(1, 2), other.clone()], vec![cache(3, 4), other]]);
        assert_eq!(sums[0], cache(4, 6));
        assert_eq!((sums[0].of("hits"), sums[0].of("evictions"), sums.len()), (4, 0, 2));
        assert_eq!(LayerCounters::sum(&[vec![cache(1, 2)], Vec::new()]), [], "a part is unknown");
    }
}
