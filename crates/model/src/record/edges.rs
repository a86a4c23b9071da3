//! The time that the I/Os of a window took.

use serde::{Deserialize, Serialize};

use super::Outcome;

/// Longest period in nanoseconds of a burst and the pause after it: the throttles of the kernel and QEMU, and CPU quotas, use slices of 100
/// ms.
const SLICE_NS: u64 = 110_000_000;

impl Outcome {
    /// The time that the window's I/Os took, in nanoseconds: from the last completion before the window to the last one in it, or the whole
    /// window if that is not known.
    ///
    /// A device that completes I/O in bursts, as a throttle does, has one burst more or less in a window of fixed length; the time between
    /// two completions has as many as it counts. A pause at an edge that is longer than a throttle's slice and than an eighth of the window,
    /// or than half of it, is not cut off: it is a result.
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

/// Completions next to the edges of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowEdges {
    /// Time from the last completion before the window until it begins.
    pub before_ns: u64,
    /// Time from the last completion in the window until it ends.
    pub after_ns: u64,
}

impl WindowEdges {
    /// The edges of the I/Os of both.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self { before_ns: self.before_ns.min(other.before_ns), after_ns: self.after_ns.min(other.after_ns) }
    }
}
