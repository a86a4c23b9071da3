//! One thread's work: keeps the queue full or to its schedule, times every I/O, hands finished intervals over.

use std::sync::Arc;
use std::time::Duration;

use iotax_model::workload::{IoEngine, Stamps, Workload};
use rustix::thread::set_current_timer_slack;

use crate::backend::{Backend, Completion, Libaio, Mmap, Null, Psync, Pvsync2, Setup, Uring};
use crate::clock;
use crate::error::EngineError;
use crate::intervals::{IntervalRecorder, IntervalState};
use crate::io_errors::IoErrors;
use crate::latencies::Latencies;
use crate::pace::Pace;
use crate::pattern::Pattern;
use crate::payload::{Payload, SECTOR};
use crate::random::{Purpose, SplitMix64};
use crate::request::{Direction, Io};
use crate::shared::Common;
use crate::verify::{Next, Proof, Verifier};
use crate::window::Window;
use crate::workers::{Finish, Report, WorkerContext};

/// So many failures in a row, and no success, make a worker pause: an error is often quicker than any I/O.
const FAILURES_BEFORE_PAUSE: u32 = 64;
/// How long it pauses then, after each further batch of failures.
const PAUSE: Duration = Duration::from_millis(1);

/// So many I/Os are begun together on a device. Of more, the kernel holds all back until the last is prepared (it plugs the
/// block layer, see IO_PLUG_THRESHOLD in its io_uring.c), and meanwhile the device has less to do.
const UNPLUGGED: usize = 2;
/// So many I/Os are begun together where they are done by the end of the call. A longer batch saves next to nothing more, and
/// its buffers no longer fit into the CPU's nearer caches.
const AT_ONCE: usize = 64;

/// After so many calls that waited and came back with everything, the next does not wait: only then it shows whether I/O still
/// outlasts the call.
const DOUBT_AFTER: u32 = 64;

/// Before an I/O is due a worker spins for so long: a sleeper wakes up late.
const SPIN_NS: u64 = 20_000;

/// How often one that waits for its start looks up.
const LOOK_UP_NS: u64 = 50_000_000;

/// How often is looked again whether another worker is done with a block.
const CLAIMED_NS: u64 = 50_000;

/// What one worker is to do.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) context: WorkerContext,
    pub(crate) workload: Workload,
    pub(crate) setup: Setup,
    pub(crate) pattern: Pattern,
    pub(crate) seed: u64,
    /// If what is written and read is to be verified.
    pub(crate) proof: Option<Arc<Proof>>,
}

/// An I/O in flight.
#[derive(Debug, Clone, Copy)]
struct Flight {
    io: Io,
    /// 0 if the slot is free.
    submitted_at: u64,
    /// When it should have begun, in an open loop.
    intended_at: u64,
}

/// Does a task with the backend of that name.
pub(crate) fn run(engine: IoEngine, task: Task) -> Result<Finish, EngineError> {
    match engine {
        IoEngine::Auto | IoEngine::IoUring => work::<Uring>(task),
        IoEngine::Libaio => work::<Libaio>(task),
        IoEngine::Psync => work::<Psync>(task),
        IoEngine::Pvsync2 => work::<Pvsync2>(task),
        IoEngine::Mmap => work::<Mmap>(task),
        IoEngine::Null => work::<Null>(task),
    }
}

/// Sets up a backend, waits for the start, works until the window ends or there is no more to do, and waits for what is in
/// flight then.
pub(crate) fn work<B: Backend>(task: Task) -> Result<Finish, EngineError> {
    match &task.proof {
        None => load::<B, false>(task),
        Some(_) => load::<B, true>(task),
    }
}

