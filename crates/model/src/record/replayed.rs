//! Fidelity of a replay to its trace: I/Os left out or changed, and delays.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The part of a trace that a measurement replayed, and how closely. Times are scaled by `replay_time_scale`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replayed {
    /// I/Os of the trace that were due in the measurement.
    pub due: u64,
    /// I/Os begun.
    pub begun: u64,
    /// I/Os that the target or the workload cannot do: trims or flushes where there are none, longer than the target or 64 MiB, or of length 0.
    pub left_out: u64,
    /// I/Os due that had not begun when the measurement ended.
    pub not_begun: u64,
    /// I/Os moved, because they lay beyond the target's end.
    pub wrapped: u64,
    /// I/Os whose offset or length was rounded to what direct I/O takes.
    pub aligned: u64,
    /// Writes that were durable by themselves in the trace (FUA) and were replayed without that.
    pub without_fua: u64,
    /// From the due time of an I/O to its begin, of those that had a free slot: the median.
    pub late_p50_ns: u64,
    /// The 99th percentile of the same.
    pub late_p99_ns: u64,
    /// The longest of the same.
    pub late_max_ns: u64,
    /// From the first I/O begun to the last, in the trace.
    pub recorded_ns: u64,
    /// The same, in the replay.
    pub took_ns: u64,
    /// The length of a phase of the trace.
    pub phase_ns: u64,
    /// Response times by phase of the trace, from its first I/O on: up to 16 of equal length, the last of which may be cut.
    pub phases: Vec<ReplayPhase>,
}

/// The I/Os that a trace has in one phase, as they were replayed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayPhase {
    /// I/Os that succeeded.
    pub ios: u64,
    /// Their mean response time.
    pub response_mean_ns: Option<u64>,
    /// The 99th percentile of the same; absent with fewer than 100.
    pub response_p99_ns: Option<u64>,
    /// I/Os whose completion the trace tells.
    pub recorded_ios: u64,
    /// The mean time from issue to completion of these in the trace.
    pub recorded_mean_ns: Option<u64>,
}

impl ReplayPhase {
    /// Merges the same phase of two concurrent replays: counts are added, means weighted by count, and the higher 99th percentile is kept.
    fn merge(self, other: Self) -> Self {
        let mean = |one: (u64, Option<u64>), other: (u64, Option<u64>)| {
            let sum = |(ios, mean): (u64, Option<u64>)| ios * mean.unwrap_or(0);
            (sum(one) + sum(other)).checked_div(one.0 + other.0)
        };
        Self {
            ios: self.ios + other.ios,
            response_mean_ns: mean((self.ios, self.response_mean_ns), (other.ios, other.response_mean_ns)),
            response_p99_ns: self.response_p99_ns.max(other.response_p99_ns),
            recorded_ios: self.recorded_ios + other.recorded_ios,
            recorded_mean_ns: mean(
                (self.recorded_ios, self.recorded_mean_ns),
                (other.recorded_ios, other.recorded_mean_ns),
            ),
        }
    }
}

impl Replayed {
    /// Merges two concurrent replays. Counts are added, and the longer times kept: as percentiles of both together, they are upper bounds. Phases
    /// are dropped if the replays' phases differ in length or number.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let Self {
            due,
            begun,
            left_out,
            not_begun,
            wrapped,
            aligned,
            without_fua,
            late_p50_ns,
            late_p99_ns,
            late_max_ns,
            recorded_ns,
            took_ns,
            phase_ns,
            phases,
        } = other;
        // Phases of different lengths have nothing in common.
        let are_alike = self.phase_ns == phase_ns && self.phases.len() == phases.len();
        let merged = self.phases.into_iter().zip(phases).map(|(one, other)| one.merge(other));
        Self {
            due: self.due + due,
            begun: self.begun + begun,
            left_out: self.left_out + left_out,
            not_begun: self.not_begun + not_begun,
            wrapped: self.wrapped + wrapped,
            aligned: self.aligned + aligned,
            without_fua: self.without_fua + without_fua,
            // Of the later one: an upper bound of both together.
            late_p50_ns: self.late_p50_ns.max(late_p50_ns),
            late_p99_ns: self.late_p99_ns.max(late_p99_ns),
            late_max_ns: self.late_max_ns.max(late_max_ns),
            recorded_ns: self.recorded_ns.max(recorded_ns),
            took_ns: self.took_ns.max(took_ns),
            phase_ns,
            phases: merged.filter(|_| are_alike).collect(),
        }
    }
}
