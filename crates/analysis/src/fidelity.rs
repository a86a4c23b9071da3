//! The fidelity of a replay to its trace.

use iotax_model::record::{Measurement, Replayed};

/// Largest p99 lateness, in nanoseconds, of a faithful replay: a longer delay may change the queue that an I/O meets.
const LATE_NS: u64 = 1_000_000;
/// Largest share of the trace's I/Os that a faithful replay may lack.
const MISSING: f64 = 0.01;

/// The significant deviations of a replay from its trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Infidelity {
    /// True if more than 1% of the I/Os began over 1 ms late. I/Os that waited because `iodepth` I/Os were in flight do not count.
    pub(crate) is_late: bool,
    /// True if more than 1% of the I/Os had not begun when the replay ended.
    pub(crate) lacks_begun: bool,
    /// True if more than 1% of the trace's I/Os were left out because the target or the workload cannot do them.
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

/// Returns whether lateness is a replay's only deviation. The load generator then got too little CPU time, which is no property of the
/// target, so verdicts rest on the other rounds. A replay that lacks I/Os withholds the verdict, because a verdict without it would flatter
/// a slow target.
pub(crate) fn is_late(measurement: &Measurement) -> bool {
    let only_late = Infidelity { is_late: true, ..Infidelity::default() };
    measurement.outcome.replayed.as_ref().is_some_and(|replayed| Infidelity::of(replayed) == only_late)
}

/// Returns whether `late` of `all` rounds of a workload on a target may be left out: at most half. With more late rounds the machine is
/// unsuitable.
pub(crate) const fn may_be_late(late: usize, all: usize) -> bool {
    late * 2 <= all
}
