//! What a worker counts of its I/Os.

use iotax_model::histogram::Histogram;
use iotax_model::record::{Tallies, Tally};
use iotax_model::workload::{Test, Workload};

use crate::request::{Direction, Io};

/// Service and response times and bytes of one worker's I/Os, by direction. What the workload has not takes no memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Latencies([Option<Counts>; 5]);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Counts {
    bytes: u64,
    service: Histogram,
    response: Option<Histogram>,
}

/// The place of operations on files.
const META: usize = 4;

/// The place of a direction, in the order of [`Tallies::WORDS`].
#[inline]
const fn place(direction: Direction) -> usize {
    match direction {
        Direction::Read => 0,
        Direction::Write => 1,
        Direction::Trim => 2,
        Direction::Sync | Direction::DataSync => 3,
    }
}

impl Latencies {
    /// Room for what a workload does.
    pub(crate) fn new(workload: &Workload) -> Self {
        let open_loop = workload.is_open_loop();
        // Workers count while they are measured: nothing may be allocated then.
        let room = Histogram::with_all_room;
        let counts = || Counts { bytes: 0, service: room(), response: open_loop.then(room) };
        let meta = workload.test.is_some_and(Test::is_on_files);
        let has = [workload.reads(), workload.writes(), workload.trims(), workload.flushes(), meta];
        Self(has.map(|has| has.then(counts)))
    }

    /// Room for the same.
    pub(crate) fn empty_alike(&self) -> Self {
        let mut alike = self.clone();
        alike.clear();
        alike
    }

    /// Counts an I/O. The response time is of no account in a closed loop.
    #[inline]
    pub(crate) fn add(&mut self, io: Io, service_ns: u64, response_ns: u64) {
        self.add_at(place(io.direction), io.length.into(), service_ns, response_ns);
    }

    /// Counts an operation on a file as such, with the bytes that went with it.
    #[inline]
    pub(crate) fn add_meta(&mut self, bytes: u64, service_ns: u64) {
        self.add_at(META, bytes, service_ns, service_ns);
    }

    #[inline]
    fn add_at(&mut self, place: usize, bytes: u64, service_ns: u64, response_ns: u64) {
        if let Some(counts) = &mut self.0[place] {
            counts.bytes += bytes;
            counts.service.add(service_ns);
            if let Some(response) = &mut counts.response {
                response.add(response_ns);
            }
        }
    }

    /// How many reads, writes, trims and operations on files were counted.
    pub(crate) fn ios(&self) -> u64 {
        self.0[..3].iter().chain(&self.0[META..]).flatten().map(|counts| counts.service.count()).sum()
    }

    /// Empties it, keeping its memory.
    pub(crate) fn clear(&mut self) {
        for counts in self.0.iter_mut().flatten() {
            counts.bytes = 0;
            counts.service.clear();
            counts.response.iter_mut().for_each(Histogram::clear);
        }
    }

    /// Adds all to tallies.
    pub(crate) fn add_to(&self, tallies: &mut Tallies) {
        for (word, counts) in Tallies::WORDS.into_iter().zip(&self.0) {
            let (Some(tally), Some(counts)) = (tallies.of_mut(word), counts) else { continue };
            let tally = tally.get_or_insert_with(|| Tally {
                response: counts.response.as_ref().map(|_| Histogram::new()),
                ..Tally::default()
            });
            tally.ios += counts.service.count();
            tally.bytes += counts.bytes;
            tally.latency.merge(&counts.service);
            if let (Some(all), Some(response)) = (&mut tally.response, &counts.response) {
                all.merge(response);
            }
        }
    }
}
