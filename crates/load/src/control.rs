//! Starts a load at a set time, and ends a load early.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clock;
use crate::punctual::{self, RealtimePriority};

/// Handle with which another thread sets the start of a measurement and ends it early.
#[derive(Debug, Default)]
pub struct Control {
    end: AtomicBool,
    /// Start time in nanoseconds of the system's monotonic clock; 0 to start immediately.
    start_ns: AtomicU64,
    /// Start time of the current load in nanoseconds of the system's monotonic clock, which may still be to come; 0 if no start time was
    /// set, or once it was taken.
    started_ns: AtomicU64,
}

impl Control {
    /// Creates a control that starts a load immediately and lets the load run for its full duration.
    #[must_use]
    pub const fn new() -> Self {
        Self { end: AtomicBool::new(false), start_ns: AtomicU64::new(0), started_ns: AtomicU64::new(0) }
    }

    /// Clears the start time and the early end, so that the control can be used for another measurement.
    pub fn reset(&self) {
        self.end.store(false, Ordering::Relaxed);
        self.start_ns.store(0, Ordering::Relaxed);
        self.started_ns.store(0, Ordering::Relaxed);
    }

    /// Ends the load early. Only round trips and plain reads and writes of a single job support this.
    pub fn end(&self) {
        self.end.store(true, Ordering::Relaxed);
    }

    /// Returns the flag that [`Self::end`] sets.
    #[must_use]
    pub const fn ending(&self) -> &AtomicBool {
        &self.end
    }

    /// Sets the start to `at_ns` nanoseconds of the system's monotonic clock. Call it before the handler of the measurement's
    /// [`Event::Ready`](iotax_model::wire::Event::Ready) returns.
    pub fn start_at(&self, at_ns: u64) {
        self.start_ns.store(at_ns, Ordering::Relaxed);
    }

    /// Returns true if no start time is set, so that the load starts immediately.
    #[must_use]
    pub fn starts_at_once(&self) -> bool {
        self.start_ns.load(Ordering::Relaxed) == 0
    }

    /// Returns the load's start time in nanoseconds of the system's monotonic clock, and clears it. `None` if no start time was set, if the
    /// load has not started, or if the start time was already taken.
    pub fn take_started_ns(&self) -> Option<u64> {
        let at_ns = self.started_ns.load(Ordering::Relaxed);
        let has_begun = at_ns > 0 && at_ns <= clock::system();
        has_begun.then(|| self.started_ns.swap(0, Ordering::Relaxed))
    }

    /// Returns the start of the load in nanoseconds of the engine's clock: the set time, or the current time if none is set or the set time
    /// has passed. Does not block.
    pub fn start(&self) -> u64 {
        let now = clock::now();
        match self.start_ns.load(Ordering::Relaxed) {
            0 => now,
            asked_ns => {
                let system_ns = clock::system();
                let start_ns = asked_ns.max(system_ns);
                self.started_ns.store(start_ns, Ordering::Relaxed);
                now + (start_ns - system_ns)
            }
        }
    }

    /// Blocks until the load's start time; returns immediately if none is set. For loads whose own threads do not wait for the start.
    pub fn await_start(&self) {
        let asked_ns = self.start_ns.load(Ordering::Relaxed);
        if asked_ns > 0 {
            let _priority = RealtimePriority::raise();
            punctual::sleep_until(asked_ns);
            self.started_ns.store(clock::system(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_begins_when_it_was_told_to_and_never_before() {
        let control = Control::new();
        assert!(clock::now().abs_diff(control.start()) < 1_000_000_000);
        assert_eq!(control.take_started_ns(), None, "no moment was asked for");
        let asked_ns = clock::system() + 50_000_000;
        control.start_at(asked_ns);
        assert!(control.start() > clock::now());
        assert_eq!(
            control.take_started_ns().filter(|_| clock::system() < asked_ns),
            None,
            "it has not begun"
        );
        control.await_start();
        assert!(clock::system() >= asked_ns && control.take_started_ns() >= Some(asked_ns));
        assert_eq!(control.take_started_ns(), None, "once");
        // Now the start time has passed.
        let now = clock::now();
        assert!(control.start() >= now && control.take_started_ns() > Some(asked_ns));
        control.end();
        assert!(control.ending().load(Ordering::Relaxed));
        control.reset();
        assert!(!control.ending().load(Ordering::Relaxed) && control.take_started_ns().is_none());
    }
}