/// See [`work`]. Without `VERIFY` no I/O pays for the question whether it is to be verified.
fn load<B: Backend, const VERIFY: bool>(task: Task) -> Result<Finish, EngineError> {
    let Task { context, workload, setup, mut pattern, seed, proof } = task;
    let WorkerContext { number, common, heartbeat, start, spare, reports } = context;
    let depth = setup.depth as usize;
    let mut payload = workload.rw.writes().then(|| {
        let random = SplitMix64::new(seed, Purpose::Payload, number.into());
        Payload::new(&workload.content(), depth, workload.rw.reads(), random)
    });
    let mut verifier = proof.filter(|_| VERIFY).map(|proof| Verifier::new(proof, depth, setup.slot_bytes));
    let (mut backend, mut free) = B::open(setup)?;
    let none = Io { direction: Direction::Read, offset: 0, length: 0 };
    let mut flights = vec![Flight { io: none, submitted_at: 0, intended_at: 0 }; depth];
    let mut queued: Vec<usize> = Vec::with_capacity(depth);
    let mut done: Vec<Completion> = Vec::with_capacity(depth);
    let mut faults = IoErrors::default();
    let mut failures_in_a_row = 0_u32;
    let stamp_each = workload.stamps == Stamps::Io;

    // Nobody listens if another worker failed to set up; then the start channel is closed too.
    let _ = reports.send(Report::Ready);
    let Ok(window) = start.recv() else { return Ok(Finish::default()) };
    let mut recorder = IntervalRecorder::new(number, Latencies::new(&workload), window, spare, reports);
    if !await_start(window, &common, &mut recorder) {
        return Ok(Finish { ended_at: Some(clock::now()), ..Finish::default() });
    }
    let mut pace = Pace::new(&workload, number, seed, window);
    if pace.is_some() {
        // The usual slack of 50 us would be lateness.
        let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
    }
    // Whether I/O outlasts the call that begins it, as on a device, or is answered within it, as from a cache.
    let mut outlasts = false;
    let mut doubt = 0;
    let mut exhausted = false;
    let mut flush_at_end = LastFlush::of(&workload);
    let mut now = clock::now();
    let (began_at, mut ended_at) = (Some(now), None);

    loop {
        // When to look again even if no I/O is done.
        let mut wake = recorder.boundary;
        let mut begins = false;
        while let Some(mut slot) = free.pop() {
            let due = pace.as_ref().map_or(0, Pace::due);
            if due > now {
                wake = wake.min(due);
                free.push(slot);
                break;
            }
            let next = match &mut verifier {
                Some(verifier) if VERIFY => match verifier.next(slot.index(), &mut pattern) {
                    Next::Io(io) => io,
                    Next::Wait => {
                        wake = wake.min(now + CLAIMED_NS);
                        free.push(slot);
                        break;
                    }
                },
                _ => pattern.next(),
            };
            let Some(io) = next.or_else(|| flush_at_end.take(free.len() + 1 == depth)) else {
                exhausted = true;
                free.push(slot);
                break;
            };
            let flight = &mut flights[slot.index()];
            flight.io = io;
            if let Some(pace) = &mut pace {
                // A flush comes when it comes: the rate is that of what moves data.
                flight.intended_at = if io.direction.is_flush() { now } else { pace.take(now, io.length) };
            }
            if let (Direction::Write, Some(payload)) = (io.direction, &mut payload) {
                let index = slot.index();
                let sectors = io.length.next_multiple_of(SECTOR);
                let buffer = &mut backend.buffer(&mut slot)[..sectors as usize];
                payload.refresh(index, &io, buffer);
                if VERIFY && let Some(verifier) = &verifier {
                    verifier.seal(index, &io, buffer);
                }
            }
            if stamp_each {
                flights[slot.index()].submitted_at = clock::now();
            }
            begins = true;
            queued.push(slot.index());
            backend.queue(slot, io);
            if outlasts && queued.len() == UNPLUGGED {
                heartbeat.enters(stamp(&mut queued, &mut flights, stamp_each));
                backend.begin().map_err(submit_error)?;
            } else if queued.len() == AT_ONCE {
                break;
            }
        }
        let in_flight = depth - free.len();
        if in_flight == 0 {
            if exhausted {
                ended_at = Some(now);
                break;
            }
            idle(clock::now(), wake);
        } else {
            // What a cache answers is there when the call returns: then there is nothing to wait for.
            let is_answered_within = !outlasts && !queued.is_empty();
            let entered = stamp(&mut queued, &mut flights, stamp_each);
            heartbeat.enters(entered);
            let wait = if is_answered_within { 0 } else { patience(entered, wake) };
            backend.submit(wait).map_err(submit_error)?;
            heartbeat.leaves();
            if let (true, Some(pace)) = (free.is_empty(), &mut pace) {
                pace.was_full(clock::now());
            }
            backend.reap(&mut done);
            if begins && done.len() < in_flight {
                (outlasts, doubt) = (true, 0);
            } else if begins && outlasts {
                doubt += 1;
                outlasts = doubt < DOUBT_AFTER;
            }
        }
        now = clock::now();
        if now >= recorder.boundary && recorder.turn(now, oldest(&flights, &done)) == IntervalState::Over {
            break;
        }
        for Completion { mut slot, result } in done.drain(..) {
            let Flight { io, submitted_at, intended_at } = flights[slot.index()];
            flights[slot.index()].submitted_at = 0;
            let seen_at = if stamp_each { clock::now() } else { now };
            if VERIFY && let Some(verifier) = &mut verifier {
                verifier.done(slot.index(), &io, result, backend.buffer(&mut slot));
            }
            if result.cast_unsigned() == io.length {
                recorder.latencies.add(
                    io,
                    seen_at.saturating_sub(submitted_at),
                    seen_at.saturating_sub(intended_at),
                );
                failures_in_a_row = 0;
            } else {
                faults.add(result, io.direction.word(), io.offset, now);
                common.failed();
                failures_in_a_row = failures_in_a_row.saturating_add(1);
            }
            free.push(slot);
        }
        if let (true, Some(pace)) = (free.len() == depth, &mut pace) {
            pace.all_done(now);
        }
        if failures_in_a_row >= FAILURES_BEFORE_PAUSE {
            std::thread::sleep(PAUSE);
        }
        if common.is_stopped() {
            ended_at = Some(now);
            break;
        }
    }
    if ended_at.is_some() {
        recorder.close(now, oldest(&flights, &done));
    }
    let note = backend.note();
    drain(&mut backend, &flights, depth - free.len(), done, &mut verifier)?;
    let pacing = pace.and_then(|pace| pace.finish(now, exhausted));
    Ok(Finish {
        began_at,
        ended_at,
        ramp_ios: recorder.ramp_ios,
        pacing,
        faults,
        findings: verifier.map(Verifier::finish),
        note,
    })
}

