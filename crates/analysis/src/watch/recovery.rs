//! Computes the time until the load is back to normal after an event.

use iotax_model::record::{Measurement, Sample};

use super::clock::{CompletionGap, HostClock};

/// Minimum number of intervals before the first event for an estimate of the normal level.
const FEWEST: usize = 4;
/// Smallest rate of a normal interval, as a share of the slowest interval's rate before the first event. Also the smallest share of the
/// scheduled rate that the load must reach before the first event.
const RATE: f64 = 0.9;
/// Largest mean response time of a normal interval, as a multiple of the largest before the first event.
const TIME: f64 = 2.0;
/// Time for which the load must stay normal to count as recovered, in nanoseconds.
const HOLDS_NS: u64 = 1_000_000_000;

/// The time from an event until rate and response time are as before the first event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryTime {
    /// The time to recovery is unknown, for this reason.
    Unknown(Unknown),
    /// Rate, response time and failures stayed normal, apart from noise.
    Unaffected,
    /// Recovered after this many nanoseconds, to the resolution of an interval.
    After(u64),
    /// Not recovered within this many nanoseconds: the time to the next event (or to the end of this event's command, if that is later), or
    /// to the end of the window.
    NotWithin(u64),
}

/// The reason why the time to recovery is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// The event did not begin.
    Nothing,
    /// Fewer than four intervals with completed I/O were observed before the first event.
    Before,
    /// The load fell short of its offered rate before the first event.
    Behind,
    /// The next event, or the end of the window, came less than a second after recovery.
    After,
    /// The agent or its guest disappeared.
    Gone,
}

impl Unknown {
    /// Returns the reason as text.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Nothing => "it did not begin",
            Self::Before => "less than a second was seen before the first event",
            Self::Behind => "the load did not reach its rate before the first event",
            Self::After => "the next event or the end came within a second of it",
            Self::Gone => "the agent or its guest was gone",
        }
    }
}

/// The load over time, on the host's clock: its intervals and gaps.
pub(super) struct Course<'a> {
    intervals: Vec<Interval>,
    gaps: &'a [CompletionGap],
}

impl<'a> Course<'a> {
    /// Returns the number of I/Os that failed in intervals that end after `from_ns` and begin before `to_ns`.
    pub(super) fn failed(&self, from_ns: u64, to_ns: u64) -> u64 {
        let within = self.intervals.iter().filter(|one| one.end_ns > from_ns && one.begin_ns < to_ns);
        within.map(|one| one.failed).sum()
    }

    pub(super) fn of(m: &Measurement, gaps: &'a [CompletionGap]) -> Self {
        Self { intervals: intervals(m), gaps }
    }
}

/// Rate, response time and failures in one interval.
struct Interval {
    begin_ns: u64,
    end_ns: u64,
    /// I/Os per second, and their mean response time in nanoseconds; absent if none completed.
    figures: Option<(f64, f64)>,
    /// Number of I/Os that failed in the interval.
    failed: u64,
}

fn intervals(m: &Measurement) -> Vec<Interval> {
    let clock = HostClock::of(m);
    let interval = |sample: &Sample| {
        let begin_ns = clock.of_agent(sample.at_ns.saturating_sub(sample.duration_ns));
        let end_ns = clock.of_agent(sample.at_ns);
        let rate = sample.tallies.ios() as f64 * 1e9 / (end_ns - begin_ns).max(1) as f64;
        let response = sample.tallies.response().and_then(|response| response.mean());
        Interval {
            begin_ns,
            end_ns,
            failed: sample.failed,
            figures: response.map(|response| (rate, response)),
        }
    };
    m.whole_samples().map(interval).collect()
}

/// The worst rate, response time and number of failures in the intervals before the first event, which count as normal.
#[derive(Clone, Copy)]
pub(super) struct Normal {
    /// Lowest rate of an interval, in I/Os per second.
    rate: f64,
    /// Greatest mean response time of an interval, in nanoseconds.
    response_ns: f64,
    /// Largest number of failed I/Os in an interval.
    failed: u64,
}

