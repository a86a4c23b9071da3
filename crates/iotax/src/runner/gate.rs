//! The interface for starting windows together with the other members of a fleet.

use std::time::Instant;

use iotax_model::record::Measurement;
use iotax_model::units::Nanos;

/// Synchronization of window starts among the members of a fleet. Also receives the start times and the stored measurements.
pub(crate) trait Gate: Sync {
    /// Called when all agents of a window are ready. Blocks until the start time is known and returns it in nanoseconds of the monotonic
    /// clock, or `None` to start immediately or because the run must stop. `order` is the position of the window's first measurement.
    fn pass(&self, order: u32) -> Option<u64>;
    /// Called after a window. `at` is the time by which the windows of all agents had begun; `warm_up` is the length of their warm-up.
    fn began(&self, order: u32, warm_up: Nanos, at: Instant);
    /// Called when a measurement has been stored.
    fn stored(&self, measurement: &Measurement);
}

/// A window about to start, with the gate that it must pass first.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) gate: &'a dyn Gate,
    /// The position of the window's first measurement in the run.
    pub(super) order: u32,
    pub(super) warm_up: Nanos,
}

impl Entry<'_> {
    pub(super) fn pass(self) -> Option<u64> {
        self.gate.pass(self.order)
    }

    pub(super) fn began(self, at: Instant) {
        self.gate.began(self.order, self.warm_up, at);
    }
}

/// The gate of a run on one machine, which never waits.
pub(crate) struct Open;

impl Gate for Open {
    fn pass(&self, _: u32) -> Option<u64> {
        None
    }

    fn began(&self, _: u32, _: Nanos, _: Instant) {}

    fn stored(&self, _: &Measurement) {}
}
