//! From a run's records to what can be said of them.
//!
//! Every target is compared with the plan's baseline on every workload by every [`Metric`], which gives the total, and along
//! the [edges](mod@crate::edges) of the ladder, which gives each layer's part. Each metric is one family of hypotheses for Holm's procedure: in
//! a closed loop, I/Os per second, bytes per second and mean latency are one statement in three units, so they are not
//! counted against one another. The steps answer a question of their own and are families of their own; only those that
//! leave the baseline are its comparisons again, so that no two verdicts stand on one pair.

use std::collections::HashSet;

use iotax_model::{Plan, Warning};

use crate::cells::{by_cell, each_cell, place};
use crate::comparison::Comparison;
use crate::edges::Edge;
use crate::effects::Effects;
use crate::failed::Failure;
use crate::fairness::{Crowd, Noise, Of};
use crate::finding::Finding;
use crate::grade::Grade;
use crate::latency_breakdown::Inside;
use crate::looks::{Levels, Replay};
use crate::metric::Metric;
use crate::network::Network;
use crate::samples::{Case, Figures, shared_variance};
use crate::standing::Standing;
use crate::stats::ALPHA;
use crate::stats::verdict::{Decision, decide};
use crate::store::Run;
use crate::summary::Summary;
use crate::timing::Timing;
use crate::{amplification::Flow, cpu_breakdown::CpuByRole};
use crate::{checks, failed, grade, looks, samples};

/// Everything that can be said of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// The figures that it was judged by, in the order of tables: what documents give.
    pub figures: Vec<Metric>,
    /// Every target against the baseline, in the plan's order of workloads, targets and metrics.
    pub comparisons: Vec<Comparison>,
    /// What leads from target to target, one layer or setting each; without those whose ends stand on different devices.
    pub edges: Vec<Edge>,
    /// Every edge's end against its beginning, in the order of workloads, edges and metrics.
    pub steps: Vec<Comparison>,
    /// How far a run is that adds rounds until all is decided; absent for any other.
    pub standing: Option<Standing>,
    /// One per cell that was measured, in the plan's order of workloads and targets.
    pub summaries: Vec<Summary>,
    /// One per cell of several guests or jobs, in that order.
    pub crowds: Vec<Crowd>,
    /// One per cell that had a neighbour.
    pub noises: Vec<Noise>,
    /// One per cell whose latency was seen from several places.
    pub insides: Vec<Inside>,
    /// One per cell whose CPU time was told apart.
    pub cpus: Vec<CpuByRole>,
    /// One per cell of which more than the program's own account is known.
    pub flows: Vec<Flow>,
    /// One per cell that crossed a network and told of it.
    pub networks: Vec<Network>,
    /// One per cell in which measurements failed.
    pub failures: Vec<Failure>,
    /// What moved the figures of each workload over the run, whatever the target.
    pub effects: Vec<Effects>,
    /// Where the wall time went; absent if it was not recorded.
    pub timing: Option<Timing>,
    /// The run's own warnings, then what the checks found.
    pub warnings: Vec<Warning>,
    /// How far each measurement can be trusted, in the order of the run's measurements.
    pub grades: Vec<Grade>,
}

impl Judgement {
    /// The comparison of a target with the baseline.
    #[must_use]
    pub fn comparison(&self, workload: &str, target: &str, metric: Metric) -> Option<&Comparison> {
        self.comparisons.iter().find(|c| c.workload == workload && c.target == target && c.metric == metric)
    }

    /// The comparison along an edge.
    #[must_use]
    pub fn step(&self, workload: &str, edge: &Edge, metric: Metric) -> Option<&Comparison> {
        let along = |c: &&Comparison| c.target == edge.to && c.baseline == edge.from;
        self.steps.iter().filter(along).find(|c| c.workload == workload && c.metric == metric)
    }

    /// The edge that a comparison follows, if it follows one.
    #[must_use]
    pub fn edge(&self, comparison: &Comparison) -> Option<&Edge> {
        self.edges.iter().find(|edge| edge.to == comparison.target && edge.from == comparison.baseline)
    }

