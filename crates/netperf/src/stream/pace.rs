//! Paces a stream to its target bit rate.

use std::time::Duration;

use iotax_load::clock;
use iotax_model::threads;

/// Shortest sleep in nanoseconds. Blocks that become due within it are sent together. iperf3's timer has a resolution of a millisecond.
const TICK_NS: u64 = 250_000;
/// Maximum delay in nanoseconds that a stream makes up for. iperf3 has no limit, so it sends a burst of seconds after a link failure.
const MOST_BEHIND_NS: u64 = 100_000_000;

/// The schedule of a stream with a target bit rate.
#[derive(Debug)]
pub(super) struct Pace {
    /// Nanoseconds between two blocks.
    gap: f64,
    /// Due time of the next block, in nanoseconds from `begin`.
    due: f64,
    begin: u64,
}

impl Pace {
    /// Creates the schedule for blocks of `length` bytes at `bitrate` bits per second; the first one is due at `now` nanoseconds of the
    /// engine's clock.
    pub(super) fn new(bitrate: u64, length: usize, now: u64) -> Self {
        Self { gap: gap(bitrate, length), due: 0.0, begin: now }
    }

    /// Returns the number of blocks that are due, at most `most`, and counts them as sent.
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

    /// Returns the nanoseconds from one block of `length` bytes to the next at `bitrate` bits per second.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float's cast stays in range"
    )]
    pub(super) fn gap_ns(bitrate: u64, length: usize) -> u64 {
        gap(bitrate, length) as u64
    }

    /// Sleeps until the next block is due, for at least 250 us unless `most` is shorter, and at most `most`.
    pub(super) fn rest(&self, most: Duration) {
        let wait = self.due - clock::now().saturating_sub(self.begin) as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float's cast stays in range"
        )]
        let wait = (wait as u64).max(TICK_NS);
        threads::sleep(Duration::from_nanos(wait).min(most));
    }
}

fn gap(bitrate: u64, length: usize) -> f64 {
    length as f64 * 8e9 / bitrate.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_never_more_than_what_was_due_nor_less_in_the_long_run() {
        // A block each 100 us, asked for at uneven times.
        let mut pace = Pace::new(80_000_000, 1_000, 5_000);
        let (mut sent, mut now) = (0, 5_000);
        for step in 0..2_000_u64 {
            now += 1_000 + step * 7_919 % 400_000;
            sent += pace.take(now, 64);
            assert!(sent <= (now - 5_000) / 100_000 + 1, "{sent} by {now}");
        }
        assert_eq!(sent, (now - 5_000) / 100_000 + 1);
        assert_eq!(pace.take(now, 64), 0, "none is due before its time");
    }

    #[test]
    fn what_a_long_stall_held_up_is_not_sent_at_once() {
        let mut pace = Pace::new(80_000_000, 1_000, 0);
        assert_eq!(pace.take(0, 1), 1);
        let mut burst = 0;
        while let taken @ 1.. = pace.take(5_000_000_000, 64) {
            burst += taken;
        }
        assert_eq!(burst, MOST_BEHIND_NS / 100_000 + 1);
    }
}
