//! The interface to others that measure at the same time: a fleet.

use std::time::Instant;

use iotax_model::record::Measurement;
use iotax_model::units::Nanos;

/// Holds windows back until others are ready, and is told when they began.
pub(crate) trait Gate: Sync {
    /// Blocks while all agents of a window are ready, until the start time is known. Returns it in nanoseconds of the monotonic clock, or
    /// `None` to start at once. `order` is the position of its first measurement.
    fn pass(&self, order: u32) -> Option<u64>;
    /// The windows of all agents began at this time, after a warm-up of this length. Called once they are over.
    fn began(&self, order: u32, warm_up: Nanos, at: Instant);
    /// A measurement is in the store.
    fn stored(&self, measurement: &Measurement);
}

/// A window that waits at the gate.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) gate: &'a dyn Gate,
    /// The position of its first measurement in the run.
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

/// The gate of a run on one machine.
pub(crate) struct Open;

impl Gate for Open {
    fn pass(&self, _: u32) -> Option<u64> {
        None
    }

    fn began(&self, _: u32, _: Nanos, _: Instant) {}

    fn stored(&self, _: &Measurement) {}
}
