//! Puts the workers' intervals together into samples and totals.

use std::collections::VecDeque;

use iotax_model::histogram::Histogram;
use iotax_model::record::{Sample, Tally};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::Rw;

use crate::window::Window;
use crate::worker::Latencies;

/// How long after its end an interval waits for workers that have not spoken: a worker that waits in one system call
/// for one I/O cannot.
pub(crate) const GRACE: Nanos = Nanos::from_millis(500);

/// Reads and writes of some span.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tallies {
    pub(crate) read: Option<Tally>,
    pub(crate) write: Option<Tally>,
}

impl Tallies {
    fn new(rw: Rw) -> Self {
        Self { read: rw.reads().then(Tally::default), write: rw.writes().then(Tally::default) }
    }

    fn add(&mut self, latencies: &Latencies, bs: Bytes) {
        let pairs = [(&mut self.read, &latencies.read), (&mut self.write, &latencies.write)];
        for (tally, histogram) in pairs {
            if let (Some(tally), Some(histogram)) = (tally, histogram) {
                add_histogram(tally, histogram, bs);
            }
        }
    }

    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in [(&mut self.read, &other.read), (&mut self.write, &other.write)] {
            if let (Some(mine), Some(theirs)) = (mine, theirs) {
                mine.merge(theirs);
            }
        }
    }
}

fn add_histogram(tally: &mut Tally, histogram: &Histogram, bs: Bytes) {
    tally.ios += histogram.count();
    tally.bytes += histogram.count() * bs.0;
    tally.latency.merge(histogram);
}

/// Collects the intervals of all workers and gives samples in order, each once, without gaps. What a worker reports after its
/// interval was given counts in the next one, so that the samples add up to the totals always.
#[derive(Debug)]
pub(crate) struct Collector {
    window: Window,
    rw: Rw,
    bs: Bytes,
    /// By worker: the interval it is in; those before it are complete.
    reached: Vec<u64>,
    /// Intervals not given yet; the first is number `given`.
    open: VecDeque<Tallies>,
    given: u64,
    totals: Tallies,
    late: u64,
}

impl Collector {
    pub(crate) fn new(window: Window, rw: Rw, bs: Bytes, workers: u32) -> Self {
        Self {
            window,
            rw,
            bs,
            reached: vec![0; workers as usize],
            open: VecDeque::new(),
            given: 0,
            totals: Tallies::new(rw),
            late: 0,
        }
    }

    /// Takes a worker's interval in.
    pub(crate) fn add(&mut self, worker: u32, interval: u64, next: u64, latencies: &Latencies) {
        self.reached[worker as usize] = next;
        if interval < self.given {
            self.late += 1;
        }
        if self.given == self.window.intervals() {
            return;
        }
        let place = usize::try_from(interval.saturating_sub(self.given)).unwrap_or(usize::MAX);
        while self.open.len() <= place {
            self.open.push_back(Tallies::new(self.rw));
        }
        self.open[place].add(latencies, self.bs);
    }

    /// The next sample, if its interval is over by `now` and every worker has reported it or had its [`GRACE`]. The last
    /// one is also due when `all_done`: nothing more can come.
    pub(crate) fn next_sample(&mut self, now: u64, all_done: bool) -> Option<Sample> {
        let interval = self.given;
        let is_last = interval + 1 == self.window.intervals();
        let complete = self.reached.iter().all(|reached| *reached > interval);
        // The last waits for all: there is no later one that could take in what comes late.
        let due = complete || all_done || (!is_last && now >= self.patience_ends(interval));
        if interval == self.window.intervals() || !due {
            return None;
        }
        let tallies = self.open.pop_front().unwrap_or_else(|| Tallies::new(self.rw));
        self.totals.merge(&tallies);
        self.given += 1;
        Some(Sample {
            at_ns: self.window.end_of(interval) - self.window.begin,
            duration_ns: self.window.length_of(interval),
            read: tallies.read,
            write: tallies.write,
        })
    }

    /// When the next sample is given at the latest; the last one's is up to the caller.
    pub(crate) fn deadline(&self) -> u64 {
        self.patience_ends(self.given)
    }

    fn patience_ends(&self, interval: u64) -> u64 {
        self.window.end_of(interval) + GRACE.0
    }

