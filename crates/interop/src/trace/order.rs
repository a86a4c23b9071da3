//! Sorts events by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use iotax_model::trace::{Events, TracedIo};

/// Number of events held back for sorting: traces that are written at completion are slightly out of order.
const WINDOW: usize = 1 << 16;

/// An event with its position in the trace, ordered by time, then by position.
struct Held(TracedIo, u64);

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Held {
    fn key(&self) -> (u64, u64) {
        (self.0.at_ns, self.1)
    }
}

/// Sorts events that are fewer than 65,536 positions out of order; fails at an event that is farther out.
pub fn ordered(events: impl Iterator<Item = Result<TracedIo, String>> + Send + 'static) -> Events {
    let mut events = events.fuse();
    let (mut heap, mut number, mut last, mut broken) = (BinaryHeap::new(), 0_u64, 0, None);
    Box::new(std::iter::from_fn(move || {
        while heap.len() < WINDOW && broken.is_none() {
            match events.next() {
                Some(Ok(event)) => {
                    number += 1;
                    if event.at_ns < last {
                        let back = (last - event.at_ns) as f64 / 1e9;
                        broken = Some(format!(
                            "I/O {number}: its time is {back:.3} s before that of an I/O {WINDOW} places earlier; sort the trace by time"
                        ));
                        break;
                    }
                    heap.push(Reverse(Held(event, number)));
                }
                Some(Err(reason)) => broken = Some(reason),
                None => break,
            }
        }
        match heap.pop() {
            Some(Reverse(Held(event, _))) => {
                last = event.at_ns;
                Some(Ok(event))
            }
            // Report the error once.
            None => broken.replace(String::new()).filter(|reason| !reason.is_empty()).map(Err),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::trace::TracedOperation;

    fn event(at_ns: u64) -> TracedIo {
        TracedIo {
            at_ns,
            latency_ns: None,
            operation: TracedOperation::Read,
            offset: 0,
            length: 512,
            fua: false,
            process: None,
            queue: None,
        }
    }

    #[test]
    fn a_little_disorder_is_put_right_and_more_is_refused() {
        let times = |times: Vec<u64>| ordered(times.into_iter().map(|at| Ok(event(at))));
        let sorted: Vec<u64> =
            times(vec![3, 1, 2, 2, 0]).map(|event| event.expect("in order").at_ns).collect();
        assert_eq!(sorted, [0, 1, 2, 2, 3]);
        let mut far: Vec<u64> = (1..=70_000).map(|at| at * 1_000_000).collect();
        far.push(0);
        let refused = times(far).find_map(Result::err).expect("refused");
        assert!(refused.starts_with("I/O 70001: its time is "), "{refused}");
    }

    #[test]
    fn what_came_before_an_error_comes_first_and_the_error_once() {
        let all: Vec<_> =
            ordered([Ok(event(2)), Ok(event(1)), Err("line 3: cut".to_owned())].into_iter()).collect();
        assert_eq!(all, [Ok(event(1)), Ok(event(2)), Err("line 3: cut".into())]);
    }
}
