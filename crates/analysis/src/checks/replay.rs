//! Finds replays that deviate from their trace in time, number or offsets.

use iotax_model::WarningKind;
use iotax_model::record::Replayed;
use iotax_model::trace::ReplayOffsets;
use iotax_model::units::human;

use super::Case;
use crate::fidelity::Infidelity;
use crate::finding::Finding;

/// Finds a replay in which more than 1% of the I/Os began late, had not begun at its end, or were left out. Waiting for a free slot does
/// not count as late, because the target causes it and the response time shows it.
pub(super) fn unfaithful(case: &Case<'_>) -> Option<Finding> {
    let replayed = case.m.outcome.replayed.as_ref()?;
    let Replayed { due, left_out, not_begun, late_p99_ns, late_max_ns, .. } = *replayed;
    let Infidelity { is_late, lacks_begun, lacks_possible } = Infidelity::of(replayed);
    let mut evidence = Vec::new();
    let mut remedy = "";
    if is_late {
        evidence.push(format!(
            "1% of its I/Os began at least {} after their recorded time although the target had room for them, the latest {}",
            human::time(late_p99_ns as f64),
            human::time(late_max_ns as f64)
        ));
        remedy = "leave a CPU to the load generator: stop other work on this machine, or replay it slower (replay_time_scale = 50)";
    }
    if lacks_begun {
        evidence.push(format!("{not_begun} of {due} I/Os had not begun when it ended"));
        remedy = "the target cannot keep up with the trace: replay it slower (replay_time_scale = 50), or raise iodepth";
    }
    if lacks_possible {
        evidence.push(format!("{left_out} of {due} I/Os were left out, because the target cannot do them"));
        remedy = "use a larger target that takes trims, so that it can do what the trace did";
    }
    (!evidence.is_empty())
        .then(|| case.finding(WarningKind::UnfaithfulReplay, evidence.join("; "), remedy).unusable_if(true))
}

/// Finds a replay whose I/Os lay at other offsets than in the trace, with the distance and the change of sequential I/Os.
pub(super) fn scaled(case: &Case<'_>) -> Option<Finding> {
    let replayed = case.m.outcome.replayed.as_ref()?;
    let Replayed { begun, moved, moved_mean_bytes, sequential, recorded_sequential, .. } = *replayed;
    let share = |count: u64| 100.0 * count as f64 / begun.max(1) as f64;
    let evidence = format!(
        "{moved} of {begun} I/Os lay elsewhere than in the trace (replay_offsets = {}), {} away on average; {:.0}% of all were sequential in \
         the trace, {:.0}% in the replay",
        case.workload.replay_offsets,
        human::bytes(moved_mean_bytes?),
        share(recorded_sequential),
        share(sequential)
    );
    let remedy = match case.workload.replay_offsets {
        ReplayOffsets::WorkingSet => {
            "use a target as large as the trace reaches, without replay_offsets, to keep its distances"
        }
        ReplayOffsets::Compress => {
            "use a target as large as the trace reaches, without replay_offsets, or working_set, which keeps neighbours together"
        }
        ReplayOffsets::Wrap => {
            "use a target as large as the trace reaches, or replay_offsets = working_set, which keeps neighbours together"
        }
    };
    (moved > 0).then(|| case.finding(WarningKind::ScaledReplay, evidence, remedy))
}
