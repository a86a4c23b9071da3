//! The schedule of a replay.

use iotax_model::histogram::Histogram;
use iotax_model::record::{Pacing, Replayed};

use crate::clock;
use crate::replay::Counts;
use crate::window::Window;

/// An open loop at the times of a trace.
#[derive(Debug)]
pub struct Recorded {
    window: Window,
    /// The due time of the next I/O; 0 after the last.
    due: u64,
    full_until: u64,
    delayed: u64,
    longest_delay_ns: u64,
    /// From the due time of an I/O to its begin, of those that had a free slot.
    late: Histogram,
    /// Due time and begin of the first I/O and of the last.
    first: Option<(u64, u64)>,
    last: Option<(u64, u64)>,
}

impl Recorded {
    /// The schedule of a replay that begins with the window; `due` is when its first I/O is due, from then on.
    pub(crate) fn new(window: Window, due: Option<u64>) -> Self {
        let due = absolute(window.start, due);
        Self {
            window,
            due,
            full_until: 0,
            delayed: 0,
            longest_delay_ns: 0,
            late: Histogram::with_all_room(),
            first: None,
            last: None,
        }
    }

    pub(super) const fn due(&self) -> u64 {
        self.due
    }

    pub(super) const fn was_full(&mut self, now: u64) {
        self.full_until = now;
    }

    /// Begins the next I/O; the one behind it is due at `next`. Returns its intended start.
    // Out of the loop of all other loads.
    #[inline(never)]
    pub(crate) fn take(&mut self, next: Option<u64>) -> u64 {
        let (intended, now) = (self.due, clock::now());
        let late = now.saturating_sub(intended);
        if intended < self.full_until {
            self.delayed += 1;
            self.longest_delay_ns = self.longest_delay_ns.max(late);
        } else {
            self.late.add(late);
        }
        self.first.get_or_insert((intended, now));
        self.last = Some((intended, now));
        self.due = absolute(self.window.start, next);
        intended
    }

    /// Nanoseconds from the begin of the replay to its end: `now`, at the window's end at the latest.
    pub(crate) fn elapsed(&self, now: u64) -> u64 {
        now.min(self.window.end).saturating_sub(self.window.start)
    }

    /// The punctuality and the fidelity of a replay that ended at `now`.
    pub(crate) fn finish(self, counts: Counts, now: u64) -> (Pacing, Replayed) {
        let Counts { begun, left_out, not_begun, wrapped, aligned, without_fua } = counts;
        let pacing = Pacing {
            due: begun + not_begun,
            delayed: self.delayed,
            longest_delay_ns: self.longest_delay_ns,
            backlog: not_begun,
            backlog_ns: if not_begun > 0 { now.saturating_sub(self.due) } else { 0 },
        };
        let (first, last) = (self.first.unwrap_or_default(), self.last.unwrap_or_default());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a quantile is a time")]
        let late = |share: f64| self.late.quantile(share).unwrap_or(0.0) as u64;
        let replayed = Replayed {
            due: begun + not_begun + left_out,
            begun,
            left_out,
            not_begun,
            wrapped,
            aligned,
            without_fua,
            late_p50_ns: late(0.5),
            late_p99_ns: late(0.99),
            late_max_ns: self.late.max().unwrap_or(0),
            recorded_ns: last.0 - first.0,
            took_ns: last.1 - first.1,
        };
        (pacing, replayed)
    }
}

/// A due time on the engine's clock.
const fn absolute(start: u64, due: Option<u64>) -> u64 {
    match due {
        Some(due) => start.saturating_add(due),
        None => 0,
    }
}