/// The flush of `end_fsync`, which comes once when all else is done.
struct LastFlush(bool);

impl LastFlush {
    fn of(workload: &Workload) -> Self {
        Self(workload.end_fsync && workload.rw.writes())
    }

    /// The flush, if it is still to come and nothing is in flight any more.
    #[cold]
    fn take(&mut self, is_alone: bool) -> Option<Io> {
        let due = self.0 && is_alone;
        self.0 &= !due;
        due.then_some(Io { direction: Direction::Sync, offset: 0, length: 0 })
    }
}

/// I/Os of a batch enter the kernel together and are seen together: one time stamp for each side loses nothing. The time, after
/// the last of them was prepared.
#[inline]
fn stamp(queued: &mut Vec<usize>, flights: &mut [Flight], have_their_own: bool) -> u64 {
    let submitted_at = clock::now();
    if have_their_own {
        queued.clear();
    }
    for index in queued.drain(..) {
        flights[index].submitted_at = submitted_at;
    }
    submitted_at
}

/// How long may be waited in the kernel to be back by `wake`; 0 close to it.
#[inline]
const fn patience(now: u64, wake: u64) -> u64 {
    wake.saturating_sub(now).saturating_sub(SPIN_NS)
}

/// Sleeps until a job's load is to begin, and says of each interval before it that nothing was done. False if all were told to stop
/// meanwhile.
fn await_start(window: Window, common: &Common, recorder: &mut IntervalRecorder) -> bool {
    while !common.is_stopped() {
        let now = clock::now();
        if now >= recorder.boundary
            && window.start > window.begin
            && recorder.turn(now, None) == IntervalState::Over
        {
            return false;
        }
        if now >= window.start {
            return true;
        }
        let wake = window.start.min(recorder.boundary.max(now + 1));
        std::thread::sleep(Duration::from_nanos((wake - now).min(LOOK_UP_NS)));
    }
    false
}

/// Sleeps until shortly before `wake`; returns at once when that is near.
fn idle(now: u64, wake: u64) {
    match patience(now, wake) {
        0 => std::hint::spin_loop(),
        nanos => std::thread::sleep(Duration::from_nanos(nanos)),
    }
}

/// How long the oldest I/O that is still in flight has been there.
#[cold]
fn oldest(flights: &[Flight], done: &[Completion]) -> Option<u64> {
    let now = clock::now();
    let is_done = |index: usize| done.iter().any(|completion| completion.slot.index() == index);
    flights
        .iter()
        .enumerate()
        .filter(|(index, flight)| flight.submitted_at > 0 && !is_done(*index))
        .map(|(_, flight)| now.saturating_sub(flight.submitted_at))
        .max()
}

/// Waits for the I/Os in flight; they are not counted. What is acknowledged is to be found all the same.
fn drain(
    backend: &mut impl Backend,
    flights: &[Flight],
    mut outstanding: usize,
    mut done: Vec<Completion>,
    verifier: &mut Option<Verifier>,
) -> Result<(), EngineError> {
    loop {
        outstanding -= done.len();
        for Completion { mut slot, result } in done.drain(..) {
            if let Some(verifier) = verifier {
                let io = flights[slot.index()].io;
                verifier.done(slot.index(), &io, result, backend.buffer(&mut slot));
            }
        }
        if outstanding == 0 {
            return Ok(());
        }
        backend.submit(u64::MAX).map_err(submit_error)?;
        backend.reap(&mut done);
    }
}

fn submit_error(error: std::io::Error) -> EngineError {
    EngineError::System { doing: "handing I/O to the kernel".into(), error }
}
