//! From a run's records to what can be said of them.
//!
//! Every target is compared with the plan's baseline on every workload by every [`Metric`], which gives the total, and along
//! the [`edges()`] of the ladder, which gives each layer's part. Each metric is one family of hypotheses for Holm's procedure: in
//! a closed loop, I/Os per second, bytes per second and mean latency are one statement in three units, so they are not
//! counted against one another. The steps answer a question of their own and are families of their own; only those that
//! leave the baseline are its comparisons again, so that no two verdicts stand on one pair.

pub mod amplification;
mod checks;
pub mod cpu_breakdown;
pub mod edges;
pub mod effects;
pub mod failed;
pub mod fairness;
pub mod figures;
mod finding;
pub mod grade;
pub mod latency_breakdown;
pub mod looks;
pub mod network;
mod outliers;
pub mod percentile;
mod samples;
mod stack_diff;
pub mod timing;
mod warm_up;

use std::collections::{HashMap, HashSet};

use iotax_model::record::Measurement;
use iotax_model::{Plan, TargetSpec, Warning};

pub use amplification::Flow;
pub use cpu_breakdown::CpuByRole;
pub use edges::{Edge, edges};
pub use effects::{Drift, Effects};
pub use failed::{Failed, Failure};
pub use fairness::{Crowd, Noise, Of};
pub use figures::{Metric, Summary};
pub use grade::Grade;
pub use latency_breakdown::Inside;
pub use looks::{Course, Standing, Stopped};
pub use network::Network;
pub use percentile::Percentile;
pub use timing::Timing;

use self::finding::Finding;
use self::looks::{Levels, Replay};
use self::samples::{Case, Figures};
use crate::stats::ALPHA;
use crate::stats::paired::Interval;
use crate::stats::verdict::{Decision, Verdict, decide};
use crate::store::Run;

/// What a target costs in absolute terms: the ratio and its interval, applied to the baseline's geometric mean. So it
/// never disagrees with the verdict, as an interval of plain differences would where the noise grows with the value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tax {
    /// Nanoseconds per I/O above the baseline; negative if it costs less.
    pub ns: f64,
    /// At the comparison's confidence; absent for fewer than two rounds, or where the ratio's interval spans more than a
    /// factor of 100, which says nothing.
    pub interval: Option<Interval>,
}

/// The widest interval of a ratio that is given in absolute terms too.
const WIDEST: f64 = 100.0;

impl Tax {
    /// Of a ratio and its interval over a baseline of so many nanoseconds.
    pub(crate) fn of(baseline_ns: f64, ratio: f64, interval: Option<Interval>) -> Self {
        let above = |ratio: f64| baseline_ns * (ratio - 1.0);
        let telling = interval.filter(|i| i.high <= i.low * WIDEST);
        Self { ns: above(ratio), interval: telling.map(|i| i.map(above)) }
    }
}

/// One target against another, on one workload, by one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The workload's name.
    pub workload: String,
    /// What is compared.
    pub metric: Metric,
    /// The target's name.
    pub target: String,
    /// The name of the target that it is compared with.
    pub baseline: String,
    /// Geometric mean over the rounds of target / baseline.
    pub ratio: f64,
    /// The interval of the ratio that the verdict rests on: its level is Holm's, so it is wider than
    /// [`Self::interval_95`] wherever several comparisons are made. Absent for fewer than two rounds.
    pub interval: Option<Interval>,
    /// The confidence of `interval`, 0.95 or more. Absent as `interval` is.
    pub confidence: Option<f64>,
    /// The plain 95% interval of the ratio, for this comparison taken alone.
    pub interval_95: Option<Interval>,
    /// The sign-flip permutation p-value of "no difference at all", from six rounds on: beside Student's t, which
    /// assumes that log ratios are roughly normal, it assumes only that their signs are chance.
    pub sign_flip_p: Option<f64>,
    /// What it comes to, with the plan's margin.
    pub verdict: Verdict,
    /// Rounds in which both targets were measured.
    pub rounds: u32,
    /// If undecided: how many rounds in all would decide, at this variance.
    pub needed_rounds: Option<u32>,
    /// In a run that adds rounds: after how many of the plan's rounds it was decided. All figures are those of that look.
    pub decided_at: Option<u32>,
    /// Why no verdict is given whatever the figures say: which measurement it rests on cannot be used, and why. The verdict
    /// then is undecided.
    pub withheld: Option<String>,
    /// The same in absolute terms, for metrics that are times.
    pub tax: Option<Tax>,
}

