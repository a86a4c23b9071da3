//! The measured window and its intervals, in time of the engine's clock.

use iotax_model::units::Nanos;
use iotax_model::wire::Job;

/// The measured time span, shared by all workers of a measurement; in nanoseconds of [`crate::clock::now`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Start of the load, warm-up included, in nanoseconds of the engine's clock.
    pub start: u64,
    /// End of the warm-up and start of measuring, in nanoseconds of the engine's clock.
    pub begin: u64,
    /// End of measuring, in nanoseconds of the engine's clock.
    pub end: u64,
    /// Length of an interval in nanoseconds; the last interval may be shorter.
    pub interval: u64,
}

impl Window {
    /// Creates the window of a job whose load starts at `start` plus the job's start delay.
    pub fn new(job: &Job, start: u64) -> Self {
        let start = start + delay(job);
        let begin = start + job.workload.ramp_time.0;
        Self { start, begin, end: begin + job.workload.runtime.0, interval: job.interval.0 }
    }

    /// Creates the window of one of several concurrent jobs. All such windows begin together, `ramp_time` after `start`; each ends with its
    /// job.
    pub fn among(job: &Job, start: u64, ramp_time: Nanos) -> Self {
        let (begin, delay) = (start + ramp_time.0, delay(job));
        Self {
            start: start + delay,
            begin,
            end: begin + delay + job.workload.runtime.0,
            interval: job.interval.0,
        }
    }

    /// Returns the window of a load that ended early, at `end`.
    pub(crate) fn cut(self, end: u64) -> Self {
        Self { end: self.end.min(end), ..self }
    }

    /// Returns the number of intervals, including a last shorter one.
    pub const fn intervals(&self) -> u64 {
        (self.end - self.begin).div_ceil(self.interval)
    }

    /// Returns the index of the interval that contains `now`, which is not before `begin`; from the window's end on, returns
    /// [`Self::intervals`].
    pub const fn interval_at(&self, now: u64) -> u64 {
        if now >= self.end { self.intervals() } else { (now - self.begin) / self.interval }
    }

    /// Returns the time at which an interval ends, in nanoseconds of the engine's clock.
    pub fn end_of(&self, interval: u64) -> u64 {
        (self.begin + (interval + 1) * self.interval).min(self.end)
    }

    /// Returns the length of an interval in nanoseconds.
    pub(crate) fn length_of(&self, interval: u64) -> u64 {
        self.end_of(interval) - (self.begin + interval * self.interval)
    }
}

/// Returns the job's start delay in nanoseconds; 0 without one.
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
