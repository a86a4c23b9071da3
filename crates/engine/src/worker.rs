//! The thread of one worker: keeps the queue full or follows a schedule, times every I/O, and sends the counts of each finished interval.

mod batching;
mod slots;
mod source;
mod wait;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use iotax_load::blackouts::BlackoutRecorder;
use iotax_load::buffers::Slot;
use iotax_load::clock;
use iotax_load::error::EngineError;
use iotax_load::intervals::{IntervalRecorder, IntervalState};
use iotax_load::io_errors::{IoErrors, errno_name};
use iotax_load::latencies::{Alike, Latencies};
use iotax_load::pace::{Pace, Recorded};
use iotax_load::punctual::RealtimePriority;
use iotax_load::request::{Completion, Io, IoKind};
use iotax_load::shared::{Common, Heartbeat};
use iotax_load::workers::{Finish, WorkerContext, WorkerReport};
use iotax_model::threads;
use iotax_model::workload::{IoEngine, Rw, Stamps, ToleratedErrors, Workload};
use rustix::thread::set_current_timer_slack;

use self::batching::{Batch, Batching};
use self::slots::{InFlight, Slots};
use self::source::{NextIo, Source};
use crate::backend::{Backend, Falloc, Ftruncate, Libaio, Mmap, Null, Psync, Pvsync2, Setup, Uring, Virtio};
use crate::flow::FlowShare;
use crate::passes::Passes;
use crate::pattern::Pattern;
use crate::placement;
use crate::replay::Replay;
use crate::verify::Verification;

/// Number of consecutive failures after which a worker backs off, so that it does not retry failing I/O in a busy loop.
const FAILURES_BEFORE_PAUSE: u32 = 64;
/// Length of the pause that a worker makes after each call to the kernel while it backs off.
const PAUSE: Duration = Duration::from_millis(1);

/// Everything that one worker needs to run its load.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) context: WorkerContext,
    pub(crate) workload: Workload,
    pub(crate) setup: Setup,
    pub(crate) pattern: Pattern,
    /// Dropper of the page cache before each further pass over the area; `None` if the cache is not dropped between passes.
    pub(crate) passes: Option<Passes>,
    /// The share that keeps this worker's I/Os in proportion to those of other jobs (`flow`); `None` if the job sets no `flow`.
    pub(crate) share: Option<FlowShare>,
    pub(crate) seed: u64,
    /// The record of acknowledged writes, with which reads are checked; `None` without verification.
    pub(crate) verification: Option<Arc<Verification>>,
    /// The trace whose I/Os are replayed; `None` if the pattern decides.
    pub(crate) replay: Option<Replay>,
}

/// Runs a task on the backend for `engine`.
pub(crate) fn run(engine: IoEngine, task: Task) -> Result<Finish, EngineError> {
    match engine {
        IoEngine::Auto | IoEngine::IoUring => work::<Uring>(task),
        IoEngine::Libaio => work::<Libaio>(task),
        IoEngine::Psync => work::<Psync>(task),
        IoEngine::Pvsync2 => work::<Pvsync2>(task),
        IoEngine::Mmap => work::<Mmap>(task),
        IoEngine::Libblkio => work::<Virtio>(task),
        IoEngine::Falloc => work::<Falloc>(task),
        IoEngine::Ftruncate => work::<Ftruncate>(task),
        IoEngine::Null => work::<Null>(task),
    }
}

/// Opens the backend, waits for the start, and runs the load until the window ends, the worker is stopped or no I/O is left to do. Then
/// waits for the I/O in flight.
pub(crate) fn work<B: Backend>(task: Task) -> Result<Finish, EngineError> {
    let Task { context, workload, setup, pattern, passes, share, seed, verification, replay } = task;
    let WorkerContext { number, common, heartbeat, start, spare, reports } = context;
    // Before any memory is allocated.
    placement::bind_thread(&workload, number)?;
    let is_replay = replay.is_some();
    let source =
        Source::new(&workload, (number, seed), pattern, (passes, share), verification, replay, &setup);
    let (backend, free) = B::open(setup)?;
    let slots = Slots::new(free, workload.stamps == Stamps::Io);

    // Nobody listens if another worker failed to set up; then the start channel is closed too.
    let _ = reports.send(WorkerReport::Ready);
    let Ok(window) = start.recv() else { return Ok(Finish::default()) };
    let mut recorder = IntervalRecorder::new(number, Latencies::new(&workload), window, spare, reports);
    let Ok(priority) = wait::until_start(window, &common, &mut recorder) else {
        return Ok(Finish { ended_at: Some(clock::now()), ..Finish::default() });
    };
    let pace = if is_replay {
        let pace = Recorded::new(workload.replay_pace, window, source.upcoming(), slots.count());
        Some(Pace::Recorded(Box::new(pace)))
    } else {
        Pace::new(&workload, number, seed, window)
    };
    if pace.is_some() {
        // The default timer slack of 50 us would make I/Os late.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
    }
    let commits = recorder.latencies.has_commits().then(CommitTimer::default);
    let mut worker = Worker {
        done: Vec::with_capacity(slots.count()),
        backend,
        source,
        pace,
        slots,
        batching: Batching::default(),
        recorder,
        errors: IoErrors::new(window.begin),
        rw: workload.rw,
        tolerated: workload.tolerated_errors,
        failures_in_a_row: 0,
        commits,
        blackouts: workload.blackout.map(|least| BlackoutRecorder::new(least, clock::now())),
        common,
        heartbeat,
        priority,
        now: clock::now(),
    };
    let began_at = worker.now;
    let ended_at = worker.make_load()?;
    worker.finish(began_at, ended_at)
}

