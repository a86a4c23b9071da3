//! The I/Os that a replayed I/O has to wait for: those that had completed when it started in the trace. hfplayer infers dependencies in this
//! way (Haghdoost et al., "On the Accuracy and Scalability of Intensive I/O Workload Replay", FAST '17).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

/// Maximum number of I/Os tracked at a time; later I/Os do not wait for untracked ones.
const MOST: usize = 1 << 16;

/// Dependencies of the next I/O: the I/Os to wait for, and the pause to keep after the last of these has completed.
#[derive(Debug)]
pub(super) struct Dependencies {
    /// Started I/Os that no later I/O depends on yet: completion time in the trace and number, the earliest completion first.
    ahead: BinaryHeap<Reverse<(u64, u64)>>,
    /// Completion time in the replay of each I/O in `ahead`, in nanoseconds of the engine's clock; `u64::MAX` while the I/O is in flight.
    done: HashMap<u64, u64>,
    /// Numbers of the I/Os in flight that the next I/O waits for.
    waited_for: HashSet<u64>,
    /// Latest completion among all I/Os that the next I/O depends on, in nanoseconds of trace time. `replayed` is the latest in the replay.
    recorded: u64,
    replayed: u64,
}

impl Dependencies {
    /// Creates the dependencies of a replay that starts at `start` nanoseconds of the engine's clock.
    pub(super) fn new(start: u64) -> Self {
        Self {
            ahead: BinaryHeap::new(),
            done: HashMap::new(),
            waited_for: HashSet::new(),
            recorded: 0,
            replayed: start,
        }
    }

    /// Records that I/O `number` has started. `completes` is its completion time in the trace; an I/O without one is not tracked.
    pub(super) fn begun(&mut self, number: u64, completes: Option<u64>) {
        if let Some(completes) = completes.filter(|_| self.ahead.len() < MOST) {
            self.ahead.push(Reverse((completes, number)));
            // Until it completes.
            self.done.insert(number, u64::MAX);
        }
    }

    /// Records that I/O `number` completed at `now` nanoseconds of the engine's clock.
    pub(super) fn completed(&mut self, number: u64, now: u64) {
        if self.waited_for.remove(&number) {
            self.replayed = self.replayed.max(now);
        } else if let Some(done) = self.done.get_mut(&number) {
            *done = now;
        }
    }

    /// Collects the dependencies of the next I/O, which started at `at` in the trace: all I/Os that had completed in the trace by then.
    pub(super) fn follow(&mut self, at: u64) {
        while let Some(Reverse((completes, number))) =
            self.ahead.peek().copied().filter(|next| next.0.0 <= at)
        {
            self.ahead.pop();
            self.recorded = self.recorded.max(completes);
            match self.done.remove(&number) {
                Some(done) if done < u64::MAX => self.replayed = self.replayed.max(done),
                _ => drop(self.waited_for.insert(number)),
            }
        }
    }

    /// Returns the time at which the next I/O, which started at `at` in the trace, is due, in nanoseconds of the engine's clock; `u64::MAX`
    /// while an I/O that it depends on is in flight.
    pub(super) fn due(&self, at: u64) -> u64 {
        if self.waited_for.is_empty() {
            self.replayed.saturating_add(at.saturating_sub(self.recorded))
        } else {
            u64::MAX
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_io_waits_for_those_that_had_completed_and_keeps_the_pause() {
        let mut one = Dependencies::new(1000);
        one.follow(0);
        assert_eq!(one.due(0), 1000);
        one.begun(0, Some(50));
        // The second I/O started in the trace while the first was in flight.
        one.follow(20);
        assert_eq!(one.due(20), 1020);
        one.begun(1, Some(500));
        // The third I/O started 10 after the first had completed, and before the second had.
        one.follow(60);
        assert_eq!(one.due(60), u64::MAX);
        one.completed(1, 1100);
        assert_eq!(one.due(60), u64::MAX);
        one.completed(0, 1300);
        assert_eq!(one.due(60), 1310);
        one.begun(2, None);
        // Both are done; the last completion of the trace was that of the second, and of the replay that of the first.
        one.follow(600);
        assert_eq!(one.due(600), 1400);
        one.completed(2, 5000);
        assert_eq!(one.due(600), 1400, "nobody knows when it completed in the trace");
        assert!(one.done.is_empty() && one.ahead.is_empty() && one.waited_for.is_empty());
    }

    #[test]
    fn a_trace_whose_ios_never_complete_is_followed_in_bounded_memory() {
        let mut one = Dependencies::new(0);
        for number in 0..100_000 {
            one.follow(number);
            one.begun(number, Some(u64::MAX - 1));
            one.completed(number, number);
        }
        assert!(one.ahead.len() <= MOST && one.done.len() <= MOST);
    }
}
