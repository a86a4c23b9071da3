//! The wall time of a run by phase.

use iotax_model::Run;
use iotax_model::plan::BETWEEN;
use iotax_model::record::RunPhase;
use iotax_model::units::Nanos;

/// Name of the phase in which the load runs.
const MEASURE: &str = "measure";

/// The phases of a run and their sum.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// Recorded phases, each with its share of the total, 0 to 1.
    pub phases: Vec<(RunPhase, f64)>,
    /// The total in nanoseconds.
    pub total_ns: u64,
    /// Share of the total outside of the measuring phase, 0 to 1.
    pub outside: f64,
}

impl Timing {
    /// Sums the recorded phases; `None` if no time was recorded.
    #[must_use]
    pub fn of(phases: &[RunPhase]) -> Option<Self> {
        let total_ns: u64 = phases.iter().map(|phase| phase.duration_ns).sum();
        if total_ns == 0 {
            return None;
        }
        let share = |ns: u64| ns as f64 / total_ns as f64;
        let measured =
            phases.iter().filter(|phase| phase.name == MEASURE).map(|phase| phase.duration_ns).sum();
        Some(Self {
            phases: phases.iter().map(|phase| (phase.clone(), share(phase.duration_ns))).collect(),
            total_ns,
            outside: 1.0 - share(measured),
        })
    }
}

/// Returns the expected time of a round: as planned, or as measured so far, whichever is longer.
#[must_use]
pub fn round_time(run: &Run) -> Nanos {
    let cells = run.plan.cells() as u64;
    let planned = run.plan.round_time().0 + BETWEEN.0.saturating_mul(cells);
    let taken = run.phases.iter().filter(|phase| ["prepare", MEASURE].contains(&phase.name.as_str()));
    let taken: u64 = taken.map(|phase| phase.duration_ns).sum();
    Nanos(planned.max(taken.saturating_mul(cells) / (run.measurements.len() as u64).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_measuring_is_outside() {
        let phase =
            |name: &str, seconds: u64| RunPhase { name: name.into(), duration_ns: seconds * 1_000_000_000 };
        let timing =
            Timing::of(&[phase("boot", 10), phase("measure", 60), phase("prepare", 10)]).expect("times");
        assert_eq!(timing.total_ns, 80_000_000_000);
        assert!((timing.outside - 0.25).abs() < 1e-12);
        assert!((timing.phases[0].1 - 0.125).abs() < 1e-12);
        assert_eq!((Timing::of(&[]), Timing::of(&[phase("boot", 0)])), (None, None));
    }
}
