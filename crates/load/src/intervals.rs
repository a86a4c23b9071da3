//! The counts of one worker, split into the warm-up and the intervals.

use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use crate::latencies::Latencies;
use crate::window::Window;
use crate::workers::{WorkerInterval, WorkerReport};

/// The state after an interval was closed.
#[derive(Debug, PartialEq, Eq)]
pub enum IntervalState {
    /// The next interval has begun.
    GoOn,
    /// The window is over, or nobody receives the reports any more.
    Over,
}

/// Recorder that splits one worker's counts into the warm-up and the intervals, and sends each interval's counts to the collector.
#[derive(Debug)]
pub struct IntervalRecorder {
    worker: u32,
    window: Window,
    /// Number of the current interval, from 0; `None` in the warm-up.
    interval: Option<u64>,
    /// End of the current interval, or of the warm-up, in nanoseconds of the engine's clock.
    pub boundary: u64,
    /// The counts of the current interval.
    pub latencies: Latencies,
    /// Number of I/Os of the current interval that failed.
    pub failed: u64,
    /// Number of I/Os that completed in the warm-up, without flushes.
    pub ramp_ios: u64,
    /// Time of the last successful completion, warm-up included, in nanoseconds of the engine's clock; `None` if there was none.
    pub completed_at: Option<u64>,
    /// Time of the last completion in the warm-up, in nanoseconds of the engine's clock; `None` if there was none.
    pub ramp_completed_at: Option<u64>,
    spare: Receiver<Latencies>,
    reports: Sender<WorkerReport>,
}

impl IntervalRecorder {
    /// Creates the recorder of worker number `worker`, which starts in the warm-up.
    pub fn new(
        worker: u32,
        latencies: Latencies,
        window: Window,
        spare: Receiver<Latencies>,
        reports: Sender<WorkerReport>,
    ) -> Self {
        let boundary = window.begin;
        Self {
            worker,
            window,
            interval: None,
            boundary,
            latencies,
            failed: 0,
            ramp_ios: 0,
            completed_at: None,
            ramp_completed_at: None,
            spare,
            reports,
        }
    }

    /// Returns the window that is split into intervals.
    pub const fn window(&self) -> Window {
        self.window
    }

    /// Closes the intervals that have ended by `now`, which must be at or after the boundary. `oldest_ns` is the age of the oldest I/O in
    /// flight; `None` without one. Call this before counting newly reaped I/Os.
    #[cold]
    pub fn turn(&mut self, now: u64, oldest_ns: Option<u64>) -> IntervalState {
        let next = self.window.interval_at(now);
        if let Some(number) = self.interval {
            let empty = match self.spare.try_recv() {
                Ok(spare) => spare,
                // The collector is behind: allocating memory is better than waiting.
                Err(TryRecvError::Empty) => self.latencies.empty_alike(),
                Err(TryRecvError::Disconnected) => return IntervalState::Over,
            };
            if !self.report(number, next, empty, oldest_ns) {
                return IntervalState::Over;
            }
        } else {
            self.ramp_ios = self.latencies.ios();
            self.ramp_completed_at = self.completed_at;
            self.latencies.clear();
            self.failed = 0;
        }
        self.interval = Some(next);
        self.boundary = self.window.end_of(next);
        if next >= self.window.intervals() { IntervalState::Over } else { IntervalState::GoOn }
    }

    /// Closes the current interval, or the warm-up, of a worker that ends early.
    pub fn close(&mut self, now: u64, oldest_ns: Option<u64>) {
        match self.interval {
            None => {
                self.ramp_ios = self.latencies.ios();
                let empty = self.latencies.empty_alike();
                self.latencies.clear();
                self.failed = 0;
                self.report(0, self.window.intervals(), empty, oldest_ns);
            }
            Some(number) if now < self.window.end => {
                let empty = self.latencies.empty_alike();
                self.report(number, self.window.intervals(), empty, oldest_ns);
            }
            Some(_) => {}
        }
    }

    /// Sends the counts of interval `number`; `next` is the interval that begins. Returns false if the receiver is gone.
    fn report(&mut self, number: u64, next: u64, empty: Latencies, oldest_ns: Option<u64>) -> bool {
        let latencies = std::mem::replace(&mut self.latencies, empty);
        let failed = std::mem::take(&mut self.failed);
        let interval = WorkerInterval { worker: self.worker, number, next, latencies, oldest_ns, failed };
        self.reports.send(WorkerReport::Interval(interval)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Io, IoKind};
    use iotax_model::units::{Bytes, Nanos};
    use iotax_model::wire::Job;
    use iotax_model::workload::WorkloadKeys;
    use std::sync::mpsc;

    #[test]
    fn the_warm_up_and_each_interval_are_counted_apart() {
        let keys =
            WorkloadKeys { runtime: Some(Nanos(300)), ramp_time: Some(Nanos(50)), ..WorkloadKeys::default() };
        let workload = keys.complete(&WorkloadKeys::default());
        let job = Job::new(workload, Bytes(1 << 20), 1, Nanos(100));
        let latencies = Latencies::new(&job.workload);
        let (reports, reported) = mpsc::channel();
        let (_spare, spares) = mpsc::channel();
        let mut recorder = IntervalRecorder::new(4, latencies, Window::new(&job, 1000), spares, reports);
        let io = Io { direction: IoKind::Read, offset: 0, length: 4096 };
        let count = |recorder: &mut IntervalRecorder, ios: u64| {
            (0..ios).for_each(|_| recorder.latencies.add(io, 7, 7));
        };
        assert_eq!(recorder.boundary, 1050);
        count(&mut recorder, 3);
        assert_eq!((recorder.turn(1060, None), recorder.boundary), (IntervalState::GoOn, 1150));
        count(&mut recorder, 5);
        // An I/O took so long that no I/O completed in one interval.
        assert_eq!((recorder.turn(1270, Some(9)), recorder.boundary), (IntervalState::GoOn, 1350));
        count(&mut recorder, 2);
        assert_eq!(recorder.turn(1350, None), IntervalState::Over);
        assert_eq!(recorder.ramp_ios, 3);
        drop(recorder);
        let intervals: Vec<_> = reported
            .iter()
            .map(|report| match report {
                WorkerReport::Interval(of) => {
                    (of.worker, of.number, of.next, of.latencies.ios(), of.oldest_ns)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(intervals, [(4, 0, 2, 5, Some(9)), (4, 2, 3, 2, None)]);
    }
}
