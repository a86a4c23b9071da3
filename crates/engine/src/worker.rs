//! One thread's work: keeps the queue full, times every I/O, hands finished intervals over.

use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use iotax_model::histogram::Histogram;
use iotax_model::workload::Rw;

use crate::backend::{Backend, Completion, Io, Setup};
use crate::clock;
use crate::error::EngineError;
use crate::faults::Faults;
use crate::pattern::{Direction, Pattern};
use crate::payload::Payload;
use crate::random::{Purpose, SplitMix64};
use crate::window::Window;

/// So many failures in a row, and no success, make a worker pause: an error is often quicker than any I/O.
const FAILURES_BEFORE_PAUSE: u32 = 64;
/// How long it pauses then, after each further batch of failures.
const PAUSE: Duration = Duration::from_millis(1);

/// So many I/Os are begun together on a device. Of more, the kernel holds all back until the last is prepared (it plugs the
/// block layer, see IO_PLUG_THRESHOLD in its io_uring.c), and meanwhile the device has less to do.
const UNPLUGGED: usize = 2;

/// Service times of one worker's I/Os, by direction. A direction that the workload has not takes no memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Latencies {
    pub(crate) read: Option<Histogram>,
    pub(crate) write: Option<Histogram>,
}

impl Latencies {
    /// Room for the directions of a pattern.
    pub(crate) fn new(rw: Rw) -> Self {
        Self { read: rw.reads().then(Histogram::new), write: rw.writes().then(Histogram::new) }
    }

    #[inline]
    fn add(&mut self, direction: Direction, latency_ns: u64) {
        let histogram = match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        };
        if let Some(histogram) = histogram {
            histogram.add(latency_ns);
        }
    }

    /// How many I/Os were counted.
    pub(crate) fn count(&self) -> u64 {
        self.read.iter().chain(&self.write).map(Histogram::count).sum()
    }

    /// Empties it, keeping its memory.
    pub(crate) fn clear(&mut self) {
        self.read.iter_mut().chain(&mut self.write).for_each(Histogram::clear);
    }
}

/// What one worker is to do, and how it talks.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) number: u32,
    pub(crate) rw: Rw,
    pub(crate) setup: Setup,
    pub(crate) pattern: Pattern,
    pub(crate) seed: u64,
    /// The window, once all workers are ready. Closed: there is nothing to do after all.
    pub(crate) start: Receiver<Window>,
    /// Emptied histograms to use again, so that the loop allocates nothing. Closed: stop at the interval's end.
    pub(crate) spare: Receiver<Latencies>,
    pub(crate) reports: Sender<Report>,
}

/// What a worker says.
#[derive(Debug)]
pub(crate) enum Report {
    /// Everything is set up.
    Ready,
    /// All I/O of `interval` is in, and there is none before `next`, the interval that has begun meanwhile.
    Interval { worker: u32, interval: u64, next: u64, latencies: Latencies },
    /// The last word.
    Finished(Result<Finish, EngineError>),
}

/// What a worker leaves behind.
#[derive(Debug, Default)]
pub(crate) struct Finish {
    /// I/Os completed before the window.
    pub(crate) ramp_ios: u64,
    pub(crate) faults: Faults,
    pub(crate) note: Option<String>,
}

/// An I/O in flight.
#[derive(Debug, Clone, Copy)]
struct Flight {
    io: Io,
    submitted_at: u64,
}

/// Sets up a backend, waits for the start, works until the window ends, and waits for what is in flight then.
pub(crate) fn work<B: Backend>(task: Task) -> Result<Finish, EngineError> {
    let Task { number, rw, setup, mut pattern, seed, start, spare, reports } = task;
    #[expect(clippy::cast_possible_truncation, reason = "bs is at most 64 MiB")]
    let length = setup.slot_bytes as u32;
    let depth = setup.depth as usize;
    let mut payload = rw.writes().then(|| {
        Payload::new(setup.slot_bytes, depth, SplitMix64::new(seed, Purpose::Payload, number.into()))
    });
    let (mut backend, mut free) = B::open(setup)?;
    let mut flights =
        vec![Flight { io: Io { direction: Direction::Read, offset: 0, length }, submitted_at: 0 }; depth];
    let mut queued: Vec<usize> = Vec::with_capacity(depth);
    let mut done: Vec<Completion> = Vec::with_capacity(depth);
    let mut faults = Faults::default();
    let mut failures_in_a_row = 0_u32;

    // Nobody listens if another worker failed to set up; then the start channel is closed too.
    let _ = reports.send(Report::Ready);
    let Ok(window) = start.recv() else { return Ok(Finish::default()) };
    let mut ledger = Ledger::new(number, rw, window, spare, reports);
    backend.alarm(ledger.until_boundary(clock::now()));
    // Whether I/O outlasts the call that begins it, as on a device, or is answered within it, as from a cache.
    let mut outlasts = false;

    loop {
        while let Some(mut slot) = free.pop() {
            let (direction, offset) = pattern.next();
            if let (Direction::Write, Some(payload)) = (direction, &mut payload) {
                payload.refresh(slot.index(), backend.buffer(&mut slot));
            }
            let io = Io { direction, offset, length };
            flights[slot.index()].io = io;
            queued.push(slot.index());
            backend.queue(slot, io);
            if outlasts && queued.len() == UNPLUGGED {
                stamp(&mut queued, &mut flights);
                backend.begin().map_err(submit_error)?;
            }
        }
        stamp(&mut queued, &mut flights);
        backend.submit().map_err(submit_error)?;
        backend.reap(&mut done);
        let now = clock::now();
        if now >= ledger.boundary {
            if ledger.turn(now) == Turn::Over {
                break;
            }
            backend.alarm(ledger.until_boundary(now));
        }
        for Completion { slot, result } in done.drain(..) {
            let Flight { io, submitted_at } = flights[slot.index()];
            if result.cast_unsigned() == io.length {
                ledger.latencies.add(io.direction, now - submitted_at);
                failures_in_a_row = 0;
            } else {
                faults.add(result, io.direction, io.offset, now);
                failures_in_a_row = failures_in_a_row.saturating_add(1);
            }
            free.push(slot);
        }
        outlasts = free.len() < depth;
        if failures_in_a_row >= FAILURES_BEFORE_PAUSE {
            std::thread::sleep(PAUSE);
        }
    }
    let note = backend.note().map(str::to_owned);
    drain(&mut backend, depth - free.len(), done)?;
    Ok(Finish { ramp_ios: ledger.ramp_ios, faults, note })
}

