//! How a stream keeps to a bitrate.

use std::time::Duration;

use crate::clock;

/// The shortest sleep: what falls due within it goes out together. iperf3's timer has a millisecond.
const TICK_NS: u64 = 250_000;
/// How far a stream that was held up may be behind and still make up for it. iperf3 makes up for all; after a link was down that
/// would be a burst of seconds.
const MOST_BEHIND_NS: u64 = 100_000_000;

/// What a stream of a bitrate may send when.
#[derive(Debug)]
pub(super) struct Pace {
    /// Nanoseconds of one block.
    gap: f64,
    /// When the next block is due.
    due: f64,
    begin: u64,
}

impl Pace {
    /// For blocks of `length` bytes from `now` on.
    pub(super) fn new(bitrate: u64, length: usize, now: u64) -> Self {
        Self { gap: length as f64 * 8e9 / bitrate.max(1) as f64, due: 0.0, begin: now }
    }

    /// How many blocks are due, at most `most`; they count as sent. 0 if the next one is due later.
    pub(super) fn take(&mut self, now: u64, most: u64) -> u64 {
        let elapsed = now.saturating_sub(self.begin) as f64;
        if elapsed < self.due {
            return 0;
        }
        self.due = self.due.max(elapsed - MOST_BEHIND_NS as f64);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and cut off"
        )]
        let due = ((elapsed - self.due) / self.gap + 1.0) as u64;
        let taken = due.min(most);
        self.due += taken as f64 * self.gap;
        taken
    }

    /// Sleeps until the next block is due, or a tick, whichever is longer, and not beyond `most`.
    pub(super) fn rest(&self, most: Duration) {
        let wait = self.due - clock::now().saturating_sub(self.begin) as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float's cast stays in range"
        )]
        let wait = (wait as u64).max(TICK_NS);
        std::thread::sleep(Duration::from_nanos(wait).min(most));
    }
}
