//! The price of a durable write: methods compared on each target, and the flushes that each layer passed on.

use std::collections::HashMap;

use iotax_model::histogram::Histogram;
use iotax_model::record::Tallies;
use iotax_model::suite::SuiteShape;
use iotax_model::workload::{SyncMode, Workload};
use iotax_model::{CellKey, Run};

use crate::cells::by_cell;
use crate::comparison::Ratio;
use crate::flushes::{FlushAccount, FlushFate, SwallowEvidence};
use crate::judgement::Judgement;
use crate::metric::Metric;
use crate::percentile::percentile;
use crate::sample::{Sample, decide_family};

/// Name of the method that the other methods are compared with; without it, the first durable method of the plan is used.
const REFERENCE: &str = "fsync";

/// One method of making writes durable, measured on one target.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodOnTarget<'a> {
    /// The workload that writes by this method.
    pub workload: &'a Workload,
    /// The method's name: the workload's, without what else differs in a sweep.
    pub method: &'a str,
    /// The target's name.
    pub target: &'a str,
    /// Commits per second; for a method that makes nothing durable, `sync_file_range` calls per second, or writes per second without such
    /// calls. Absent if unknown.
    pub per_second: Option<f64>,
    /// Median time of a commit in nanoseconds, from the submission of its first write; absent for fewer than 20 commits, or if several I/Os
    /// were in flight.
    pub p50_ns: Option<f64>,
    /// 99th percentile of the commit time in nanoseconds; absent for fewer than 1,000 commits, or if several I/Os were in flight.
    pub p99_ns: Option<f64>,
    /// CPU nanoseconds of the host per commit; absent if unknown.
    pub cpu_ns: Option<f64>,
    /// The method's rate divided by that of the [reference](DurableWrites::reference) on the same target, with the same sizes, jobs, depth and
    /// layout; absent for the reference, if it was not measured there, and if the measurements of either method cannot be used or have no
    /// round in common.
    pub against_reference: Option<Ratio>,
    /// The method's flushes by layer; absent if the method requests no flushes, and with a noisy neighbour.
    pub flushes: Option<FlushAccount>,
}

impl MethodOnTarget<'_> {
    /// Returns whether the method makes its writes durable, by flushes or write by write.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.workload.writes_per_commit().is_some()
    }

    /// Returns whether the other cell differs in the method and the target alone.
    #[must_use]
    pub fn is_at_point_of(&self, other: &Self) -> bool {
        are_at_one_point(self.workload, other.workload)
    }
}

/// Returns whether two workloads have the same sizes, number of jobs, depth and layout, so that they differ in the method alone.
fn are_at_one_point(one: &Workload, other: &Workload) -> bool {
    let point =
        |workload: &Workload| (workload.lengths(), workload.numjobs, workload.iodepth, workload.layout);
    point(one) == point(other)
}

/// Returns whether the run compares methods of making a write durable.
#[must_use]
pub fn is_of_methods(run: &Run) -> bool {
    run.plan.known_suite().is_some_and(|suite| suite.shape == SuiteShape::Methods)
}

/// Flushes that a layer received and did not pass on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swallowed<'a> {
    /// The target's name.
    pub target: &'a str,
    /// The layer that swallowed the flushes, or the two layers between which they were lost.
    pub by: &'a str,
    /// Number of flushes that the layer received; if the layer does not count them, the number that the program requested.
    pub asked: u64,
    /// Number of received flushes that the layer passed on.
    pub passed_on: u64,
}

/// All methods of a run on all its targets.
#[derive(Debug, Clone, PartialEq)]
pub struct DurableWrites<'a> {
    /// The method that the others on the same target are compared with; absent if no method is durable.
    pub reference: Option<&'a str>,
    /// One entry for each method on each target that was measured, in the plan's order of methods, then of targets.
    pub cells: Vec<MethodOnTarget<'a>>,
}

impl<'a> DurableWrites<'a> {
    /// Collects the methods of a run whose suite has [`SuiteShape::Methods`]; `None` for other runs, or if nothing was measured.
    #[must_use]
    pub fn of(run: &'a Run, judgement: &Judgement) -> Option<Self> {
        let suite = run.plan.known_suite().filter(|_| is_of_methods(run))?;
        let durable = run.plan.workloads.iter().filter(|workload| workload.writes_per_commit().is_some());
        let names: Vec<&str> = durable.map(|workload| suite.test(workload)).collect();
        let reference = names.iter().find(|name| **name == REFERENCE).or(names.first()).copied();
        let is_reference = |workload: &Workload| Some(suite.test(workload)) == reference;
        let mut ratios = ratios(run, judgement, is_reference);
        let measurements = by_cell(run);
        let mut cells = Vec::new();
        for workload in &run.plan.workloads {
            for spec in &run.plan.targets {
                let cell = CellKey { workload: &workload.name, target: &spec.name };
                let (Some(summary), Some(measured)) = (judgement.summary(cell), measurements.get(&cell))
                else {
                    continue;
                };
                let writes = commit_writes(workload);
                let commits = commits(workload, &summary.tallies);
                let record = run.targets.iter().find(|record| record.name == spec.name);
                cells.push(MethodOnTarget {
                    workload,
                    method: suite.test(workload),
                    target: &spec.name,
                    per_second: summary.of(Metric::IOPS).map(|iops| iops / writes),
                    p50_ns: commits.and_then(|commits| percentile(commits, 0.5)),
                    p99_ns: commits.and_then(|commits| percentile(commits, 0.99)),
                    cpu_ns: summary.of(Metric::CPU_PER_IO).map(|ns| ns * writes),
                    against_reference: ratios.remove(&cell),
                    flushes: FlushAccount::of(workload, spec, record, measured),
                });
            }
        }
        (!cells.is_empty()).then_some(Self { reference, cells })
    }

