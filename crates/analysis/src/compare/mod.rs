//! Two runs, or two targets of one run, held against one another.
//!
//! Two targets of one run were measured in the same rounds and are compared within them, as [`mod@crate`] does. Two runs have no
//! round in common: their figures are compared as two samples ([`crate::stats::unpaired`]), and what differs between them beside the
//! targets is named first, because it is part of the difference. Each metric is one family for Holm's procedure.

pub mod account;
pub mod differences;
pub mod gate;
pub mod history;
mod matching;

use std::fmt;

use iotax_model::Workload;

pub use account::{Account, Subject};
pub use differences::Difference;
pub use gate::{Direction, Gate, GateError};
pub use history::{Change, History, Point, Track, history};
pub use matching::{Matched, Missing};

use account::Figures;

use crate::comparison::Tax;
use crate::metric::Metric;
use crate::stats::paired::{Differences, Interval};
use crate::stats::quantization::Coarse;
use crate::stats::unpaired::Unpaired;
use crate::stats::verdict::{Decision, Verdict, decide};
use crate::stats::{ALPHA, Estimate};
use iotax_model::record::ImportSource;

/// One of the two that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The one that was named first.
    A,
    /// The other.
    B,
}

impl Which {
    /// The letter for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A run, or one target of it.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The run.
    pub account: &'a Account,
    /// The target that is meant; absent: all of them.
    pub target: Option<&'a str>,
}

impl Side<'_> {
    /// How it is called in headings: `run 12`, `run 12:vm-raw`.
    #[must_use]
    pub fn called(&self) -> String {
        let label = &self.account.label;
        self.target.map_or_else(|| label.clone(), |target| format!("{label}:{target}"))
    }
}

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The side that the other is compared with.
    pub baseline: Which,
    /// What is shown, or stands in its place on streams; every metric is compared in any case.
    pub metrics: Vec<Metric>,
    /// The margin of practical equivalence, as a share.
    pub margin: f64,
    /// What is refused.
    pub gates: Vec<Gate>,
}

/// Why two things cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// A target that the run does not have.
    #[error("{label} has no target {target:?}; accepted: {accepted}")]
    UnknownTarget {
        /// The run.
        label: String,
        /// What was asked for.
        target: String,
        /// What there is.
        accepted: String,
    },
    /// One run was named twice, and not two of its targets.
    #[error(
        "both are {label}; within a run two targets can be compared: {label}:TARGET with {label}:OTHER, of {accepted}",
        label = label.trim_start_matches("run ")
    )]
    SameRun {
        /// The run.
        label: String,
        /// Its targets.
        accepted: String,
    },
    /// No target or no workload of one has a partner in the other.
    #[error("no {what} of the one has a partner in the other ({a}; {b}); name a target of each: RUN:TARGET")]
    NothingInCommon {
        /// `target`.
        what: &'static str,
        /// What A has.
        a: String,
        /// What B has.
        b: String,
    },
    /// Targets fit, workloads do not.
    #[error("no workload of the one has a partner in the other: {}", reasons.join("; "))]
    NoWorkload {
        /// Why, each.
        reasons: Vec<String>,
    },
}

/// Two targets that are held against one another.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetPair {
    /// A's target.
    pub a: String,
    /// B's target.
    pub b: String,
    /// Why these two.
    pub matched: Matched,
    /// What differs between them.
    pub differences: Vec<Difference>,
    /// Whether A's and B's CPUs were emulated.
    pub emulated: (bool, bool),
}

impl TargetPair {
    /// What must be said of it wherever its figures stand: `emulated`, `A emulated`; absent if neither was.
    #[must_use]
    pub const fn label(&self) -> Option<&'static str> {
        match self.emulated {
            (false, false) => None,
            (true, true) => Some("emulated"),
            (true, false) => Some("A emulated"),
            (false, true) => Some("B emulated"),
        }
    }

    /// `vm-raw`, or `vm-raw / vm-old` if they have two names.
    #[must_use]
    pub fn name(&self) -> String {
        both(&self.a, &self.b)
    }
}

