//! Flush counts of a volatile directory, iotax's FUSE filesystem that simulates a disk's write cache.

use serde::{Deserialize, Serialize};

/// Flush counts of a volatile directory over a window, from the directory's own counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolatileFlushes {
    /// Flushes that the volatile directory acknowledged.
    pub done: u64,
    /// Acknowledged flushes that were skipped on purpose, because of the setting `drop_flush`.
    pub dropped: u64,
}

impl VolatileFlushes {
    /// Adds the counts of another volatile directory.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { done: self.done + other.done, dropped: self.dropped + other.dropped }
    }

    /// Flushes since an earlier reading of the counters; `None` if a counter went backwards.
    #[must_use]
    pub fn since(self, earlier: Self) -> Option<Self> {
        Some(Self {
            done: self.done.checked_sub(earlier.done)?,
            dropped: self.dropped.checked_sub(earlier.dropped)?,
        })
    }
}
