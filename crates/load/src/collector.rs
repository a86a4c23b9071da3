//! Merges the workers' intervals into samples and totals.

use std::collections::VecDeque;

use iotax_model::record::{Sample, Tallies};
use iotax_model::units::Nanos;

use crate::latencies::Latencies;
use crate::window::Window;
use crate::workers::WorkerInterval;

/// Usual time to wait after an interval's end for workers that have not reported: a worker blocked in a system call cannot.
pub(crate) const GRACE: Nanos = Nanos::from_millis(500);

/// Collector that merges the intervals of all workers into samples, in order and without gaps. A report that comes too late for its own
/// sample counts in the next one, so that the samples always add up to the totals.
#[derive(Debug)]
pub(crate) struct Collector {
    window: Window,
    /// Time to wait after an interval's end for workers that have not reported.
    patience: Nanos,
    /// Latencies without any I/O, from which each new interval's counts are cloned.
    empty: Latencies,
    /// Number of the interval that each worker is in now; the worker's reports of all earlier intervals have arrived.
    reached: Vec<u64>,
    /// Counts of the intervals that are not yet samples; the first one is interval number `given`.
    open: VecDeque<Open>,
    given: u64,
    /// Nanoseconds of the first interval before the first I/O that count toward no sample.
    idle_ns: u64,
    totals: Tallies,
    late: u64,
}

/// The counts of an interval for which reports are still awaited.
#[derive(Debug)]
struct Open {
    tallies: Tallies,
    oldest_ns: Option<u64>,
    failed: u64,
}

impl Open {
    fn new(empty: &Latencies) -> Self {
        let mut tallies = Tallies::default();
        empty.add_to(&mut tallies);
        Self { tallies, oldest_ns: None, failed: 0 }
    }
}

impl Collector {
    /// Creates a collector for `workers` workers; `empty` is the template of an interval's counts.
    pub(crate) fn new(window: Window, empty: Latencies, workers: usize, patience: Nanos) -> Self {
        let totals = Open::new(&empty).tallies;
        Self {
            window,
            empty,
            patience,
            reached: vec![0; workers],
            open: VecDeque::new(),
            given: 0,
            idle_ns: 0,
            totals,
            late: 0,
        }
    }

    /// Adds a worker's report of one interval.
    pub(crate) fn add(&mut self, interval: &WorkerInterval) {
        self.reached[interval.worker as usize] = interval.next;
        if interval.number < self.given {
            self.late += 1;
        }
        if self.given == self.window.intervals() {
            return;
        }
        let index = usize::try_from(interval.number.saturating_sub(self.given)).unwrap_or(usize::MAX);
        while self.open.len() <= index {
            self.open.push_back(Open::new(&self.empty));
        }
        let open = &mut self.open[index];
        interval.latencies.add_to(&mut open.tallies);
        open.oldest_ns = open.oldest_ns.max(interval.oldest_ns);
        open.failed += interval.failed;
    }

    /// Ends the window early, at `end` nanoseconds of the engine's clock.
    pub(crate) fn cut(&mut self, end: u64) {
        self.window = self.window.cut(end);
    }

    /// Leaves the time before `began`, in nanoseconds of the engine's clock, out of the first interval. Does nothing once the first sample was
    /// given.
    pub(crate) fn begin(&mut self, began: u64) {
        if self.given == 0 && self.window.intervals() > 0 {
            self.idle_ns = (began - self.window.begin).min(self.window.length_of(0) - 1);
        }
    }

