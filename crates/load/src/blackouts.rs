//! Gaps ("blackouts"): times in which I/Os were due but none of their class completed.

use iotax_model::record::{Blackout, IoClass};
use iotax_model::units::Nanos;

use crate::request::IoKind;
use crate::window::Window;

/// Maximum number of gaps kept per class; the shortest is dropped first.
const MOST: usize = 500;

/// Start and end of a gap in nanoseconds of the engine's clock. It starts at the last successful completion, or when the first I/O that
/// waits or has failed since was due, if that is later. It ends at the next successful completion; the end is `u64::MAX` if none followed.
pub type Span = (u64, u64);

/// The gaps of each I/O class, in the order of `CLASSES`.
pub type Spans = [Vec<Span>; 3];

/// The I/O classes; arrays with an element per class have this order.
pub(crate) const CLASSES: [IoClass; 3] = [IoClass::Reads, IoClass::Writes, IoClass::Flushes];

/// Recorder of the gaps between one worker's completions, separately for each I/O class.
#[derive(Debug)]
pub struct BlackoutRecorder {
    least: u64,
    classes: [ClassGaps; 3],
}

/// The gaps of one class of I/O (reads, writes or flushes).
#[derive(Debug)]
struct ClassGaps {
    /// Time of the last successful completion, in nanoseconds of the engine's clock; at first, the recorder's start.
    last: u64,
    /// Earliest due time of the I/Os that failed since `last`, in nanoseconds of the engine's clock; `u64::MAX` if none failed.
    failed: u64,
    found: Vec<Span>,
}

/// Returns the index in `CLASSES` of an I/O's class; trims count as writes.
pub const fn class_index(direction: IoKind) -> usize {
    match direction {
        IoKind::Read => 0,
        IoKind::Write | IoKind::DurableWrite | IoKind::Trim => 1,
        IoKind::Sync | IoKind::DataSync | IoKind::RangeSync(_) => 2,
    }
}

impl BlackoutRecorder {
    /// Creates a recorder of gaps of at least `least`; the first gap can start at `now` nanoseconds of the engine's clock.
    #[must_use]
    pub fn new(least: Nanos, now: u64) -> Self {
        let empty = || ClassGaps { last: now, failed: u64::MAX, found: Vec::new() };
        Self { least: least.0, classes: [empty(), empty(), empty()] }
    }

    /// Records a successful completion at `now` nanoseconds of the engine's clock. `first_due` returns for each class the due time of its
    /// oldest I/O not counted yet, the completed I/O included, and `None` without one. It is only called if the time since the last
    /// completion reaches the minimum.
    #[inline]
    pub fn completed(&mut self, direction: IoKind, now: u64, first_due: impl FnOnce() -> [Option<u64>; 3]) {
        let index = class_index(direction);
        let class_gaps = &mut self.classes[index];
        if now.saturating_sub(class_gaps.last) >= self.least {
            class_gaps.settle(first_due()[index], self.least, now, now);
        }
        (class_gaps.last, class_gaps.failed) = (now, u64::MAX);
    }

    /// Records that an I/O due at `due` failed. A failure does not end a gap.
    pub fn failed(&mut self, direction: IoKind, due: u64) {
        let class_gaps = &mut self.classes[class_index(direction)];
        class_gaps.failed = class_gaps.failed.min(due);
    }

    /// Ends the recording: adds the gaps still open at `now`, without an end, and returns each class's gaps in order of
    /// time. `first_due` is the same as in [`Self::completed`].
    #[must_use]
    pub fn finish(mut self, first_due: [Option<u64>; 3], now: u64) -> Spans {
        for (class_gaps, due) in self.classes.iter_mut().zip(first_due) {
            class_gaps.settle(due, self.least, now, u64::MAX);
        }
        self.classes.map(|class_gaps| class_gaps.found)
    }
}

impl ClassGaps {
    /// Records a gap still open at `now` as a gap that ends at `end`, if it has lasted at least `least` nanoseconds. `due` is the due time of the
    /// oldest waiting I/O.
    #[cold]
    fn settle(&mut self, due: Option<u64>, least: u64, now: u64, end: u64) {
        let from = due.unwrap_or(u64::MAX).min(self.failed).max(self.last);
        if now.saturating_sub(from) < least {
            return;
        }
        self.found.push((from, end));
        if self.found.len() > MOST {
            let shortest =
                (0..self.found.len()).min_by_key(|index| self.found[*index].1 - self.found[*index].0);
            shortest.map(|index| self.found.remove(index));
        }
    }
}