    /// What became of the packets of a cell.
    #[must_use]
    pub fn network(&self, workload: &str, target: &str) -> Option<&Network> {
        self.networks.iter().find(|n| n.workload == workload && n.target == target)
    }

    /// What failed in a cell.
    #[must_use]
    pub fn failure(&self, workload: &str, target: &str) -> Option<&Failure> {
        self.failures.iter().find(|f| f.workload == workload && f.target == target)
    }

    /// Whether any measurement of a cell of this run cannot be used.
    #[must_use]
    pub fn is_unusable(&self, run: &Run, workload: &str, target: &str) -> bool {
        let graded = run.measurements.iter().zip(&self.grades);
        let mut unusable = graded.filter(|(_, grade)| **grade == Grade::Unusable);
        unusable.any(|(m, _)| m.workload == workload && m.target == target)
    }

    /// The summary of a cell.
    #[must_use]
    pub fn summary(&self, workload: &str, target: &str) -> Option<&Summary> {
        self.summaries.iter().find(|s| s.workload == workload && s.target == target)
    }
}

/// Judges a run, finished or not.
#[must_use]
pub fn judge(run: &Run) -> Judgement {
    judge_by(run, Metric::ALL)
}

/// Judges a run by these figures: documents give them and no others.
#[must_use]
pub fn judge_by(run: &Run, figures: &[Metric]) -> Judgement {
    let (edges, broken) = looks::whole_and_broken(run);
    let findings = checks::of_measurements(run);
    let (comparisons, steps, standing) = compare(run, figures, &edges, &findings);
    let of_run = checks::of_run(run, &comparisons, &broken, standing.as_ref());
    let found: Vec<&Warning> = of_run.iter().chain(findings.iter().map(|finding| &finding.warning)).collect();
    let mut known: HashSet<&Warning> = run.warnings.iter().collect();
    let new = found.into_iter().filter(|warning| known.insert(*warning));
    let warnings: Vec<Warning> = run.warnings.iter().chain(new).cloned().collect();
    let mut by_cell = by_cell(run);
    let cells: Vec<_> = each_cell(run)
        .map(|(w, spec)| (w, spec, by_cell.remove(&(w, spec.name.as_str())).unwrap_or_default()))
        .collect();
    let record = |name: &str| run.targets.iter().find(|record| record.name == name);
    let workload = |name: &str| run.plan.workloads.iter().find(|workload| workload.name == name);
    let is_network = |name: &str| workload(name).is_some_and(|workload| workload.kind().is_network());
    let failures = failed::failures(run, &findings);
    let on_disks = || cells.iter().filter(|(w, ..)| !is_network(w));
    Judgement {
        figures: figures.to_vec(),
        summaries: cells.iter().filter_map(|(w, spec, m)| Summary::new(figures, w, &spec.name, m)).collect(),
        crowds: cells
            .iter()
            .flat_map(|(w, spec, m)| [Of::Guests, Of::Jobs].map(|of| Crowd::new(of, w, &spec.name, m)))
            .flatten()
            .collect(),
        noises: cells
            .iter()
            .filter_map(|(w, spec, m)| Noise::of(w, &spec.name, &run.plan.neighbours, m))
            .collect(),
        insides: on_disks().filter_map(|(w, spec, m)| Inside::of(w, spec, record(&spec.name), m)).collect(),
        cpus: cells.iter().filter_map(|(w, spec, m)| CpuByRole::of(w, spec, m)).collect(),
        flows: on_disks()
            .filter(|(w, spec, _)| !failures.iter().any(|f| f.workload == *w && f.target == spec.name))
            .filter_map(|(w, spec, m)| Flow::of(w, &spec.name, record(&spec.name), m))
            .collect(),
        networks: cells
            .iter()
            .filter_map(|(w, spec, m)| Network::of(workload(w)?, &spec.name, record(&spec.name), m))
            .collect(),
        // The order of files is not that of a run's rounds.
        effects: run
            .plan
            .workloads
            .iter()
            .filter(|_| run.source.is_none())
            .filter_map(|w| Effects::of(run, &w.name))
            .collect(),
        failures,
        timing: Timing::of(&run.phases),
        grades: grade::grades(run, &findings, &warnings),
        comparisons,
        edges,
        steps,
        standing,
        warnings,
    }
}