/// A worker whose load has started.
struct Worker<B> {
    backend: B,
    source: Source,
    pace: Option<Pace>,
    slots: Slots,
    batching: Batching,
    /// Completions taken from the backend but not yet counted.
    done: Vec<Completion>,
    recorder: IntervalRecorder,
    errors: IoErrors,
    rw: Rw,
    tolerated: Option<ToleratedErrors>,
    failures_in_a_row: u32,
    blackouts: Option<BlackoutRecorder>,
    commits: Option<CommitTimer>,
    common: Arc<Common>,
    heartbeat: Arc<Heartbeat>,
    /// Realtime priority of the thread, from before the start until the first I/Os are submitted or none is due; `None` after that, and if
    /// the thread did not get one.
    priority: Option<RealtimePriority>,
    /// Time of the last return from a call to the kernel, in nanoseconds of the engine's clock. Completions are counted at this time, and
    /// I/Os due by then are started.
    now: u64,
}

/// Timer of commits: from the submission of the first write after a flush to the completion of the next flush. Needs a queue depth of 1.
#[derive(Debug, Default)]
struct CommitTimer {
    /// Submission time of the first write since the last flush, in nanoseconds of the engine's clock; `None` if nothing was written since.
    began_at: Option<u64>,
}

impl CommitTimer {
    /// Records a successful I/O. If that is a flush after at least one write, returns the nanoseconds since the submission of the first
    /// write, else `None`.
    #[inline]
    fn completed(&mut self, io: Io, submitted_at: u64, reaped_at: u64) -> Option<u64> {
        match io.direction {
            IoKind::Write | IoKind::DurableWrite => {
                self.began_at.get_or_insert(submitted_at);
                None
            }
            flush if flush.is_flush() => Some(reaped_at.saturating_sub(self.began_at.take()?)),
            _ => None,
        }
    }

    /// Abandons the current commit, because a write or flush failed: its time is not recorded.
    #[cold]
    fn failed(&mut self) {
        self.began_at = None;
    }
}

/// The outcome of preparing I/Os for the next call to the kernel.
struct Prepared {
    any: bool,
    /// Time at which to wake up if no I/O completes before, in nanoseconds of the engine's clock.
    wake: u64,
}

impl<B: Backend> Worker<B> {
    /// Runs the load. Returns the time at which it ended, in nanoseconds of the engine's clock, if that was before the window's end, else
    /// `None`.
    #[inline(never)]
    fn make_load(&mut self) -> Result<Option<u64>, EngineError> {
        loop {
            let prepared = self.prepare()?;
            if self.slots.in_flight() > 0 {
                self.submit(&prepared)?;
            } else if self.source.is_exhausted() {
                return Ok(Some(self.now));
            } else {
                self.priority = None;
                wait::idle(clock::now(), prepared.wake);
            }
            self.now = clock::now();
            self.priority = None;
            if self.now >= self.recorder.boundary {
                let oldest = self.slots.oldest(&self.done);
                if self.recorder.turn(self.now, oldest) == IntervalState::Over {
                    return Ok(None);
                }
            }
            self.count();
            if self.failures_in_a_row >= FAILURES_BEFORE_PAUSE {
                threads::sleep(PAUSE);
            }
            if self.common.is_stopped() {
                return Ok(Some(self.now));
            }
        }
    }

