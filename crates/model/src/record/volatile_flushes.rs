//! Flush counts of a volatile directory.

use serde::{Deserialize, Serialize};

/// Flush counts of a volatile directory over a window, from its own counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolatileFlushes {
    /// Flushes that the directory acknowledged.
    pub done: u64,
    /// Acknowledged flushes that were not passed on, as `drop_flush` requires.
    pub dropped: u64,
}

impl VolatileFlushes {
    /// The sum of both counts.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { done: self.done + other.done, dropped: self.dropped + other.dropped }
    }

    /// The difference to an earlier reading; `None` if a counter went backwards.
    #[must_use]
    pub fn since(self, earlier: Self) -> Option<Self> {
        Some(Self {
            done: self.done.checked_sub(earlier.done)?,
            dropped: self.dropped.checked_sub(earlier.dropped)?,
        })
    }
}
