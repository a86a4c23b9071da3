//! Evaluates long runs at the rate that a search found (`--sustain`).

use iotax_model::plan::AskSpec;
use iotax_model::record::Measurement;
use iotax_model::{CellKey, Run, Workload};

use super::keeps;

/// The result of holding a rate over consecutive windows.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// The rate at which the long run was scheduled, in I/Os per second.
    pub rate: f64,
    /// Length of a window in nanoseconds.
    pub window_ns: u64,
    /// Number of windows measured at this rate.
    pub windows: usize,
    /// The rounds, from 1, whose window missed a condition.
    pub missed: Vec<u32>,
    /// True if at most half of the windows missed a condition, and all windows together met every condition.
    pub kept: bool,
}

impl Held {
    /// Evaluates the windows of the long run at the found rate on a target; `None` if no such window was measured.
    pub(super) fn of(run: &Run, ask: &AskSpec, asked: &Workload, target: &str) -> Option<Self> {
        let is_of = |workload: &&Workload| {
            run.plan.is_held(workload)
                && workload.name.rsplit_once('@').is_some_and(|(name, _)| name == asked.name)
        };
        let mut of_target = run.plan.workloads.iter().filter(is_of).filter_map(|workload| {
            let rate = crate::curve::offered(workload)?;
            let cell = run.of_cell(CellKey { workload: &workload.name, target });
            let windows: Vec<(f64, &Measurement)> = cell.map(|m| (rate, m)).collect();
            (!windows.is_empty()).then_some((workload, rate, windows))
        });
        let (workload, rate, windows) = of_target.next_back()?;
        Some(Self::in_windows(ask, rate, workload.runtime.0, &windows))
    }

    fn in_windows(ask: &AskSpec, rate: f64, window_ns: u64, windows: &[(f64, &Measurement)]) -> Self {
        let missed = windows.iter().filter(|window| !keeps(ask, &[**window])).map(|(_, m)| m.round);
        let missed: Vec<u32> = missed.collect();
        let kept = 2 * missed.len() <= windows.len() && keeps(ask, windows);
        Self { rate, window_ns, windows: windows.len(), missed, kept }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::Histogram;
    use iotax_model::record::{Outcome, Pacing, Tallies, Tally};

    /// Returns a window of 1000 I/Os, of which `late` take longer than 1 ms.
    fn window(round: u32, late: u64) -> Measurement {
        let mut response = Histogram::new();
        (0..1000).for_each(|io| response.add(if io < late { 9_000_000 } else { 100_000 }));
        let read = Tally { ios: 1000, response: Some(response), ..Tally::default() };
        let outcome = Outcome {
            tallies: Tallies { read: Some(read), ..Tallies::default() },
            pacing: Some(Pacing { due: 1000, ..Pacing::default() }),
            ..Outcome::default()
        };
        Measurement { round, outcome, ..Measurement::default() }
    }

    #[test]
    fn a_rate_is_kept_if_most_windows_keep_it_and_all_together_do() {
        let ask = AskSpec::new(vec!["p99 <= 1ms".parse().expect("a condition")]);
        let kept = |late: [u64; 4]| {
            let windows: Vec<Measurement> =
                (1..).zip(late).map(|(round, late)| window(round, late)).collect();
            let windows: Vec<(f64, &Measurement)> = windows.iter().map(|m| (16.0, m)).collect();
            let held = Held::in_windows(&ask, 16.0, 1, &windows);
            (held.missed, held.kept)
        };
        assert_eq!(kept([10, 11, 9, 10]), (vec![2], true));
        assert_eq!(kept([11, 11, 11, 1]), (vec![1, 2, 3], false), "most windows miss it");
        assert_eq!(kept([100, 1, 1, 1]), (vec![1], false), "one is bad enough for all");
    }
}