    /// Prepares I/Os until no slot is free, no I/O is due, or the batch is full.
    #[inline]
    fn prepare(&mut self) -> Result<Prepared, EngineError> {
        let mut prepared = Prepared { any: false, wake: self.recorder.boundary };
        while let Some(slot) = self.slots.take() {
            if let Some(due) = self.pace.as_ref().map(Pace::due).filter(|due| *due > self.now) {
                prepared.wake = prepared.wake.min(due);
                self.slots.give_back(slot);
                break;
            }
            match self.source.next(slot.index(), self.slots.in_flight() == 1) {
                NextIo::Io(io) => self.queue(slot, io),
                NextIo::After(pause) => {
                    prepared.wake = prepared.wake.min(self.now + pause);
                    self.slots.give_back(slot);
                    break;
                }
                NextIo::Nothing => {
                    self.slots.give_back(slot);
                    break;
                }
            }
            prepared.any = true;
            match self.batching.after(self.slots.queued()) {
                Batch::Open => {}
                Batch::Begin => {
                    self.heartbeat.enters(self.slots.stamp());
                    self.backend.begin().map_err(submit_error)?;
                }
                Batch::Full => break,
            }
        }
        Ok(prepared)
    }

    /// Queues an I/O on the backend; fills the buffer first if the I/O is a write.
    #[inline]
    fn queue(&mut self, mut slot: Slot, io: Io) {
        if io.direction.is_write() {
            self.source.fill(slot.index(), io, self.backend.buffer(&mut slot));
        }
        let intended_at = match &mut self.pace {
            Some(Pace::Recorded(recorded)) => recorded.take(slot.index(), self.source.upcoming()),
            // A flush has no due time: the rate counts I/Os that move data.
            Some(pace) if !io.direction.is_flush() => pace.take(self.now, io.length),
            _ => self.now,
        };
        self.slots.queue(&slot, io, intended_at);
        self.backend.queue(slot, io);
    }

    /// Submits the queued I/Os to the kernel, waits for a completion if none can be expected immediately, and takes the completions.
    #[inline]
    fn submit(&mut self, prepared: &Prepared) -> Result<(), EngineError> {
        let entered = self.slots.stamp();
        self.heartbeat.enters(entered);
        // A cached read is complete when the call returns: then there is nothing to wait for.
        let is_answered_within = prepared.any && !self.batching.outlasts();
        let wait = if is_answered_within { 0 } else { wait::patience(entered, prepared.wake) };
        self.backend.submit(wait).map_err(submit_error)?;
        self.heartbeat.leaves();
        if let (true, Some(pace)) = (self.slots.are_all_taken(), &mut self.pace) {
            pace.was_full(clock::now());
        }
        self.backend.reap(&mut self.done);
        if prepared.any {
            self.batching.learn(self.slots.in_flight(), self.done.len());
        }
        Ok(())
    }

    /// Counts the completions and frees their slots.
    #[inline]
    fn count(&mut self) {
        let mut alike: Option<Alike> = None;
        if let Some(Pace::Recorded(recorded)) = &mut self.pace {
            recorded.completed(&self.done, self.now);
        }
        for Completion { mut slot, result } in self.done.drain(..) {
            let InFlight { io, submitted_at, intended_at } = self.slots.of(&slot);
            let reaped_at = if self.slots.stamps_each() { clock::now() } else { self.now };
            if let Some(verifier) = self.source.verifier()
                && !verifier.done(slot.index(), &io, result, self.backend.buffer(&mut slot))
            {
                self.common.failed();
            }
            if result.cast_unsigned() == io.length {
                let (service, response) =
                    (reaped_at.saturating_sub(submitted_at), reaped_at.saturating_sub(intended_at));
                let one = Alike::new(io, service, response);
                if !alike.as_mut().is_some_and(|alike| alike.merge(&one))
                    && let Some(alike) = alike.replace(one)
                {
                    self.recorder.latencies.add_alike(&alike);
                }
                self.failures_in_a_row = 0;
                if let Some(commits) = &mut self.commits
                    && let Some(ns) = commits.completed(io, submitted_at, reaped_at)
                {
                    self.recorder.latencies.add_commit(ns);
                }
                if let Some(blackouts) = &mut self.blackouts {
                    blackouts.completed(io.direction, reaped_at, || self.slots.first_due());
                }
            } else {
                self.errors.add(result, io.direction.word(), io.offset, self.now);
                self.recorder.failed += 1;
                if let Some(commits) = &mut self.commits {
                    commits.failed();
                }
                if !is_tolerated(self.tolerated.as_ref(), io.direction, result) {
                    self.common.failed();
                }
                self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
                if let Some(blackouts) = &mut self.blackouts {
                    blackouts.failed(io.direction, intended_at);
                }
            }
            self.slots.give_back(slot);
        }
        if let Some(alike) = &alike {
            self.recorder.latencies.add_alike(alike);
            self.recorder.completed_at = Some(self.now);
        }
        if let (0, Some(pace)) = (self.slots.in_flight(), &mut self.pace) {
            pace.all_done(self.now);
        }
    }

