//! Kinds of workloads: block I/O, file operations, network streams and network round trips.

use schemars::JsonSchema;
use serde::Serialize;

use super::Test;
use crate::net::Traffic;

/// The kind of a workload. Code that depends on the kind matches on this enum, so that no kind is forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(into = "KindKeys")]
#[schemars(with = "KindKeys")]
pub enum Kind {
    /// Reads, writes, trims and flushes on an area of a file or device.
    Block,
    /// A test: I/O by the byte, buffered streams, copies, operations on files and trees, or transactions of a database.
    Files(Test),
    /// Work of another tool, in imported results: known by the workload's name.
    Foreign,
    /// TCP or UDP streams over a network, which measure throughput.
    Streams(Traffic),
    /// Round trips over a network, which measure latency.
    RoundTrips(Traffic),
}

/// The keys of a workload that select its kind.
#[derive(Serialize, JsonSchema)]
struct KindKeys {
    /// Network traffic instead of I/O; then only name, runtime, ramp_time and blackout have an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    net: Option<Traffic>,
    /// True for the work of another tool in imported results, of which iotax knows only the name and the keys that the source states.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    foreign: bool,
    /// An operation other than plain I/O, as in the classic benchmarks.
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<Test>,
}

impl From<Kind> for KindKeys {
    fn from(kind: Kind) -> Self {
        let none = Self { net: None, foreign: false, test: None };
        match kind {
            Kind::Block => none,
            Kind::Files(test) => Self { test: Some(test), ..none },
            Kind::Foreign => Self { foreign: true, ..none },
            Kind::Streams(net) | Kind::RoundTrips(net) => Self { net: Some(net), ..none },
        }
    }
}

impl From<Traffic> for Kind {
    fn from(traffic: Traffic) -> Self {
        if traffic.test.is_rtt() { Self::RoundTrips(traffic) } else { Self::Streams(traffic) }
    }
}

impl Kind {
    /// Determines the kind from the keys of a workload: another tool's work before network traffic, and that before a test.
    pub(super) fn of_keys(foreign: bool, net: Option<Traffic>, test: Option<Test>) -> Self {
        match (net, test) {
            _ if foreign => Self::Foreign,
            (Some(net), _) => net.into(),
            (None, Some(test)) => Self::Files(test),
            (None, None) => Self::Block,
        }
    }

    /// Returns whether workloads of this kind use the network instead of storage.
    #[must_use]
    pub const fn is_network(&self) -> bool {
        self.traffic().is_some()
    }

    /// Returns the settings of the network traffic; `None` for storage.
    #[must_use]
    pub const fn traffic(&self) -> Option<&Traffic> {
        match self {
            Self::Streams(net) | Self::RoundTrips(net) => Some(net),
            Self::Block | Self::Files(_) | Self::Foreign => None,
        }
    }

    /// Returns the test; `None` for plain I/O, network traffic and the work of another tool.
    #[must_use]
    pub const fn test(&self) -> Option<Test> {
        match self {
            Self::Files(test) => Some(*test),
            Self::Block | Self::Foreign | Self::Streams(_) | Self::RoundTrips(_) => None,
        }
    }

    /// Returns the name of one operation in reports: `I/O`, `transaction`, `packet` or `round trip`.
    #[must_use]
    pub const fn unit(&self) -> &'static str {
        match self {
            Self::Files(test) if test.is_of_transactions() => "transaction",
            Self::Block | Self::Files(_) | Self::Foreign => "I/O",
            Self::Streams(_) => "packet",
            Self::RoundTrips(_) => "round trip",
        }
    }
}
