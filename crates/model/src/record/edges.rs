//! The time over which a window's I/O rate is computed.

use serde::{Deserialize, Serialize};

use super::Outcome;

/// Maximum length in nanoseconds of a burst and the pause after it: throttles of the kernel and QEMU, and CPU quotas, use slices of
/// 100 ms.
const SLICE_NS: u64 = 110_000_000;

impl Outcome {
    /// The time over which to compute the window's rate, in nanoseconds: from the last completion before the window to the last completion in it.
    /// It is the whole window if the edges are not known, or if a pause at an edge is too long.
    ///
    /// A device that completes I/O in bursts, as under a throttle, has one burst more or less in a window of fixed length. Between two completions
    /// the number of bursts matches the time. A pause is too long if it exceeds a throttle's slice (at most half the window) and an eighth of the
    /// window: it is then part of the result.
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

/// Distances of the edges of a window from the last completion before each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowEdges {
    /// Time from the last completion before the window until it begins.
    pub before_ns: u64,
    /// Time from the last completion in the window until it ends.
    pub after_ns: u64,
}

impl WindowEdges {
    /// Combines the edges of two concurrent loads: the shorter time at each edge.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self { before_ns: self.before_ns.min(other.before_ns), after_ns: self.after_ns.min(other.after_ns) }
    }
}
