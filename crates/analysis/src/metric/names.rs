//! Names of metrics for each kind of work.

use iotax_model::Workload;
use iotax_model::workload::Kind;

/// The name of a figure for each kind of work.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// Name for I/O on disks and files.
    pub io: &'static str,
    /// Name for transactions of a database.
    pub transactions: &'static str,
    /// Name for streams over a network.
    pub streams: &'static str,
    /// Name for round trips over a network.
    pub trips: &'static str,
}

impl Names {
    /// Creates names that are the same for all kinds of work.
    #[must_use]
    pub const fn all(name: &'static str) -> Self {
        Self { io: name, transactions: name, streams: name, trips: name }
    }

    pub(super) const fn net(io: &'static str, net: &'static str) -> Self {
        Self { io, transactions: io, streams: net, trips: net }
    }

    /// Returns the name for the workload's kind of work.
    #[must_use]
    pub fn on(&self, workload: &Workload) -> &'static str {
        match &workload.kind {
            Kind::Files(test) if test.is_of_transactions() => self.transactions,
            Kind::Block | Kind::Files(_) | Kind::Foreign => self.io,
            Kind::Streams(_) => self.streams,
            Kind::RoundTrips(_) => self.trips,
        }
    }
}

/// Names of the rate of operations.
pub(super) const RATES: Names =
    Names { io: "IOPS", transactions: "transactions/s", streams: "packets/s", trips: "round trips/s" };
