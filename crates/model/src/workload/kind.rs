//! Kinds of workloads: block I/O, file operations, network streams and network round trips.

use super::{Test, Workload};
use crate::net::Traffic;

/// The kind of a workload. Code that depends on the kind matches on this enum, so that no kind is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind<'a> {
    /// Reads, writes, trims and flushes on an area of a file or device.
    Block,
    /// A test: I/O by the byte, buffered streams, copies, operations on files and trees, or transactions of a database.
    Files(Test),
    /// Work of another tool, in imported results: known by the workload's name.
    Foreign,
    /// TCP or UDP streams over a network, which measure throughput.
    Streams(&'a Traffic),
    /// Round trips over a network, which measure latency.
    RoundTrips(&'a Traffic),
}

impl Workload {
    /// Determines the workload's kind from its keys.
    #[must_use]
    pub fn kind(&self) -> Kind<'_> {
        match (&self.net, self.test) {
            _ if self.foreign => Kind::Foreign,
            (Some(net), _) if net.test.is_rtt() => Kind::RoundTrips(net),
            (Some(net), _) => Kind::Streams(net),
            (None, Some(test)) => Kind::Files(test),
            (None, None) => Kind::Block,
        }
    }
}

impl<'a> Kind<'a> {
    /// Returns whether workloads of this kind use the network instead of storage.
    #[must_use]
    pub const fn is_network(self) -> bool {
        self.traffic().is_some()
    }

    /// Returns the settings of the network traffic; `None` for storage.
    #[must_use]
    pub const fn traffic(self) -> Option<&'a Traffic> {
        match self {
            Self::Streams(net) | Self::RoundTrips(net) => Some(net),
            Self::Block | Self::Files(_) | Self::Foreign => None,
        }
    }

    /// Returns the name of one operation in reports: `I/O`, `transaction`, `packet` or `round trip`.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Files(test) if test.is_of_transactions() => "transaction",
            Self::Block | Self::Files(_) | Self::Foreign => "I/O",
            Self::Streams(_) => "packet",
            Self::RoundTrips(_) => "round trip",
        }
    }
}
