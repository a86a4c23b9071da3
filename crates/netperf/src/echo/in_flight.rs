//! The messages in flight, to which replies are matched.

use iotax_model::record::Probes;

/// A message that was sent; times are nanoseconds of the engine's clock.
#[derive(Debug, Clone, Copy)]
struct SentMessage {
    sent_at: u64,
    /// Scheduled send time; equal to `sent_at` in a closed loop.
    intended_at: u64,
    is_back: bool,
}

/// The times of a completed round trip in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RoundTrip {
    /// Nanoseconds from sending the message to its reply.
    pub(super) service: u64,
    /// Nanoseconds from the scheduled send time of the message to its reply.
    pub(super) response: u64,
    /// True if the message was due within the window, so that it counts.
    pub(super) counts: bool,
}

/// The most recent messages, in a ring of slots indexed by message number. A message that is overwritten before its reply arrives counts as lost.
#[derive(Debug)]
pub(super) struct InFlightMessages {
    slots: Box<[SentMessage]>,
    /// Number of the next message to send.
    next: u64,
    /// Message number below which every message has been answered or given up as lost.
    oldest: u64,
    /// Number of the first message that counts; `None` in the warm-up.
    first: Option<u64>,
    /// Highest message number that has been answered, plus one.
    newest: u64,
    /// Longest round trip so far in nanoseconds.
    longest: u64,
    /// Round-trip time in nanoseconds above which a message counts as lost even if its reply arrives.
    deadline: u64,
    late: u64,
    probes: Probes,
}

impl InFlightMessages {
    /// Allocates slots for at least `room` messages in flight.
    pub(super) fn new(room: u64, deadline: u64) -> Self {
        let room = usize::try_from(room.next_power_of_two()).unwrap_or(usize::MAX);
        let none = SentMessage { sent_at: 0, intended_at: 0, is_back: true };
        Self {
            slots: vec![none; room].into(),
            next: 0,
            oldest: 0,
            first: None,
            newest: 0,
            longest: 0,
            deadline,
            late: 0,
            probes: Probes::default(),
        }
    }

