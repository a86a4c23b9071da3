//! Waiting without being late.

use std::time::Duration;

use crate::clock;
use crate::intervals::{IntervalRecorder, IntervalState};
use crate::shared::Common;
use crate::window::Window;

/// Nanoseconds that a worker spins before an I/O is due: a sleeper wakes up late.
const SPIN_NS: u64 = 20_000;

/// Nanoseconds between the looks of a worker that waits for its start.
const LOOK_UP_NS: u64 = 50_000_000;

/// Nanoseconds to block and still return by `wake`; 0 close to it.
#[inline]
pub(super) const fn patience(now: u64, wake: u64) -> u64 {
    wake.saturating_sub(now).saturating_sub(SPIN_NS)
}

/// Sleeps until shortly before `wake`; returns at once when that is near.
pub(super) fn idle(now: u64, wake: u64) {
    match patience(now, wake) {
        0 => std::hint::spin_loop(),
        nanos => std::thread::sleep(Duration::from_nanos(nanos)),
    }
}

/// Sleeps until the load of a job begins, and reports each interval before that as empty. False if the worker is stopped meanwhile.
pub(super) fn until_start(window: Window, common: &Common, recorder: &mut IntervalRecorder) -> bool {
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
