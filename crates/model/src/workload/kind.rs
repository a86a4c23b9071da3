//! The kinds of work.

use super::{Test, Workload};
use crate::net::Traffic;

/// The kind of a workload's work. Code that depends on the kind matches on this enum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind<'a> {
    /// Reads, writes, trims and flushes of a file or device.
    Block,
    /// File operations beyond plain I/O: bytes, streams, copies, trees.
    Files(Test),
    /// Streams over a network.
    Streams(&'a Traffic),
    /// Round trips over a network.
    RoundTrips(&'a Traffic),
}

impl Workload {
    /// The workload's kind.
    #[must_use]
    pub fn kind(&self) -> Kind<'_> {
        match (&self.net, self.test) {
            (Some(net), _) if net.test.is_rtt() => Kind::RoundTrips(net),
            (Some(net), _) => Kind::Streams(net),
            (None, Some(test)) => Kind::Files(test),
            (None, None) => Kind::Block,
        }
    }
}

impl<'a> Kind<'a> {
    /// Returns whether this kind uses the network.
    #[must_use]
    pub const fn is_network(self) -> bool {
        self.traffic().is_some()
    }

    /// The network traffic; `None` for storage.
    #[must_use]
    pub const fn traffic(self) -> Option<&'a Traffic> {
        match self {
            Self::Streams(net) | Self::RoundTrips(net) => Some(net),
            Self::Block | Self::Files(_) => None,
        }
    }

    /// The word for one operation: `I/O`, `packet`, `round trip`.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Block | Self::Files(_) => "I/O",
            Self::Streams(_) => "packet",
            Self::RoundTrips(_) => "round trip",
        }
    }
}
