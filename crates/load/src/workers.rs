//! The threads of a measurement's workers, and the reports that they send to the watcher.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use iotax_model::record::{CpuTime, Outcome, Pacing, Replayed};
use iotax_model::threads;
use iotax_model::units::Nanos;
use iotax_model::verify_errors::Findings;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::blackouts::Spans;
use crate::clock;
use crate::error::EngineError;
use crate::io_errors::IoErrors;
use crate::latencies::Latencies;
use crate::shared::{Common, Heartbeat};
use crate::window::Window;

/// Time to wait after the window's end for I/O in flight. A worker whose I/O takes longer is left behind.
pub const DRAIN: Nanos = if cfg!(test) { Nanos::from_millis(300) } else { Nanos::from_secs(10) };

/// A worker's number, the state that it shares with others, and its channels.
#[derive(Debug)]
pub struct WorkerContext {
    /// The worker's number, from 0.
    pub number: u32,
    /// State shared by all workers of the measurement: the stop flag and the count of failed I/Os.
    pub common: Arc<Common>,
    /// Start time of the worker's current system call, which the watcher reads.
    pub heartbeat: Arc<Heartbeat>,
    /// Channel that delivers the window once all workers are ready. It closes without a window if the load is cancelled.
    pub start: Receiver<Window>,
    /// Channel that delivers emptied histograms for reuse, so that the I/O loop does not allocate. It closes to make the worker stop at the
    /// end of the current interval.
    pub spare: Receiver<Latencies>,
    /// Channel for the worker's reports.
    pub reports: Sender<WorkerReport>,
}

/// The work of a worker's thread: sends [`WorkerReport::Ready`], waits for the window, runs the load, and returns the result.
pub type Work = Box<dyn FnOnce(WorkerContext) -> Result<Finish, EngineError> + Send>;

/// A message from a worker to the watcher.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all reports are intervals: a box would only cost")]
pub enum WorkerReport {
    /// The worker is set up and waits for the window.
    Ready,
    /// An interval is over; these are its counts.
    Interval(WorkerInterval),
    /// The worker has ended with this result.
    Finished(Result<Finish, EngineError>),
}

/// The counts of one worker in one interval.
#[derive(Debug)]
pub struct WorkerInterval {
    /// Number of the worker, from 0.
    pub worker: u32,
    /// Number of the interval, from 0.
    pub number: u64,
    /// Number of the interval that the worker is in now. No I/O completed in the intervals between `number` and this one.
    pub next: u64,
    /// Counts and latencies of the interval's I/Os.
    pub latencies: Latencies,
    /// Age in nanoseconds of the oldest I/O in flight at the interval's end; `None` if none was in flight.
    pub oldest_ns: Option<u64>,
    /// Number of I/Os that failed in the interval.
    pub failed: u64,
}

/// The result of a worker that has ended.
#[derive(Debug, Default)]
pub struct Finish {
    /// Start of the worker's load, for a test of its first system call, in nanoseconds of the engine's clock; `None` if the load did not
    /// start.
    pub began_at: Option<u64>,
    /// End of the worker's load, in nanoseconds of the engine's clock; `None` if it lasted until the window's end.
    pub ended_at: Option<u64>,
    /// Number of I/Os that completed in the warm-up, without flushes.
    pub ramp_ios: u64,
    /// Time of the last completion in the warm-up, in nanoseconds of the engine's clock; `None` if there was none.
    pub ramp_completed_at: Option<u64>,
    /// Time of the last successful completion, warm-up included, in nanoseconds of the engine's clock; `None` if there was none, or if the
    /// load does not record it.
    pub completed_at: Option<u64>,
    /// Punctuality of the schedule: due, delayed and never started I/Os. `None` in a closed loop.
    pub pacing: Option<Pacing>,
    /// Fidelity of the replay to its trace; `None` without a replay.
    pub replayed: Option<Replayed>,
    /// CPU time in the window of other programs that the worker started.
    pub programs_cpu: CpuTime,
    /// Failed I/Os, by error and kind of I/O.
    pub io_errors: IoErrors,
    /// Gaps between completions; `None` if they were not recorded.
    pub blackouts: Option<Spans>,
    /// Number of checked blocks and the faults found; `None` if the job does not verify.
    pub verify_errors: Option<Findings>,
    /// A note about I/O that was done differently than requested; `None` if there is nothing to report.
    pub note: Option<Note>,
}

/// A remark that I/O was done differently than requested; equal notes of all workers are reported once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Number of I/Os that were done differently; `None` if they were not counted.
    pub ios: Option<u64>,
    /// The text. If `ios` is set, the text continues a sentence that begins with the number of I/Os.
    pub words: String,
}

/// The threads of a measurement's workers. They are never joined: a thread stuck in the kernel would block the joining thread too. Each worker
/// reports its end and owns everything that it uses.
pub struct Workers {
    /// State shared by all workers: the stop flag and the count of failed I/Os.
    pub common: Arc<Common>,
    heartbeats: Vec<Arc<Heartbeat>>,
    reports: Receiver<WorkerReport>,
    starts: Vec<Sender<Window>>,
    spares: Vec<Sender<Latencies>>,
    /// Number of workers that have not ended.
    pub at_work: usize,
}

impl Workers {
    /// Starts `count` workers and waits until all are ready. `work` is called with each worker's number, from 0, and creates the worker's
    /// closure. `room` is an empty copy of the counts that each worker fills. After `max_errors` failed I/Os in total, all workers stop.
    /// Fails if a worker cannot be started or set up.
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
        // One in use and one on its way back suffice while the collector keeps up.
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

    /// Returns whether a flush of the target can be expected to return: all workers have ended, no I/O failed, and the load was not stopped.
    pub fn is_unharmed(&self, outcome: &Outcome) -> bool {
        self.at_work == 0 && outcome.errors.is_empty() && outcome.stop.is_none()
    }

    /// Returns the number of workers that were started.
    pub(crate) fn count(&self) -> usize {
        self.heartbeats.len()
    }

    pub(crate) fn start(&self, window: Window) {
        for start in &self.starts {
            // A worker that is gone has already reported the reason.
            let _ = start.send(window);
        }
    }

    /// Returns the next report; `None` if none arrives within `wait`.
    pub(crate) fn next_report(&mut self, wait: Duration) -> Option<WorkerReport> {
        let report = match self.reports.recv_timeout(wait) {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => return None,
            // All workers have finished, so the rest of the time passes without reports.
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

    /// Returns the start of the longest system call that a worker is still in, in nanoseconds of the engine's clock; `None` if no worker is
    /// in one.
    pub(crate) fn waiting_since(&self) -> Option<u64> {
        self.heartbeats.iter().filter_map(|heartbeat| heartbeat.since()).min()
    }

    /// Sends histograms back to their worker for reuse, emptied.
    pub(crate) fn give_back(&self, worker: u32, mut latencies: Latencies) {
        latencies.clear();
        // The worker may have finished.
        let _ = self.spares[worker as usize].send(latencies);
    }

    /// Makes all workers stop at the end of their interval, and waits for that up to one `interval` and [`DRAIN`].
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

/// Raises the process's limit of open files as far as permitted, for `workers` workers. The usual limit of 1024 is meant for programs that
/// use select(2). If the limit is still too low, opening a file fails with an error.
fn raise_file_limit(workers: u32) {
    // A target and a ring for each worker and some spare, in addition to the files that are already open.
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
    let needed = open + u64::from(workers) * 2 + 64;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
