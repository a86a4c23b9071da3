//! The document `iotax/1`, whose JSON Schema is `crates/report/schema/iotax-1.schema.json`.
//!
//! Each document is a type, and `schema.rs` generates the JSON Schema from it. An unknown figure has no key; documents never contain null, NaN or
//! infinity.

mod ask;
mod cell;
mod certainty;
pub mod comparison;
mod curve;
mod demands;
pub mod doctor;
mod durability;
pub mod fleet;
mod grid;
pub mod history;
mod limits;
mod measurement;
mod network;
mod parts;
mod phases;
mod ratio;
pub mod read;
#[cfg(test)]
mod schema;
mod steady_state;
mod suite;
pub mod trace;
pub mod trend;
pub mod tune;
mod watch;

use std::collections::BTreeMap;

use iotax_analysis::compare::account::Kinds;
use iotax_analysis::curve::{curves, grids};
use iotax_analysis::durability::DurableWrites;
use iotax_analysis::metric::{Better, Unit};
use iotax_analysis::phases::phased_comparisons;
use iotax_analysis::suite::tests;
use iotax_analysis::time::utc;
use iotax_analysis::watch::{episodes, price_comparisons, prices};
use iotax_analysis::{Judgement, Metric, SequentialStatus, Stopped};
use iotax_model::plan::{CurveSpec, Neighbour};
use iotax_model::record::{Environment, ImportSource, TargetRecord};
use iotax_model::{Nanos, Plan, Run, RunState, TargetSpec, Warning, Workload};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::mark::Mark;
use crate::sentences::conclusions;

/// Value of the key `schema`. The number rises when a key is removed or changes its meaning; a new key only changes the schema file.
pub const SCHEMA: &str = "iotax/1";

/// Identifies a file as an `iotax/1` document.
pub const MARK: Mark = Mark::schema(SCHEMA, &["schema"]);

/// Regular expression for a UTC timestamp.
const UTC: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$";

/// A run with its judgement. Unknown values have no key. The key of a time ends in its unit; latencies are service times, from submission to
/// completion.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "A run of iotax with its judgement")]
struct RunDocument<'a> {
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    run: HeadEntry<'a>,
    /// Definitions of the metrics, which are the keys of every `metrics` and the values of every `metric`.
    figures: Vec<FigureEntry>,
    targets: &'a [TargetRecord],
    workloads: &'a [Workload],
    plan: PlanEntry<'a>,
    measurements: Vec<measurement::MeasurementEntry<'a>>,
    /// Comparison of every target with the baseline.
    comparisons: Vec<ratio::ComparisonEntry<'a>>,
    steps: Vec<ratio::StepEntry<'a>>,
    cells: Vec<cell::CellEntry<'a>>,
    suite: Option<suite::SuiteEntry<'a>>,
    /// The plan's demands, with the result of each target.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    demands: Vec<demands::DemandEntry<'a>>,
    durable_writes: Option<durability::DurableWritesEntry<'a>>,
    steady_state: Option<steady_state::SteadyStateEntry<'a>>,
    /// Rate limits in front of each target, in a run of the suite audit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    limits: Vec<limits::LimitsEntry<'a>>,
    /// Latency against load: an entry per target for each workload that is measured at three rates or more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    curves: Vec<curve::CurveEntry<'a>>,
    /// Loads of equal latency: an entry per target for each workload that is measured with three shares of reads or more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    grids: Vec<grid::GridEntry<'a>>,
    /// Phases of each replay on each target, compared with the baseline's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    phased_comparisons: Vec<phases::PhasedComparisonEntry<'a>>,
    /// The measurements of a watch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    watch: Vec<watch::EpisodeEntry<'a>>,
    /// Costs of the events of a watch, by target, workload and event.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    prices: Vec<watch::PriceEntry<'a>>,
    /// Costs of the events of a watch compared with the baseline's, by workload, event, target and figure.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    price_comparisons: Vec<watch::PriceComparisonEntry<'a>>,
    /// Highest rates that meet the conditions of `iotax ask`: an entry per target for each workload.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    answers: Vec<ask::AnswerEntry<'a>>,
    effects: Vec<certainty::EffectsEntry<'a>>,
    timing: Option<cell::TimingEntry<'a>>,
    /// Conclusions, as sentences.
    conclusions: Vec<String>,
    warnings: &'a [Warning],
}

#[derive(Serialize, JsonSchema)]
struct HeadEntry<'a> {
    id: i64,
    name: &'a str,
    state: RunState,
    seed: u64,
    #[schemars(regex(pattern = UTC))]
    started_at: String,
    /// Number of rounds in the plan; if rounds are added, the number before the first evaluation of results.
    repeat: u32,
    design: DesignEntry,
    baseline: &'a str,
    environment: &'a Environment,
    /// The other tool that measured an imported run; absent for a run of iotax.
    source: Option<&'a ImportSource>,
}

/// Margin of equivalence, and the interim looks at the results. The keys from `taken` on exist only in a run that adds rounds until all is decided.
#[derive(Serialize, JsonSchema)]
struct DesignEntry {
    /// Ratios from 1 / (1 + margin) to 1 + margin count as the same.
    margin: f64,
    /// Numbers of rounds after which comparisons are evaluated (interim looks), fixed in advance. Only the plan's number of rounds if the
    /// run does not add rounds until all is decided.
    looks: Vec<u32>,
    /// Number of interim looks taken.
    taken: Option<usize>,
    max_rounds: Option<u32>,
    max_time_s: Option<f64>,
    /// Number of comparisons, each of two targets on a workload, that must be decided.
    comparisons: Option<usize>,
    /// Number of these comparisons that are not decided yet by the workload's main metric: `iops`, `latency_mean` or `bytes_per_s`.
    open: Option<usize>,
    /// Reason why no more rounds are added; absent while more will be.
    stopped: Option<Stopped>,
}

