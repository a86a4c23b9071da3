//! Matches issue and completion events of block requests, to get latencies.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use iotax_model::trace::{TracedIo, TracedOperation};

/// Maximum number of I/Os held back while the oldest one waits for its completion.
const WINDOW: usize = 1 << 16;

/// Key of a request in flight: device, offset and operation.
type Key = (u64, u64, TracedOperation);

/// Matcher of completions with issues. Returns I/Os in order of issue, with their latency if the completion was seen.
#[derive(Debug, Default)]
pub struct Matcher {
    /// Issued I/Os that were not returned yet, oldest first.
    issued: VecDeque<Issued>,
    /// Number of the first I/O in `issued`; I/Os are numbered in order of issue.
    first: u64,
    /// Numbers of the oldest and the newest request in flight with the same device, offset and operation.
    in_flight: HashMap<Key, (u64, u64)>,
}

/// An issued request.
#[derive(Debug)]
struct Issued {
    event: TracedIo,
    device: u64,
    /// Number of the next request in flight with the same device, offset and operation.
    next_alike: Option<u64>,
    is_done: bool,
}

impl Issued {
    const fn key(&self) -> Key {
        (self.device, self.event.offset, self.event.operation)
    }
}

impl Matcher {
    /// Records that a request was issued to a device.
    pub fn issue(&mut self, device: u64, event: TracedIo) {
        let number = self.first + self.issued.len() as u64;
        let issued = Issued { event, device, next_alike: None, is_done: false };
        let newest = match self.in_flight.entry(issued.key()) {
            Entry::Occupied(mut known) => Some(std::mem::replace(&mut known.get_mut().1, number)),
            Entry::Vacant(vacant) => {
                vacant.insert((number, number));
                None
            }
        };
        if let Some(newest) = newest.and_then(|newest| self.at(newest)) {
            newest.next_alike = Some(number);
        }
        self.issued.push_back(issued);
    }

    /// Records that a request was completed. Ignored if its issue is unknown.
    pub fn complete(&mut self, device: u64, offset: u64, operation: TracedOperation, at_ns: u64) {
        let Some(number) = self.take_oldest((device, offset, operation)) else { return };
        if let Some(issued) = self.at(number) {
            issued.event.latency_ns = Some(at_ns.saturating_sub(issued.event.at_ns));
            issued.is_done = true;
        }
    }

    /// Returns the next I/O in order of issue. `None` if no I/O is held, or if the next one is incomplete and at most 65,536 I/Os are held.
    /// With `all`, also returns incomplete I/Os.
    pub fn next(&mut self, all: bool) -> Option<TracedIo> {
        let front = self.issued.front()?;
        let (key, is_done) = (front.key(), front.is_done);
        let is_due = all || is_done || self.issued.len() > WINDOW;
        if !is_due {
            return None;
        }
        if !is_done {
            // Stop waiting for the completion.
            self.take_oldest(key);
        }
        self.first += 1;
        self.issued.pop_front().map(|issued| issued.event)
    }

    /// Removes the oldest request in flight with this key. Returns its number; `None` if there is none.
    fn take_oldest(&mut self, key: Key) -> Option<u64> {
        let Entry::Occupied(mut known) = self.in_flight.entry(key) else { return None };
        let oldest = known.get().0;
        let index = oldest.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        match index.and_then(|index| self.issued.get(index)).and_then(|issued| issued.next_alike) {
            Some(next) => known.get_mut().0 = next,
            None => drop(known.remove()),
        }
        Some(oldest)
    }

    fn at(&mut self, number: u64) -> Option<&mut Issued> {
        self.issued.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_ns: u64, offset: u64) -> TracedIo {
        TracedIo {
            at_ns,
            latency_ns: None,
            operation: TracedOperation::Write,
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
        matcher.complete(1, 512, TracedOperation::Write, 25);
        assert_eq!(matcher.next(false), None, "the first is still in flight");
        matcher.complete(1, 4096, TracedOperation::Write, 26);
        matcher.complete(1, 0, TracedOperation::Read, 27);
        matcher.complete(1, 0, TracedOperation::Write, 50);
        let latency = |matcher: &mut Matcher, all| matcher.next(all).map(|event| event.latency_ns);
        assert_eq!(latency(&mut matcher, false), Some(Some(40)));
        assert_eq!(latency(&mut matcher, false), Some(Some(5)));
        assert_eq!(latency(&mut matcher, false), None);
        assert_eq!(latency(&mut matcher, true), Some(None), "nobody saw it complete");
        assert!(matcher.in_flight.is_empty());
    }

    #[test]
    fn requests_for_one_place_complete_in_the_order_of_their_issue() {
        let mut matcher = Matcher::default();
        for at in [10, 20, 30] {
            matcher.issue(1, event(at, 0));
        }
        for at in [15, 26, 37, 99] {
            matcher.complete(1, 0, TracedOperation::Write, at);
        }
        let latencies: Vec<_> =
            std::iter::from_fn(|| matcher.next(false)).map(|event| event.latency_ns).collect();
        assert_eq!(latencies, [Some(5), Some(6), Some(7)]);
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
