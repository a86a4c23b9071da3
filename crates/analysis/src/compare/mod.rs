//! Compares two runs, or two targets of one run.
//!
//! Two targets of one run were measured in the same rounds and are compared round by round, as in the judgement of a run ([`mod@crate`]).
//! Two runs have no round in common: their figures are compared as two independent samples ([`crate::stats::unpaired`]), and other
//! differences between the runs are listed first, because they may explain the result. Holm's procedure goes through each family of
//! metrics.

pub mod account;
pub mod differences;
pub mod gate;
pub mod history;
mod matching;
pub mod rates;

use std::collections::HashMap;
use std::fmt;

use iotax_model::{CellKey, Workload};
use schemars::JsonSchema;
use serde::Serialize;

pub use account::{Account, AccountedTarget, More};
pub use differences::Difference;
pub use gate::{Gate, GateDirection, GateError};
pub use history::{History, HistoryPoint, Track, history};
pub(crate) use matching::HOW_LONG;
pub use matching::{Matched, Missing};
pub use rates::{LocatedRate, RateCell};

use account::MeasurementFigures;

use crate::comparison::{Ratio, as_ratios};
use crate::metric::Metric;
use crate::sample::{Sample, decide_family};
use crate::stats::geometric_mean;
use crate::stats::paired::Interval;
use crate::stats::verdict::Decision;
use iotax_model::record::RunSource;

/// A side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Which {
    /// Side A, which was named first.
    A,
    /// Side B, which was named second.
    B,
}

impl Which {
    /// Returns `A` or `B`.
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

/// One side of a comparison: a run, or one target of a run.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The run to compare.
    pub account: &'a Account,
    /// The target to compare; `None` for all.
    pub target: Option<&'a str>,
}

impl Side<'_> {
    /// Returns the side's name in headings: `run 12`, `run 12:vm-raw`.
    #[must_use]
    pub fn called(&self) -> String {
        let label = &self.account.label;
        self.target.map_or_else(|| label.clone(), |target| format!("{label}:{target}"))
    }
}

/// Options of a comparison: baseline, metrics, margin and gates.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The side that serves as the baseline.
    pub baseline: Which,
    /// Metrics to show; for network streams, the corresponding metrics of streams. All metrics are compared, shown or not.
    pub metrics: Vec<Metric>,
    /// The margin of practical equivalence, as a fraction.
    pub margin: f64,
    /// Gates: differences that make the command fail.
    pub gates: Vec<Gate>,
}

/// Reason why two runs cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// A side names a target that its run does not have.
    #[error("{label} has no target {target:?}; accepted: {accepted}")]
    UnknownTarget {
        /// Name of the run.
        label: String,
        /// Name of the requested target.
        target: String,
        /// Names of the run's targets.
        accepted: String,
    },
    /// Both sides are the same run, and do not name two different targets of it.
    #[error(
        "both are {label}; within a run two targets can be compared: {label}:TARGET with {label}:OTHER, of {accepted}",
        label = label.trim_start_matches("run ")
    )]
    SameRun {
        /// Name of the run, such as `run 12`.
        label: String,
        /// Names of the run's targets.
        accepted: String,
    },
    /// No target of one run matches a target of the other run.
    #[error("no {what} of the one has a partner in the other ({a}; {b}); name a target of each: RUN:TARGET")]
    NothingInCommon {
        /// Word for the items without a match: `target`.
        what: &'static str,
        /// Name of A's run, and the names of its targets.
        a: String,
        /// Name of B's run, and the names of its targets.
        b: String,
    },
    /// Targets match, but no workload does.
    #[error("no workload of the one has a partner in the other: {}", reasons.join("; "))]
    NoWorkload {
        /// For each target or workload without a match, the reason as a sentence.
        reasons: Vec<String>,
    },
}

