//! State that the workers of a measurement and the watcher share while I/O is in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// State common to all workers of a measurement.
#[derive(Debug, Default)]
pub struct Common {
    stop: AtomicBool,
    failures: AtomicU64,
    most_failures: Option<u64>,
}

impl Common {
    /// Creates the state; `most_failures` failed I/Os stop all workers.
    pub(crate) fn new(most_failures: Option<u64>) -> Self {
        Self { most_failures, ..Self::default() }
    }

    /// Tells every worker to stop at its next check.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// True if the workers must stop.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Counts a failed I/O, and stops all workers when the limit is reached.
    #[cold]
    pub(crate) fn failed(&self) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if self.most_failures.is_some_and(|most| failures >= most) {
            self.stop();
        }
    }

    /// True if the limit of failed I/Os is reached.
    pub(crate) fn has_failed(&self) -> bool {
        self.most_failures.is_some_and(|most| self.failures.load(Ordering::Relaxed) >= most)
    }
}

/// Start of a worker's current system call, for a watcher to read while the worker is blocked. It has its own cache lines, because the
/// worker writes it around each call.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Heartbeat {
    since: AtomicU64,
}

impl Heartbeat {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    #[inline]
    pub(crate) fn enters(&self, now: u64) {
        self.since.store(now, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn leaves(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// Start of the system call that the worker is in; `None` outside of a call.
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
