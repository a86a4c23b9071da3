//! Judges a run: derives comparisons, breakdowns and warnings from its records.
//!
//! Every target is compared with the plan's baseline on every workload by every [`Metric`] that applies to it, which gives the total cost,
//! and along the [edges](mod@crate::edges) between targets, which gives the cost of each layer. Each family of metrics goes through Holm's
//! procedure. The steps along the edges form their own families. A step that starts at the baseline reuses the comparison with the
//! baseline, so that no pair gets two verdicts.

use std::collections::HashSet;

use iotax_model::{CellKey, Plan, RunState, Warning, WarningKind};

use crate::cell_judgement::{CellJudgement, CellJudgements};
use crate::cell_means::CellMeans;
use crate::cells::{by_cell, each_cell};
use crate::comparison::Comparison;
use crate::edges::Edge;
use crate::effects::Effects;
use crate::fairness::{GroupFairness, MemberKind, NeighbourLoad};
use crate::fidelity::{is_late, may_be_late};
use crate::figures::{is_empty, may_be_empty};
use crate::finding::Finding;
use crate::grade::Grade;
use crate::latency_breakdown::LatencyBreakdown;
use crate::looks::{Levels, Replay};
use crate::metric::Metric;
use crate::network::Network;
use crate::sample::decide_family;
use crate::samples::{MeasuredFigures, PendingComparison, families};
use crate::sequential_status::SequentialStatus;
use crate::stats::verdict::Decision;
use crate::summary::Summary;
use crate::timing::Timing;
use crate::{amplification::IoAmplification, cpu_breakdown::CpuByRole};
use crate::{checks, failed, grade, looks, samples};
use iotax_model::Run;
use iotax_model::record::{Measurement, RunSource};

/// Everything that is derived from a run's records.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// The metrics by which the run was judged, in the order of tables and documents.
    pub figures: Vec<Metric>,
    /// Every target compared with the baseline, in the plan's order of workloads, targets and metrics.
    pub comparisons: Vec<Comparison>,
    /// Edges between targets, each of one layer or setting. Leaves out edges to the baseline, and edges between targets on different
    /// devices.
    pub edges: Vec<Edge>,
    /// For every edge, the target at its end compared with the target at its start, in the order of workloads, edges and metrics.
    pub steps: Vec<Comparison>,
    /// Progress of a run that adds rounds until its comparisons are decided; absent for other runs.
    pub sequential: Option<SequentialStatus>,
    /// Results of each workload on each target that was measured, in the plan's order.
    pub cells: CellJudgements,
    /// Differences between rounds and drift, for each workload, over all targets; empty for an import.
    pub effects: Vec<Effects>,
    /// Wall time by phase; absent if it was not recorded.
    pub timing: Option<Timing>,
    /// The warnings recorded in the run, then the warnings of the checks, each once. In a complete run, recorded warnings about an early
    /// end are left out.
    pub warnings: Vec<Warning>,
    /// Grade of each measurement, in the run's order.
    pub grades: Vec<Grade>,
}

impl Judgement {
    /// Returns the comparison of a target with the baseline; `None` if the two were not compared.
    #[must_use]
    pub fn comparison(&self, cell: CellKey<'_>, metric: Metric) -> Option<&Comparison> {
        self.comparisons.iter().find(|c| c.cell() == cell && c.metric == metric)
    }

    /// Returns the comparison of an edge's end with its start; `None` if the two were not compared.
    #[must_use]
    pub fn step(&self, workload: &str, edge: &Edge, metric: Metric) -> Option<&Comparison> {
        let along = |c: &&Comparison| c.target == edge.to && c.baseline == edge.from;
        self.steps.iter().filter(along).find(|c| c.workload == workload && c.metric == metric)
    }

    /// Returns the edge from a comparison's baseline to its target; `None` if the two are not joined by an edge.
    #[must_use]
    pub fn edge(&self, comparison: &Comparison) -> Option<&Edge> {
        self.edges.iter().find(|edge| edge.to == comparison.target && edge.from == comparison.baseline)
    }

    /// Returns the results of a workload on a target; `None` if it was not measured.
    #[must_use]
    pub fn cell(&self, cell: CellKey<'_>) -> Option<&CellJudgement> {
        self.cells.get(cell)
    }