/// Two workloads that are one.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadPair {
    /// A's workload.
    pub a: Workload,
    /// B's name for it.
    pub b: String,
    /// What differs between them: how long they were.
    pub differences: Vec<Difference>,
}

impl WorkloadPair {
    /// As [`TargetPair::name`].
    #[must_use]
    pub fn name(&self) -> String {
        both(&self.a.name, &self.b)
    }
}

fn both(a: &str, b: &str) -> String {
    if a == b { a.to_owned() } else { format!("{a} / {b}") }
}

/// One target and workload on both sides, by one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Index of the target's pair.
    pub target: usize,
    /// Index of the workload's pair.
    pub workload: usize,
    /// By what.
    pub metric: Metric,
    /// Geometric mean over A's rounds.
    pub a: f64,
    /// Over B's.
    pub b: f64,
    /// How often the other side's is the baseline's.
    pub ratio: f64,
    /// The interval of the ratio that the verdict rests on, at Holm's level. Absent for fewer than two rounds on a side, or if the
    /// verdict is withheld.
    pub interval: Option<Interval>,
    /// Its confidence. Absent as it is.
    pub confidence: Option<f64>,
    /// The plain 95% interval, for this cell taken alone.
    pub interval_95: Option<Interval>,
    /// What it comes to.
    pub verdict: Verdict,
    /// Rounds that it rests on, of A and of B.
    pub rounds: (u32, u32),
    /// If undecided: rounds of each side that would decide, at this variance.
    pub needed_rounds: Option<u32>,
    /// Why no verdict is given, if it is withheld; it then is undecided.
    pub withheld: Option<String>,
    /// The same in absolute terms, for metrics that are times.
    pub tax: Option<Tax>,
}

/// What became of a gate.
#[derive(Debug, Clone, PartialEq)]
pub struct GateResult {
    /// The gate.
    pub gate: Gate,
    /// Indices of the cells that tripped it, with the interval of the ratio that shows it.
    pub tripped: Vec<(usize, Interval)>,
    /// Indices of the cells of which nothing can be said yet.
    pub open: Vec<usize>,
    /// Cells of its metric.
    pub cells: usize,
    /// What it would have judged if both sides had it: reasons of [`Missing`].
    pub missing: Vec<String>,
}

/// Everything that can be said.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// How A's run is called in sentences: `run 12`, `before.json`.
    pub a: String,
    /// How B's is.
    pub b: String,
    /// The side that the other is compared with.
    pub baseline: Which,
    /// Whether both were measured in the same rounds.
    pub paired: bool,
    /// The margin of practical equivalence, as a share.
    pub margin: f64,
    /// What is to be shown.
    pub metrics: Vec<Metric>,
    /// Where A was imported from, if it was.
    pub source: Option<ImportSource>,
    /// What differs between the machines.
    pub machines: Vec<Difference>,
    /// What is held against what.
    pub targets: Vec<TargetPair>,
    /// The same of workloads.
    pub workloads: Vec<WorkloadPair>,
    /// What has no partner.
    pub missing: Vec<Missing>,
    /// In the order of workloads, targets and metrics.
    pub cells: Vec<Cell>,
    /// In the order of the question.
    pub gates: Vec<GateResult>,
}

impl Compared {
    /// A cell.
    #[must_use]
    pub fn cell(&self, target: usize, workload: usize, metric: Metric) -> Option<&Cell> {
        self.cells.iter().find(|c| c.target == target && c.workload == workload && c.metric == metric)
    }

    /// Whether any gate tripped.
    #[must_use]
    pub fn tripped(&self) -> bool {
        self.gates.iter().any(|gate| !gate.tripped.is_empty())
    }

    /// The cells whose metric is to be shown.
    pub fn shown(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| {
            let workload = &self.workloads[cell.workload].a;
            self.metrics.iter().any(|metric| metric.or_of_streams(workload) == cell.metric)
        })
    }
}

/// A cell before its family is decided.
struct Case {
    cell: Cell,
    /// The log of the ratio.
    sample: Box<dyn Estimate>,
    /// The baseline's geometric mean.
    base: f64,
}

