//! The measured window and its intervals, on the monotonic clock.

use iotax_model::units::Nanos;
use iotax_model::wire::Job;

/// The measured time span, shared by all workers of a measurement; in nanoseconds of [`crate::clock::now`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Start of the load.
    pub start: u64,
    /// End of the warm-up.
    pub begin: u64,
    /// End of the window.
    pub end: u64,
    /// Nanoseconds of an interval; the last one may be shorter.
    pub interval: u64,
}

impl Window {
    /// The window of a job whose load starts at `start` plus the job's start delay.
    pub fn new(job: &Job, start: u64) -> Self {
        let start = start + delay(job);
        let begin = start + job.workload.ramp_time.0;
        Self { start, begin, end: begin + job.workload.runtime.0, interval: job.interval.0 }
    }

    /// The window of one of several concurrent jobs: it begins after `ramp_time`, at the same time for all, and ends with the job.
    pub(crate) fn among(job: &Job, start: u64, ramp_time: Nanos) -> Self {
        let (begin, delay) = (start + ramp_time.0, delay(job));
        Self {
            start: start + delay,
            begin,
            end: begin + delay + job.workload.runtime.0,
            interval: job.interval.0,
        }
    }

    /// The window of a load that ended early, at `end`.
    pub(crate) fn cut(self, end: u64) -> Self {
        Self { end: self.end.min(end), ..self }
    }

    /// The number of intervals; the last may be shorter than the others.
    pub(crate) const fn intervals(&self) -> u64 {
        (self.end - self.begin).div_ceil(self.interval)
    }

    /// The index of the interval that contains `now`, a time at or after `begin`; [`Self::intervals`] from the window's end.
    pub(crate) const fn interval_at(&self, now: u64) -> u64 {
        if now >= self.end { self.intervals() } else { (now - self.begin) / self.interval }
    }

    /// End time of an interval.
    pub(crate) fn end_of(&self, interval: u64) -> u64 {
        (self.begin + (interval + 1) * self.interval).min(self.end)
    }

    /// Length of an interval in nanoseconds.
    pub(crate) fn length_of(&self, interval: u64) -> u64 {
        self.end_of(interval) - (self.begin + interval * self.interval)
    }
}

/// The job's start delay in nanoseconds; 0 without one.
fn delay(job: &Job) -> u64 {
    job.workload.startdelay.map_or(0, |delay| delay.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_tile_the_window() {
        let window = Window { start: 900, begin: 1000, end: 1250, interval: 100 };
        assert_eq!(window.intervals(), 3);
        assert_eq!([0, 1, 2].map(|n| window.end_of(n)), [1100, 1200, 1250]);
        assert_eq!([0, 1, 2].map(|n| window.length_of(n)), [100, 100, 50]);
        for (now, interval) in [(1000, 0), (1099, 0), (1100, 1), (1249, 2), (1250, 3), (9999, 3)] {
            assert_eq!(window.interval_at(now), interval, "at {now}");
        }
        assert_eq!(window.cut(1130), Window { end: 1130, ..window });
        assert_eq!(window.cut(9999), window);
        let whole = Window { end: 1300, ..window };
        assert_eq!((whole.intervals(), whole.length_of(2), whole.interval_at(1300)), (3, 100, 3));
    }
}