/// I/Os of a batch enter the kernel together and are seen together: one time stamp for each side loses nothing.
#[inline]
fn stamp(queued: &mut Vec<usize>, flights: &mut [Flight]) {
    let submitted_at = clock::now();
    for index in queued.drain(..) {
        flights[index].submitted_at = submitted_at;
    }
}

/// Waits for the I/Os in flight; they are not counted.
fn drain(
    backend: &mut impl Backend,
    mut outstanding: usize,
    mut done: Vec<Completion>,
) -> Result<(), EngineError> {
    loop {
        outstanding -= done.drain(..).count();
        if outstanding == 0 {
            return Ok(());
        }
        backend.submit().map_err(submit_error)?;
        backend.reap(&mut done);
    }
}

fn submit_error(error: std::io::Error) -> EngineError {
    EngineError::System { doing: "handing I/O to the kernel".into(), error }
}

/// Whether there is more to do.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    GoOn,
    Over,
}

/// Keeps one worker's counts apart by warm-up and interval.
#[derive(Debug)]
struct Ledger {
    worker: u32,
    rw: Rw,
    window: Window,
    /// The current interval; `None` in the warm-up.
    interval: Option<u64>,
    /// When the current interval, or the warm-up, ends.
    boundary: u64,
    latencies: Latencies,
    ramp_ios: u64,
    spare: Receiver<Latencies>,
    reports: Sender<Report>,
}

impl Ledger {
    fn new(worker: u32, rw: Rw, window: Window, spare: Receiver<Latencies>, reports: Sender<Report>) -> Self {
        let latencies = Latencies::new(rw);
        Self {
            worker,
            rw,
            window,
            interval: None,
            boundary: window.begin,
            latencies,
            ramp_ios: 0,
            spare,
            reports,
        }
    }

    fn until_boundary(&self, now: u64) -> u64 {
        self.boundary.saturating_sub(now)
    }

    /// Closes what has ended by `now`, a time at or after the boundary, before what was just reaped is counted.
    #[cold]
    fn turn(&mut self, now: u64) -> Turn {
        let next = self.window.interval_at(now);
        match self.interval {
            None => {
                self.ramp_ios = self.latencies.count();
                self.latencies.clear();
            }
            Some(interval) => {
                let empty = match self.spare.try_recv() {
                    Ok(spare) => spare,
                    // The collector is behind: rather some more memory than a wait.
                    Err(TryRecvError::Empty) => Latencies::new(self.rw),
                    Err(TryRecvError::Disconnected) => return Turn::Over,
                };
                let latencies = std::mem::replace(&mut self.latencies, empty);
                let report = Report::Interval { worker: self.worker, interval, next, latencies };
                if self.reports.send(report).is_err() {
                    return Turn::Over;
                }
            }
        }
        self.interval = Some(next);
        self.boundary = self.window.end_of(next);
        if next >= self.window.intervals() { Turn::Over } else { Turn::GoOn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::units::{Bytes, Nanos};
    use iotax_model::wire::Job;
    use iotax_model::workload::WorkloadKeys;
    use std::sync::mpsc;

    #[test]
    fn the_warm_up_and_each_interval_are_counted_apart() {
        let keys =
            WorkloadKeys { runtime: Some(Nanos(300)), ramp_time: Some(Nanos(50)), ..WorkloadKeys::default() };
        let workload = keys.complete(&WorkloadKeys::default());
        let (size, interval) = (Bytes(1 << 20), Nanos(100));
        let job = Job { path: None, workload, size, seed: 1, interval, writable: false };
        let (reports, reported) = mpsc::channel();
        let (_spare, spares) = mpsc::channel();
        let mut ledger = Ledger::new(4, Rw::RandRead, Window::new(&job, 1000), spares, reports);
        let count = |ledger: &mut Ledger, ios: u64| {
            (0..ios).for_each(|_| ledger.latencies.add(Direction::Read, 7));
        };
        assert_eq!(ledger.until_boundary(1000), 50);
        count(&mut ledger, 3);
        assert_eq!((ledger.turn(1060), ledger.until_boundary(1060)), (Turn::GoOn, 90));
        count(&mut ledger, 5);
        // An I/O took so long that an interval passed without any.
        assert_eq!((ledger.turn(1270), ledger.until_boundary(1270)), (Turn::GoOn, 80));
        count(&mut ledger, 2);
        assert_eq!(ledger.turn(1350), Turn::Over);
        assert_eq!(ledger.ramp_ios, 3);
        drop(ledger);
        let intervals: Vec<_> = reported
            .iter()
            .map(|report| match report {
                Report::Interval { worker, interval, next, latencies } => {
                    (worker, interval, next, latencies.count())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(intervals, [(4, 0, 2, 5), (4, 2, 3, 2)]);
    }
}
