//! The time over which a window's I/O rate is computed: between completions, not between the window's edges.

use serde::{Deserialize, Serialize};

use super::Outcome;

/// Longest expected pause in nanoseconds between bursts of a throttled device: throttles of the kernel and QEMU, and CPU quotas, use slices of 100
/// ms.
const SLICE_NS: u64 = 110_000_000;

impl Outcome {
    /// Returns the time over which the window's rate is computed, in nanoseconds: from the last completion before the window to the last
    /// completion in the window. Returns the window's length if these completions are not known or too far from the window's edges.
    ///
    /// A throttled device completes I/Os in bursts, and a window of fixed length may contain one burst more or less. Between two
    /// completions, the number of bursts matches the time. A completion is too far away if the distance exceeds both an eighth of the
    /// window and a throttle's slice (at most half the window): such a pause is part of the result.
    #[must_use]
    pub fn rate_ns(&self) -> u64 {
        let most = SLICE_NS.min(self.duration_ns / 2).max(self.duration_ns / 8);
        match self.edges {
            Some(WindowEdges { before_ns, after_ns }) if before_ns.max(after_ns) <= most => {
                self.duration_ns + before_ns - after_ns
            }
            _ => self.duration_ns,
        }
    }
}

/// Distance of each edge of a window from the last completion before that edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowEdges {
    /// Nanoseconds from the last completion before the window to the window's start.
    pub before_ns: u64,
    /// Nanoseconds from the last completion in the window to the window's end.
    pub after_ns: u64,
}

impl WindowEdges {
    /// Combines the edges of two concurrent loads: keeps the shorter distance at each edge.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self { before_ns: self.before_ns.min(other.before_ns), after_ns: self.after_ns.min(other.after_ns) }
    }
}