    /// Lists the flushes that layers swallowed according to counters, summed over the methods on each target. Leaves out layers that
    /// swallow flushes by a setting and do not count them.
    #[must_use]
    pub fn swallowed(&self) -> Vec<Swallowed<'_>> {
        let mut all: Vec<Swallowed<'_>> = Vec::new();
        for cell in &self.cells {
            let Some(FlushAccount { asked, fate: FlushFate::Swallowed { by, evidence }, .. }) = &cell.flushes
            else {
                continue;
            };
            let (asked, passed_on) = match evidence {
                SwallowEvidence::Setting => continue,
                SwallowEvidence::NoneBelow => (*asked, 0),
                SwallowEvidence::OwnCount { done, dropped } => (*done, done - dropped),
            };
            match all.iter_mut().find(|one| one.target == cell.target && one.by == by) {
                Some(one) => {
                    one.asked += asked;
                    one.passed_on += passed_on;
                }
                None => all.push(Swallowed { target: cell.target, by, asked, passed_on }),
            }
        }
        all
    }

    /// Iterates over the methods measured on one target.
    pub fn on<'b>(&'b self, target: &'b str) -> impl Iterator<Item = &'b MethodOnTarget<'a>> {
        self.cells.iter().filter(move |cell| cell.target == target)
    }
}

/// Returns the number of writes in a commit, or between two `sync_file_range` calls; 1 for a method without such calls.
fn commit_writes(workload: &Workload) -> f64 {
    workload.writes_per_commit().or(workload.flush_call().map(|(_, writes)| writes)).unwrap_or(1) as f64
}

/// Returns the commit times: those of the writes if each write is a commit, or if the method does not flush; otherwise from the first write
/// to the end of the flush. `None` if several I/Os were in flight, because the start of a commit is then ambiguous.
fn commits<'a>(workload: &Workload, tallies: &'a Tallies) -> Option<&'a Histogram> {
    let is_by_itself = workload.sync != SyncMode::None || workload.flush_call().is_none();
    if is_by_itself { tallies.write.as_ref().map(|write| &write.latency) } else { tallies.commit.as_ref() }
}

/// Computes the ratio of each method's rate to the reference's on the same target at the same point, by cell. All ratios of a run share one
/// 5% error rate (Holm).
fn ratios<'a>(
    run: &'a Run,
    judgement: &Judgement,
    is_reference: impl Fn(&Workload) -> bool,
) -> HashMap<CellKey<'a>, Ratio> {
    let cells = by_cell(run);
    let by_round = |cell| -> HashMap<u32, f64> {
        let all = cells.get(&cell).into_iter().flatten();
        all.filter_map(|m| Some((m.round, Metric::IOPS.of(m)?))).collect()
    };
    let (mut of_cells, mut family) = (Vec::new(), Vec::new());
    for target in &run.plan.targets {
        for workload in run.plan.workloads.iter().filter(|workload| !is_reference(workload)) {
            let is_base = |other: &&Workload| is_reference(other) && are_at_one_point(other, workload);
            let Some(reference) = run.plan.workloads.iter().find(is_base) else { continue };
            let base = CellKey { workload: &reference.name, target: &target.name };
            let of_base = by_round(base);
            if judgement.is_unusable(run, base) {
                continue;
            }
            let cell = CellKey { workload: &workload.name, target: &target.name };
            if judgement.is_unusable(run, cell) {
                continue;
            }
            let mine = by_round(cell);
            let mut rounds: Vec<u32> =
                mine.keys().filter(|round| of_base.contains_key(round)).copied().collect();
            rounds.sort_unstable();
            let pairs: Vec<(f64, f64)> = rounds.iter().map(|round| (mine[round], of_base[round])).collect();
            let Some(sample) = Sample::paired(&pairs, Metric::IOPS) else { continue };
            let mean = |cell| judgement.summary(cell)?.of(Metric::IOPS);
            let Some((over, under)) = mean(cell).zip(mean(base)) else { continue };
            of_cells.push((cell, (over / under, under)));
            family.push((Metric::IOPS, sample));
        }
    }
    let decisions = decide_family(family.clone(), run.plan.margin.share());
    let compared = of_cells.into_iter().zip(&family).zip(&decisions);
    compared
        .map(|(((cell, figures), (metric, sample)), decision)| {
            (cell, Ratio::new(*metric, figures, sample, decision, None))
        })
        .collect()
}
