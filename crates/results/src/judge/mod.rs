//! From a run's records to what can be said of them.
//!
//! Every target is compared with the plan's baseline on every workload by every [`Metric`], which gives the total, and along
//! the [`edges()`] of the ladder, which gives each layer's part. Each metric is one family of hypotheses for Holm's procedure: in
//! a closed loop, I/Os per second, bytes per second and mean latency are one statement in three units, so they are not
//! counted against one another. The steps answer a question of their own and are families of their own; only those that
//! leave the baseline are its comparisons again, so that no two verdicts stand on one pair.

mod checks;
pub mod crowd;
pub mod edges;
pub mod effects;
pub mod figures;
pub mod flow;
pub mod grade;
pub mod inside;
mod outliers;
mod parts;
pub mod percentile;
pub mod roles;
pub mod timing;
mod warm_up;

use iotax_model::record::Measurement;
use iotax_model::{TargetSpec, Warning};

pub use crowd::{Crowd, Noise};
pub use edges::{Edge, edges};
pub use effects::{Drift, Effects};
pub use figures::{Metric, Summary};
pub use flow::Flow;
pub use grade::Grade;
pub use inside::Inside;
pub use percentile::Percentile;
pub use roles::CpuByRole;
pub use timing::Timing;

use crate::report::words;
use crate::stats::paired::{Differences, Interval};
use crate::stats::verdict::{Verdict, decide};
use crate::stats::{ALPHA, Estimate, MARGIN};
use crate::store::Run;

/// What a target costs in absolute terms: the ratio and its interval, applied to the baseline's geometric mean. So it
/// never disagrees with the verdict, as an interval of plain differences would where the noise grows with the value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tax {
    /// Nanoseconds per I/O above the baseline; negative if it costs less.
    pub ns: f64,
    /// At the comparison's confidence; absent for fewer than two blocks, or where the ratio's interval spans more than a
    /// factor of 100, which says nothing.
    pub interval: Option<Interval>,
}

/// The widest interval of a ratio that is given in absolute terms too.
const WIDEST: f64 = 100.0;

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
    /// Geometric mean over the blocks of target / baseline.
    pub ratio: f64,
    /// The interval of the ratio that the verdict rests on: its level is Holm's, so it is wider than
    /// [`Self::interval_95`] wherever several comparisons are made. Absent for fewer than two blocks.
    pub interval: Option<Interval>,
    /// The confidence of `interval`, 0.95 or more. Absent as `interval` is.
    pub confidence: Option<f64>,
    /// The plain 95% interval of the ratio, for this comparison taken alone.
    pub interval_95: Option<Interval>,
    /// The sign-flip permutation p-value of "no difference at all", from six blocks on: beside Student's t, which
    /// assumes that log ratios are roughly normal, it assumes only that their signs are chance.
    pub sign_flip_p: Option<f64>,
    /// What it comes to, with the margin of 2%.
    pub verdict: Verdict,
    /// Blocks in which both targets were measured.
    pub blocks: u32,
    /// If undecided: how many blocks in all would decide, at this variance.
    pub needed_blocks: Option<u32>,
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
    /// One per cell that was measured, in the plan's order of workloads and targets.
    pub summaries: Vec<Summary>,
    /// One per cell of several guests, in that order.
    pub crowds: Vec<Crowd>,
    /// One per cell that had a neighbour.
    pub noises: Vec<Noise>,
    /// One per cell whose latency was seen from several places.
    pub insides: Vec<Inside>,
    /// One per cell whose CPU time was told apart.
    pub cpus: Vec<CpuByRole>,
    /// One per cell of which more than the program's own account is known.
    pub flows: Vec<Flow>,
    /// What moved the figures of each workload over the run, whatever the target.
    pub effects: Vec<Effects>,
    /// Where the wall time went; absent if it was not recorded.
    pub timing: Option<Timing>,
    /// The run's own warnings, then what the checks found.
    pub warnings: Vec<Warning>,
    /// How far each measurement can be trusted, in the order of the run's measurements.
    pub grades: Vec<Grade>,
    /// What it means, in sentences.
    pub conclusions: Vec<String>,
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

    /// The summary of a cell.
    #[must_use]
    pub fn summary(&self, workload: &str, target: &str) -> Option<&Summary> {
        self.summaries.iter().find(|s| s.workload == workload && s.target == target)
    }
}

/// Judges a run, finished or not.
#[must_use]
pub fn judge(run: &Run) -> Judgement {
    let targets: Vec<&str> = run.plan.targets.iter().map(|t| t.name.as_str()).collect();
    let baseline = run.plan.baseline.as_str();
    let against_baseline: Vec<(&str, &str)> =
        targets.iter().filter(|t| **t != baseline).map(|t| (*t, baseline)).collect();
    let comparisons = compare(run, &against_baseline);
    let (edges, broken): (Vec<Edge>, Vec<Edge>) =
        edges(&run.plan.targets).into_iter().partition(|edge| edges::other_devices(run, edge).is_none());
    let steps = steps(run, &edges, &comparisons);
    let mut warnings = run.warnings.clone();
    for found in checks::check(run, &comparisons, &broken) {
        if !warnings.contains(&found) {
            warnings.push(found);
        }
    }
    let cells: Vec<_> = each_cell(run)
        .map(|(workload, spec)| (workload, spec, measured(run, workload, &spec.name)))
        .collect();
    let record = |name: &str| run.targets.iter().find(|record| record.name == name);
    let mut judgement = Judgement {
        summaries: cells.iter().filter_map(|(w, spec, m)| Summary::of(w, &spec.name, m)).collect(),
        crowds: cells.iter().filter_map(|(w, spec, m)| Crowd::of(w, &spec.name, m)).collect(),
        noises: cells.iter().filter_map(|(w, spec, m)| Noise::of(w, &spec.name, m)).collect(),
        insides: cells.iter().filter_map(|(w, spec, m)| Inside::of(w, spec, record(&spec.name), m)).collect(),
        cpus: cells.iter().filter_map(|(w, spec, m)| CpuByRole::of(w, spec, m)).collect(),
        flows: cells
            .iter()
            .filter_map(|(w, spec, m)| Flow::of(w, &spec.name, record(&spec.name), m))
            .collect(),
        effects: run.plan.workloads.iter().filter_map(|w| Effects::of(run, &w.name)).collect(),
        timing: Timing::of(&run.phases),
        grades: grade::grades(run, &warnings),
        comparisons,
        edges,
        steps,
        warnings,
        conclusions: vec![],
    };
    judgement.conclusions = words::conclusions(run, &judgement);
    judgement
}