/// Cuts one worker's gaps to the window. Returns those that are still at least `least` long, in order of their start.
pub fn within(spans: &Spans, least: Nanos, window: Window) -> Vec<Blackout> {
    let mut all: Vec<Blackout> = Vec::new();
    for (spans, of) in spans.iter().zip(CLASSES) {
        all.extend(spans.iter().filter_map(|(from, to)| {
            let at = window.begin.max(*from);
            let blackout = Blackout {
                of,
                at_ns: at - window.begin,
                duration_ns: window.end.min(*to).saturating_sub(at),
                ended: *to <= window.end,
            };
            (blackout.duration_ns >= least.0).then_some(blackout)
        }));
    }
    all.sort_by_key(|blackout| blackout.at_ns);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { start: 0, begin: 100, end: 1000, interval: 100 };

    fn completed(recorder: &mut BlackoutRecorder, direction: IoKind, due: u64, now: u64) {
        recorder.completed(direction, now, || [Some(due); 3]);
    }

    #[test]
    fn what_is_long_enough_is_found_also_at_the_end() {
        let mut recorder = BlackoutRecorder::new(Nanos(50), 0);
        for now in [40, 130, 170, 300, 940] {
            completed(&mut recorder, IoKind::Read, 0, now);
        }
        let spans = recorder.finish([Some(930), None, None], 1001);
        assert_eq!(spans[0], [(40, 130), (170, 300), (300, 940), (940, u64::MAX)]);
        assert!(spans[1].is_empty(), "none was due");
        let blackout = |at_ns, duration_ns, ended| Blackout { of: IoClass::Reads, at_ns, duration_ns, ended };
        let expected = [blackout(70, 130, true), blackout(200, 640, true), blackout(840, 60, false)];
        assert_eq!(within(&spans, Nanos(50), WINDOW), expected, "30 of the first are in the window");
    }

    #[test]
    fn a_time_in_which_nothing_was_due_is_none() {
        let mut recorder = BlackoutRecorder::new(Nanos(50), 0);
        // Due long after the last completion.
        completed(&mut recorder, IoKind::Write, 220, 300);
        completed(&mut recorder, IoKind::Write, 590, 600);
        assert_eq!(recorder.finish([None; 3], 1001), [vec![], vec![(220, 300)], vec![]]);
    }

    #[test]
    fn what_fails_does_not_complete() {
        let mut recorder = BlackoutRecorder::new(Nanos(50), 0);
        completed(&mut recorder, IoKind::Write, 90, 100);
        for due in [110, 120, 300] {
            recorder.failed(IoKind::Write, due);
        }
        completed(&mut recorder, IoKind::Write, 390, 400);
        recorder.failed(IoKind::Write, 450);
        assert_eq!(recorder.finish([None; 3], 1001)[1], [(110, 400), (450, u64::MAX)]);
    }

    #[test]
    fn a_flush_that_hangs_is_a_gap_while_writes_complete() {
        let mut recorder = BlackoutRecorder::new(Nanos(50), 0);
        for now in (10..1000).step_by(10) {
            completed(&mut recorder, IoKind::Write, now - 10, now);
        }
        completed(&mut recorder, IoKind::DataSync, 300, 700);
        let spans = recorder.finish([None, None, Some(800)], 1001);
        assert_eq!(spans, [vec![], vec![], vec![(300, 700), (800, u64::MAX)]]);
        let of: Vec<IoClass> = within(&spans, Nanos(50), WINDOW).iter().map(|gap| gap.of).collect();
        assert_eq!(of, [IoClass::Flushes; 2]);
    }

    #[test]
    fn the_longest_are_kept() {
        let mut recorder = BlackoutRecorder::new(Nanos(1), 0);
        let mut now = 0;
        for length in 1..=MOST as u64 + 10 {
            now += length;
            completed(&mut recorder, IoKind::Read, 0, now);
        }
        let [found, ..] = recorder.finish([None; 3], now);
        assert_eq!((found.len(), found[0].1 - found[0].0), (MOST, 11));
    }
}
