//! The counts and latencies of one worker's I/Os.

use iotax_model::histogram::Histogram;
use iotax_model::record::{Tallies, Tally};
use iotax_model::workload::{Kind, Test, Workload};

use crate::request::{Io, IoKind};

/// Service times, response times and bytes of one worker's I/Os, by kind of I/O. Kinds that the workload does not use take no memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latencies {
    by_direction: [Option<Counts>; 5],
    /// Nanoseconds from the first write after a flush to the end of the next flush. `None` unless the workload does plain I/O, flushes, and
    /// keeps one I/O in flight: with several, the first write would be ambiguous.
    commits: Option<Histogram>,
    /// True for a replay: the kinds of I/O are not known in advance, so only those that occurred are reported.
    by_use: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Counts {
    bytes: u64,
    service: Histogram,
    response: Option<Histogram>,
}

/// Index of file operations (create, stat, ...) in `by_direction`.
const META: usize = 4;

/// Returns the index of an I/O's kind in `by_direction`, in the order of [`Tallies::WORDS`].
#[inline]
const fn kind_index(direction: IoKind) -> usize {
    match direction {
        IoKind::Read => 0,
        IoKind::Write | IoKind::DurableWrite => 1,
        IoKind::Trim => 2,
        IoKind::Sync | IoKind::DataSync | IoKind::RangeSync(_) => 3,
    }
}

/// A group of I/Os of one kind with equal times, such as those of a batch. Adding the group once is faster than adding each I/O.
#[derive(Debug, Clone, Copy)]
pub struct Alike {
    direction: IoKind,
    service_ns: u64,
    response_ns: u64,
    ios: u64,
    bytes: u64,
}

impl Alike {
    /// Creates a group of one I/O.
    #[inline]
    pub const fn new(io: Io, service_ns: u64, response_ns: u64) -> Self {
        Self { direction: io.direction, service_ns, response_ns, ios: 1, bytes: io.length as u64 }
    }

    /// Adds another group to this one. Returns false and changes nothing if the kind or a time differs.
    #[inline]
    pub fn merge(&mut self, other: &Self) -> bool {
        let times = |alike: &Self| (alike.service_ns, alike.response_ns);
        let are_alike = self.direction == other.direction && times(self) == times(other);
        if are_alike {
            self.ios += other.ios;
            self.bytes += other.bytes;
        }
        are_alike
    }
}

impl Latencies {
    /// Allocates histograms for the kinds of I/O that a workload does.
    pub fn new(workload: &Workload) -> Self {
        let open_loop = workload.is_open_loop();
        // Workers count during the measurement, so nothing may be allocated then.
        let room = Histogram::with_all_room;
        let counts = || Counts { bytes: 0, service: room(), response: open_loop.then(room) };
        let meta = matches!(workload.kind, Kind::Files(test) if test.counts_operations());
        let by_use = workload.read_iolog.is_some();
        // A transaction's reads and writes are the database's own.
        let is_plain = !workload.kind.test().is_some_and(Test::is_of_transactions);
        let (reads, writes) = (workload.reads() && is_plain, workload.writes() && is_plain);
        let has = [reads, writes, workload.trims() || by_use, workload.flushes() || by_use, meta];
        let has_commits =
            workload.iodepth == 1 && workload.kind == Kind::Block && workload.flush_call().is_some();
        let commits = has_commits.then(room);
        Self { by_direction: has.map(|has| has.then(counts)), commits, by_use }
    }

    /// Returns a copy without counts, with histograms for the same kinds of I/O.
    #[must_use]
    pub fn empty_alike(&self) -> Self {
        let mut alike = self.clone();
        alike.clear();
        alike
    }

    /// Counts an I/O with its service and response time in nanoseconds. A closed loop has no response times: the value is ignored.
    #[inline]
    pub fn add(&mut self, io: Io, service_ns: u64, response_ns: u64) {
        self.add_at(kind_index(io.direction), 1, io.length.into(), service_ns, response_ns);
    }

    /// Counts a group of I/Os of one kind with equal times.
    #[inline]
    pub fn add_alike(&mut self, alike: &Alike) {
        let Alike { direction, service_ns, response_ns, ios, bytes } = *alike;
        self.add_at(kind_index(direction), ios, bytes, service_ns, response_ns);
    }

    /// Counts a file operation or transaction that moved `bytes` of data and took `service_ns`, or `response_ns` since its scheduled start.
    #[inline]
    pub fn add_meta(&mut self, bytes: u64, service_ns: u64, response_ns: u64) {
        self.add_at(META, 1, bytes, service_ns, response_ns);
    }

    /// Returns whether the times from a write to the end of the next flush are recorded.
    pub const fn has_commits(&self) -> bool {
        self.commits.is_some()
    }

    /// Records the nanoseconds from the first write after a flush to the end of the next flush.
    #[inline]
    pub fn add_commit(&mut self, ns: u64) {
        if let Some(commits) = &mut self.commits {
            commits.add(ns);
        }
    }

    #[inline]
    fn add_at(&mut self, index: usize, ios: u64, bytes: u64, service_ns: u64, response_ns: u64) {
        if let Some(counts) = &mut self.by_direction[index] {
            counts.bytes += bytes;
            counts.service.add_many(service_ns, ios);
            if let Some(response) = &mut counts.response {
                response.add_many(response_ns, ios);
            }
        }
    }

    /// Returns the number of reads, writes, trims and file operations; flushes do not count.
    pub fn ios(&self) -> u64 {
        let all = &self.by_direction;
        all[..3].iter().chain(&all[META..]).flatten().map(|counts| counts.service.count()).sum()
    }

    /// Sets all counts to zero without freeing memory.
    pub(crate) fn clear(&mut self) {
        self.commits.iter_mut().for_each(Histogram::clear);
        for counts in self.by_direction.iter_mut().flatten() {
            counts.bytes = 0;
            counts.service.clear();
            counts.response.iter_mut().for_each(Histogram::clear);
        }
    }

    /// Adds all counts to `tallies`.
    pub fn add_to(&self, tallies: &mut Tallies) {
        if let Some(commits) = &self.commits {
            tallies.commit.get_or_insert_with(Histogram::new).merge(commits);
        }
        for (word, counts) in Tallies::WORDS.into_iter().zip(&self.by_direction) {
            let (Some(tally), Some(counts)) = (tallies.of_mut(word), counts) else { continue };
            if self.by_use && counts.service.count() == 0 {
                continue;
            }
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
