//! The document `iotax-compare/1`, whose JSON Schema is `crates/report/schema/iotax-compare-1.schema.json`.

use iotax_analysis::Metric;
use iotax_analysis::compare::{
    Account, Compared, ComparedCell, Difference, GateResult, Matched, Missing, RateCell, Side, TargetPair,
    Which, WorkloadPair,
};
use iotax_analysis::stats::paired::Interval;
use iotax_analysis::stats::verdict::Verdict;
use iotax_model::record::ImportSource;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::ratio::RatioEntry;
use super::{UTC, json};
use crate::mark::Mark;
use crate::sentences;

/// Value of the key `schema`; see [`super::SCHEMA`] for when its number rises.
pub const SCHEMA: &str = "iotax-compare/1";

/// Identifies a file as an `iotax-compare/1` document.
pub const MARK: Mark = Mark::schema(SCHEMA, &["schema"]);

/// Comparison of two runs, or of two targets of one run. Ratios divide the other side by the baseline. Unknown values have no key.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "Two runs of iotax, or two targets of one, compared")]
pub(super) struct CompareDocument<'a> {
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    a: SideEntry<'a>,
    b: SideEntry<'a>,
    /// The side that the other side is compared with.
    baseline: Which,
    /// True if both sides were measured in the same rounds: intervals are then by Student's t over pairs, otherwise by Welch's t.
    paired: bool,
    /// Ratios from 1 / (1 + margin) to 1 + margin count as the same.
    margin: f64,
    /// Differences between the machines; empty if a run was imported.
    machines: &'a [Difference],
    targets: Vec<TargetPairEntry<'a>>,
    workloads: Vec<WorkloadPairEntry<'a>>,
    missing: Vec<MissingEntry<'a>>,
    cells: Vec<ComparedCellEntry<'a>>,
    /// Rates that were located on both sides, such as knees.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rates: Vec<ComparedRateEntry<'a>>,
    /// Results of the `--fail-if` gates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gates: Vec<GateEntry<'a>>,
    /// Conclusions, as sentences.
    conclusions: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct SideEntry<'a> {
    label: &'a str,
    run: i64,
    name: &'a str,
    #[schemars(regex(pattern = UTC))]
    started_at: &'a str,
    /// The target selected for the comparison; absent if all targets are compared.
    target: Option<&'a str>,
    /// The other tool that measured an imported run; absent for a run of iotax.
    source: Option<&'a ImportSource>,
}

#[derive(Serialize, JsonSchema)]
struct TargetPairEntry<'a> {
    a: &'a str,
    b: &'a str,
    matched: Matched,
    differences: &'a [Difference],
    emulated_a: bool,
    emulated_b: bool,
}

#[derive(Serialize, JsonSchema)]
struct WorkloadPairEntry<'a> {
    a: &'a str,
    b: &'a str,
    /// Differences between the two workloads that do not prevent a comparison, such as their durations.
    differences: &'a [Difference],
}

#[derive(Serialize, JsonSchema)]
struct MissingEntry<'a> {
    /// The side that lacks the target, workload, figure or rate; B if both sides have the figure, but in no common round.
    side: Which,
    target: Option<&'a str>,
    workload: Option<&'a str>,
    /// The figure that cannot be compared; absent if a target, a workload or a located rate is missing.
    metric: Option<Metric>,
    reason: &'a str,
}

/// The names of a target and a workload in A and in B.
#[derive(Serialize, JsonSchema)]
struct PairNames<'a> {
    target_a: &'a str,
    target_b: &'a str,
    workload_a: &'a str,
    workload_b: &'a str,
}

#[derive(Serialize, JsonSchema)]
struct ComparedCellEntry<'a> {
    #[serde(flatten)]
    names: PairNames<'a>,
    metric: Metric,
    /// Geometric mean over A's rounds, in the metric's unit: I/Os or bytes per second, else nanoseconds.
    a: f64,
    /// Geometric mean over B's rounds, in the metric's unit.
    b: f64,
    rounds_a: u32,
    rounds_b: u32,
    #[serde(flatten)]
    ratio: RatioEntry<'a>,
}

#[derive(Serialize, JsonSchema)]
struct ComparedRateEntry<'a> {
    #[serde(flatten)]
    names: PairNames<'a>,
    /// Kind of rate: `knee`, or `highest` followed by the conditions that the rate meets.
    what: &'a str,
    /// I/Os per second on side A.
    a: f64,
    /// I/Os per second on side B.
    b: f64,
    /// The other side's rate divided by the baseline's.
    ratio: f64,
    #[serde(flatten)]
    interval: Option<Interval>,
    verdict: Verdict,
}