/// Compares A with B.
pub fn compare(a: &Side<'_>, b: &Side<'_>, question: &Question) -> Result<Compared, CompareError> {
    let (pairs, mut missing) = matching::targets(a, b)?;
    let (same, lonely) = matching::workloads(a.account, b.account);
    missing.extend(lonely);
    if same.is_empty() {
        return Err(CompareError::NoWorkload { reasons: missing.into_iter().map(|m| m.reason).collect() });
    }
    let alike: Vec<bool> = pairs.iter().map(|(one, other, _)| matching::counts_alike(one, other)).collect();
    let targets: Vec<TargetPair> = pairs
        .into_iter()
        .map(|(one, other, matched)| TargetPair {
            a: one.name.clone(),
            b: other.name.clone(),
            matched,
            differences: differences::targets(one, other),
            emulated: (one.is_emulated(), other.is_emulated()),
        })
        .collect();
    let workloads: Vec<WorkloadPair> = same
        .into_iter()
        .map(|(one, other)| WorkloadPair {
            a: one.clone(),
            b: other.name.clone(),
            differences: differences::told((a.account, one), (b.account, other)),
        })
        .collect();
    let paired = a.account.is_same_run(b.account);
    let mut cases = Vec::new();
    for (w, workload) in workloads.iter().enumerate() {
        for (t, target) in targets.iter().enumerate() {
            let ours: Vec<&Figures> = a.account.cell(&target.a, &workload.a.name).collect();
            let theirs: Vec<&Figures> = b.account.cell(&target.b, &workload.b).collect();
            missing.extend(unmeasured(
                a,
                b,
                (&ours, &target.a, &workload.a.name),
                (&theirs, &target.b, &workload.b),
            ));
            let compares = |metric: &Metric| matching::compares(*metric, &workload.a, alike[t]);
            for metric in Metric::compared().filter(compares) {
                let case = Case::of((t, w, metric), &ours, &theirs, paired, question.baseline);
                let asked = question.metrics.contains(&metric)
                    || question.gates.iter().any(|gate| gate.metric == metric);
                if case.is_none() && asked && !ours.is_empty() && !theirs.is_empty() {
                    missing.push(unknown(a, b, (target, workload, metric), &ours, &theirs));
                }
                cases.extend(case);
            }
        }
    }
    let gates = question.gates.iter().map(|gate| judged(gate, &cases, &missing)).collect();
    decide_all(&mut cases, question.margin);
    Ok(Compared {
        a: a.account.label.clone(),
        b: b.account.label.clone(),
        source: a.account.source.clone(),
        baseline: question.baseline,
        paired,
        margin: question.margin,
        metrics: question.metrics.clone(),
        machines: machines(a, b),
        targets,
        workloads,
        missing,
        cells: cases.into_iter().map(|case| case.cell).collect(),
        gates,
    })
}

/// What differs between the machines; nothing where another tool says nothing of its own.
fn machines(a: &Side<'_>, b: &Side<'_>) -> Vec<Difference> {
    let is_known = |side: &Side<'_>| side.account.source.is_none();
    let both = is_known(a) && is_known(b);
    if both { differences::machines(&a.account.environment, &b.account.environment) } else { vec![] }
}

/// A cell that one side planned and never measured.
fn unmeasured(
    a: &Side<'_>,
    b: &Side<'_>,
    (ours, target_a, workload_a): (&[&Figures], &str, &str),
    (theirs, target_b, workload_b): (&[&Figures], &str, &str),
) -> Option<Missing> {
    let (side, account, target, workload) = match (ours.is_empty(), theirs.is_empty()) {
        (true, _) => (Which::A, a.account, target_a, workload_a),
        (false, true) => (Which::B, b.account, target_b, workload_b),
        (false, false) => return None,
    };
    Some(Missing {
        side,
        target: Some(target.into()),
        workload: Some(workload.into()),
        metric: None,
        reason: format!("{target} on {workload} was not measured in {}", account.label),
    })
}