    /// Totals of all samples given, and a note if some were given without a worker's share.
    pub(crate) fn finish(self) -> (Tallies, Option<String>) {
        let note = (self.late > 0).then(|| {
            format!(
                "{} time(s) a worker was more than {GRACE} late with an interval (one I/O took that long, or no CPU was \
                 free for it); what it had done counts in a later interval",
                self.late
            )
        });
        (self.totals, note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::wire::Job;
    use iotax_model::workload::WorkloadKeys;

    fn collector(workers: u32) -> Collector {
        let keys = WorkloadKeys {
            rw: Some(Rw::RandRw),
            runtime: Some(Nanos::from_secs(3)),
            ramp_time: Some(Nanos(0)),
            ..WorkloadKeys::default()
        };
        let workload = keys.complete(&WorkloadKeys::default());
        let job = Job {
            path: None,
            workload,
            size: Bytes(1 << 20),
            seed: 1,
            interval: Nanos::from_secs(1),
            writable: true,
        };
        Collector::new(Window::new(&job, 0), Rw::RandRw, Bytes(4096), workers)
    }

    fn reads(count: u64) -> Latencies {
        let mut latencies = Latencies::new(Rw::RandRw);
        latencies.read.as_mut().expect("reads").add_many(100, count);
        latencies
    }

    fn ios(sample: &Sample) -> (u64, u64) {
        let tally = sample.read.as_ref().expect("reads");
        assert_eq!((tally.bytes, tally.latency.count()), (tally.ios * 4096, tally.ios));
        (sample.at_ns / 1_000_000, tally.ios)
    }

    #[test]
    fn a_sample_waits_for_every_worker_and_adds_them_up() {
        let mut collector = collector(2);
        collector.add(0, 0, 1, &reads(5));
        assert_eq!(collector.next_sample(1_100_000_000, false), None);
        collector.add(0, 1, 2, &reads(1));
        collector.add(1, 0, 1, &reads(7));
        assert_eq!(collector.next_sample(1_100_000_000, false).as_ref().map(ios), Some((1000, 12)));
        assert_eq!(collector.next_sample(1_100_000_000, false), None, "the second is not complete");
        collector.add(1, 1, 3, &reads(2));
        collector.add(0, 2, 3, &reads(4));
        assert_eq!(collector.next_sample(3_000_000_000, false).as_ref().map(ios), Some((2000, 3)));
        assert_eq!(collector.next_sample(3_000_000_000, false).as_ref().map(ios), Some((3000, 4)));
        assert_eq!(collector.next_sample(9_000_000_000, true), None);
        let (totals, note) = collector.finish();
        assert_eq!((totals.read.map(|tally| tally.ios), note), (Some(19), None));
    }

    #[test]
    fn a_stuck_worker_holds_back_neither_samples_nor_its_own_ios() {
        let mut collector = collector(2);
        collector.add(0, 0, 1, &reads(5));
        assert_eq!(collector.deadline(), 1_500_000_000);
        assert_eq!(collector.next_sample(1_499_999_999, false), None);
        assert_eq!(collector.next_sample(1_500_000_000, false).as_ref().map(ios), Some((1000, 5)));
        // It comes back in the third interval with what it had done in the first.
        collector.add(1, 0, 2, &reads(3));
        collector.add(0, 1, 2, &reads(6));
        assert_eq!(collector.next_sample(2_000_000_000, false).as_ref().map(ios), Some((2000, 9)));
        // And is stuck for good: the last sample is given when nothing more can come.
        collector.add(0, 2, 3, &reads(1));
        assert_eq!(collector.next_sample(9_000_000_000, false), None);
        assert_eq!(collector.next_sample(9_000_000_000, true).as_ref().map(ios), Some((3000, 1)));
        collector.add(1, 2, 3, &reads(8));
        let (totals, note) = collector.finish();
        assert_eq!(totals.read.map(|tally| tally.ios), Some(15), "the totals are the samples'");
        assert!(note.expect("said so").contains("2 time(s) a worker was more than 500ms late"));
    }

    #[test]
    fn an_interval_without_io_is_zero_and_a_direction_without_io_is_absent() {
        let mut collector = collector(1);
        collector.add(0, 1, 2, &reads(1));
        let first = collector.next_sample(2_000_000_000, false).expect("due");
        assert_eq!(ios(&first), (1000, 0));
        assert_eq!(Tallies::new(Rw::RandRead).write, None);
    }
}