impl Normal {
    /// Determines the normal level from the intervals before `event_ns`. `offered` is the scheduled rate in I/Os per second, `None` in a
    /// closed loop. Fails with the reason if the normal level is unknown.
    pub(super) fn before(course: &Course<'_>, offered: Option<f64>, event_ns: u64) -> Result<Self, Unknown> {
        let before = course.intervals.iter().take_while(|interval| interval.end_ns <= event_ns);
        let failed = before.clone().map(|interval| interval.failed).max().unwrap_or_default();
        let before: Vec<(f64, f64)> = before.filter_map(|interval| interval.figures).collect();
        if before.len() < FEWEST {
            return Err(Unknown::Before);
        }
        let mean = before.iter().map(|(rate, _)| rate).sum::<f64>() / before.len() as f64;
        if offered.is_some_and(|offered| mean < RATE * offered) {
            return Err(Unknown::Behind);
        }
        let normal = |(rate, time): (f64, f64), one: &(f64, f64)| (rate.min(one.0), time.max(one.1));
        let (rate, response_ns) = before.iter().fold((f64::MAX, 0.0), normal);
        Ok(Self { rate, response_ns, failed })
    }

    fn is_like(&self, interval: &Interval) -> bool {
        let is_as_fast = |(rate, time)| rate >= RATE * self.rate && time <= TIME * self.response_ns;
        interval.failed <= self.failed && interval.figures.is_some_and(is_as_fast)
    }

    /// Returns the time from an event until intervals are normal again and stay normal until `end_ns`, the end of the observation. A
    /// deviation counts if it begins within a second of the command's end (`over_ns`) or of the last counted deviation. A later one counts
    /// only if it contains a gap or failed I/Os, or lasts a second or more; else it is noise.
    pub(super) fn again(
        &self,
        course: &Course<'_>,
        event_ns: u64,
        over_ns: u64,
        end_ns: u64,
    ) -> RecoveryTime {
        let after = course.intervals.iter();
        let after = after.filter(|interval| interval.end_ns > event_ns && interval.end_ns <= end_ns);
        let mut runs: Vec<Unlike> = Vec::new();
        for interval in after.filter(|interval| !self.is_like(interval)) {
            let (begin_ns, end_ns) = (interval.begin_ns, interval.end_ns);
            let gap = course.gaps.iter().any(|gap| gap.at_ns < end_ns && gap.end_ns() > begin_ns);
            let has_gap = gap || interval.failed > self.failed || interval.figures.is_none();
            match runs.last_mut() {
                Some(run) if run.end_ns == begin_ns => {
                    *run = Unlike { end_ns, count: run.count + 1, has_gap: run.has_gap || has_gap, ..*run };
                }
                _ => runs.push(Unlike { begin_ns, end_ns, count: 1, has_gap }),
            }
        }
        let mut until = None;
        let mut soon = over_ns + HOLDS_NS;
        for run in runs {
            let lasts = run.count > 1 && run.end_ns - run.begin_ns >= HOLDS_NS;
            if run.begin_ns <= soon || lasts || run.has_gap {
                until = Some(run.end_ns);
                soon = soon.max(run.end_ns + HOLDS_NS);
            }
        }
        // The last interval may end a little before the observation does.
        let last = course.intervals.iter().rfind(|interval| interval.end_ns <= end_ns);
        match until {
            Some(until) if last.is_none_or(|last| last.end_ns <= until) => {
                RecoveryTime::NotWithin(end_ns.saturating_sub(event_ns))
            }
            _ if end_ns.saturating_sub(until.unwrap_or(event_ns)) < HOLDS_NS => {
                RecoveryTime::Unknown(Unknown::After)
            }
            None => RecoveryTime::Unaffected,
            Some(until) => RecoveryTime::After(until - event_ns),
        }
    }
}

