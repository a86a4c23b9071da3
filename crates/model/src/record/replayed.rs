//! The fidelity of a replay.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The part of a trace that a measurement replayed, and how closely. Times are scaled by `replay_time_scale`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
}

impl Replayed {
    /// Both of two concurrent replays.
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
        } = other;
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
        }
    }
}
