//! The schedule of a replay: when each I/O of the trace starts.

mod dependencies;
mod phases;

use iotax_model::histogram::Histogram;
use iotax_model::record::{Pacing, Replayed};
use iotax_model::trace::TracedIo;
use iotax_model::workload::ReplayPace;

use self::dependencies::Dependencies;
use self::phases::Phases;
use crate::clock;
use crate::request::Completion;
use crate::window::Window;

/// Times of a traced I/O in nanoseconds since the first traced I/O, scaled by `replay_time_scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceTimes {
    /// Time at which the I/O started.
    pub at: u64,
    /// Time at which the I/O completed; `None` if the trace has no completion.
    pub completes: Option<u64>,
    /// The recorded latency in nanoseconds, not scaled; `None` if the trace has none.
    pub latency_ns: Option<u64>,
}

impl TraceTimes {
    /// Converts the times of a traced I/O. `from` is the time of the trace's first I/O; `scale` is the replay speed in percent of the recorded
    /// speed.
    #[must_use]
    pub fn of(event: &TracedIo, from: u64, scale: u32) -> Self {
        let since = event.at_ns.saturating_sub(from);
        Self {
            at: scaled(since, scale),
            completes: event.latency_ns.map(|latency| scaled(since.saturating_add(latency), scale)),
            latency_ns: event.latency_ns,
        }
    }
}

/// Converts a time of the trace in nanoseconds to the replay's speed, `scale` percent of the recorded speed: 200 halves the time.
fn scaled(ns: u64, scale: u32) -> u64 {
    u64::try_from(u128::from(ns) * 100 / u128::from(scale.max(1))).unwrap_or(u64::MAX)
}

/// Counts of a trace's I/Os so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceCounts {
    /// Number of I/Os that were started.
    pub begun: u64,
    /// Number of I/Os that were left out, because the target cannot do them.
    pub left_out: u64,
    /// Number of I/Os that were due but not started.
    pub not_begun: u64,
    /// Number of I/Os that were moved into the area.
    pub wrapped: u64,
    /// Number of I/Os that were aligned.
    pub aligned: u64,
    /// Number of I/Os at another offset than in the trace.
    pub moved: u64,
    /// Sum of the distances in bytes of the I/Os in `moved`.
    pub moved_bytes: u128,
    /// Number of I/Os that continue an earlier one in the replay.
    pub sequential: u64,
    /// Number of I/Os that continue an earlier one in the trace.
    pub recorded_sequential: u64,
}

impl TraceCounts {
    /// Returns the mean distance in bytes of the I/Os in `moved`; `None` without any.
    #[must_use]
    pub fn moved_mean_bytes(&self) -> Option<u64> {
        let mean = self.moved_bytes.checked_div(self.moved.into())?;
        Some(u64::try_from(mean).unwrap_or(u64::MAX))
    }
}

/// The schedule of a replay. Also records how closely the replay follows the trace.
#[derive(Debug)]
pub struct Recorded {
    window: Window,
    pace: Begin,
    /// The times of the next I/O; `None` after the last.
    next: Option<TraceTimes>,
    /// Time at which the next I/O is due, in nanoseconds of the engine's clock; 0 after the last I/O, `u64::MAX` while it must wait for
    /// other I/Os to complete.
    due: u64,
    full_until: u64,
    delayed: u64,
    longest_delay_ns: u64,
    /// Delays in nanoseconds from the due time to the start, of I/Os that did not have to wait for a slot.
    late: Histogram,
    /// Trace time and actual start of the first I/O, in nanoseconds; `None` before the first start. The field `last` has those of the last
    /// I/O so far.
    first: Option<(u64, u64)>,
    last: Option<(u64, u64)>,
    /// Number of I/Os started.
    begun: u64,
    /// The I/O in flight in each slot.
    in_flight: Vec<Begun>,
    phases: Phases,
}

/// The rule for the start of each I/O.
#[derive(Debug)]
enum Begin {
    /// Start at the I/O's time in the trace.
    AtTime,
    /// Start after the trace's pause, once the I/Os that this one depends on are complete.
    After(Box<Dependencies>),
    /// Start as soon as a slot is free, regardless of the trace's times.
    AtOnce,
}

/// A started I/O: its number, its due time and its times in the trace.
#[derive(Debug, Clone, Copy)]
struct Begun {
    number: u64,
    intended: u64,
    times: TraceTimes,
}