    fn room(&self) -> u64 {
        self.slots.len() as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "the room is a power of two that fits")]
    fn slot(&self, number: u64) -> usize {
        (number & (self.room() - 1)) as usize
    }

    /// Returns the number of the next message to send.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Records that the next message was sent. After the first message that counts, all later ones must count.
    pub(super) fn record_sent(&mut self, sent_at: u64, intended_at: u64, counts: bool) {
        let slot = self.slot(self.next);
        self.slots[slot] = SentMessage { sent_at, intended_at, is_back: false };
        if counts {
            self.first.get_or_insert(self.next);
            self.probes.sent += 1;
        }
        self.next += 1;
        self.oldest = self.oldest.max(self.next.saturating_sub(self.room()));
    }

    /// Records the reply to message `number`, which arrived at `now` nanoseconds of the engine's clock. Returns the round trip; `None` for
    /// a repeated reply, a reply after the deadline, or a number that was not sent or is no longer remembered.
    pub(super) fn record_reply(&mut self, number: u64, now: u64) -> Option<RoundTrip> {
        if number >= self.next || number + self.room() < self.next {
            return None;
        }
        let counts = self.first.is_some_and(|first| number >= first);
        let slot = self.slot(number);
        let message = &mut self.slots[slot];
        let trip = RoundTrip {
            service: now.saturating_sub(message.sent_at),
            response: now.saturating_sub(message.intended_at),
            counts,
        };
        let again = std::mem::replace(&mut message.is_back, true);
        let is_late = !again && trip.service > self.deadline;
        let is_passed = number + 1 < self.newest;
        self.newest = self.newest.max(number + 1);
        if !again {
            self.longest = self.longest.max(trip.service);
        }
        match (counts, again, is_late) {
            (false, ..) => {}
            (true, true, _) => self.probes.duplicates += 1,
            (true, false, true) => self.late += 1,
            (true, false, false) => {
                self.probes.received += 1;
                self.probes.out_of_order += u64::from(is_passed);
            }
        }
        (!again && !is_late).then_some(trip)
    }

    /// Returns the time at which the latest message was sent, in nanoseconds of the engine's clock; `None` if it is answered or nothing was
    /// sent.
    pub(super) fn awaits_since(&self) -> Option<u64> {
        let last = self.slots[self.slot(self.next.checked_sub(1)?)];
        (!last.is_back).then_some(last.sent_at)
    }

    /// Returns the send time, in nanoseconds of the engine's clock, of the oldest message that is neither answered nor past the deadline;
    /// `None` if there is none.
    pub(super) fn oldest_since(&mut self, now: u64) -> Option<u64> {
        while self.oldest < self.next {
            let message = self.slots[self.slot(self.oldest)];
            if !message.is_back && now.saturating_sub(message.sent_at) <= self.deadline {
                return Some(message.sent_at);
            }
            self.oldest += 1;
        }
        None
    }

    /// Returns the longest round trip so far, in nanoseconds.
    pub(super) const fn longest(&self) -> u64 {
        self.longest
    }

    /// Removes from the counts all unanswered messages that were sent less than `patience` nanoseconds before `now`: their replies may
    /// still arrive.
    pub(super) fn forget_recent(&mut self, now: u64, patience: u64) {
        let Some(first) = self.first else { return };
        let recent = (self.oldest.max(first)..self.next).filter(|number| {
            let message = self.slots[self.slot(*number)];
            !message.is_back && now.saturating_sub(message.sent_at) < patience
        });
        self.probes.sent -= recent.count() as u64;
    }

    /// Returns the counts of the messages in the window.
    pub(super) const fn probes(&self) -> Probes {
        self.probes
    }

    /// Returns the number of messages in the window whose reply came after the deadline.
    pub(super) const fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DEADLINE: u64 = 1000;

    fn probes(sent: u64, received: u64, duplicates: u64, out_of_order: u64) -> Probes {
        Probes { sent, received, duplicates, out_of_order }
    }

    #[test]
    fn what_comes_back_is_matched_by_its_number() {
        let mut in_flight = InFlightMessages::new(8, DEADLINE);
        in_flight.record_sent(100, 100, false);
        for n in 1..6 {
            in_flight.record_sent(100 * n, 100 * n - 30, true);
        }
        let trip = |service, response, counts| Some(RoundTrip { service, response, counts });
        assert_eq!(in_flight.record_reply(0, 150), trip(50, 50, false), "it went out in the warm-up");
        assert_eq!(in_flight.record_reply(1, 150), trip(50, 80, true));
        assert_eq!(in_flight.record_reply(3, 390), trip(90, 120, true));
        assert_eq!(in_flight.record_reply(2, 400), trip(200, 230, true), "out of order, and back");
        assert_eq!(in_flight.record_reply(2, 410), None, "a second time");
        assert_eq!(
            (in_flight.record_reply(6, 420), in_flight.record_reply(u64::MAX, 420)),
            (None, None),
            "never sent"
        );
        assert_eq!(in_flight.record_reply(4, 400 + DEADLINE + 1), None, "late");
        assert_eq!((in_flight.probes(), in_flight.late()), (probes(5, 3, 1, 1), 1));
        assert_eq!((in_flight.awaits_since(), in_flight.oldest_since(1450)), (Some(500), Some(500)));
        assert_eq!(in_flight.oldest_since(500 + DEADLINE + 1), None, "given up");
    }

    #[test]
    fn what_went_out_just_before_the_end_is_not_lost() {
        let mut in_flight = InFlightMessages::new(8, DEADLINE);
        in_flight.record_sent(50, 50, false);
        (1..6).for_each(|n| in_flight.record_sent(100 * n, 100 * n, true));
        assert!(in_flight.record_reply(5, 510).is_some());
        in_flight.forget_recent(550, 200);
        assert_eq!(in_flight.probes(), probes(4, 1, 0, 0), "of the five, that of 400 may come");
    }

    #[test]
    fn a_message_whose_place_is_taken_is_lost() {
        let mut in_flight = InFlightMessages::new(5, DEADLINE);
        (0..20).for_each(|n| in_flight.record_sent(n + 1, n + 1, true));
        assert_eq!(in_flight.oldest_since(20), Some(13), "room for eight");
        assert_eq!(in_flight.record_reply(11, 30), None);
        assert!(in_flight.record_reply(12, 30).is_some());
        assert_eq!(in_flight.probes(), probes(20, 1, 0, 0));
    }

    proptest! {
        #[test]
        fn counts_are_those_of_a_list_of_all(
            warm in 0_u64..5,
            replies in prop::collection::vec(0_u64..40, 0..80),
        ) {
            let mut in_flight = InFlightMessages::new(64, DEADLINE);
            (0..30).for_each(|n| in_flight.record_sent(n + 1, n + 1, n >= warm));
            let mut trips = 0;
            for number in &replies {
                trips += u64::from(in_flight.record_reply(*number, 100).is_some_and(|trip| trip.counts));
            }
            let counted: Vec<(usize, u64)> =
                replies.iter().copied().enumerate().filter(|(_, n)| (warm..30).contains(n)).collect();
            let is_first = |at: usize, n: u64| !replies[..at].contains(&n);
            let received = counted.iter().filter(|(at, n)| is_first(*at, *n)).count() as u64;
            let passed = counted
                .iter()
                .filter(|(at, n)| is_first(*at, *n) && replies[..*at].iter().any(|m| m > n && *m < 30))
                .count() as u64;
            prop_assert_eq!(in_flight.probes(), probes(30 - warm, received, counted.len() as u64 - received, passed));
            prop_assert_eq!(trips, received);
        }
    }
}
