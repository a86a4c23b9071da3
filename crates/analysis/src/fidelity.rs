//! The fidelity of a replay to its trace.

use iotax_model::record::{Measurement, Replayed};

/// Lateness in nanoseconds beyond which an I/O meets a different queue than recorded.
const LATE_NS: u64 = 1_000_000;
/// Largest share of missing I/Os with which a replay is still the traced work.
const MISSING: f64 = 0.01;

/// The significant deviations of a replay from its trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Infidelity {
    /// I/Os began late although the target had room for them.
    pub(crate) is_late: bool,
    /// I/Os had not begun when it ended.
    pub(crate) lacks_begun: bool,
    /// I/Os were left out.
    pub(crate) lacks_possible: bool,
}

impl Infidelity {
    pub(crate) fn of(replayed: &Replayed) -> Self {
        let share = |count: u64| count as f64 / replayed.due.max(1) as f64;
        Self {
            is_late: replayed.late_p99_ns > LATE_NS,
            lacks_begun: share(replayed.not_begun) > MISSING,
            lacks_possible: share(replayed.left_out) > MISSING,
        }
    }
}

/// Returns whether lateness is a replay's only fault: the load generator got no CPU, which says nothing about the target. Such a
/// measurement is left out of comparisons together with its pair. One that lacks I/Os is kept: leaving it out would flatter a slow target.
pub(crate) fn is_late(measurement: &Measurement) -> bool {
    let only_late = Infidelity { is_late: true, ..Infidelity::default() };
    measurement.outcome.replayed.as_ref().is_some_and(|replayed| Infidelity::of(replayed) == only_late)
}

/// Returns whether this many rounds may be left out as late: at most half, otherwise the machine is unsuitable.
pub(crate) const fn may_be_late(late: usize, all: usize) -> bool {
    late * 2 <= all
}