/// Two targets that are compared with each other.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetPair {
    /// Name of A's target.
    pub a: String,
    /// Name of B's target.
    pub b: String,
    /// The property by which the two targets were matched.
    pub matched: Matched,
    /// Differences between the two targets, in their settings and as built.
    pub differences: Vec<Difference>,
    /// True for A and for B if the target's CPU was emulated.
    pub emulated: (bool, bool),
}

impl TargetPair {
    /// Returns the label for the pair's figures: `emulated`, `A emulated`, `B emulated`; `None` if neither CPU was emulated.
    #[must_use]
    pub const fn label(&self) -> Option<&'static str> {
        match self.emulated {
            (false, false) => None,
            (true, true) => Some("emulated"),
            (true, false) => Some("A emulated"),
            (false, true) => Some("B emulated"),
        }
    }

    /// Returns the name of the pair: `vm-raw`, or `vm-raw / vm-old` if the names differ.
    #[must_use]
    pub fn name(&self) -> String {
        both(&self.a, &self.b)
    }
}

/// A workload of side A and the matching one of side B.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadPair {
    /// The workload of side A.
    pub a: Workload,
    /// Name of the workload of side B.
    pub b: String,
    /// Differences that do not prevent a match, such as the duration.
    pub differences: Vec<Difference>,
}

impl WorkloadPair {
    /// Returns the name of the workload, or both names separated by ` / ` if they differ.
    #[must_use]
    pub fn name(&self) -> String {
        both(&self.a.name, &self.b)
    }
}

fn both(a: &str, b: &str) -> String {
    if a == b { a.to_owned() } else { format!("{a} / {b}") }
}

/// One metric of one target and workload, compared between both sides.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedCell {
    /// Index into [`Compared::targets`].
    pub target: usize,
    /// Index into [`Compared::workloads`].
    pub workload: usize,
    /// The compared metric.
    pub metric: Metric,
    /// A's mean over its rounds, in the metric's unit, as in tables.
    pub a: f64,
    /// B's mean over its rounds, in the metric's unit, as in tables.
    pub b: f64,
    /// Ratio of the side that is not the baseline to the baseline, with its verdict.
    pub ratio: Ratio,
    /// Number of rounds of A and of B.
    pub rounds: (u32, u32),
}

/// A gate, the comparisons that tripped it, and the comparisons that are undecided.
#[derive(Debug, Clone, PartialEq)]
pub struct GateResult {
    /// The gate that was requested.
    pub gate: Gate,
    /// Indices into [`Compared::cells`] of the comparisons that tripped the gate, each with the interval of its ratio.
    pub tripped: Vec<(usize, Interval)>,
    /// Indices into [`Compared::cells`] of the comparisons that do not yet show if the gate trips.
    pub open: Vec<usize>,
    /// Number of comparisons by the gate's metric.
    pub cells: usize,
    /// Reasons why comparisons that the gate would have judged are missing, from [`Missing`].
    pub missing: Vec<String>,
}

impl GateResult {
    /// Returns whether the gate neither passed nor tripped: there was no comparison by its metric, or all of them are undecided.
    #[must_use]
    pub fn is_unjudged(&self) -> bool {
        self.tripped.is_empty() && self.open.len() == self.cells
    }
}

/// The comparison of two sides: differences between their setups, and the ratio of each metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// Name of A's run in sentences: `run 12`, `before.json`.
    pub a: String,
    /// Name of B's run in sentences.
    pub b: String,
    /// The side that serves as the baseline.
    pub baseline: Which,
    /// True if both sides are targets of one run, measured in the same rounds.
    pub paired: bool,
    /// The margin of practical equivalence, as a fraction.
    pub margin: f64,
    /// Metrics to show; all other metrics are compared too.
    pub metrics: Vec<Metric>,
    /// The origin of the figures of A.
    pub source: RunSource,
    /// The commands that add rounds to the two runs, if any; a single one if both sides are the same run.
    pub more: Vec<More>,
    /// Differences between the two machines; empty if either run was imported.
    pub machines: Vec<Difference>,
    /// Pairs of targets that are compared.
    pub targets: Vec<TargetPair>,
    /// Pairs of workloads that are compared.
    pub workloads: Vec<WorkloadPair>,
    /// Targets and workloads without a match, and figures that one side lacks.
    pub missing: Vec<Missing>,
    /// Comparisons in the order of workloads, targets and metrics.
    pub cells: Vec<ComparedCell>,
    /// Comparisons of the rates that both runs determined (knees of curves, highest rates that meet conditions), by workload and target.
    pub rates: Vec<RateCell>,
    /// Results of the gates, in the order given.
    pub gates: Vec<GateResult>,
}