/// A figure that one side does not know: too few I/Os for a percentile, CPU time that was not observed.
fn unknown(
    a: &Side<'_>,
    b: &Side<'_>,
    (pair, workload, metric): (&TargetPair, &WorkloadPair, Metric),
    ours: &[&Figures],
    theirs: &[&Figures],
) -> Missing {
    let all = |figures: &[&Figures]| figures.iter().all(|f| f.of(metric).is_some());
    let none = |figures: &[&Figures]| figures.iter().all(|f| f.of(metric).is_none());
    let known = |figures| if metric.is_percentile() { all(figures) } else { !none(figures) };
    let (side, label, target, workload) = match (known(ours), known(theirs)) {
        (false, _) => (Which::A, &a.account.label, &pair.a, &workload.a.name),
        // What both have in other rounds is no pair.
        (true, _) => (Which::B, &b.account.label, &pair.b, &workload.b),
    };
    let word = metric.word();
    let account = if side == Which::A { a.account } else { b.account };
    let reason = match (known(ours), known(theirs)) {
        _ if account.source.is_some() => format!("{word} of {target} on {workload} is not stated in {label}"),
        (true, true) => format!("no round has {word} of both {} and {} on {workload}", pair.a, pair.b),
        _ if metric.is_percentile() => {
            format!("{word} of {target} on {workload} is not known in every round of {label}: too few I/Os")
        }
        _ => format!("{word} of {target} on {workload} is not known in {label}"),
    };
    Missing {
        side,
        target: Some(target.clone()),
        workload: Some(workload.clone()),
        metric: Some(metric),
        reason,
    }
}

impl Case {
    /// Absent without figures on both sides.
    fn of(
        (target, workload, metric): (usize, usize, Metric),
        ours: &[&Figures],
        theirs: &[&Figures],
        paired: bool,
        baseline: Which,
    ) -> Option<Self> {
        let known = |figures: &[&Figures]| -> Vec<(u32, f64)> {
            figures.iter().filter_map(|f| Some((f.round, f.of(metric)?))).collect()
        };
        let (mut one, mut other) = (known(ours), known(theirs));
        // Rounds with too few I/Os for a percentile are the slow ones: leaving them out would flatter.
        if metric.is_percentile() && (one.len(), other.len()) != (ours.len(), theirs.len()) {
            return None;
        }
        if paired {
            let rounds = |of: &[(u32, f64)]| of.iter().map(|(round, _)| *round).collect::<Vec<_>>();
            let (here, there) = (rounds(&one), rounds(&other));
            one.retain(|(round, _)| there.contains(round));
            other.retain(|(round, _)| here.contains(round));
            one.sort_by_key(|(round, _)| *round);
            other.sort_by_key(|(round, _)| *round);
        }
        let values = |of: &[(u32, f64)]| of.iter().map(|(_, value)| *value).collect::<Vec<_>>();
        let (a, b) = (values(&one), values(&other));
        let (over, under) = if baseline == Which::A { (&b, &a) } else { (&a, &b) };
        let sample: Box<dyn Estimate> = if paired {
            let pairs: Vec<(f64, f64)> = over.iter().copied().zip(under.iter().copied()).collect();
            Box::new(Coarse::new(Differences::of_log_ratios(&pairs)?, metric.coarseness()))
        } else {
            Box::new(Coarse::new(Unpaired::of_logs(over, under)?, metric.coarseness()))
        };
        // Whether the figure is known or not: a round in which nothing was completed has none.
        let spoilt = |figures: &[&Figures], others: &[&Figures]| {
            let compared = |f: &Figures| !paired || others.iter().any(|other| other.round == f.round);
            figures.iter().find_map(|f| {
                let why = f.unusable.as_ref().filter(|_| compared(f))?;
                Some(format!("round {} of {} on {} cannot be used ({why})", f.round, f.target, f.workload))
            })
        };
        let in_a = spoilt(ours, theirs).map(|why| format!("A: {why}"));
        let withheld = in_a.or_else(|| spoilt(theirs, ours).map(|why| format!("B: {why}")));
        let ratio = sample.mean().exp();
        let (a_mean, b_mean) = (geometric_mean(&a), geometric_mean(&b));
        let base = if baseline == Which::A { a_mean } else { b_mean };
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let cell = Cell {
            target,
            workload,
            metric,
            a: a_mean,
            b: b_mean,
            ratio,
            interval: None,
            confidence: None,
            interval_95: sample.interval(ALPHA).and_then(as_ratios),
            verdict: Verdict::Undecided,
            rounds: (count(a.len()), count(b.len())),
            needed_rounds: None,
            withheld,
            tax: metric.is_time().then(|| Tax::of(base, ratio, None)),
        };
        Some(Self { cell, sample, base })
    }