#[derive(Serialize, JsonSchema)]
struct GateEntry<'a> {
    gate: String,
    metric: Metric,
    /// Number of cells (target and workload) with the gate's metric.
    cells: usize,
    tripped: Vec<TrippedCell<'a>>,
    /// Cells whose interval contains the limit, or that have no interval. They never trip the gate.
    undecided: Vec<PairNames<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct TrippedCell<'a> {
    #[serde(flatten)]
    names: PairNames<'a>,
    /// The other side's geometric mean divided by the baseline's.
    ratio: f64,
    #[serde(flatten)]
    interval: Interval,
}

/// Builds the document of a comparison of two runs, or of two targets of one run.
#[must_use]
pub fn document(a: &Side<'_>, b: &Side<'_>, compared: &Compared) -> Value {
    let is_asked = |m: &&Missing| m.metric.is_none_or(|metric| compared.metrics.contains(&metric));
    json(&CompareDocument {
        schema: SCHEMA,
        a: side(a),
        b: side(b),
        baseline: compared.baseline,
        paired: compared.paired,
        margin: compared.margin,
        machines: &compared.machines,
        targets: compared.targets.iter().map(target).collect(),
        workloads: compared.workloads.iter().map(workload).collect(),
        missing: compared.missing.iter().filter(is_asked).map(missing).collect(),
        cells: compared.shown().map(|one| cell(compared, one)).collect(),
        rates: compared.rates.iter().map(|one| rate(compared, one)).collect(),
        gates: compared.gates.iter().map(|result| gate(compared, result)).collect(),
        conclusions: sentences::compared::conclusions(compared),
    })
}

fn side<'a>(side: &Side<'a>) -> SideEntry<'a> {
    let Account { label, id, name, started_at, source, .. } = side.account;
    SideEntry { label, run: *id, name, started_at, target: side.target, source: source.imported() }
}

fn target(pair: &TargetPair) -> TargetPairEntry<'_> {
    TargetPairEntry {
        a: &pair.a,
        b: &pair.b,
        matched: pair.matched,
        differences: &pair.differences,
        emulated_a: pair.emulated.0,
        emulated_b: pair.emulated.1,
    }
}

fn workload(pair: &WorkloadPair) -> WorkloadPairEntry<'_> {
    WorkloadPairEntry { a: &pair.a.name, b: &pair.b, differences: &pair.differences }
}

fn missing(missing: &Missing) -> MissingEntry<'_> {
    MissingEntry {
        side: missing.side,
        target: missing.target.as_deref(),
        workload: missing.workload.as_deref(),
        metric: missing.metric,
        reason: &missing.reason,
    }
}

/// Returns the names of a target and a workload in A and in B; arguments are their indices.
fn names(compared: &Compared, target: usize, workload: usize) -> PairNames<'_> {
    let (target, workload) = (&compared.targets[target], &compared.workloads[workload]);
    PairNames {
        target_a: &target.a,
        target_b: &target.b,
        workload_a: &workload.a.name,
        workload_b: &workload.b,
    }
}

fn cell<'a>(compared: &'a Compared, cell: &'a ComparedCell) -> ComparedCellEntry<'a> {
    ComparedCellEntry {
        names: names(compared, cell.target, cell.workload),
        metric: cell.metric,
        a: cell.a,
        b: cell.b,
        rounds_a: cell.rounds.0,
        rounds_b: cell.rounds.1,
        ratio: (&cell.ratio).into(),
    }
}

fn rate<'a>(compared: &'a Compared, cell: &'a RateCell) -> ComparedRateEntry<'a> {
    ComparedRateEntry {
        names: names(compared, cell.target, cell.workload),
        what: &cell.what,
        a: cell.a,
        b: cell.b,
        ratio: cell.ratio,
        interval: cell.interval,
        verdict: cell.verdict,
    }
}

fn gate<'a>(compared: &'a Compared, result: &GateResult) -> GateEntry<'a> {
    let names_of = |index: usize| {
        let cell = &compared.cells[index];
        names(compared, cell.target, cell.workload)
    };
    let tripped = result.tripped.iter().map(|(index, interval)| TrippedCell {
        names: names_of(*index),
        ratio: compared.cells[*index].ratio.mean,
        interval: *interval,
    });
    GateEntry {
        gate: result.gate.to_string(),
        metric: result.gate.metric,
        cells: result.cells,
        tripped: tripped.collect(),
        undecided: result.open.iter().map(|index| names_of(*index)).collect(),
    }
}
