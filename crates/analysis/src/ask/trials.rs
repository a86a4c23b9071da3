//! Converts measurements to trials of a condition, such as the share of late I/Os in each window, and the condition to a limit of that
//! share.

use iotax_model::Histogram;
use iotax_model::plan::Slo;
use iotax_model::record::Measurement;

use super::Condition;
use super::root::Trial;
use crate::failed::Failed;

/// Largest share of the due I/Os that may be unstarted at a window's end if the target keeps up.
const LEFT: f64 = 0.02;

/// Returns a trial per open-loop measurement, and the limit of the share `bad / of` of a trial. Each measurement comes with its scheduled
/// I/Os per second.
pub(super) fn trials(measured: &[(f64, &Measurement)], condition: Condition) -> (Vec<Trial>, f64) {
    let trial = |(rate, m): &(f64, &Measurement)| -> Option<Trial> {
        let pacing = m.outcome.pacing?;
        let response = m.outcome.tallies.response().unwrap_or_default();
        let failed = Failed::of(m).ios as f64;
        let (bad, of) = match condition {
            Condition::Slo(Slo::Percentile { most, .. }) => {
                // An I/O that has not begun is late once it has waited longer than the limit.
                let waited = 1.0 - most.0 as f64 / (pacing.backlog_ns as f64).max(1.0);
                let overdue = pacing.backlog as f64 * waited.max(0.0);
                (above(&response, most.0) + failed + overdue, response.count() as f64 + failed + overdue)
            }
            Condition::Slo(Slo::Mean { .. }) => {
                // I/Os that have not begun have waited for half of the longest wait on average.
                let waits = pacing.backlog as f64 * pacing.backlog_ns as f64 / 2.0;
                (response.sum() as f64 + waits, (response.count() + pacing.backlog) as f64)
            }
            Condition::Slo(Slo::NoErrors) => (failed, response.count() as f64 + failed),
            Condition::KeepsUp => (pacing.backlog as f64, pacing.due as f64),
        };
        Some(Trial { round: m.round, rate: *rate, bad, of })
    };
    let limit = match condition {
        Condition::Slo(Slo::Percentile { percent, .. }) => 1.0 - percent / 100.0,
        Condition::Slo(Slo::Mean { most }) => most.0 as f64,
        Condition::Slo(Slo::NoErrors) => 0.0,
        Condition::KeepsUp => LEFT,
    };
    (measured.iter().filter_map(trial).collect(), limit)
}

/// Counts values above a limit. The bucket that contains the limit counts proportionally.
fn above(values: &Histogram, limit: u64) -> f64 {
    values
        .bars()
        .map(|(low, width, count)| {
            let beyond = (low + width).saturating_sub(limit + 1).min(width);
            count as f64 * beyond as f64 / width as f64
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_above_a_limit_are_counted() {
        let mut values = Histogram::new();
        (1..=100).for_each(|value| values.add(value));
        assert!((above(&values, 90) - 10.0).abs() < 1e-9, "exact for small values");
        let mut large = Histogram::new();
        (1..=1000).for_each(|value| large.add(value * 1000));
        let late = above(&large, 900_000);
        assert!((late - 100.0).abs() < 3.0, "{late}");
        assert!(above(&large, 2_000_000).abs() < 1e-9);
    }
}
