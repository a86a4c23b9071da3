//! State that the workers of a measurement share with each other and with the watcher while I/O is in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The stop flag and the count of failed I/Os, shared by all workers of a measurement.
#[derive(Debug, Default)]
pub struct Common {
    stop: AtomicBool,
    failures: AtomicU64,
    most_failures: Option<u64>,
}

impl Common {
    /// Creates the state. The workers stop once `most_failures` I/Os have failed; `None` sets no limit.
    pub(crate) fn new(most_failures: Option<u64>) -> Self {
        Self { most_failures, ..Self::default() }
    }

    /// Makes every worker stop the next time that it checks the flag.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns whether the workers must stop.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Counts a failed I/O, and stops all workers when the limit is reached.
    #[cold]
    pub fn failed(&self) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if self.most_failures.is_some_and(|most| failures >= most) {
            self.stop();
        }
    }

    /// Returns whether the limit of failed I/Os is reached.
    pub(crate) fn has_failed(&self) -> bool {
        self.most_failures.is_some_and(|most| self.failures.load(Ordering::Relaxed) >= most)
    }
}

/// Start time of a worker's current system call, which the watcher can read while the worker is blocked. It lies in a separate pair of cache
/// lines, because the worker writes it before and after each call.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Heartbeat {
    since: AtomicU64,
}

impl Heartbeat {
    /// Creates the heartbeat of a worker that is in no system call.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Records that the worker enters a system call at `now` nanoseconds of the engine's clock.
    #[inline]
    pub fn enters(&self, now: u64) {
        self.since.store(now, Ordering::Relaxed);
    }

    /// Records that the system call has returned.
    #[inline]
    pub fn leaves(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// Returns the start time of the worker's current system call in nanoseconds of the engine's clock; `None` if the worker is not in one.
    pub(crate) fn since(&self) -> Option<u64> {
        Some(self.since.load(Ordering::Relaxed)).filter(|since| *since > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_too_many_stops_all() {
        let common = Common::new(Some(2));
        common.failed();
        assert!(!common.is_stopped() && !common.has_failed());
        common.failed();
        assert!(common.is_stopped() && common.has_failed());
        let patient = Common::new(None);
        (0..1000).for_each(|_| patient.failed());
        assert!(!patient.is_stopped() && !patient.has_failed());
    }
}
