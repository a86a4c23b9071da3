//! Waits of a worker that end at a given time.

use std::time::Duration;

use iotax_load::clock;
use iotax_load::intervals::{IntervalRecorder, IntervalState};
use iotax_load::punctual::{self, RealtimePriority};
use iotax_load::shared::Common;
use iotax_load::window::Window;
use iotax_model::threads;

/// Time in nanoseconds for which a worker spins before an I/O is due, because a sleeping thread wakes up late.
const SPIN_NS: u64 = 20_000;

/// Maximum time in nanoseconds that a worker waiting for its start sleeps before it checks the stop flag.
const POLL_NS: u64 = 50_000_000;

/// Returns how many nanoseconds to sleep from `now` so that the thread wakes up 20 us before `wake`, to spin for the rest; 0 if `wake` is
/// nearer than that.
#[inline]
pub(super) const fn patience(now: u64, wake: u64) -> u64 {
    wake.saturating_sub(now).saturating_sub(SPIN_NS)
}

/// Sleeps until 20 us before `wake`; if `wake` is nearer than that, returns immediately.
pub(super) fn idle(now: u64, wake: u64) {
    match patience(now, wake) {
        0 => std::hint::spin_loop(),
        nanos => threads::sleep(Duration::from_nanos(nanos)),
    }
}

/// Sleeps until a job's load starts, and reports the intervals before that as empty. Returns the realtime priority if the thread had to
/// wait and is permitted one, else `None`. Fails if the worker is stopped, or the window ends, before the start.
pub(super) fn until_start(
    window: Window,
    common: &Common,
    recorder: &mut IntervalRecorder,
) -> Result<Option<RealtimePriority>, Stopped> {
    // Raised before the wait, because a thread at normal priority may have to wait for a CPU after its timer expires.
    let priority = if clock::now() < window.start { RealtimePriority::raise() } else { None };
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
        punctual::sleep_until(clock::system() + (wake - now).min(POLL_NS));
    }
    Err(Stopped)
}

/// Error for a load that was cancelled before it started.
pub(super) struct Stopped;
