//! The workers of a measurement: threads that each do some work, and their messages to the watcher.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use iotax_model::record::{Outcome, Pacing, Replayed};
use iotax_model::threads;
use iotax_model::units::Nanos;
use iotax_model::verify_errors::Findings;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::backend::Note;
use crate::blackouts::Spans;
use crate::clock;
use crate::error::EngineError;
use crate::io_errors::IoErrors;
use crate::latencies::Latencies;
use crate::shared::{Common, Heartbeat};
use crate::window::Window;

/// Time to wait after the window's end for I/O in flight. A worker whose I/O takes longer is abandoned.
pub const DRAIN: Nanos = if cfg!(test) { Nanos::from_millis(300) } else { Nanos::from_secs(10) };

/// The identity of a worker and its channels.
#[derive(Debug)]
pub struct WorkerContext {
    /// The worker's number, from 0.
    pub number: u32,
    /// State shared by all workers: stop flag and failure count.
    pub common: Arc<Common>,
    /// Start time of the worker's current system call, for the watcher.
    pub heartbeat: Arc<Heartbeat>,
    /// Receives the window once all workers are ready; closed if the load is cancelled.
    pub start: Receiver<Window>,
    /// Receives emptied histograms for reuse, so that the loop allocates nothing; closed to stop the worker at the interval's end.
    pub spare: Receiver<Latencies>,
    /// Sends the worker's reports.
    pub reports: Sender<WorkerReport>,
}

/// The work of one worker's thread: it sends [`WorkerReport::Ready`], waits for the window, and works.
pub type Work = Box<dyn FnOnce(WorkerContext) -> Result<Finish, EngineError> + Send>;

/// A message from a worker.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all reports are intervals: a box would only cost")]
pub enum WorkerReport {
    /// Everything is set up.
    Ready,
    /// An interval is complete.
    Interval(WorkerInterval),
    /// The worker has ended, with this result.
    Finished(Result<Finish, EngineError>),
}

/// The I/Os of a worker in an interval.
#[derive(Debug)]
pub struct WorkerInterval {
    /// The worker's number.
    pub worker: u32,
    /// The interval's number, from 0.
    pub number: u64,
    /// The interval that the worker is in now; intervals in between had no I/O.
    pub next: u64,
    /// Counts and latencies of the interval's I/Os.
    pub latencies: Latencies,
    /// Age in nanoseconds of the oldest I/O in flight.
    pub oldest_ns: Option<u64>,
    /// I/Os that failed.
    pub failed: u64,
}

/// The result of a worker.
#[derive(Debug, Default)]
pub struct Finish {
    /// Start of the worker's first I/O.
    pub began_at: Option<u64>,
    /// End of the worker's last I/O, if it ended before the window.
    pub ended_at: Option<u64>,
    /// I/Os completed in the warm-up.
    pub ramp_ios: u64,
    /// The time of the last completion in the warm-up.
    pub ramp_completed_at: Option<u64>,
    /// The time of the last counted completion.
    pub completed_at: Option<u64>,
    /// Counts of due, delayed and never started I/Os; `None` in a closed loop.
    pub pacing: Option<Pacing>,
    /// Measures of a replay's fidelity to its trace; `None` without a replay.
    pub replayed: Option<Replayed>,
    /// Failed I/Os by error.
    pub io_errors: IoErrors,
    /// Gaps between completed I/Os, on the window's clock; `None` if not recorded.
    pub blackouts: Option<Spans>,
    /// Findings of the verification; `None` if nothing is verified.
    pub verify_errors: Option<Findings>,
    /// A deviation from the request.
    pub note: Option<Note>,
}

/// The workers of a measurement, one thread each. Threads are not joined, because one stuck in the kernel would block this one too. Each
/// reports its end and owns everything that it uses.
pub struct Workers {
    pub(crate) common: Arc<Common>,
    heartbeats: Vec<Arc<Heartbeat>>,
    reports: Receiver<WorkerReport>,
    starts: Vec<Sender<Window>>,
    spares: Vec<Sender<Latencies>>,
    /// Workers that have not finished.
    pub(crate) at_work: usize,
}