/// Everything that can be said of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
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

impl Comparison {
    /// What it comes to in one word: the verdict, or that none is given.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        self.verdict.word_or_withheld(self.withheld.is_some())
    }
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
    let (edges, broken) = looks::whole_and_broken(run);
    let findings = checks::of_measurements(run);
    let (comparisons, steps, standing) = compare(run, &edges, &findings);
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
    let is_network = |name: &str| workload(name).is_some_and(|workload| workload.net.is_some());
    let failures = failed::failures(run, &findings);
    let on_disks = || cells.iter().filter(|(w, ..)| !is_network(w));
    Judgement {
        summaries: cells.iter().filter_map(|(w, spec, m)| Summary::of(w, &spec.name, m)).collect(),
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

/// (workload, target) in the plan's order.
fn each_cell(run: &Run) -> impl Iterator<Item = (&str, &TargetSpec)> {
    run.plan
        .workloads
        .iter()
        .flat_map(|workload| run.plan.targets.iter().map(move |target| (workload.name.as_str(), target)))
}

/// Each cell's measurements, one per round, by (workload, target).
pub(crate) fn by_cell(run: &Run) -> HashMap<(&str, &str), Vec<&Measurement>> {
    let mut cells: HashMap<_, Vec<_>> = HashMap::new();
    for m in &run.measurements {
        cells.entry((m.workload.as_str(), m.target.as_str())).or_default().push(m);
    }
    cells
}

/// What one measurement is known by: target, workload and round.
pub(crate) type Place<'a> = (&'a str, &'a str, u32);

/// The place of a measurement.
pub(crate) fn place(m: &Measurement) -> Place<'_> {
    (&m.target, &m.workload, m.round)
}

/// The place of the measurement that a warning concerns; absent if it concerns more than one.
pub(crate) fn place_of(warning: &Warning) -> Option<Place<'_>> {
    Some((warning.target.as_deref()?, warning.workload.as_deref()?, warning.round?))
}

/// Why the targets of an import are not judged against one another.
const UNPAIRED: &str = "the repetitions of an import are in the order of its files: those of one target were not measured beside those of another";

/// Every comparison with the baseline and every step, decided, and for a run that adds rounds how far it is.
fn compare(
    run: &Run,
    edges: &[Edge],
    findings: &[Finding],
) -> (Vec<Comparison>, Vec<Comparison>, Option<Standing>) {
    let plan = &run.plan;
    let mut figures = Figures::new(&Metric::ALL);
    let mut withheld = grade::withheld(findings);
    for measurement in &run.measurements {
        let unpaired = run.source.as_ref().map(|_| UNPAIRED.to_owned());
        figures.add(plan, measurement, withheld.remove(&place(measurement)).or(unpaired));
    }
    let pairs = samples::pairs(plan, edges);
    let cases = figures.cases(plan, &pairs);
    let levels = plan.until_decided.as_ref().and_then(|_| Levels::new(&plan.looks()));
    let (decided, standing) = match levels {
        None => (at_once(plan, &cases), None),
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
fn at_once(plan: &Plan, cases: &[Case]) -> Vec<Option<Comparison>> {
    let all: Vec<_> = cases.iter().map(|case| case.logs(u32::MAX)).collect();
    let mut decided: Vec<Option<Comparison>> = cases.iter().map(|_| None).collect();
    for family in Metric::ALL.into_iter().flat_map(|metric| [(metric, false), (metric, true)]) {
        let is_member = |case: &Case| case.family() == family && case.withheld(u32::MAX).is_none();
        let members = (0..cases.len()).filter(|i| is_member(&cases[*i]));
        let asked: Vec<_> = members.filter_map(|i| Some((i, all[i].as_ref()?))).collect();
        let logs: Vec<_> = asked.iter().map(|(_, logs)| (*logs, family.0.more_is_better())).collect();
        for ((i, _), decision) in asked.iter().zip(decide(&logs, ALPHA, plan.margin.share())) {
            decided[*i] = cases[*i].comparison(plan, u32::MAX, &decision);
        }
    }
    let nothing = |case: &Case| case.comparison(plan, u32::MAX, &Decision::none());
    decided.into_iter().zip(cases).map(|(decided, case)| decided.or_else(|| nothing(case))).collect()
}
