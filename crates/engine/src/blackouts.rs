//! Times in which I/Os were due and none completed.

use iotax_model::record::Blackout;
use iotax_model::units::Nanos;

use crate::request::Direction;
use crate::window::Window;

/// As many are kept of each direction: the longest.
const MOST: usize = 500;

/// The span from the last completion, or from when the next I/O to complete was due if that is later, to that I/O's completion; on the clock of
/// the window, `u64::MAX` if it never came.
pub type Span = (u64, u64);

/// One worker's spans: those of reads, and those of writes and trims.
pub type Spans = [Vec<Span>; 2];

/// One worker's times without a completion.
#[derive(Debug)]
pub struct BlackoutRecorder {
    ways: [Way; 2],
}

/// One direction.
#[derive(Debug)]
struct Way {
    least: u64,
    /// The last completion, and the one before it.
    last: u64,
    before: u64,
    /// When the first was due of those that completed last, and of those that failed before them.
    due: u64,
    /// When the first was due of those that failed since then.
    failed: u64,
    found: Vec<Span>,
}

/// The place of a direction; `None` for flushes, which are not due.
pub(crate) const fn way(direction: Direction) -> Option<usize> {
    match direction {
        Direction::Read => Some(0),
        Direction::Write | Direction::Trim => Some(1),
        _ => None,
    }
}

impl BlackoutRecorder {
    /// Records those of at least this length, from `now` on.
    pub(crate) fn new(least: Nanos, now: u64) -> Self {
        let way =
            || Way { least: least.0, last: now, before: now, due: now, failed: u64::MAX, found: Vec::new() };
        Self { ways: [way(), way()] }
    }

    /// An I/O that was due then has completed.
    pub(crate) fn completed(&mut self, direction: Direction, due: u64, now: u64) {
        if let Some(way) = way(direction) {
            self.ways[way].completed(due, now);
        }
    }

    /// An I/O that was due then has failed: nothing completed.
    pub(crate) fn failed(&mut self, direction: Direction, due: u64) {
        if let Some(way) = way(direction) {
            self.ways[way].failed = self.ways[way].failed.min(due);
        }
    }

    /// All of them, in their order; `due` is when the first was due of those in flight, by direction.
    pub(crate) fn finish(self, due: [Option<u64>; 2], now: u64) -> Spans {
        let mut due = due.into_iter();
        self.ways.map(|way| way.finish(due.next().flatten(), now))
    }
}

impl Way {
    fn completed(&mut self, due: u64, now: u64) {
        if now == self.last {
            self.due = self.due.min(due);
        } else {
            self.settle();
            (self.before, self.last, self.due) = (self.last, now, due.min(self.failed));
            self.failed = u64::MAX;
        }
    }

    /// All that completed last is known.
    fn settle(&mut self) {
        let from = self.before.max(self.due);
        if self.last.saturating_sub(from) >= self.least {
            self.put((from, self.last));
        }
    }

    #[cold]
    fn put(&mut self, span: Span) {
        self.found.push(span);
        if self.found.len() > MOST {
            let shortest = (0..self.found.len()).min_by_key(|place| length(self.found[*place]));
            shortest.map(|place| self.found.remove(place));
        }
    }

    fn finish(mut self, due: Option<u64>, now: u64) -> Vec<Span> {
        self.settle();
        let from = due.unwrap_or(u64::MAX).min(self.failed).max(self.last);
        if now.saturating_sub(from) >= self.least {
            self.put((from, u64::MAX));
        }
        self.found
    }
}

const fn length((from, to): Span) -> u64 {
    to - from
}