    /// Returns the next sample once its interval is over at `now` and every worker has reported it; `None` before that, and after the last
    /// sample. After the patience a sample is returned without the missing reports, except the last sample; with `all_done`, immediately.
    /// `waiting_since` is the start of the longest system call still in progress, in nanoseconds of the engine's clock; that call's I/O can
    /// be the sample's oldest.
    pub(crate) fn next_sample(
        &mut self,
        now: u64,
        all_done: bool,
        waiting_since: Option<u64>,
    ) -> Option<Sample> {
        let interval = self.given;
        let is_last = interval + 1 == self.window.intervals();
        // Workers that ended early have passed all intervals. If all of them have, the remaining intervals do
        // not exist, or not in full. The final reports then decide.
        let intervals = self.window.intervals();
        let ended_early = now < self.window.end && self.reached.iter().all(|reached| *reached >= intervals);
        let is_past = now >= self.window.end_of(interval);
        let complete = is_past && !ended_early && self.reached.iter().all(|reached| *reached > interval);
        // The last sample waits for all workers: no later one could include a late report.
        let due = complete || all_done || (!is_last && now >= self.patience_ends(interval));
        if interval >= self.window.intervals() || !due {
            return None;
        }
        let Open { tallies, oldest_ns, failed } =
            self.open.pop_front().unwrap_or_else(|| Open::new(&self.empty));
        self.totals.merge(&tallies);
        self.given += 1;
        let end = self.window.end_of(interval);
        let waiting = waiting_since.and_then(|since| end.checked_sub(since));
        Some(Sample {
            at_ns: end - self.window.begin - self.idle_ns,
            duration_ns: self.window.length_of(interval) - if interval == 0 { self.idle_ns } else { 0 },
            tallies,
            oldest_ns: oldest_ns.max(waiting),
            failed,
            directions: Vec::new(),
        })
    }

    /// Returns the time in nanoseconds of the engine's clock at which the next sample is due even if reports are missing; the last sample
    /// may come later.
    pub(crate) fn deadline(&self) -> u64 {
        self.patience_ends(self.given)
    }

    fn patience_ends(&self, interval: u64) -> u64 {
        self.window.end_of(interval).saturating_add(self.patience.0)
    }

    /// Returns the totals of all samples, and a note if a worker reported too late for its sample.
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
    use crate::request::{Io, IoKind};
    use iotax_model::units::Bytes;
    use iotax_model::wire::Job;
    use iotax_model::workload::{Rw, WorkloadKeys};

    fn collector(workers: usize) -> Collector {
        let keys = WorkloadKeys {
            rw: Some(Rw::RandRw),
            runtime: Some(Nanos::from_secs(3)),
            ramp_time: Some(Nanos(0)),
            ..WorkloadKeys::default()
        };
        let workload = keys.complete(&WorkloadKeys::default());
        let job = Job { writable: true, ..Job::new(workload, Bytes(1 << 20), 1, Nanos::from_secs(1)) };
        Collector::new(Window::new(&job, 0), Latencies::new(&job.workload), workers, GRACE)
    }

    /// Reports interval `number` of a worker with `count` reads of 100 ns each; the worker is now in interval `next`.
    fn reads(collector: &mut Collector, worker: u32, number: u64, next: u64, count: u64) {
        let mut latencies = collector.empty.empty_alike();
        let io = Io { direction: IoKind::Read, offset: 0, length: 4096 };
        (0..count).for_each(|_| latencies.add(io, 100, 0));
        collector.add(&WorkerInterval { worker, number, next, latencies, oldest_ns: None, failed: 0 });
    }

    fn ios(sample: &Sample) -> (u64, u64) {
        let tally = sample.tallies.read.as_ref().expect("reads");
        assert_eq!((tally.bytes, tally.latency.count()), (tally.ios * 4096, tally.ios));
        (sample.at_ns / 1_000_000, tally.ios)
    }