impl Recorded {
    /// Creates the schedule of a replay that starts with the window. `next` has the times of the first I/O; at most `slots` I/Os are in flight.
    pub fn new(pace: ReplayPace, window: Window, next: Option<TraceTimes>, slots: usize) -> Self {
        let pace = match pace {
            ReplayPace::Recorded => Begin::AtTime,
            ReplayPace::Dependency => Begin::After(Box::new(Dependencies::new(window.start))),
            ReplayPace::NoStall => Begin::AtOnce,
        };
        let nothing = TraceTimes { at: 0, completes: None, latency_ns: None };
        let mut recorded = Self {
            window,
            pace,
            next: None,
            due: 0,
            full_until: 0,
            delayed: 0,
            longest_delay_ns: 0,
            late: Histogram::with_all_room(),
            first: None,
            last: None,
            begun: 0,
            in_flight: vec![Begun { number: 0, intended: 0, times: nothing }; slots],
            phases: Phases::new(),
        };
        recorded.plan(next);
        recorded
    }

    pub(super) const fn due(&self) -> u64 {
        self.due
    }

    pub(super) const fn was_full(&mut self, now: u64) {
        self.full_until = now;
    }

    /// Starts the next I/O in a slot and returns the time at which it was due. `next` has the times of the I/O after it.
    // Kept out of the loop that all other loads run.
    #[inline(never)]
    pub fn take(&mut self, slot: usize, next: Option<TraceTimes>) -> u64 {
        let now = clock::now();
        let Some(times) = self.next else { return now };
        let intended = if matches!(self.pace, Begin::AtOnce) { now } else { self.due };
        let late = now.saturating_sub(intended);
        if intended < self.full_until {
            self.delayed += 1;
            self.longest_delay_ns = self.longest_delay_ns.max(late);
        } else {
            self.late.add(late);
        }
        self.first.get_or_insert((times.at, now));
        self.last = Some((times.at, now));
        self.in_flight[slot] = Begun { number: self.begun, intended, times };
        if let Begin::After(dependencies) = &mut self.pace {
            dependencies.begun(self.begun, times.completes);
        }
        self.begun += 1;
        self.plan(next);
        intended
    }

    /// Records that I/Os have completed, and determines again when the next one is due.
    #[inline(never)]
    pub fn completed(&mut self, done: &[Completion], now: u64) {
        for completion in done {
            let Begun { number, intended, times } = self.in_flight[completion.slot.index()];
            if completion.result >= 0 {
                self.phases.add(&times, now.saturating_sub(intended));
            }
            if let Begin::After(dependencies) = &mut self.pace {
                dependencies.completed(number, now);
            }
        }
        if let (Begin::After(dependencies), Some(next)) = (&self.pace, self.next) {
            self.due = dependencies.due(next.at);
        }
    }

    /// Determines when the I/O with the times `next` is due.
    fn plan(&mut self, next: Option<TraceTimes>) {
        self.next = next;
        self.due = match (next, &mut self.pace) {
            (None, _) => 0,
            (Some(times), Begin::AtTime) => self.window.start.saturating_add(times.at),
            (Some(times), Begin::After(dependencies)) => {
                dependencies.follow(times.at);
                dependencies.due(times.at)
            }
            (Some(_), Begin::AtOnce) => self.window.start,
        };
    }

    /// Returns the nanoseconds from the start of the replay to `now`, or to the window's end if that is earlier.
    pub fn elapsed(&self, now: u64) -> u64 {
        now.min(self.window.end).saturating_sub(self.window.start)
    }

    /// Returns how well the schedule was kept and how closely the replay followed the trace, for a replay that ended at `now`.
    pub fn finish(self, counts: TraceCounts, now: u64) -> (Pacing, Replayed) {
        let TraceCounts {
            begun,
            left_out,
            not_begun,
            wrapped,
            aligned,
            moved,
            sequential,
            recorded_sequential,
            ..
        } = counts;
        let pacing = Pacing {
            due: begun + not_begun,
            delayed: self.delayed,
            longest_delay_ns: self.longest_delay_ns,
            backlog: not_begun,
            backlog_ns: if not_begun > 0 { now.saturating_sub(self.due) } else { 0 },
            ..Pacing::default()
        };
        let (first, last) = (self.first.unwrap_or_default(), self.last.unwrap_or_default());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a quantile is a time")]
        let late = |share: f64| self.late.quantile(share).unwrap_or(0.0) as u64;
        let (phase_ns, phases) = self.phases.finish();
        let replayed = Replayed {
            due: begun + not_begun + left_out,
            begun,
            left_out,
            not_begun,
            wrapped,
            moved,
            moved_mean_bytes: counts.moved_mean_bytes(),
            sequential,
            recorded_sequential,
            aligned,
            late_p50_ns: late(0.5),
            late_p99_ns: late(0.99),
            late_max_ns: self.late.max().unwrap_or(0),
            recorded_ns: last.0 - first.0,
            took_ns: last.1 - first.1,
            phase_ns,
            phases,
        };
        (pacing, replayed)
    }
}