/// The times of at least this length within the window in which none of the workers completed an I/O, in their order.
pub fn common(workers: &[&Spans], least: Nanos, window: Window) -> Vec<Blackout> {
    let mut all: Vec<Blackout> = Vec::new();
    for (way, writes) in [(0, false), (1, true)] {
        let spans = workers.iter().map(|spans| spans[way].clone());
        let spans = spans.reduce(|one, other| overlaps(&one, &other)).unwrap_or_default();
        all.extend(spans.into_iter().filter_map(|(from, to)| {
            let at = from.max(window.begin);
            let blackout = Blackout {
                writes,
                at_ns: at - window.begin,
                duration_ns: to.min(window.end).saturating_sub(at),
                ended: to <= window.end,
            };
            (blackout.duration_ns >= least.0).then_some(blackout)
        }));
    }
    all.sort_by_key(|blackout| blackout.at_ns);
    all
}

/// What lies in a span of each list.
fn overlaps(one: &[Span], other: &[Span]) -> Vec<Span> {
    let pairs = one.iter().flat_map(|a| other.iter().map(move |b| (a.0.max(b.0), a.1.min(b.1))));
    pairs.filter(|(from, to)| from < to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { start: 0, begin: 100, end: 1000, interval: 100 };

    #[test]
    fn what_is_long_enough_is_found_also_at_the_end() {
        let mut recorder = BlackoutRecorder::new(Nanos(50), 0);
        for now in [40, 130, 170, 300, 940] {
            recorder.completed(Direction::Read, 0, now);
        }
        let [reads, writes] = recorder.finish([Some(930), None], 1001);
        assert_eq!(reads, [(40, 130), (170, 300), (300, 940), (940, u64::MAX)]);
        assert!(writes.is_empty(), "none was due");
        let blackout = |at_ns, duration_ns, ended| Blackout { writes: false, at_ns, duration_ns, ended };
        let expected = [blackout(70, 130, true), blackout(200, 640, true), blackout(840, 60, false)];
        let found = common(&[&[reads, writes]], Nanos(50), WINDOW);
        assert_eq!(found, expected, "30 of the first are in the window");
    }

    #[test]
    fn a_time_in_which_nothing_was_due_is_none() {
        let mut recorder = BlackoutRecorder::new(Nanos(50), 0);
        // Due long after the last completion, two of them completed together.
        recorder.completed(Direction::Write, 290, 300);
        recorder.completed(Direction::Write, 220, 300);
        recorder.completed(Direction::Write, 590, 600);
        assert_eq!(recorder.finish([None, None], 1001), [vec![], vec![(220, 300)]]);
    }

    #[test]
    fn what_fails_does_not_complete() {
        let mut recorder = BlackoutRecorder::new(Nanos(50), 0);
        recorder.completed(Direction::Write, 90, 100);
        for due in [110, 120, 300] {
            recorder.failed(Direction::Write, due);
        }
        recorder.completed(Direction::Write, 390, 400);
        recorder.failed(Direction::Write, 450);
        assert_eq!(recorder.finish([None, None], 1001), [vec![], vec![(110, 400), (450, u64::MAX)]]);
    }

    #[test]
    fn of_several_workers_none_completes_anything() {
        let one = [vec![], vec![(150, 400), (500, 700)]];
        let other = [vec![], vec![(120, 200), (350, 520)]];
        let found = common(&[&one, &other], Nanos(30), WINDOW);
        let spans: Vec<(u64, u64)> = found.iter().map(|one| (one.at_ns, one.duration_ns)).collect();
        assert_eq!(spans, [(50, 50), (250, 50)], "and 20 from 400 on are too short");
        assert!(common(&[&one, &Spans::default()], Nanos(30), WINDOW).is_empty());
    }

    #[test]
    fn the_longest_are_kept() {
        let mut recorder = BlackoutRecorder::new(Nanos(1), 0);
        let mut now = 0;
        for length in 1..=MOST as u64 + 10 {
            now += length;
            recorder.completed(Direction::Read, 0, now);
        }
        let [found, _] = recorder.finish([None, None], now);
        assert_eq!((found.len(), length(found[0])), (MOST, 11));
    }
}
