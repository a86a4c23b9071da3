//! Finds I/Os that continue an earlier one.

use std::collections::VecDeque;

/// Number of ends that are remembered.
const STREAMS: usize = 64;

/// The ends of the last 64 streams of I/Os.
#[derive(Debug, Default)]
pub struct SequentialStreams(VecDeque<u64>);

impl SequentialStreams {
    /// Adds a read or write, by its offset and length in bytes. Returns whether it begins where one of the last 64 streams ended.
    pub fn add(&mut self, offset: u64, length: u64) -> bool {
        let known = self.0.iter().position(|end| *end == offset);
        match known {
            Some(index) => drop(self.0.remove(index)),
            None if self.0.len() == STREAMS => drop(self.0.pop_front()),
            None => {}
        }
        self.0.push_back(offset.saturating_add(length));
        known.is_some()
    }
}