    #[test]
    fn a_sample_waits_for_every_worker_and_adds_them_up() {
        let mut collector = collector(2);
        reads(&mut collector, 0, 0, 1, 5);
        assert_eq!(collector.next_sample(1_100_000_000, false, None), None);
        reads(&mut collector, 0, 1, 2, 1);
        reads(&mut collector, 1, 0, 1, 7);
        assert_eq!(collector.next_sample(1_100_000_000, false, None).as_ref().map(ios), Some((1000, 12)));
        assert_eq!(collector.next_sample(1_100_000_000, false, None), None, "the second is not complete");
        reads(&mut collector, 1, 1, 3, 2);
        reads(&mut collector, 0, 2, 3, 4);
        assert_eq!(collector.next_sample(3_000_000_000, false, None).as_ref().map(ios), Some((2000, 3)));
        assert_eq!(collector.next_sample(3_000_000_000, false, None).as_ref().map(ios), Some((3000, 4)));
        assert_eq!(collector.next_sample(9_000_000_000, true, None), None);
        let (totals, note) = collector.finish();
        assert_eq!((totals.read.map(|tally| tally.ios), note), (Some(19), None));
    }

    #[test]
    fn a_stuck_worker_holds_back_neither_samples_nor_its_own_ios() {
        let mut collector = collector(2);
        reads(&mut collector, 0, 0, 1, 5);
        assert_eq!(collector.deadline(), 1_500_000_000);
        assert_eq!(collector.next_sample(1_499_999_999, false, None), None);
        assert_eq!(collector.next_sample(1_500_000_000, false, None).as_ref().map(ios), Some((1000, 5)));
        // The worker comes back in the third interval and reports its reads of the first.
        reads(&mut collector, 1, 0, 2, 3);
        reads(&mut collector, 0, 1, 2, 6);
        assert_eq!(collector.next_sample(2_000_000_000, false, None).as_ref().map(ios), Some((2000, 9)));
        // Then it is stuck for good: the last sample is only returned once no more reports can come.
        reads(&mut collector, 0, 2, 3, 1);
        assert_eq!(collector.next_sample(9_000_000_000, false, None), None);
        assert_eq!(collector.next_sample(9_000_000_000, true, None).as_ref().map(ios), Some((3000, 1)));
        reads(&mut collector, 1, 2, 3, 8);
        let (totals, note) = collector.finish();
        assert_eq!(totals.read.map(|tally| tally.ios), Some(15), "the totals are the samples'");
        assert!(note.expect("said so").contains("2 time(s) a worker was more than 500ms late"));
    }

    #[test]
    fn intervals_that_workers_ended_before_are_not_given_until_it_is_known_whether_they_will_be() {
        let mut collector = collector(1);
        reads(&mut collector, 0, 0, 3, 5);
        for now in [400_000_000, 1_100_000_000] {
            assert_eq!(collector.next_sample(now, false, None), None);
        }
        collector.cut(300_000_000);
        assert_eq!(collector.next_sample(400_000_000, true, None).as_ref().map(ios), Some((300, 5)));
        assert_eq!(collector.next_sample(400_000_000, true, None), None);
    }

    #[test]
    fn the_time_before_the_first_io_of_short_work_is_in_no_sample() {
        let mut collector = collector(1);
        reads(&mut collector, 0, 0, 3, 5);
        collector.cut(300_000_000);
        collector.begin(100_000_000);
        let sample = collector.next_sample(400_000_000, true, None).expect("the only one");
        assert_eq!((sample.at_ns, sample.duration_ns), (200_000_000, 200_000_000));
        // Later the first sample has told of that time.
        let mut collector = self::collector(1);
        reads(&mut collector, 0, 0, 1, 5);
        assert!(collector.next_sample(1_100_000_000, false, None).is_some());
        collector.cut(1_500_000_000);
        collector.begin(100_000_000);
        let sample = collector.next_sample(1_600_000_000, true, None).expect("the second");
        assert_eq!((sample.at_ns, sample.duration_ns), (1_500_000_000, 500_000_000));
    }

    #[test]
    fn an_interval_without_io_is_zero_and_a_direction_without_io_is_absent() {
        let mut collector = collector(1);
        reads(&mut collector, 0, 1, 2, 1);
        let first = collector.next_sample(2_000_000_000, false, None).expect("due");
        assert_eq!(ios(&first), (1000, 0));
        assert_eq!((first.tallies.trim, first.tallies.sync), (None, None));
    }
}
