//! Delays of I/Os against their schedule in an open loop.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Punctuality of an open loop, over all jobs: I/Os that started late or not at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pacing {
    /// I/Os due in the measured window.
    pub due: u64,
    /// I/Os started late in the window, because `iodepth` I/Os of their job were in flight when they were due.
    pub delayed: u64,
    /// The longest time from the due time of a delayed I/O to its start.
    pub longest_delay_ns: u64,
    /// I/Os due by the end of the window that had not started by then.
    pub backlog: u64,
    /// Time by which the oldest I/O of the backlog is overdue at the end of the window.
    pub backlog_ns: u64,
    /// Transactions completed in the window that took longer than `latency_limit` from their scheduled start; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub late: Option<u64>,
    /// Transactions that were not started, because they were due longer ago than `latency_limit`; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub skipped: Option<u64>,
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).reduce(|one, other| one + other)
}

impl Pacing {
    /// Combines two concurrent loads: counts are added, and the longer delays kept.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let Self { due, delayed, longest_delay_ns, backlog, backlog_ns, late, skipped } = other;
        Self {
            due: self.due + due,
            delayed: self.delayed + delayed,
            longest_delay_ns: self.longest_delay_ns.max(longest_delay_ns),
            backlog: self.backlog + backlog,
            backlog_ns: self.backlog_ns.max(backlog_ns),
            late: sum(self.late, late),
            skipped: sum(self.skipped, skipped),
        }
    }
}