/// Consecutive intervals that are not normal.
#[derive(Clone, Copy)]
struct Unlike {
    begin_ns: u64,
    end_ns: u64,
    count: u32,
    /// True if I/Os failed, or if nothing completed for part of the time.
    has_gap: bool,
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MS, empty, samples};
    use super::*;

    fn normal_of(course: &Course<'_>) -> Normal {
        Normal::before(course, None, 2000 * MS).expect("enough before")
    }

    #[test]
    fn it_is_over_when_it_stays_as_before() {
        let usual = [(100, 1); 8];
        let gap = [(5, 1), (0, 0), (0, 0), (300, 400), (150, 20), (100, 1), (10, 1)];
        let at = |event_ms: u64, command_ms: u64, end_ms: u64, all: &[(u64, u64)]| {
            let m = Measurement { samples: samples(all), ..empty() };
            let course = Course::of(&m, &[]);
            let normal = Normal::before(&course, Some(400.0), 2000 * MS).expect("enough before");
            normal.again(&course, event_ms * MS, (event_ms + command_ms) * MS, end_ms * MS)
        };
        let all = [&usual[..], &gap, &usual].concat();
        // The last interval that is not normal ends at 3.75 s.
        assert_eq!(at(2000, 1500, 5750, &all), RecoveryTime::After(1750 * MS));
        assert_eq!(at(2000, 0, 5750, &all), RecoveryTime::After(1750 * MS), "it has not settled");
        assert_eq!(at(500, 0, 2000, &all), RecoveryTime::Unaffected);
        assert_eq!(at(2000, 0, 3250, &all), RecoveryTime::NotWithin(1250 * MS));
        assert_eq!(
            at(2000, 0, 3500, &all),
            RecoveryTime::Unknown(Unknown::After),
            "it ends too soon to tell"
        );
        assert_eq!(at(2000, 0, 2100, &all), RecoveryTime::Unknown(Unknown::After));
        // A deviation two seconds after the event counts too if nothing completes, if it lasts, or if the
        // command was still running.
        let later = [&usual[..], &usual, &[(0, 0), (0, 0)], &usual].concat();
        assert_eq!(at(2000, 0, 6500, &later), RecoveryTime::After(2500 * MS));
        let slow = [&usual[..], &usual, &[(100, 9); 4], &usual].concat();
        assert_eq!(at(2000, 0, 7000, &slow), RecoveryTime::After(3000 * MS));
        let noise = [&usual[..], &usual, &[(100, 9); 3], &usual].concat();
        assert_eq!(at(2000, 0, 6750, &noise), RecoveryTime::Unaffected);
        let noise = [&usual[..], &usual, &[(100, 9)], &usual].concat();
        assert_eq!(at(2000, 0, 6250, &noise), RecoveryTime::Unaffected);
        assert_eq!(at(2000, 1500, 6250, &noise), RecoveryTime::After(2250 * MS));
        let mut failing = samples(&[usual; 2].concat());
        failing[12].failed = 1;
        let m = Measurement { samples: failing, ..empty() };
        let course = Course::of(&m, &[]);
        let found = normal_of(&course).again(&course, 2000 * MS, 2000 * MS, 4250 * MS);
        assert_eq!((found, course.failed(2000 * MS, 4000 * MS)), (RecoveryTime::After(1250 * MS), 1));
        let mut cut = samples(&[usual; 2].concat());
        let end_ns = cut[15].at_ns + MS;
        cut.push(Sample { at_ns: end_ns, duration_ns: MS, ..samples(&[(0, 0)]).remove(0) });
        let m = Measurement { samples: cut, ..empty() };
        let course = Course::of(&m, &[]);
        let found = normal_of(&course).again(&course, 2000 * MS, 2000 * MS, end_ns);
        assert_eq!(found, RecoveryTime::Unaffected, "Ctrl-C ended it within an interval");
        let m = Measurement { samples: samples(&all), ..empty() };
        let before = |offered, ms| Normal::before(&Course::of(&m, &[]), Some(offered), ms * MS).err();
        assert_eq!(before(400.0, 750), Some(Unknown::Before), "three intervals do not tell");
        assert_eq!(before(450.0, 2000), Some(Unknown::Behind), "it never was as it should be");
    }
}
