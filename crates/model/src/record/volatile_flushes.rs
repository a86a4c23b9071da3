//! Counts of a volatile directory.

use serde::{Deserialize, Serialize};

/// The flushes of a volatile directory over a window, as it counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolatileFlushes {
    /// Flushes that it acknowledged.
    pub done: u64,
    /// Acknowledged flushes that it did not pass on, as its `drop_flush` setting demands.
    pub dropped: u64,
}

impl VolatileFlushes {
    /// The sum of both counts.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { done: self.done + other.done, dropped: self.dropped + other.dropped }
    }

    /// The counts since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Option<Self> {
        Some(Self {
            done: self.done.checked_sub(earlier.done)?,
            dropped: self.dropped.checked_sub(earlier.dropped)?,
        })
    }
}
