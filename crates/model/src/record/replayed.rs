//! Fidelity of a replay to its trace: I/Os left out or changed, and delays.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The part of a trace that a measurement replayed, and how closely. Times are scaled by `replay_time_scale`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replayed {
    /// I/Os of the trace that were due in the measurement, including those left out.
    pub due: u64,
    /// I/Os that the replay started.
    pub begun: u64,
    /// I/Os of the trace that were not replayed because the target or the workload cannot do them, such as trims that are not supported or
    /// longer than 1 GiB, reads and writes longer than 64 MiB, and I/Os longer than the target or of length 0.
    pub left_out: u64,
    /// I/Os due that had not started when the measurement ended.
    pub not_begun: u64,
    /// I/Os moved inside, because they lay beyond the target's end where `replay_offsets` placed them.
    pub wrapped: u64,
    /// I/Os at another offset than in the trace, because the target is smaller or `replay_offsets` placed them there.
    #[serde(default)]
    pub moved: u64,
    /// Mean distance in bytes between the offsets of the I/Os in `moved` in the trace and in the replay; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_mean_bytes: Option<u64>,
    /// Reads and writes that began where one of the last 64 ended.
    #[serde(default)]
    pub sequential: u64,
    /// Reads and writes of those replayed that began where one of the last 64 ended in the trace.
    #[serde(default)]
    pub recorded_sequential: u64,
    /// I/Os whose offset or length was rounded to the alignment that direct I/O requires.
    pub aligned: u64,
    /// Median delay from an I/O's due time to its start. I/Os that waited because `iodepth` I/Os were in flight do not count.
    pub late_p50_ns: u64,
    /// 99th percentile of the delay from an I/O's due time to its start. I/Os that waited because `iodepth` I/Os were in flight do not
    /// count.
    pub late_p99_ns: u64,
    /// Longest delay from an I/O's due time to its start. I/Os that waited because `iodepth` I/Os were in flight do not count.
    pub late_max_ns: u64,
    /// Time from the first to the last replayed I/O in the trace, at the speed of the replay.
    pub recorded_ns: u64,
    /// Time from the start of the first to the start of the last I/O in the replay.
    pub took_ns: u64,
    /// Length of each entry of `phases`.
    pub phase_ns: u64,
    /// Response times by phase of the trace, from its first I/O on: up to 16 phases of equal length. The last one may be incomplete.
    pub phases: Vec<ReplayPhase>,
}

/// The I/Os of one phase of a trace, as they were replayed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayPhase {
    /// Replayed I/Os that succeeded.
    pub ios: u64,
    /// Mean response time of the successful I/Os; absent without any.
    pub response_mean_ns: Option<u64>,
    /// 99th percentile of the response time of the successful I/Os; absent with fewer than 100.
    pub response_p99_ns: Option<u64>,
    /// Successful I/Os whose latency the trace records.
    pub recorded_ios: u64,
    /// Mean latency in the trace of the I/Os in `recorded_ios`; absent without any.
    pub recorded_mean_ns: Option<u64>,
}

impl ReplayPhase {
    /// Merges the same phase of two concurrent replays: counts are added, means weighted by count, and the higher 99th percentile is kept.
    fn merge(self, other: Self) -> Self {
        Self {
            ios: self.ios + other.ios,
            response_mean_ns: weighted_mean(
                (self.ios, self.response_mean_ns),
                (other.ios, other.response_mean_ns),
            ),
            response_p99_ns: self.response_p99_ns.max(other.response_p99_ns),
            recorded_ios: self.recorded_ios + other.recorded_ios,
            recorded_mean_ns: weighted_mean(
                (self.recorded_ios, self.recorded_mean_ns),
                (other.recorded_ios, other.recorded_mean_ns),
            ),
        }
    }
}

/// Returns the mean of two groups of I/Os, each given by its number and mean; `None` without I/Os.
fn weighted_mean(one: (u64, Option<u64>), other: (u64, Option<u64>)) -> Option<u64> {
    let sum = |(ios, mean): (u64, Option<u64>)| u128::from(ios) * u128::from(mean.unwrap_or(0));
    let mean = (sum(one) + sum(other)).checked_div(u128::from(one.0 + other.0))?;
    Some(u64::try_from(mean).unwrap_or(u64::MAX))
}

impl Replayed {
    /// Merges two concurrent replays. Counts are added, and the longer times kept; a kept percentile is an upper bound for both replays together.
    /// Phases are dropped if the replays' phases differ in length or number.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let Self {
            due,
            begun,
            left_out,
            not_begun,
            wrapped,
            moved,
            moved_mean_bytes,
            sequential,
            recorded_sequential,
            aligned,
            late_p50_ns,
            late_p99_ns,
            late_max_ns,
            recorded_ns,
            took_ns,
            phase_ns,
            phases,
        } = other;
        // Phases of different lengths cannot be matched.
        let are_alike = self.phase_ns == phase_ns && self.phases.len() == phases.len();
        let merged = self.phases.into_iter().zip(phases).map(|(one, other)| one.merge(other));
        Self {
            due: self.due + due,
            begun: self.begun + begun,
            left_out: self.left_out + left_out,
            not_begun: self.not_begun + not_begun,
            wrapped: self.wrapped + wrapped,
            moved: self.moved + moved,
            moved_mean_bytes: weighted_mean((self.moved, self.moved_mean_bytes), (moved, moved_mean_bytes)),
            sequential: self.sequential + sequential,
            recorded_sequential: self.recorded_sequential + recorded_sequential,
            aligned: self.aligned + aligned,
            // The higher of two percentiles is an upper bound for both together.
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