/// (workload, target) in the plan's order.
fn each_cell(run: &Run) -> impl Iterator<Item = (&str, &TargetSpec)> {
    run.plan
        .workloads
        .iter()
        .flat_map(|workload| run.plan.targets.iter().map(move |target| (workload.name.as_str(), target)))
}

/// A cell's measurements, one per block.
fn measured<'a>(run: &'a Run, workload: &str, target: &str) -> Vec<&'a Measurement> {
    run.measurements.iter().filter(|m| m.workload == workload && m.target == target).collect()
}

/// The comparisons along the edges; those that leave the baseline are taken from the comparisons with it.
fn steps(run: &Run, edges: &[Edge], comparisons: &[Comparison]) -> Vec<Comparison> {
    let pairs = |from_baseline: bool| {
        edges
            .iter()
            .filter(move |edge| (edge.from == run.plan.baseline) == from_baseline)
            .map(|edge| (edge.to.as_str(), edge.from.as_str()))
            .collect::<Vec<_>>()
    };
    let known = pairs(true);
    let mut found: Vec<Comparison> =
        comparisons.iter().filter(|c| known.contains(&(&c.target, &c.baseline))).cloned().collect();
    found.extend(compare(run, &pairs(false)));
    let workload = |c: &Comparison| run.plan.workloads.iter().position(|w| w.name == c.workload);
    let edge = |c: &Comparison| edges.iter().position(|e| e.to == c.target && e.from == c.baseline);
    found.sort_by_key(|c| (workload(c), edge(c)));
    found
}

/// A comparison before its family is decided.
struct Case<'a> {
    workload: &'a str,
    target: &'a str,
    baseline: &'a str,
    metric: Metric,
    pairs: Vec<(f64, f64)>,
    logs: Differences,
}

fn compare(run: &Run, against: &[(&str, &str)]) -> Vec<Comparison> {
    let mut cases = Vec::new();
    for workload in &run.plan.workloads {
        for &(target, baseline) in against {
            let theirs = measured(run, &workload.name, baseline);
            let both: Vec<_> = measured(run, &workload.name, target)
                .into_iter()
                .filter_map(|m| Some((m, *theirs.iter().find(|other| other.block == m.block)?)))
                .collect();
            for metric in Metric::ALL {
                let pairs: Vec<_> =
                    both.iter().filter_map(|(m, b)| Some((metric.of(m)?, metric.of(b)?))).collect();
                if let Some(logs) = Differences::of_log_ratios(&pairs) {
                    cases.push(Case { workload: &workload.name, target, baseline, metric, pairs, logs });
                }
            }
        }
    }
    let mut decided: Vec<Option<Comparison>> = cases.iter().map(|_| None).collect();
    for metric in Metric::ALL {
        let members: Vec<usize> = (0..cases.len()).filter(|i| cases[*i].metric == metric).collect();
        let family: Vec<_> = members.iter().map(|i| (&cases[*i].logs, metric.more_is_better())).collect();
        for (i, decision) in members.iter().zip(decide(&family, ALPHA, MARGIN)) {
            decided[*i] = Some(cases[*i].comparison(&decision));
        }
    }
    decided.into_iter().flatten().collect()
}

impl Case<'_> {
    fn comparison(&self, decision: &crate::stats::verdict::Decision) -> Comparison {
        let ratio = self.logs.mean().exp();
        let interval = decision.interval.map(|i| i.map(f64::exp));
        let tax = self.metric.is_time().then(|| {
            let baseline = self.pairs.iter().map(|(_, b)| b.ln()).sum::<f64>() / self.pairs.len() as f64;
            let above = |ratio: f64| baseline.exp() * (ratio - 1.0);
            let telling = interval.filter(|i| i.high <= i.low * WIDEST);
            Tax { ns: above(ratio), interval: telling.map(|i| i.map(above)) }
        });
        Comparison {
            workload: self.workload.into(),
            metric: self.metric,
            target: self.target.into(),
            baseline: self.baseline.into(),
            ratio,
            interval,
            confidence: decision.alpha.map(|alpha| 1.0 - alpha),
            interval_95: self.logs.interval(ALPHA).map(|i| i.map(f64::exp)),
            sign_flip_p: self.logs.sign_flip_p(),
            verdict: decision.verdict,
            blocks: u32::try_from(self.logs.n()).unwrap_or(u32::MAX),
            needed_blocks: decision.needed_blocks,
            withheld: None,
            tax,
        }
    }
}
