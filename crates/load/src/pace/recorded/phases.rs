//! The response times of a replay, by phase of the trace.

use iotax_model::histogram::Histogram;
use iotax_model::record::ReplayPhase;

use crate::pace::TraceTimes;

/// Maximum number of phases into which a trace is divided.
const MOST: usize = 16;
/// Initial length of a phase in nanoseconds. It doubles whenever the trace is too long for [`MOST`] phases.
const SHORTEST_NS: u64 = 1_000_000;
/// Minimum number of I/Os in a phase for which a 99th percentile is reported.
const LEAST_IOS: u64 = 100;

/// Phases of equal length, counted from the first I/O. The length depends on the trace alone, so that replays on different targets have the
/// same phases.
#[derive(Debug)]
pub(super) struct Phases {
    length_ns: u64,
    each: Vec<Phase>,
}

#[derive(Debug)]
struct Phase {
    response: Histogram,
    recorded_ios: u64,
    recorded_ns: u128,
}

impl Phases {
    pub(super) fn new() -> Self {
        let phase = || Phase { response: Histogram::with_all_room(), recorded_ios: 0, recorded_ns: 0 };
        Self { length_ns: SHORTEST_NS, each: std::iter::repeat_with(phase).take(MOST).collect() }
    }

    /// Adds the response time in nanoseconds of an I/O to its phase.
    pub(super) fn add(&mut self, times: &TraceTimes, response_ns: u64) {
        let index = loop {
            let index = usize::try_from(times.at / self.length_ns).unwrap_or(usize::MAX);
            if index < MOST {
                break index;
            }
            self.double();
        };
        let phase = &mut self.each[index];
        phase.response.add(response_ns);
        if let Some(latency) = times.latency_ns {
            phase.recorded_ios += 1;
            phase.recorded_ns += u128::from(latency);
        }
    }

    /// Doubles the length of the phases by merging pairs of adjacent phases.
    fn double(&mut self) {
        self.length_ns *= 2;
        for index in 0..MOST {
            let into = index / 2;
            if index == into {
                continue;
            }
            let (before, from) = self.each.split_at_mut(index);
            if index % 2 == 0 {
                before[into].clear();
            }
            before[into].merge(&from[0]);
        }
        self.each[MOST / 2..].iter_mut().for_each(Phase::clear);
    }

    /// Returns the length of a phase in nanoseconds, and all phases up to the last one with I/Os.
    pub(super) fn finish(self) -> (u64, Vec<ReplayPhase>) {
        let used = self.each.iter().rposition(|phase| phase.response.count() > 0).map_or(0, |last| last + 1);
        (self.length_ns, self.each[..used].iter().map(Phase::figures).collect())
    }
}

impl Phase {
    fn clear(&mut self) {
        self.response.clear();
        (self.recorded_ios, self.recorded_ns) = (0, 0);
    }

    fn merge(&mut self, other: &Self) {
        self.response.merge(&other.response);
        self.recorded_ios += other.recorded_ios;
        self.recorded_ns += other.recorded_ns;
    }

    fn figures(&self) -> ReplayPhase {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
        let time = |ns: f64| ns as u64;
        let mean = self.recorded_ns.checked_div(self.recorded_ios.into());
        let has_enough = self.response.count() >= LEAST_IOS;
        ReplayPhase {
            ios: self.response.count(),
            response_mean_ns: self.response.mean().map(time),
            response_p99_ns: self.response.quantile(0.99).filter(|_| has_enough).map(time),
            recorded_ios: self.recorded_ios,
            recorded_mean_ns: mean.and_then(|mean| u64::try_from(mean).ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_grow_with_the_trace_and_keep_what_they_have() {
        let mut phases = Phases::new();
        let times = |at, latency_ns| TraceTimes { at, completes: None, latency_ns };
        for second in 0..60 {
            phases.add(&times(second * 1_000_000_000, Some(second)), second * 1000);
        }
        let (length, each) = phases.finish();
        assert_eq!(length, 4_096_000_000, "1 ms doubled until 16 of them hold a minute");
        let ios: Vec<u64> = each.iter().map(|phase| phase.ios).collect();
        assert_eq!((ios.iter().sum::<u64>(), each.len(), ios[0]), (60, 15, 5));
        assert_eq!((each[0].recorded_ios, each[0].recorded_mean_ns), (5, Some(2)));
        let mean = each[14].response_mean_ns.expect("I/O");
        assert!((57_000..=60_000).contains(&mean), "{mean}");
        assert_eq!(each[14].response_p99_ns, None);
    }

    #[test]
    fn the_latest_time_there_is_ends_in_a_phase() {
        let mut phases = Phases::new();
        phases.add(&TraceTimes { at: u64::MAX, completes: None, latency_ns: Some(u64::MAX) }, u64::MAX);
        assert_eq!(phases.finish().1.iter().map(|phase| phase.ios).sum::<u64>(), 1);
    }
}
