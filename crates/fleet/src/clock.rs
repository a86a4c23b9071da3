//! Estimates the offset of a member's clock from the coordinator's, from the times of messages back and forth.
//!
//! The method is F. Cristian's (Probabilistic clock synchronization, Distributed Computing 3, 1989). The member reads its clock at some time
//! within the round trip. The estimate assumes the middle, so its error is at most half of the round trip. Of the recent round trips, the one
//! with the smallest error bound is used. The bound grows with the age of the round trip, because clocks drift by up to [`STRAY_PPM`], as NTP
//! assumes (PHI in RFC 5905).

use std::collections::VecDeque;

/// Number of recent round trips kept per member.
const KEPT: usize = 16;
/// Rate in parts per million by which two clocks may drift apart.
const STRAY_PPM: u64 = 15;

/// A round trip of a message between coordinator and member.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "the unit belongs to the name")]
struct Trip {
    /// Member's clock minus coordinator's clock, in nanoseconds.
    offset_ns: i64,
    /// Network time of both directions together in nanoseconds, without the member's processing time.
    away_ns: u64,
    /// Time at which the answer arrived, in nanoseconds of the coordinator's clock.
    at_ns: u64,
}

/// The estimated offset between a member's clock and the coordinator's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// Member's clock minus coordinator's clock, in nanoseconds.
    pub offset_ns: i64,
    /// Maximum error of `offset_ns` in nanoseconds, in either direction.
    pub uncertainty_ns: u64,
}

/// The recent round trips of one member.
#[derive(Debug, Default)]
pub(crate) struct Trips(VecDeque<Trip>);

impl Trips {
    /// Adds a round trip. The coordinator sent the question at `asked_ns` and received the answer at `at_ns`, by the coordinator's clock.
    /// The member read the question at `received_member_ns` and answered at `sent_member_ns`, by the member's clock.
    pub(crate) fn add(&mut self, asked_ns: u64, at_ns: u64, received_member_ns: u64, sent_member_ns: u64) {
        let away = at_ns.saturating_sub(asked_ns);
        let there = sent_member_ns.saturating_sub(received_member_ns);
        let away_ns = away.saturating_sub(there);
        let middle = |a: u64, b: u64| i128::from(a) + i128::from(b);
        let offset = (middle(received_member_ns, sent_member_ns) - middle(asked_ns, at_ns)) / 2;
        let Ok(offset_ns) = i64::try_from(offset) else { return };
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Trip { offset_ns, away_ns, at_ns });
    }

    /// Returns the offset from the round trip whose error bound is the smallest at `now_ns`; `None` without any round trip.
    pub(crate) fn offset(&self, now_ns: u64) -> Option<ClockOffset> {
        let bound =
            |trip: &Trip| trip.away_ns / 2 + now_ns.saturating_sub(trip.at_ns) / 1_000_000 * STRAY_PPM;
        let best = self.0.iter().min_by_key(|trip| bound(trip))?;
        Some(ClockOffset { offset_ns: best.offset_ns, uncertainty_ns: bound(best) })
    }

    /// Returns the network time of the longest recent round trip in nanoseconds; 0 if there is none.
    pub(crate) fn longest_ns(&self) -> u64 {
        self.0.iter().map(|trip| trip.away_ns).max().unwrap_or(0)
    }
}

impl ClockOffset {
    /// Converts a time in nanoseconds of the coordinator's clock to the member's; 0 if the result would be negative.
    #[must_use]
    pub fn to_member(self, at_ns: u64) -> u64 {
        u64::try_from(i128::from(at_ns) + i128::from(self.offset_ns)).unwrap_or(0)
    }

    /// Converts a time in nanoseconds of the member's clock to the coordinator's. The result is negative before the zero of the
    /// coordinator's clock.
    #[must_use]
    pub fn to_coordinator(self, at_member_ns: u64) -> i128 {
        i128::from(at_member_ns) - i128::from(self.offset_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_truth_lies_within_the_bound(
            offset in -1_000_000_000_i64..1_000_000_000,
            trips in prop::collection::vec((0_u64..5_000_000, 0_u64..5_000_000, 0_u64..50_000), 1..40),
        ) {
            let mut all = Trips::default();
            let mut now = 10_000_000_000_u64;
            for (there, back, busy) in trips {
                let asked = now;
                let received = (asked + there).checked_add_signed(offset).expect("positive");
                now = asked + there + busy + back;
                all.add(asked, now, received, received + busy);
                now += 1_000_000_000;
            }
            let found = all.offset(now).expect("there are trips");
            prop_assert!(found.offset_ns.abs_diff(offset) <= found.uncertainty_ns + 1, "{found:?}, {offset}");
        }
    }
}