    /// Iterates over the targets whose results on this workload contain the value that `part` selects; yields each target's name with the
    /// value.
    pub fn on<'a, T: 'a>(
        &'a self,
        workload: &'a str,
        part: impl Fn(&'a CellJudgement) -> Option<&'a T>,
    ) -> impl Iterator<Item = (&'a str, &'a T)> {
        let cells = self.cells.iter().filter(move |cell| cell.workload == workload);
        cells.filter_map(move |cell| Some((cell.target.as_str(), part(cell)?)))
    }

    /// Returns whether the results of a workload on a target cannot be used: more than a tenth of the windows are empty, more than half of
    /// the replays are late, or a measurement is unusable for another reason.
    #[must_use]
    pub fn is_unusable(&self, run: &Run, cell: CellKey<'_>) -> bool {
        let first = run.first_measured_round();
        let graded = run.measurements.iter().zip(&self.grades).filter(|(m, _)| m.round >= first);
        let of_cell: Vec<_> = graded.filter(|(m, _)| m.cell() == cell).collect();
        let unusable: Vec<_> = of_cell.iter().filter(|(_, grade)| **grade == Grade::Unusable).collect();
        let count =
            |is_one: &dyn Fn(&Measurement) -> bool| unusable.iter().filter(|(m, _)| is_one(m)).count();
        let (empty, late) = (count(&is_empty), count(&is_late));
        unusable.len() > empty + late
            || !may_be_empty(empty, of_cell.len())
            || !may_be_late(late, of_cell.len())
    }

    /// Returns the figures of a workload on a target; `None` if it was not measured.
    #[must_use]
    pub fn summary(&self, cell: CellKey<'_>) -> Option<&Summary> {
        Some(&self.cell(cell)?.summary)
    }
}

/// Judges a run by all metrics. The run need not be complete.
#[must_use]
pub fn judge(run: &Run) -> Judgement {
    judge_by(run, Metric::ALL)
}

/// Judges a run by the given metrics only.
#[must_use]
pub fn judge_by(run: &Run, figures: &[Metric]) -> Judgement {
    let (edges, broken) =
        if run.plan.is_together() { Default::default() } else { looks::whole_and_broken(run) };
    let findings = checks::of_measurements(run);
    let means = CellMeans::of(run, figures, &findings);
    // An import's repetitions are numbered in the order of its files, so two targets have no round in common.
    let (comparisons, steps, status) = match run.source {
        RunSource::Imported(_) => (vec![], vec![], None),
        RunSource::Measured => compare(run, figures, &means, &edges, &findings),
    };
    let of_run = checks::of_run(run, &comparisons, &broken, status.as_ref());
    let found: Vec<&Warning> = of_run.iter().chain(findings.iter().map(|finding| &finding.warning)).collect();
    let mut known: HashSet<&Warning> = run.warnings.iter().collect();
    let new = found.into_iter().filter(|warning| known.insert(*warning));
    // The cause of an early end no longer matters once the run is resumed and complete.
    let is_overcome = |w: &Warning| {
        w.kind == WarningKind::Incomplete && w.target.is_none() && run.state == RunState::Complete
    };
    let own = run.warnings.iter().filter(|warning| !is_overcome(warning));
    let warnings: Vec<Warning> = own.chain(new).cloned().collect();
    let grades = grade::grades(run, &findings, &warnings);
    // The order of an import's files is not an order of rounds.
    let in_rounds = run.plan.workloads.iter().filter(|_| !run.source.is_imported());
    let effects = in_rounds.filter_map(|w| Effects::of(run, &w.name, &findings)).collect();
    Judgement {
        figures: figures.to_vec(),
        cells: cells(run, figures, &means, &of_measured_rounds(run, findings)),
        effects,
        timing: Timing::of(&run.phases),
        grades,
        comparisons,
        edges,
        steps,
        sequential: status,
        warnings,
    }
}

/// Drops findings about rounds that results do not use, such as rounds before a steady state. Findings about the whole run stay.
fn of_measured_rounds(run: &Run, findings: Vec<Finding>) -> Vec<Finding> {
    let first = run.first_measured_round();
    findings.into_iter().filter(|finding| finding.warning.round.is_none_or(|round| round >= first)).collect()
}

/// Computes the results of each workload on each target that was measured.
fn cells(run: &Run, figures: &[Metric], means: &CellMeans<'_>, findings: &[Finding]) -> CellJudgements {
    let mut failures = failed::failures(run, findings);
    let mut by_cell = by_cell(run);
    let each = each_cell(run).filter_map(|(workload, spec)| {
        let key = CellKey { workload: &workload.name, target: &spec.name };
        let measured = by_cell.remove(&key)?;
        let record = run.targets.iter().find(|record| record.name == spec.name);
        let is_on_disk = !workload.kind.is_network();
        let failure = failures.remove(&key);
        Some(CellJudgement {
            workload: workload.name.clone(),
            target: spec.name.clone(),
            summary: Summary::new(figures, &workload.name, &spec.name, &measured, means)?,
            guests: GroupFairness::new(MemberKind::Guests, &measured),
            jobs: GroupFairness::new(MemberKind::Jobs, &measured),
            neighbour: NeighbourLoad::of(&run.plan.neighbours, &measured),
            latency: is_on_disk.then(|| LatencyBreakdown::of(spec, record, &measured)).flatten(),
            cpu: CpuByRole::of(&workload.name, spec, &measured, means),
            amplification: (is_on_disk && failure.is_none())
                .then(|| IoAmplification::of(record, &measured))
                .flatten(),
            network: Network::of(workload, record, &measured),
            failure,
        })
    });
    each.collect()
}

/// Decides every comparison with the baseline and every step, and for a run that adds rounds returns its progress.
fn compare(
    run: &Run,
    figures: &[Metric],
    means: &CellMeans<'_>,
    edges: &[Edge],
    findings: &[Finding],
) -> (Vec<Comparison>, Vec<Comparison>, Option<SequentialStatus>) {
    let plan = &run.plan;
    let metrics: Vec<Metric> = figures.iter().copied().filter(|figure| figure.is_compared()).collect();
    let mut figures = MeasuredFigures::new(metrics.clone());
    let mut withheld = grade::withheld(findings);
    for measurement in run.measured() {
        figures.add(plan, measurement, withheld.remove(&measurement.key()));
    }
    let pairs = samples::pairs(plan, edges);
    let cases = figures.cases(plan, &pairs);
    let levels = plan.until_decided().and_then(|_| Levels::new(&plan.looks()));
    let (decided, status) = match levels {
        None => (at_once(plan, means, &cases), None),
        Some(mut levels) => {
            let failed = looks::failed(run);
            let tried = |cell, round| figures.has(cell, round) || failed.contains(&(cell, round));
            let replay = Replay { plan, pairs: &pairs, cases: &cases, tried: &tried };
            let (latest, status) = replay.run(&mut levels);
            let decided = cases.iter().zip(latest).map(|(case, latest)| case.after(plan, means, latest));
            (decided.collect(), Some(looks::stored_status(run, status)))
        }
    };
    let (mut comparisons, mut steps) = (Vec::new(), Vec::new());
    for (case, comparison) in cases.iter().zip(decided) {
        let Some(comparison) = comparison else { continue };
        let list = if case.pair.is_step { &mut steps } else { &mut comparisons };
        list.push(comparison);
    }
    // A step that starts at the baseline reuses the comparison with the baseline.
    let leaves = |c: &&Comparison| edges.iter().any(|edge| edge.to == c.target && edge.from == c.baseline);
    steps.extend(comparisons.iter().filter(leaves).cloned());
    let workload = |c: &Comparison| plan.workloads.iter().position(|w| w.name == c.workload);
    let edge = |c: &Comparison| edges.iter().position(|e| e.to == c.target && e.from == c.baseline);
    steps.sort_by_key(|c| (workload(c), edge(c)));
    (comparisons, steps, status)
}

/// Decides each family of comparisons once, with all rounds; for runs that do not add rounds.
fn at_once(plan: &Plan, means: &CellMeans<'_>, cases: &[PendingComparison]) -> Vec<Option<Comparison>> {
    let mut decided: Vec<Option<Comparison>> = cases.iter().map(|_| None).collect();
    for family in families(cases) {
        let is_member =
            |case: &PendingComparison| case.family() == family && case.withheld(u32::MAX).is_none();
        let members = (0..cases.len()).filter(|i| is_member(&cases[*i]));
        let (members, samples): (Vec<usize>, Vec<_>) =
            members.filter_map(|i| Some((i, (cases[i].metric, cases[i].sample(u32::MAX)?)))).unzip();
        let decisions = decide_family(samples, plan.margin.share());
        for (i, decision) in members.into_iter().zip(decisions) {
            decided[i] = cases[i].comparison(plan, means, u32::MAX, &decision);
        }
    }
    let nothing = |case: &PendingComparison| case.comparison(plan, means, u32::MAX, &Decision::none());
    decided.into_iter().zip(cases).map(|(decided, case)| decided.or_else(|| nothing(case))).collect()
}
