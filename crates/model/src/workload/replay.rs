//! Workloads that replay a recorded trace: defaults, and settings derived from the trace.

use super::{Distribution, FileLayout, ReplayPace, Rw, Verify, Workload, WorkloadError, WorkloadKeys};
use crate::trace::{LONGEST, ReplayOffsets, TraceSummary};
use crate::units::{Bytes, Nanos};

/// Default name of a workload that replays a trace.
pub(super) const REPLAY: &str = "replay";
/// Default maximum number of I/Os in flight. With a lower number, slow I/Os would delay the start of later ones.
const DEPTH: u32 = 128;
/// Default runtime of a replay: longer than any trace, so that the replay ends with its trace.
const ALL_OF_IT: Nanos = Nanos::from_secs(366 * 24 * 3600);
/// Minimum time after the last recorded I/O in which late I/Os may start and complete.
const LEAST_GRACE: Nanos = Nanos::from_secs(2);
/// Maximum duration of a replay that does not start I/Os at their recorded times, as a multiple of the trace's duration.
const MOST_SLOWDOWN: u64 = 3;
/// Maximum memory in bytes for the I/O buffers of a replay, which limits the I/Os in flight.
const MOST_MEMORY: u64 = 512 << 20;
/// Alignment in bytes that direct I/O needs on any device.
const BLOCK: u64 = 4096;
/// Unit in bytes to which the size of the area is rounded up.
const AREA_UNIT: u64 = 1 << 20;

impl Workload {
    /// Sets a replay's defaults for runtime, warm-up and queue depth, so that the whole trace is replayed.
    pub(super) fn complete_replay(&mut self, own: &WorkloadKeys, defaults: &WorkloadKeys) {
        if self.read_iolog.is_none() {
            return;
        }
        self.runtime = own.runtime.or(defaults.runtime).unwrap_or(ALL_OF_IT);
        self.ramp_time = own.ramp_time.unwrap_or(Nanos(0));
        let one_at_a_time = self.ioengine.is_synchronous();
        let depth = if one_at_a_time { 1 } else { DEPTH };
        self.iodepth = own.iodepth.or(defaults.iodepth).unwrap_or(depth);
    }

    /// Sets directions, block size, queue depth, runtime and size from the trace. A workload without a size gets the highest end of the
    /// trace's I/Os as its size, unless that exceeds the default size.
    #[must_use]
    pub fn replaying(self, trace: &TraceSummary) -> Self {
        let modifies = trace.writes + trace.trims > 0;
        let rw = match (trace.reads > 0, modifies) {
            (true, true) => Rw::RandRw,
            (false, true) => Rw::RandWrite,
            (_, false) => Rw::RandRead,
        };
        let longest = trace.longest.clamp(1, LONGEST).next_multiple_of(BLOCK);
        let most = u32::try_from(MOST_MEMORY / longest).unwrap_or(u32::MAX).max(1);
        let lasts = self.scaled(trace.duration_ns);
        let grace = match self.replay_pace {
            ReplayPace::Recorded => lasts.0 / 10,
            ReplayPace::Dependency | ReplayPace::NoStall => lasts.0.saturating_mul(MOST_SLOWDOWN - 1),
        };
        let grace = grace.max(LEAST_GRACE.0);
        let reach = trace.reach.max(longest).checked_next_multiple_of(AREA_UNIT);
        let reach = reach.map(Bytes).filter(|reach| *reach <= super::DEFAULT_SIZE);
        Self {
            rw,
            bs: Bytes(longest),
            iodepth: self.iodepth.min(most),
            runtime: self.runtime.min(Nanos(lasts.0.saturating_add(grace))),
            size: self.size.or(reach),
            ..self
        }
    }

    /// Returns whether the whole trace is read before the replay, to map its offsets.
    #[must_use]
    pub fn maps_offsets(&self) -> bool {
        self.read_iolog.is_some() && self.replay_offsets != ReplayOffsets::Wrap
    }