impl Compared {
    /// Returns the comparison of a target pair on a workload pair by a metric, given their indices; `None` if they were not compared.
    #[must_use]
    pub fn cell(&self, target: usize, workload: usize, metric: Metric) -> Option<&ComparedCell> {
        self.cells.iter().find(|c| c.target == target && c.workload == workload && c.metric == metric)
    }

    /// Returns whether any gate tripped.
    #[must_use]
    pub fn tripped(&self) -> bool {
        self.gates.iter().any(|gate| !gate.tripped.is_empty())
    }

    /// Iterates over the comparisons by the metrics to show.
    pub fn shown(&self) -> impl Iterator<Item = &ComparedCell> {
        self.cells.iter().filter(|cell| {
            let workload = &self.workloads[cell.workload].a;
            self.metrics.iter().any(|metric| metric.or_of_streams(workload) == cell.metric)
        })
    }
}

/// A comparison before its verdict, with the sample on which the verdict will rest.
struct CellSample {
    cell: ComparedCell,
    /// Sample of the log ratio.
    sample: Sample,
    /// The baseline's geometric mean.
    base: f64,
}

/// Compares side A with side B. Fails if a target is unknown, if both sides are the same run without two different targets, or if the sides
/// have no target or no workload in common.
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
            differences: differences::stated((a.account, one), (b.account, other)),
        })
        .collect();
    let paired = a.account.is_same_run(b.account);
    let mut cases = Vec::new();
    for (w, workload) in workloads.iter().enumerate() {
        let means: HashMap<Metric, _> = Metric::compared()
            .map(|m| (m, (a.account.means(&workload.a.name, m), b.account.means(&workload.b, m))))
            .collect();
        for (t, target) in targets.iter().enumerate() {
            let cell_a = CellKey { target: &target.a, workload: &workload.a.name };
            let cell_b = CellKey { target: &target.b, workload: &workload.b };
            let ours: Vec<&MeasurementFigures> = a.account.cell(cell_a).collect();
            let theirs: Vec<&MeasurementFigures> = b.account.cell(cell_b).collect();
            missing.extend(unmeasured(a, b, (&ours, cell_a), (&theirs, cell_b)));
            let compares = |metric: &Metric| matching::compares(*metric, &workload.a, alike[t]);
            for metric in Metric::compared().filter(compares) {
                let (a_means, b_means) = &means[&metric];
                let shown =
                    a_means.get(target.a.as_str()).copied().zip(b_means.get(target.b.as_str()).copied());
                let case = CellSample::of((t, w, metric), &ours, &theirs, shown, paired, question.baseline);
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
    let (rates, unlocated) =
        rates::compare((a.account, b.account), &targets, &workloads, question.baseline, question.margin);
    missing.extend(unlocated);
    Ok(Compared {
        a: a.account.label.clone(),
        b: b.account.label.clone(),
        source: a.account.source.clone(),
        more: [Some(a), (!paired).then_some(b)]
            .into_iter()
            .flatten()
            .filter_map(|side| side.account.more.clone())
            .collect(),
        baseline: question.baseline,
        paired,
        margin: question.margin,
        metrics: question.metrics.clone(),
        machines: machines(a, b),
        targets,
        workloads,
        missing,
        cells: cases.into_iter().map(|case| case.cell).collect(),
        rates,
        gates,
    })
}

/// Lists differences between the machines; none if either run was imported.
fn machines(a: &Side<'_>, b: &Side<'_>) -> Vec<Difference> {
    let is_known = |side: &Side<'_>| !side.account.source.is_imported();
    let both = is_known(a) && is_known(b);
    if both { differences::machines(&a.account.environment, &b.account.environment) } else { vec![] }
}

/// Reports a workload that one side did not measure on a target; `None` if both sides measured it.
fn unmeasured(
    a: &Side<'_>,
    b: &Side<'_>,
    (ours, cell_a): (&[&MeasurementFigures], CellKey<'_>),
    (theirs, cell_b): (&[&MeasurementFigures], CellKey<'_>),
) -> Option<Missing> {
    let (side, account, CellKey { target, workload }) = match (ours.is_empty(), theirs.is_empty()) {
        (true, _) => (Which::A, a.account, cell_a),
        (false, true) => (Which::B, b.account, cell_b),
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

/// Reports a figure that is unknown on one side (too few I/Os for a percentile, CPU time that was not observed), or known on both but in no
/// common round.
fn unknown(
    a: &Side<'_>,
    b: &Side<'_>,
    (pair, workload, metric): (&TargetPair, &WorkloadPair, Metric),
    ours: &[&MeasurementFigures],
    theirs: &[&MeasurementFigures],
) -> Missing {
    let all = |figures: &[&MeasurementFigures]| figures.iter().all(|f| f.of(metric).is_some());
    let none = |figures: &[&MeasurementFigures]| figures.iter().all(|f| f.of(metric).is_none());
    let known = |figures| if metric.is_percentile() { all(figures) } else { !none(figures) };
    let (side, label, target, workload) = match (known(ours), known(theirs)) {
        (false, _) => (Which::A, &a.account.label, &pair.a, &workload.a.name),
        // Figures that both have, but in different rounds, form no pair.
        (true, _) => (Which::B, &b.account.label, &pair.b, &workload.b),
    };
    let word = metric.word();
    let account = if side == Which::A { a.account } else { b.account };
    let reason = match (known(ours), known(theirs)) {
        _ if account.source.is_imported() => {
            format!("{word} of {target} on {workload} is not stated in {label}")
        }
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

impl CellSample {
    /// Builds the comparison of a target pair on a workload pair; `None` without figures on both sides (of one run: in a common round), or
    /// if a percentile is unknown in a round. `shown` has the means of A and B, if the metric is summarized by means.
    fn of(
        (target, workload, metric): (usize, usize, Metric),
        ours: &[&MeasurementFigures],
        theirs: &[&MeasurementFigures],
        shown: Option<(f64, f64)>,
        paired: bool,
        baseline: Which,
    ) -> Option<Self> {
        // Rounds with too few I/Os for a percentile are the slow ones: leaving them out would flatter.
        let is_known = |f: &&MeasurementFigures| f.of(metric).is_some();
        if metric.is_percentile() && !ours.iter().chain(theirs).all(is_known) {
            return None;
        }
        let (a, b): (Vec<f64>, Vec<f64>) = if paired {
            let pair = |f: &&MeasurementFigures| {
                let other = theirs.iter().find(|other| other.round == f.round)?;
                Some(((f.of(metric)?, other.of(metric)?), f.unusable.is_none() && other.unusable.is_none()))
            };
            usable_or_all(ours.iter().filter_map(pair)).into_iter().unzip()
        } else {
            let values = |of: &[&MeasurementFigures]| {
                usable_or_all(of.iter().filter_map(|f| Some((f.of(metric)?, f.unusable.is_none()))))
            };
            (values(ours), values(theirs))
        };
        let (over, under) = if baseline == Which::A { (&b, &a) } else { (&a, &b) };
        let sample = if paired {
            let pairs: Vec<(f64, f64)> = over.iter().copied().zip(under.iter().copied()).collect();
            Sample::paired(&pairs, metric)?
        } else {
            Sample::unpaired(over, under, metric)?
        };
        // Also checks rounds without a figure: a round in which nothing completed has none.
        let spoilt = |figures: &[&MeasurementFigures], others: &[&MeasurementFigures]| {
            let compared =
                |f: &MeasurementFigures| !paired || others.iter().any(|other| other.round == f.round);
            figures.iter().find_map(|f| {
                let why = f.unusable.as_ref().filter(|_| compared(f))?;
                Some(format!("round {} of {} on {} cannot be used ({why})", f.round, f.target, f.workload))
            })
        };
        let in_a = spoilt(ours, theirs).map(|why| format!("A: {why}"));
        let withheld = in_a.or_else(|| spoilt(theirs, ours).map(|why| format!("B: {why}")));
        let (a_mean, b_mean) = shown.unwrap_or_else(|| (geometric_mean(&a), geometric_mean(&b)));
        let (mean, base) =
            if baseline == Which::A { (b_mean / a_mean, a_mean) } else { (a_mean / b_mean, b_mean) };
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let ratio = Ratio::new(metric, (mean, base), &sample, &Decision::none(), withheld);
        let rounds = (count(a.len()), count(b.len()));
        let cell = ComparedCell { target, workload, metric, a: a_mean, b: b_mean, ratio, rounds };
        Some(Self { cell, sample, base })
    }

    fn decide(&mut self, decision: &Decision) {
        let withheld = self.cell.ratio.withheld.take();
        let figures = (self.cell.ratio.mean, self.base);
        self.cell.ratio = Ratio::new(self.cell.metric, figures, &self.sample, decision, withheld);
    }
}

/// Returns the values that are marked as usable; all values if none is.
fn usable_or_all<T>(marked: impl Iterator<Item = (T, bool)>) -> Vec<T> {
    let mut marked: Vec<(T, bool)> = marked.collect();
    if marked.iter().any(|(_, is_usable)| *is_usable) {
        marked.retain(|(_, is_usable)| *is_usable);
    }
    marked.into_iter().map(|(value, _)| value).collect()
}

/// Decides the usable comparisons whose metric satisfies `is_member` as one family. Returns each comparison's index and decision.
fn decide_cells(
    cases: &[CellSample],
    is_member: impl Fn(Metric) -> bool,
    margin: f64,
) -> Vec<(usize, Decision)> {
    let members: Vec<usize> = (0..cases.len())
        .filter(|i| is_member(cases[*i].cell.metric) && cases[*i].cell.ratio.withheld.is_none())
        .collect();
    let samples = members.iter().map(|i| (cases[*i].cell.metric, cases[*i].sample.clone())).collect();
    let decided = decide_family(samples, margin);
    members.into_iter().zip(decided).collect()
}

fn decide_all(cases: &mut [CellSample], margin: f64) {
    let mut families = Vec::new();
    for family in cases.iter().map(|case| case.cell.metric.family()) {
        if !families.contains(&family) {
            families.push(family);
        }
    }
    for family in families {
        for (i, decision) in decide_cells(cases, |metric| metric.family() == family, margin) {
            cases[i].decide(&decision);
        }
    }
}

/// Judges a gate. All comparisons by its metric form one family with the gate's threshold as margin, so a false trip is no likelier than a
/// false verdict.
fn judged(gate: &Gate, cases: &[CellSample], missing: &[Missing]) -> GateResult {
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
    let decided = decide_cells(cases, |metric| metric == gate.metric, gate.threshold);
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
            GateDirection::Slower => worse,
            GateDirection::Faster => better,
            GateDirection::Different => worse || better,
        };
        let holds = |edge: f64| interval.low <= edge && edge <= interval.high;
        let more_is_slower = !gate.metric.more_is_better();
        let open = match gate.direction {
            GateDirection::Slower => holds(if more_is_slower { high } else { low }),
            GateDirection::Faster => holds(if more_is_slower { low } else { high }),
            GateDirection::Different => holds(high) || holds(low),
        };
        if trips {
            result.tripped.push((i, interval));
        } else if open {
            result.open.push(i);
        }
    }
    result
}
