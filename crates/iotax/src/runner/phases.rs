//! Measures the wall time of a run, by phase.

use std::time::{Duration, Instant};

use iotax_model::record::RunPhase;

/// Name of the phase that creates storage, and the files that guests boot.
pub(super) const PROVISION: &str = "provision";
pub(super) const BOOT: &str = "boot";
pub(super) const FILL: &str = "fill";
/// Name of the phase before a measurement: renewing snapshots, resuming guests, dropping caches.
pub(super) const PREPARE: &str = "prepare";
/// Name of the phase of warm-up and window.
pub(super) const MEASURE: &str = "measure";
/// Name of the phase after a measurement: pausing guests, storing results. At the end of the run: ending guests.
pub(super) const FINISH: &str = "finish";

/// A stopwatch that assigns all time to phases.
#[derive(Debug, Default)]
pub(super) struct Phases {
    spent: Vec<(&'static str, Duration)>,
    now: Option<(&'static str, Instant)>,
}

impl Phases {
    /// Ends the current phase and counts time in the phase `name` from now on.
    pub(super) fn begin(&mut self, name: &'static str) {
        self.end();
        self.now = Some((name, Instant::now()));
    }

    /// Adds time to a phase.
    pub(super) fn add(&mut self, name: &'static str, time: Duration) {
        match self.spent.iter_mut().find(|(known, _)| *known == name) {
            Some((_, spent)) => *spent += time,
            None => self.spent.push((name, time)),
        }
    }

    fn end(&mut self) {
        if let Some((name, begun)) = self.now.take() {
            self.add(name, begun.elapsed());
        }
    }

    /// Ends the current phase, and returns all phases in the order in which they first began.
    pub(super) fn finish(mut self) -> Vec<RunPhase> {
        self.end();
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.spent
            .into_iter()
            .map(|(name, time)| RunPhase { name: name.to_owned(), duration_ns: nanos(time) })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_is_in_one_phase() {
        let begun = Instant::now();
        let mut phases = Phases::default();
        phases.add(PROVISION, Duration::from_secs(7));
        for name in [PREPARE, MEASURE, PREPARE] {
            phases.begin(name);
            std::thread::sleep(Duration::from_millis(5));
        }
        let spent = phases.finish();
        let names: Vec<&str> = spent.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, [PROVISION, PREPARE, MEASURE]);
        assert_eq!(spent[0].duration_ns, 7_000_000_000);
        let timed: u64 = spent[1..].iter().map(|phase| phase.duration_ns).sum();
        assert!((15_000_000..=begun.elapsed().as_nanos()).contains(&u128::from(timed)), "{spent:?}");
        assert!(spent[1].duration_ns >= 10_000_000, "{spent:?}");
    }
}
