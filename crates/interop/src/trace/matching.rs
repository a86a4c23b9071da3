//! Issues and completions of a block layer, put together.

use std::collections::{HashMap, VecDeque};

use iotax_model::trace::{Event, Operation};

/// An issue waits for its completion behind at most this many others.
const WINDOW: usize = 1 << 16;

/// Device, first sector and kind: a request in flight is known by them.
type Key = (u64, u64, Operation);

/// Gives events in the order of their issue, with the time of their completion where it came.
#[derive(Debug, Default)]
pub struct Matcher {
    /// Issued and not given yet, the oldest first; true if completed.
    issued: VecDeque<(Event, Key, bool)>,
    /// The number of the first of them.
    first: u64,
    /// Those in flight, by their numbers.
    in_flight: HashMap<Key, VecDeque<u64>>,
}

impl Matcher {
    /// A request was issued to a device.
    pub fn issue(&mut self, device: u64, event: Event) {
        let key = (device, event.offset, event.operation);
        self.in_flight.entry(key).or_default().push_back(self.first + self.issued.len() as u64);
        self.issued.push_back((event, key, false));
    }

    /// A request was completed.
    pub fn complete(&mut self, device: u64, offset: u64, operation: Operation, at_ns: u64) {
        let key = (device, offset, operation);
        let Some(numbers) = self.in_flight.get_mut(&key) else { return };
        let number = numbers.pop_front();
        if numbers.is_empty() {
            self.in_flight.remove(&key);
        }
        let place = number.and_then(|number| usize::try_from(number.checked_sub(self.first)?).ok());
        if let Some((event, _, is_done)) = place.and_then(|place| self.issued.get_mut(place)) {
            event.latency_ns = Some(at_ns.saturating_sub(event.at_ns));
            *is_done = true;
        }
    }

    /// The next event, if it is complete or too many wait behind it; with `all`, any that is left.
    pub fn next(&mut self, all: bool) -> Option<Event> {
        let is_due = all || self.issued.len() > WINDOW || self.issued.front().is_some_and(|(.., done)| *done);
        let (event, key, is_done) = if is_due { self.issued.pop_front() } else { None }?;
        self.first += 1;
        if !is_done && let Some(numbers) = self.in_flight.get_mut(&key) {
            // Its completion is not waited for any more.
            numbers.pop_front();
            if numbers.is_empty() {
                self.in_flight.remove(&key);
            }
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_ns: u64, offset: u64) -> Event {
        Event {
            at_ns,
            latency_ns: None,
            operation: Operation::Write,
            offset,
            length: 512,
            fua: false,
            process: None,
            queue: None,
        }
    }

    #[test]
    fn events_come_in_the_order_of_their_issue_with_their_own_completion() {
        let mut matcher = Matcher::default();
        matcher.issue(1, event(10, 0));
        matcher.issue(1, event(20, 512));
        matcher.issue(2, event(30, 0));
        matcher.complete(1, 512, Operation::Write, 25);
        assert_eq!(matcher.next(false), None, "the first is still in flight");
        matcher.complete(1, 4096, Operation::Write, 26);
        matcher.complete(1, 0, Operation::Read, 27);
        matcher.complete(1, 0, Operation::Write, 50);
        let latency = |matcher: &mut Matcher, all| matcher.next(all).map(|event| event.latency_ns);
        assert_eq!(latency(&mut matcher, false), Some(Some(40)));
        assert_eq!(latency(&mut matcher, false), Some(Some(5)));
        assert_eq!(latency(&mut matcher, false), None);
        assert_eq!(latency(&mut matcher, true), Some(None), "nobody saw it complete");
        assert!(matcher.in_flight.is_empty());
    }

    #[test]
    fn a_request_that_never_completes_holds_back_a_bounded_number() {
        let mut matcher = Matcher::default();
        for number in 0..100_000 {
            matcher.issue(1, event(number, number * 512));
            while matcher.next(false).is_some() {}
        }
        assert!(matcher.issued.len() <= WINDOW && matcher.in_flight.len() <= WINDOW);
    }
}