    fn decide(&mut self, decision: &Decision) {
        let cell = &mut self.cell;
        cell.interval = decision.interval.and_then(as_ratios);
        cell.confidence = decision.alpha.filter(|_| cell.interval.is_some()).map(|alpha| 1.0 - alpha);
        cell.verdict = decision.verdict;
        cell.needed_rounds = decision.needed_rounds;
        cell.tax = cell.tax.map(|_| Tax::of(self.base, cell.ratio, cell.interval));
    }
}

/// Absent where two rounds so far apart leave a degree of freedom or less that the upper end is no number.
fn as_ratios(logs: Interval) -> Option<Interval> {
    Some(logs.map(f64::exp)).filter(|ratios| ratios.high.is_finite())
}

fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

/// The cases of a metric of which a verdict may be given, decided as one family with this margin.
fn family(cases: &[Case], metric: Metric, margin: f64) -> Vec<(usize, Decision)> {
    let members: Vec<usize> = (0..cases.len())
        .filter(|i| cases[*i].cell.metric == metric && cases[*i].cell.withheld.is_none())
        .collect();
    let asked: Vec<_> = members.iter().map(|i| (&*cases[*i].sample, metric.more_is_better())).collect();
    let decided = decide(&asked, ALPHA, margin);
    members.into_iter().zip(decided).collect()
}

fn decide_all(cases: &mut [Case], margin: f64) {
    for metric in Metric::compared() {
        for (i, decision) in family(cases, metric, margin) {
            cases[i].decide(&decision);
        }
    }
}

/// The gate's limit is the margin of a family of its own, so that a gate trips without cause no more often than a verdict is wrong.
fn judged(gate: &Gate, cases: &[Case], missing: &[Missing]) -> GateResult {
    let (low, high) = (1.0 / (1.0 + gate.threshold), 1.0 + gate.threshold);
    let of_metric = |i: &usize| cases[*i].cell.metric == gate.metric;
    let mut result = GateResult {
        gate: gate.clone(),
        tripped: vec![],
        open: vec![],
        cells: (0..cases.len()).filter(of_metric).count(),
        missing: missing
            .iter()
            .filter(|missing| missing.metric.is_none_or(|metric| metric == gate.metric))
            .map(|missing| missing.reason.clone())
            .collect(),
    };
    let decided = family(cases, gate.metric, gate.threshold);
    for i in (0..cases.len()).filter(of_metric) {
        let decision = decided.iter().find(|(member, _)| *member == i).map(|(_, decision)| decision);
        let interval = decision.and_then(|d| d.interval).and_then(as_ratios);
        let Some(interval) = interval else {
            result.open.push(i);
            continue;
        };
        let (above, below) = (interval.low > high, interval.high < low);
        let (worse, better) = if gate.metric.more_is_better() { (below, above) } else { (above, below) };
        let trips = match gate.direction {
            Direction::Slower => worse,
            Direction::Faster => better,
            Direction::Different => worse || better,
        };
        let holds = |edge: f64| interval.low <= edge && edge <= interval.high;
        let more_is_slower = !gate.metric.more_is_better();
        let open = match gate.direction {
            Direction::Slower => holds(if more_is_slower { high } else { low }),
            Direction::Faster => holds(if more_is_slower { low } else { high }),
            Direction::Different => holds(high) || holds(low),
        };
        if trips {
            result.tripped.push((i, interval));
        } else if open {
            result.open.push(i);
        }
    }
    result
}