    /// Ends the load: closes the last interval if the window is not over, and waits for the I/O in flight. Returns the worker's result.
    fn finish(mut self, began_at: u64, ended_at: Option<u64>) -> Result<Finish, EngineError> {
        if ended_at.is_some() {
            self.recorder.close(self.now, self.slots.oldest(&self.done));
        }
        let note = self.backend.note();
        let blackouts = self.blackouts.take().map(|recorder| recorder.finish(self.first_due(), self.now));
        self.drain(blackouts.is_some())?;
        let (now, is_exhausted) = (self.now, self.source.is_exhausted());
        let (pacing, replayed, verify_errors) = match self.pace {
            Some(Pace::Recorded(recorded)) => {
                let (verify_errors, counts) = self.source.finish(recorded.elapsed(now))?;
                let (pacing, replayed) = recorded.finish(counts.unwrap_or_default(), now);
                (Some(pacing), Some(replayed), verify_errors)
            }
            pace => {
                let pacing = pace.and_then(|pace| pace.finish(now, is_exhausted));
                (pacing, None, self.source.finish(0)?.0)
            }
        };
        Ok(Finish {
            began_at: Some(began_at),
            ended_at,
            ramp_ios: self.recorder.ramp_ios,
            ramp_completed_at: self.recorder.ramp_completed_at,
            completed_at: self.recorder.completed_at,
            pacing,
            replayed,
            programs_cpu: iotax_model::record::CpuTime::default(),
            io_errors: self.errors,
            blackouts,
            verify_errors,
            note,
        })
    }

    /// Returns for each I/O class the due time of the oldest I/O that is not counted yet. If all slots are in use, the next scheduled I/O
    /// counts as well, because it is held up.
    fn first_due(&self) -> [Option<u64>; 3] {
        let due = self.pace.as_ref().map(Pace::due).filter(|_| self.slots.are_all_taken());
        let [reads, writes, flushes] = self.slots.first_due();
        let [reads, writes] = [(reads, self.rw.reads()), (writes, self.rw.modifies())]
            .map(|(first, has)| first.into_iter().chain(due.filter(|_| has)).min());
        [reads, writes, flushes]
    }

    /// Waits for the I/Os in flight at the end. They do not count, but they are verified, because the final read-back checks every
    /// acknowledged write. With `with_errors`, failed I/Os are counted as errors.
    fn drain(&mut self, with_errors: bool) -> Result<(), EngineError> {
        loop {
            for Completion { mut slot, result } in self.done.drain(..) {
                if with_errors {
                    let io = self.slots.of(&slot).io;
                    if result.cast_unsigned() != io.length {
                        self.errors.add(result, io.direction.word(), io.offset, self.now);
                    }
                }
                if let Some(verifier) = self.source.verifier() {
                    let io = self.slots.of(&slot).io;
                    let _ = verifier.done(slot.index(), &io, result, self.backend.buffer(&mut slot));
                }
                self.slots.give_back(slot);
            }
            if self.slots.in_flight() == 0 {
                return Ok(());
            }
            self.backend.submit(u64::MAX).map_err(submit_error)?;
            self.backend.reap(&mut self.done);
        }
    }
}

/// Returns whether the job tolerates this failure (`tolerated_errors`): the list names the kind of I/O with this error, or with any error.
#[cold]
fn is_tolerated(tolerated: Option<&ToleratedErrors>, direction: IoKind, result: i32) -> bool {
    let is_this = |error: &str| {
        let number = result.checked_neg().filter(|number| *number > 0);
        number.is_some_and(|number| error == errno_name(number) || error == number.to_string())
    };
    tolerated.is_some_and(|list| {
        let alike = list.0.iter().filter(|one| one.direction == direction.word());
        alike.into_iter().any(|one| one.error.as_deref().is_none_or(is_this))
    })
}

fn submit_error(error: std::io::Error) -> EngineError {
    EngineError::System { doing: "handing I/O to the kernel".into(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_lasts_from_its_first_write_to_the_end_of_its_flush() {
        let mut timer = CommitTimer::default();
        let mut completed = |direction, submitted_at, reaped_at| {
            timer.completed(Io { direction, offset: 0, length: 0 }, submitted_at, reaped_at)
        };
        assert_eq!(completed(IoKind::Write, 100, 110), None);
        assert_eq!(completed(IoKind::Write, 120, 130), None);
        assert_eq!(completed(IoKind::DataSync, 130, 2130), Some(2030));
        // A flush without a write before it, as at the start of a window, has no commit time.
        assert_eq!(completed(IoKind::Sync, 2130, 2140), None);
        assert_eq!(completed(IoKind::Write, 3000, 3010), None);
        assert_eq!(completed(IoKind::Read, 3010, 3020), None);
        assert_eq!(completed(IoKind::RangeSync(7), 3020, 3050), Some(50));
        assert_eq!(completed(IoKind::Write, 4000, 4010), None);
        timer.failed();
        let flush = Io { direction: IoKind::Sync, offset: 0, length: 0 };
        assert_eq!(timer.completed(flush, 4010, 4020), None);
    }
}