    /// Converts a time in the trace to a time in the replay, by the replay's speed.
    #[must_use]
    pub fn scaled(&self, recorded_ns: u64) -> Nanos {
        let scaled = u128::from(recorded_ns) * 100 / u128::from(self.replay_time_scale.max(1));
        Nanos(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// Rejects keys that have no effect in a replay, and keys for replays in other workloads.
    pub(super) fn check_replay(&self) -> Result<(), WorkloadError> {
        if self.read_iolog.is_none() {
            let needed = "needs read_iolog, the trace";
            if self.replay_time_scale != 100 {
                return Err(self.refusal("replay_time_scale", &self.replay_time_scale, needed));
            }
            if self.replay_offsets != ReplayOffsets::Wrap {
                return Err(self.refusal("replay_offsets", &self.replay_offsets, needed));
            }
            return match self.replay_pace {
                ReplayPace::Recorded => Ok(()),
                pace => Err(self.refusal("replay_pace", &pace, needed)),
            };
        }
        if self.replay_pace == ReplayPace::NoStall && self.replay_time_scale != 100 {
            let accepted = "replay_pace = no_stall keeps to no times; leave replay_time_scale out";
            return Err(self.refusal("replay_time_scale", &self.replay_time_scale, accepted));
        }
        if self.ramp_time.0 > 0 {
            let accepted = "a replay measures the trace from its first I/O on; use ramp_time = 0s";
            return Err(self.refusal("ramp_time", &self.ramp_time, accepted));
        }
        if self.numjobs > 1 {
            let accepted = "one job replays a trace, with up to iodepth I/Os in flight";
            return Err(self.refusal("numjobs", &self.numjobs, accepted));
        }
        let given = [
            ("test", self.kind.test().is_some()),
            ("beside", !self.beside.is_empty()),
            ("rate_iops", self.rate_iops.is_some()),
            ("rate", self.rate.is_some()),
            ("thinktime", self.thinktime.is_some()),
            ("io_size", self.io_size.is_some()),
            ("loops", self.loops.is_some()),
            ("fsync", self.fsync.is_some()),
            ("fdatasync", self.fdatasync.is_some()),
            ("sync_file_range", self.sync_file_range.is_some()),
            ("end_fsync", self.end_fsync),
            ("bsrange", self.bsrange.is_some()),
            ("bssplit", self.bssplit.is_some()),
            ("zonesize", self.zonesize.is_some()),
            ("stride", self.stride.is_some()),
            ("blockalign", self.blockalign.is_some()),
            ("offset_increment", self.offset_increment.is_some()),
            ("random_distribution", self.random_distribution != Distribution::Random),
            ("flow", self.flow.is_some()),
            ("startdelay", self.startdelay.is_some()),
            ("verify", self.verify != Verify::None),
            ("layout", self.layout != FileLayout::Filled),
            ("invalidate_each_pass", self.invalidate_each_pass),
            ("blackout", self.blackout.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => {
                let accepted = format!("the trace decides which I/O comes when; leave {key} out");
                Err(self.refusal("read_iolog", &self.read_iolog.as_deref().unwrap_or_default(), &accepted))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(keys: &[(&str, &str)]) -> Workload {
        let mut own = WorkloadKeys::default();
        for (key, text) in [("read_iolog", "t.parquet")].iter().chain(keys) {
            own.set(key, text).expect(key);
        }
        own.complete(&WorkloadKeys::default())
    }

    const TRACE: TraceSummary = TraceSummary {
        first_ns: Some(0),
        reads: 10,
        writes: 5,
        trims: 0,
        flushes: 1,
        duration_ns: 60_000_000_000,
        longest: 5000,
        reach: 3_000_000,
        completed: 16,
        first_queue: None,
        has_several_queues: false,
    };

    #[test]
    fn a_replay_lasts_as_long_as_its_trace_and_does_what_it_does() {
        let all = replay(&[]).replaying(&TRACE);
        assert_eq!(
            (all.name.as_str(), all.rw, all.bs, all.iodepth),
            ("replay", Rw::RandRw, Bytes(8192), 128)
        );
        assert_eq!((all.runtime, all.ramp_time), (Nanos::from_secs(66), Nanos(0)));
        assert_eq!((all.size, all.check()), (Some(Bytes(3 << 20)), Ok(())));
        let twice = replay(&[("replay_time_scale", "200"), ("size", "10m")]).replaying(&TRACE);
        assert_eq!((twice.runtime, twice.size), (Nanos::from_secs(33), Some(Bytes(10 << 20))));
        assert_eq!(replay(&[("runtime", "5s")]).replaying(&TRACE).runtime, Nanos::from_secs(5));
        let waiting = replay(&[("replay_pace", "dependency")]).replaying(&TRACE);
        assert_eq!((waiting.runtime, waiting.check()), (Nanos::from_secs(180), Ok(())));
        let reads = TraceSummary { writes: 0, longest: 0, reach: 0, ..TRACE };
        assert_eq!(replay(&[]).replaying(&reads).rw, Rw::RandRead);
    }

    #[test]
    fn no_length_of_a_trace_asks_for_more_memory_or_space_than_there_is() {
        let huge = TraceSummary { longest: u64::MAX, reach: u64::MAX, duration_ns: u64::MAX, ..TRACE };
        let workload = replay(&[]).replaying(&huge);
        assert_eq!((workload.bs, workload.iodepth, workload.size), (Bytes(64 << 20), 8, None));
        assert_eq!(workload.check(), Ok(()));
    }

    #[test]
    fn what_the_trace_decides_is_refused_by_name() {
        for (key, text) in [
            ("rate_iops", "10"),
            ("numjobs", "2"),
            ("ramp_time", "1s"),
            ("verify", "crc32c"),
            ("test", "getc"),
        ] {
            let error = replay(&[(key, text)]).check().expect_err(key).to_string();
            assert!(error.contains(key), "{error}");
        }
        let without =
            Workload { replay_time_scale: 50, ..WorkloadKeys::default().complete(&WorkloadKeys::default()) };
        assert!(without.check().expect_err("no trace").to_string().contains("needs read_iolog"));
        let without = Workload {
            replay_offsets: ReplayOffsets::Compress,
            ..WorkloadKeys::default().complete(&WorkloadKeys::default())
        };
        assert!(
            without
                .check()
                .expect_err("no trace")
                .to_string()
                .contains("replay_offsets = compress: needs read_iolog")
        );
        let scaled = replay(&[("replay_pace", "no_stall"), ("replay_time_scale", "50")]);
        assert!(scaled.check().expect_err("no times").to_string().contains("keeps to no times"));
    }
}
