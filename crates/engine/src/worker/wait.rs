//! Waits that end on time.

use std::time::Duration;

use crate::clock;
use crate::intervals::{IntervalRecorder, IntervalState};
use crate::punctual::{self, Priority};
use crate::shared::Common;
use crate::window::Window;
use iotax_model::threads;

/// Nanoseconds that a worker spins before an I/O is due: a sleeper wakes up late.
const SPIN_NS: u64 = 20_000;

/// Interval in nanoseconds at which a worker that waits for its start checks for a stop.
const LOOK_UP_NS: u64 = 50_000_000;

/// Nanoseconds to block and still return by `wake`; 0 close to it.
#[inline]
pub(super) const fn patience(now: u64, wake: u64) -> u64 {
    wake.saturating_sub(now).saturating_sub(SPIN_NS)
}

/// Sleeps until shortly before `wake`; returns at once if that is near.
pub(super) fn idle(now: u64, wake: u64) {
    match patience(now, wake) {
        0 => std::hint::spin_loop(),
        nanos => threads::sleep(Duration::from_nanos(nanos)),
    }
}

/// Sleeps until a job's load starts, and reports the intervals before it as empty. Returns the realtime priority if the thread had to wait
/// and may have one. Fails if the worker is stopped meanwhile.
pub(super) fn until_start(
    window: Window,
    common: &Common,
    recorder: &mut IntervalRecorder,
) -> Result<Option<Priority>, Stopped> {
    // Before the wait: a thread that wakes up in order to raise it may wait for a CPU then.
    let priority = if clock::now() < window.start { Priority::raise() } else { None };
    while !common.is_stopped() {
        let now = clock::now();
        if now >= recorder.boundary
            && window.start > window.begin
            && recorder.turn(now, None) == IntervalState::Over
        {
            break;
        }
        if now >= window.start {
            return Ok(priority);
        }
        let wake = window.start.min(recorder.boundary.max(now + 1));
        punctual::sleep_until(clock::system() + (wake - now).min(LOOK_UP_NS));
    }
    Err(Stopped)
}

/// The load was cancelled before its start.
pub(super) struct Stopped;
