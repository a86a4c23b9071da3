//! Failed I/Os, and failed measurements by workload and target.

use std::collections::HashMap;

use iotax_model::record::{ErrorCount, Measurement};
use iotax_model::{CellKey, MeasurementKey, Warning, WarningKind};

use crate::figures::{is_empty, may_be_empty};
use crate::finding::Finding;
use iotax_model::Run;

/// Largest share of failed I/Os with which a measurement is still usable.
const MOST: f64 = 0.01;
/// Name of the direction of failed flushes in error records.
pub(super) const SYNC: &str = "sync";

/// Number of failed I/Os and of all I/Os of a window, flushes included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failed {
    /// Number of failed I/Os, flushes included.
    pub ios: u64,
    /// Number of all I/Os, failed ones included.
    pub of: u64,
}

impl Failed {
    /// Counts the failed I/Os and all I/Os of one measurement's window.
    #[must_use]
    pub fn of(m: &Measurement) -> Self {
        let ios: u64 = m.outcome.errors.iter().map(ErrorCount::in_window).sum();
        let done: u64 = m.outcome.tallies.each().filter_map(|(_, tally)| Some(tally?.ios)).sum();
        Self { ios, of: ios + done }
    }

    /// Returns the number of failed I/Os of one measurement, without flushes, because a schedule contains no flushes.
    pub(super) fn due(m: &Measurement) -> u64 {
        let errors = m.outcome.errors.iter().filter(|error| error.direction != SYNC);
        errors.map(ErrorCount::in_window).sum()
    }

    /// Returns the share of the I/Os that failed, 0 to 1; 0 without I/O.
    #[must_use]
    pub fn share(self) -> f64 {
        if self.of == 0 { 0.0 } else { self.ios as f64 / self.of as f64 }
    }

    /// Returns whether more than 1% of the I/Os failed; the measurement's other figures then do not describe the storage.
    #[must_use]
    pub fn is_too_many(self) -> bool {
        self.share() > MOST
    }
}

/// Failures of a workload on a target: measurements with too many failed I/Os, a failed flush or an incomplete verification, measurements
/// that ended early, or too many windows without a completed I/O.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Number of failed measurements.
    pub measurements: u32,
    /// Failed I/Os and all I/Os, summed over the rounds.
    pub ios: Failed,
    /// Evidence of the first failure, as text.
    pub reason: String,
}

/// Finds failed measurements, by cell. Empty for a watch, where failed I/Os are a result.
pub(super) fn failures<'a>(run: &Run, findings: &'a [Finding]) -> HashMap<CellKey<'a>, Failure> {
    let mut failures: HashMap<_, Failure> = HashMap::new();
    // In a watch, failed I/Os are a result.
    if run.plan.disturbs() {
        return failures;
    }
    let mut known = Vec::new();
    for warning in findings.iter().filter(|finding| is_failure(finding)).map(|finding| &finding.warning) {
        let Some(key) = warning.measurement() else { continue };
        // A measurement with several findings counts once.
        if known.contains(&key) || is_outweighed(run, key) {
            continue;
        }
        known.push(key);
        failures.entry(key.cell).or_insert_with(|| failure(run, key.cell, warning)).measurements += 1;
    }
    failures
}

/// Returns whether the round had no I/O but is tolerated, because at most a tenth of the rounds of the workload on the target had none.
fn is_outweighed(run: &Run, key: MeasurementKey<'_>) -> bool {
    let (empty, others): (Vec<_>, Vec<_>) = run.of_cell(key.cell).partition(|m| is_empty(m));
    empty.iter().any(|m| m.round == key.round) && may_be_empty(empty.len(), empty.len() + others.len())
}

fn is_failure(finding: &Finding) -> bool {
    finding.unusable && finding.warning.kind == WarningKind::Incomplete
}

/// Builds a failure with its I/O counts; the caller counts the failed measurements.
fn failure(run: &Run, cell: CellKey<'_>, warning: &Warning) -> Failure {
    let mut ios = Failed::default();
    for m in run.of_cell(cell) {
        let one = Failed::of(m);
        ios = Failed { ios: ios.ios + one.ios, of: ios.of + one.of };
    }
    Failure { measurements: 0, ios, reason: warning.evidence.clone() }
}
