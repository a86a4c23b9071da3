//! Honesty checks: how far the figures can be trusted.
//!
//! One file per cause of misleading figures. `docs/honesty.md` has a table of warning kinds: what each detects, when it fires and what
//! it cannot detect.

mod buffered;
mod cache;
mod clock;
mod content;
pub(crate) mod generator;
mod load;
mod missing;
mod network;
mod pace;
mod replay;
pub(crate) mod step;

use iotax_model::record::{Measurement, TargetRecord};
use iotax_model::{TargetSpec, Warning, WarningKind, Workload};

use crate::comparison::Comparison;
use crate::edges::Edge;
use crate::failed::Failed;
use crate::finding::Finding;
use crate::sequential_status::SequentialStatus;
use iotax_model::Run;

/// A measurement with its run, workload and target.
struct Case<'a> {
    run: &'a Run,
    workload: &'a Workload,
    spec: Option<&'a TargetSpec>,
    record: Option<&'a TargetRecord>,
    m: &'a Measurement,
}

impl Case<'_> {
    fn finding(&self, kind: WarningKind, evidence: String, remedy: &str) -> Finding {
        let warning = Warning {
            kind,
            target: Some(self.m.target.clone()),
            workload: Some(self.m.workload.clone()),
            round: Some(self.m.round),
            evidence,
            remedy: remedy.into(),
        };
        Finding { warning, unusable: false }
    }

    fn in_guest(&self) -> bool {
        self.spec.is_some_and(iotax_model::TargetSpec::is_in_guest)
    }

    /// Returns `the guest` or `the program`, the name for the source of the I/O in messages.
    fn asker(&self) -> &'static str {
        if self.in_guest() { "the guest" } else { "the program" }
    }

    /// Returns whether the I/O must reach the device: direct I/O by an engine that moves data.
    fn is_direct(&self) -> bool {
        self.workload.direct && self.workload.ioengine.moves_data()
    }
}

/// A check of one measurement; returns `None` if it finds nothing.
type Check = fn(&Case<'_>) -> Option<Finding>;

/// Runs all checks of single measurements in order, then the clock check of each guest's short windows taken together.
///
/// Imports are not checked, because nothing was observed that a check could use.
pub(super) fn of_measurements(run: &Run) -> Vec<Finding> {
    if run.source.is_imported() {
        return Vec::new();
    }
    let each = run.measurements.iter().flat_map(|m| of_measurement(run, m));
    each.chain(clock::wrong_in_all(run)).collect()
}

/// Runs the checks of one measurement, independent of all others.
pub(super) fn of_measurement(run: &Run, m: &Measurement) -> Vec<Finding> {
    let Some(workload) = run.plan.workloads.iter().find(|w| w.name == m.workload) else {
        return Vec::new();
    };
    let spec = run.plan.targets.iter().find(|target| target.name == m.target);
    let record = run.targets.iter().find(|record| record.name == m.target);
    let case = Case { run, workload, spec, record, m };
    // Network traffic passes no disk.
    let on_disk = |check: Check| if workload.kind.is_network() { None } else { check(&case) };
    // Failed I/Os explain the rate, so other explanations would mislead.
    let failed = Failed::of(m).is_too_many();
    let of_working = |check: Check| if failed { None } else { check(&case) };
    let of_working_disk = |check: Check| if failed { None } else { on_disk(check) };
    let checks = [
        missing::no_io(&case),
        missing::errors(&case),
        missing::corrupt(&case),
        missing::unverified(&case),
        missing::stopped(&case),
        of_working(generator::cannot_sustain),
        of_working(replay::unfaithful),
        of_working(replay::scaled),
        clock::elapsed(&case),
        clock::steal(&case),
        on_disk(cache::kept),
        on_disk(cache::answered),
        on_disk(cache::put_off),
        on_disk(buffered::cached_direct_io),
        on_disk(content::discarded),
        of_working_disk(generator::saturated),
        of_working(pace::uneven),
        pace::heat(&case),
        pace::governor(&case),
        of_working_disk(load::device),
        load::cpu(&case),
    ];
    checks.into_iter().flatten().chain(network::findings(&case)).collect()
}

/// Runs the checks of the whole run and of its targets. An import is not checked.
///
/// `broken` lists steps between layers whose two targets are on different devices. `status` is the progress of a run that adds rounds.
pub(super) fn of_run(
    run: &Run,
    comparisons: &[Comparison],
    broken: &[Edge],
    status: Option<&SequentialStatus>,
) -> Vec<Warning> {
    if run.source.is_imported() {
        return Vec::new();
    }
    let mut found: Vec<Warning> = missing::measurements(run, status).into_iter().collect();
    found.extend(missing::comparisons(run, comparisons));
    found.extend(broken.iter().filter_map(|edge| missing::not_one_layer(run, edge)));
    found.extend(clock::emulated(run));
    found.extend(clock::sources(run));
    found.extend(clock::elapsed_in_all(run));
    found.extend(content::holes(run));
    found.extend(content::compressible(run));
    found.extend(buffered::known(run));
    found.extend(network::offloads(run));
    found.extend(pace::over_the_run(run));
    found.extend(super::outliers::outliers(run));
    found
}

/// Builds a warning that concerns all measurements of a target.
fn about_target(record: &TargetRecord, kind: WarningKind, evidence: String, remedy: &str) -> Warning {
    Warning {
        kind,
        target: Some(record.name.clone()),
        workload: None,
        round: None,
        evidence,
        remedy: remedy.into(),
    }
}