/// The targets as planned. They may differ in settings that the recorded layers do not show.
#[derive(Serialize, JsonSchema)]
struct PlanEntry<'a> {
    /// Tables of the plan file; crates/model/schema/plan.schema.json describes their keys.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    targets: &'a [TargetSpec],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    neighbours: &'a [Neighbour],
    /// The `[curve]` table of the plan; present only if the run chose its own rates.
    curve: Option<&'a CurveSpec>,
}

/// Definition of a metric: unit, direction and meaning.
#[derive(Serialize, JsonSchema)]
struct FigureEntry {
    id: &'static str,
    unit: Unit,
    better: Better,
    help: &'static str,
}

/// Values by metric id, as in `figures`. Unknown values have no key.
#[derive(Serialize, JsonSchema)]
#[schemars(extend("propertyNames" = { "pattern": "^[a-z][a-z0-9_]*$" }))]
struct Metrics(BTreeMap<&'static str, f64>);

/// Builds the document of a run with its judgement.
///
/// A measurement's `metrics` are the figures needed for comparisons, by the ids of [`Metric`]; [`read`] parses them. `cells` hold the figures
/// of one target and workload over all rounds.
#[must_use]
pub fn document(run: &Run, judgement: &Judgement) -> Value {
    let (kinds, curves, episodes, tests) = (Kinds::of(judgement), curves(run), episodes(run), tests(run));
    let (durable_writes, price_comparisons) =
        (DurableWrites::of(run, judgement), price_comparisons(run, &episodes));
    let phased = phased_comparisons(run);
    let graded = run.measurements.iter().zip(&judgement.grades);
    let measurements =
        graded.map(|(m, grade)| measurement::measurement(run, &judgement.figures, m, *grade, kinds.about(m)));
    let found = iotax_analysis::limits::limits(run);
    json(&RunDocument {
        schema: SCHEMA,
        run: head(run, judgement.sequential.as_ref()),
        figures: judgement.figures.iter().copied().map(figure).collect(),
        targets: &run.targets,
        workloads: &run.plan.workloads,
        plan: plan(&run.plan),
        measurements: measurements.collect(),
        comparisons: judgement.comparisons.iter().map(Into::into).collect(),
        steps: judgement.steps.iter().filter_map(|c| ratio::step(judgement, c)).collect(),
        cells: judgement.cells.iter().map(|one| cell::cell(judgement, one)).collect(),
        suite: suite::suite(run, &tests),
        demands: demands::all(run, judgement),
        durable_writes: durable_writes.as_ref().map(durability::entry),
        steady_state: steady_state::entry(run),
        limits: found.iter().map(limits::entry).collect(),
        curves: curve::all(&curves),
        grids: grids(&curves).iter().map(grid::grid).collect(),
        phased_comparisons: phased.iter().map(phases::entry).collect(),
        watch: episodes.iter().map(watch::episode).collect(),
        prices: prices(run, &episodes).iter().map(watch::price).collect(),
        price_comparisons: price_comparisons.iter().map(watch::price_comparison).collect(),
        answers: ask::all(run),
        effects: judgement.effects.iter().map(certainty::effects).collect(),
        timing: judgement.timing.as_ref().map(cell::timing),
        conclusions: conclusions(run, judgement),
        warnings: &judgement.warnings,
    })
}

fn head<'a>(run: &'a Run, status: Option<&SequentialStatus>) -> HeadEntry<'a> {
    HeadEntry {
        id: run.id,
        name: &run.plan.name,
        state: run.state,
        seed: run.seed,
        started_at: utc(run.started_at_ms),
        repeat: run.plan.repeat,
        design: design(&run.plan, status),
        baseline: &run.plan.baseline,
        environment: &run.environment,
        source: run.source.imported(),
    }
}

fn design(plan: &Plan, status: Option<&SequentialStatus>) -> DesignEntry {
    let until = plan.until_decided();
    DesignEntry {
        margin: plan.margin.share(),
        looks: plan.looks(),
        taken: status.map(|status| status.taken),
        max_rounds: until.map(|until| until.max_rounds),
        max_time_s: until.and_then(|until| until.max_time).map(Nanos::as_secs_f64),
        comparisons: status.map(|status| status.comparisons),
        open: status.map(|status| status.open),
        stopped: status.and_then(|status| status.stopped),
    }
}

fn plan(plan: &Plan) -> PlanEntry<'_> {
    PlanEntry { targets: &plan.targets, neighbours: &plan.neighbours, curve: plan.curve() }
}

fn metrics(figures: &[Metric], value: impl Fn(Metric) -> Option<f64>) -> Metrics {
    Metrics(figures.iter().filter_map(|metric| Some((metric.word(), value(*metric)?))).collect())
}

fn figure(metric: Metric) -> FigureEntry {
    let definition = metric.definition();
    FigureEntry { id: definition.id, unit: definition.unit, better: definition.better, help: definition.help }
}

/// Converts a document to JSON; leaves out absent values and numbers that are not finite.
fn json(document: &impl Serialize) -> Value {
    without_null(serde_json::to_value(document).expect("every key is a text"))
}

fn without_null(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_null(v))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_null).collect(),
        other => other,
    }
}
