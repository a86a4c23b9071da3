//! Describes percentiles that were left out for lack of I/Os, and drift over the run.

use iotax_model::record::Tally;
use iotax_model::units::human::listed;

use crate::figure::grouped;
use iotax_analysis::percentile::{name, needed};
use iotax_analysis::{Judgement, Metric};

/// Names the percentiles that had too few I/Os: `Not given: p99.9 of 500 read I/Os (10,000 are needed).` `None` if all were given; rows
/// without I/O are skipped.
pub(super) fn left_out(rows: &[(&str, &Tally)], quantiles: &[f64]) -> Option<String> {
    let mut missing: Vec<String> = Vec::new();
    for (row, tally) in rows {
        let ios = tally.latency.count();
        missing.extend(quantiles.iter().filter(|q| ios > 0 && ios < needed(**q)).map(|q| {
            format!("{} of {} {row} I/Os ({} are needed)", name(*q), grouped(ios), grouped(needed(*q)))
        }));
    }
    (!missing.is_empty()).then(|| format!("Not given: {}.", listed(&missing)))
}

/// Describes the drift of a workload's figures over the run, and the round furthest from the mean, if either is significant and above `margin`;
/// else `None`.
pub(crate) fn over_the_run(
    judgement: &Judgement,
    workload: &str,
    margin: f64,
    compared: bool,
) -> Option<String> {
    let effects = judgement.effects.iter().find(|effects| effects.workload == workload)?;
    let drift = effects.drifted(margin).map(|drift| {
        let word = if drift.change > 0.0 { "rose" } else { "fell" };
        let size = |share: f64| if drift.change > 0.0 { share * 100.0 } else { -share * 100.0 };
        let (low, high) = (size(drift.interval.low), size(drift.interval.high));
        format!(
            "{} {word} by {:.1}% [{:.1}, {:.1}] from the first measurement to the last",
            if effects.metric == Metric::BYTES_PER_S { "the time for a byte" } else { "mean latency" },
            size(drift.change),
            low.min(high),
            low.max(high)
        )
    });
    let rounds = effects.rounds_moved(margin).then(|| {
        let (round, by) = (effects.furthest, effects.furthest_by);
        if by.abs() >= 0.5 {
            return format!("an I/O of round {round} took {:.1} times as long as on average", 1.0 + by);
        }
        let word = if by > 0.0 { "longer" } else { "less long" };
        format!("an I/O of round {round} took {:.1}% {word} than on average", by.abs() * 100.0)
    });
    let found: Vec<String> = drift.into_iter().chain(rounds).collect();
    let taken_out = if compared { " Comparisons are made within rounds, which takes this out." } else { "" };
    (!found.is_empty()).then(|| format!("Over the run: {}.{taken_out}", found.join("; ")))
}