/// Why the targets of an import are not judged against one another.
const UNPAIRED: &str = "the repetitions of an import are in the order of its files: those of one target were not measured beside those of another";

/// Every comparison with the baseline and every step, decided, and for a run that adds rounds how far it is.
fn compare(
    run: &Run,
    figures: &[Metric],
    edges: &[Edge],
    findings: &[Finding],
) -> (Vec<Comparison>, Vec<Comparison>, Option<Standing>) {
    let plan = &run.plan;
    let metrics: Vec<Metric> = figures.iter().copied().filter(|figure| figure.is_compared()).collect();
    let mut figures = Figures::new(metrics.clone());
    let mut withheld = grade::withheld(findings);
    for measurement in &run.measurements {
        let unpaired = run.source.as_ref().map(|_| UNPAIRED.to_owned());
        figures.add(plan, measurement, withheld.remove(&place(measurement)).or(unpaired));
    }
    let pairs = samples::pairs(plan, edges);
    let cases = figures.cases(plan, &pairs);
    let levels = plan.until_decided.as_ref().and_then(|_| Levels::new(&plan.looks()));
    let (decided, standing) = match levels {
        None => (at_once(plan, &metrics, &cases), None),
        Some(mut levels) => {
            let failed = looks::failed(run);
            let tried = |cell, round| figures.has(cell, round) || failed.contains(&(cell, round));
            let replay = Replay { plan, pairs: &pairs, cases: &cases, tried: &tried };
            let (said, standing) = replay.run(&mut levels);
            let decided = cases.iter().zip(said).map(|(case, said)| case.after(plan, said));
            (decided.collect(), Some(looks::at_rest(run, standing)))
        }
    };
    let (mut comparisons, mut steps) = (Vec::new(), Vec::new());
    for (case, comparison) in cases.iter().zip(decided) {
        let Some(comparison) = comparison else { continue };
        let list = if case.pair.is_step { &mut steps } else { &mut comparisons };
        list.push(comparison);
    }
    // A step that leaves the baseline is the comparison with it.
    let leaves = |c: &&Comparison| edges.iter().any(|edge| edge.to == c.target && edge.from == c.baseline);
    steps.extend(comparisons.iter().filter(leaves).cloned());
    let workload = |c: &Comparison| plan.workloads.iter().position(|w| w.name == c.workload);
    let edge = |c: &Comparison| edges.iter().position(|e| e.to == c.target && e.from == c.baseline);
    steps.sort_by_key(|c| (workload(c), edge(c)));
    (comparisons, steps, standing)
}

/// Each family decided once, with all rounds.
fn at_once(plan: &Plan, metrics: &[Metric], cases: &[Case]) -> Vec<Option<Comparison>> {
    let mut decided: Vec<Option<Comparison>> = cases.iter().map(|_| None).collect();
    for family in metrics.iter().flat_map(|metric| [(*metric, false), (*metric, true)]) {
        let is_member = |case: &Case| case.family() == family && case.withheld(u32::MAX).is_none();
        let members = || (0..cases.len()).filter(|i| is_member(&cases[*i]));
        let prior = shared_variance(members().map(|i| &cases[i]), u32::MAX);
        let logs = |i: usize| Some(cases[i].logs(u32::MAX)?.map(|logs| logs.with(prior)));
        let asked: Vec<_> = members().filter_map(|i| Some((i, logs(i)?))).collect();
        let logs: Vec<_> = asked.iter().map(|(_, logs)| (logs, family.0.more_is_better())).collect();
        for ((i, _), decision) in asked.iter().zip(decide(&logs, ALPHA, plan.margin.share())) {
            decided[*i] = cases[*i].comparison(plan, u32::MAX, &decision);
        }
    }
    let nothing = |case: &Case| case.comparison(plan, u32::MAX, &Decision::none());
    decided.into_iter().zip(cases).map(|(decided, case)| decided.or_else(|| nothing(case))).collect()
}
