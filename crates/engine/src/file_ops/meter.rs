//! Times and counts the system calls of a test.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use iotax_load::clock;
use iotax_load::intervals::{IntervalRecorder, IntervalState};
use iotax_load::io_errors::IoErrors;
use iotax_load::latencies::Latencies;
use iotax_load::request::Io;
use iotax_load::shared::{Common, Heartbeat};
use iotax_load::window::Window;
use iotax_load::workers::{Finish, WorkerContext};
use iotax_model::threads;

/// Number of consecutive failures after which a worker pauses after each failed call, so that it does not retry in a busy loop.
const FAILURES_BEFORE_PAUSE: u32 = 64;
const PAUSE: Duration = Duration::from_millis(1);

/// Signal that a test must end early: the window is over, too many calls failed, or the worker cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Over;

/// Timer and counter of one worker's system calls.
#[derive(Debug)]
pub(crate) struct Meter {
    recorder: IntervalRecorder,
    io_errors: IoErrors,
    common: Arc<Common>,
    heartbeat: Arc<Heartbeat>,
    failures_in_a_row: u32,
    /// Start of the worker's first call, counted or not, in nanoseconds of the engine's clock; `None` before that call.
    began_at: Option<u64>,
    /// Time at which the last call returned, in nanoseconds of the engine's clock.
    now: u64,
    is_stopped: bool,
}

impl Meter {
    pub(super) fn new(context: WorkerContext, window: Window, room: Latencies) -> Self {
        let WorkerContext { number, common, heartbeat, spare, reports, .. } = context;
        let recorder = IntervalRecorder::new(number, room, window, spare, reports);
        Self {
            recorder,
            io_errors: IoErrors::new(window.begin),
            common,
            heartbeat,
            failures_in_a_row: 0,
            began_at: None,
            now: clock::now(),
            is_stopped: false,
        }
    }

    /// Makes a system call that reads, writes or flushes, and counts it as `io`. Returns true if it moved all bytes. An error or a short
    /// transfer counts as failed and returns false.
    #[inline]
    pub(crate) fn io(&mut self, io: Io, call: impl FnOnce() -> io::Result<usize>) -> ControlFlow<Over, bool> {
        let (result, took) = self.time(call)?;
        let is_whole = result.as_ref().is_ok_and(|moved| *moved == io.length as usize);
        if is_whole {
            self.recorder.latencies.add(io, took, took);
            self.failures_in_a_row = 0;
        } else {
            self.failed(moved_or_errno(result), io.direction.word(), io.offset)?;
        }
        ControlFlow::Continue(is_whole)
    }

    /// Makes a file operation that moves `bytes` bytes, and counts it. Returns the call's result; `None` if it failed.
    #[inline]
    pub(crate) fn operation<T>(
        &mut self,
        bytes: u64,
        call: impl FnOnce() -> io::Result<T>,
    ) -> ControlFlow<Over, Option<T>> {
        let (result, took) = self.time(call)?;
        match result {
            Ok(given) => {
                self.recorder.latencies.add_meta(bytes, took, took);
                self.failures_in_a_row = 0;
                ControlFlow::Continue(Some(given))
            }
            Err(error) => {
                self.failed(moved_or_errno(Err(error)), "meta", 0)?;
                ControlFlow::Continue(None)
            }
        }
    }

    /// Makes a call that is not I/O, such as lseek(2), and does not count it. If the call fails, that counts as a failed `io` and ends the
    /// test.
    #[inline]
    pub(crate) fn aside<T>(&mut self, io: Io, call: impl FnOnce() -> io::Result<T>) -> ControlFlow<Over, T> {
        let (result, _) = self.time(call)?;
        match result {
            Ok(given) => ControlFlow::Continue(given),
            Err(error) => {
                self.failed(moved_or_errno(Err(error)), io.direction.word(), io.offset)?;
                self.is_stopped = true;
                ControlFlow::Break(Over)
            }
        }
    }

    /// Returns the window of the measurement.
    pub(crate) const fn window(&self) -> Window {
        self.recorder.window()
    }

    /// Counts an operation of another program that ended at time `at` of the engine's clock and took `service_ns`, or `response_ns` since its
    /// scheduled start, and moved `bytes` bytes. Operations come in the order of their ends.
    pub(crate) fn completed(
        &mut self,
        at: u64,
        bytes: u64,
        service_ns: u64,
        response_ns: u64,
    ) -> ControlFlow<Over> {
        self.began_at.get_or_insert(at.saturating_sub(service_ns));
        self.pass(at)?;
        self.recorder.latencies.add_meta(bytes, service_ns, response_ns);
        ControlFlow::Continue(())
    }

    /// Counts an operation of another program that failed at time `at` of the engine's clock.
    pub(crate) fn failed_at(&mut self, at: u64, errno: i32) -> ControlFlow<Over> {
        self.pass(at)?;
        self.failed(-errno, "meta", 0)
    }

    /// Closes the intervals that have ended by the time `at` of the engine's clock. Breaks if the window has.
    pub(crate) fn pass(&mut self, at: u64) -> ControlFlow<Over> {
        self.now = at;
        if at >= self.recorder.boundary && self.recorder.turn(at, None) == IntervalState::Over {
            return ControlFlow::Break(Over);
        }
        ControlFlow::Continue(())
    }

    /// Returns whether the workers are to stop.
    pub(crate) fn is_stopped(&mut self) -> bool {
        self.is_stopped |= self.common.is_stopped();
        self.is_stopped
    }

    /// Makes a system call. Returns its result and its duration in nanoseconds. Breaks instead if the window is over or the workers are
    /// stopped.
    #[inline]
    fn time<T>(&mut self, call: impl FnOnce() -> io::Result<T>) -> ControlFlow<Over, (io::Result<T>, u64)> {
        let begun = clock::now();
        self.began_at.get_or_insert(begun);
        self.heartbeat.enters(begun);
        let result = call();
        let now = clock::now();
        self.heartbeat.leaves();
        self.pass(now)?;
        if self.is_stopped() {
            return ControlFlow::Break(Over);
        }
        ControlFlow::Continue((result, self.now.saturating_sub(begun)))
    }

    /// Counts a failed call. `result` is a negative errno, or the number of bytes moved.
    #[cold]
    fn failed(&mut self, result: i32, direction: &'static str, offset: u64) -> ControlFlow<Over> {
        self.io_errors.add(result, direction, offset, self.now);
        self.common.failed();
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        if self.failures_in_a_row >= FAILURES_BEFORE_PAUSE {
            threads::sleep(PAUSE);
        }
        if self.is_stopped() { ControlFlow::Break(Over) } else { ControlFlow::Continue(()) }
    }

    /// Closes the counts and returns the worker's result. `ended` is `Continue` if the test ran to its end.
    pub(super) fn finish(mut self, ended: ControlFlow<Over>) -> Finish {
        let before_the_end = ended.is_continue() || self.is_stopped;
        if before_the_end {
            self.recorder.close(self.now, None);
        }
        Finish {
            began_at: self.began_at,
            ended_at: before_the_end.then_some(self.now),
            ramp_ios: self.recorder.ramp_ios,
            io_errors: self.io_errors,
            ..Finish::default()
        }
    }
}

/// Converts a result to the form of a raw system call: bytes moved, or a negative errno.
fn moved_or_errno(result: io::Result<usize>) -> i32 {
    match result {
        Ok(moved) => i32::try_from(moved).unwrap_or(i32::MAX),
        Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
    }
}