impl Workers {
    /// Starts `count` workers and waits until all are ready. `work` creates each worker's task from its number, from 0; `room` is the
    /// template of their counts. After `max_errors` failures all stop.
    pub fn spawn(
        count: u32,
        max_errors: Option<u64>,
        room: &Latencies,
        mut work: impl FnMut(u32) -> Result<Work, EngineError>,
    ) -> Result<Self, EngineError> {
        raise_file_limit(count);
        let (sender, reports) = mpsc::channel();
        let mut workers = Self {
            common: Arc::new(Common::new(max_errors)),
            heartbeats: Vec::new(),
            reports,
            starts: Vec::new(),
            spares: Vec::new(),
            at_work: 0,
        };
        let mut spawned = Ok(());
        for number in 0..count {
            spawned = work(number).and_then(|work| workers.enlist(number, work, room, sender.clone()));
            if spawned.is_err() {
                break;
            }
        }
        drop(sender);
        let mut ready = 0;
        while spawned.is_ok() && ready < workers.starts.len() {
            match workers.next_report(Duration::MAX) {
                Some(WorkerReport::Finished(result)) => spawned = result.map(drop),
                Some(_) => ready += 1,
                None => {}
            }
        }
        if let Err(error) = spawned {
            workers.shutdown(Nanos(0));
            return Err(error);
        }
        Ok(workers)
    }

    fn enlist(
        &mut self,
        number: u32,
        work: Work,
        room: &Latencies,
        reports: Sender<WorkerReport>,
    ) -> Result<(), EngineError> {
        let (start, started) = mpsc::channel();
        let (spare, spares) = mpsc::channel();
        // One in the worker's hands and one on the way suffice while the collector keeps up.
        let _ = spare.send(room.empty_alike());
        let heartbeat = Heartbeat::new();
        let context = WorkerContext {
            number,
            common: Arc::clone(&self.common),
            heartbeat: Arc::clone(&heartbeat),
            start: started,
            spare: spares,
            reports: reports.clone(),
        };
        let work = move || {
            let result = catch_unwind(AssertUnwindSafe(|| work(context)))
                .unwrap_or(Err(EngineError::Panicked(number)));
            // The watcher may have given up on this worker.
            let _ = reports.send(WorkerReport::Finished(result));
        };
        threads::spawn(&format!("worker-{number}"), work)
            .map_err(EngineError::system(format!("worker {number}")))?;
        self.heartbeats.push(heartbeat);
        self.starts.push(start);
        self.spares.push(spare);
        self.at_work += 1;
        Ok(())
    }

    /// True if a flush can be expected to return: all workers have finished, no I/O failed, and the load was not stopped.
    pub(crate) fn is_unharmed(&self, outcome: &Outcome) -> bool {
        self.at_work == 0 && outcome.errors.is_empty() && outcome.stop.is_none()
    }

    pub(crate) fn start(&self, window: Window) {
        for start in &self.starts {
            // A worker that is gone has said why.
            let _ = start.send(window);
        }
    }

    /// The next report, if one arrives within `wait`.
    pub(crate) fn next_report(&mut self, wait: Duration) -> Option<WorkerReport> {
        let report = match self.reports.recv_timeout(wait) {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => return None,
            // All have finished: only time is left to pass.
            Err(RecvTimeoutError::Disconnected) => {
                threads::sleep(wait);
                return None;
            }
        };
        if matches!(report, WorkerReport::Finished(_)) {
            self.at_work -= 1;
        }
        Some(report)
    }

    /// Start of the longest system call that a worker is still in.
    pub(crate) fn waiting_since(&self) -> Option<u64> {
        self.heartbeats.iter().filter_map(|heartbeat| heartbeat.since()).min()
    }

    /// Returns a worker's histograms to it, emptied.
    pub(crate) fn give_back(&self, worker: u32, mut latencies: Latencies) {
        latencies.clear();
        // It may have finished.
        let _ = self.spares[worker as usize].send(latencies);
    }

    /// Makes all workers stop at the end of their interval, and waits for them for a limited time.
    pub fn shutdown(mut self, interval: Nanos) {
        self.common.stop();
        self.starts.clear();
        self.spares.clear();
        let give_up = clock::now() + interval.0 + DRAIN.0;
        while self.at_work > 0 {
            let left = give_up.saturating_sub(clock::now());
            if left == 0 {
                return;
            }
            self.next_report(Duration::from_nanos(left));
        }
    }
}

/// Raises the limit of open files as far as permitted: the usual 1024 is meant for programs that use select(2). If that is not enough,
/// opening a file fails with an error.
fn raise_file_limit(workers: u32) {
    // A target and a ring for each, and something for everyone else; and other jobs may be there already.
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
    let needed = open + u64::from(workers) * 2 + 64;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
