//! The document `iotax-tune/1`, whose JSON Schema is `crates/report/schema/iotax-tune-1.schema.json`.

use iotax_analysis::Comparison;
use iotax_analysis::tune::{Candidate, Confirmation, ConfirmedGain, Tried, Tuning};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::json;
use super::ratio::ComparisonEntry;

/// Value of the key `schema`; see [`super::SCHEMA`] for when its number rises.
pub const SCHEMA: &str = "iotax-tune/1";

/// Settings that iotax tune tried, and those that it recommends. The runs' own documents have all figures. What is unknown has no key.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "A tuning of iotax")]
pub(super) struct TuneDocument<'a> {
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    /// The run in which all were tried; absent with a single candidate.
    screening: Option<i64>,
    tried: Vec<TriedEntry<'a>>,
    /// The chosen settings together against the present ones, in fresh rounds; absent if nothing seemed to pay.
    confirmation: Option<ConfirmationEntry<'a>>,
    /// Empty unless the confirmation decided that they pay.
    recommended: Vec<CandidateEntry<'a>>,
    /// True if a guest was emulated.
    emulated: bool,
}

#[derive(Serialize, JsonSchema)]
struct CandidateEntry<'a> {
    setting: &'a str,
    value: &'a str,
}

#[derive(Serialize, JsonSchema)]
struct TriedEntry<'a> {
    #[serde(flatten)]
    candidate: CandidateEntry<'a>,
    /// Name of the target with this setting in the first run.
    target: &'a str,
    /// Geometric mean over the workloads; more than 1 is better.
    gain: Option<f64>,
    /// True if the setting was tried again in the confirmation.
    chosen: bool,
    /// The reason why the setting was not measured.
    lost: Option<&'a str>,
    /// The setting against the present one.
    comparisons: Vec<ComparisonEntry<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct ConfirmationEntry<'a> {
    run: i64,
    outcome: ConfirmedGain,
    /// The objective on each workload.
    objective: Vec<ComparisonEntry<'a>>,
    /// Mean latency, 99th percentile and CPU time on each workload, where they are not the objective.
    elsewhere: Vec<ComparisonEntry<'a>>,
}

/// Builds the document of `iotax tune`. `recommended` is empty unless fresh rounds confirmed that the settings help.
#[must_use]
pub fn document(tuning: &Tuning) -> Value {
    json(&TuneDocument {
        schema: SCHEMA,
        screening: tuning.screening,
        tried: tuning.tried.iter().zip(0..).map(|(one, place)| tried(tuning, one, place)).collect(),
        confirmation: tuning.confirmation.as_ref().map(|(run, confirmed)| confirmation(*run, confirmed)),
        recommended: tuning.candidates().filter(|_| tuning.pays()).map(candidate).collect(),
        emulated: tuning.emulated,
    })
}

fn candidate(candidate: &Candidate) -> CandidateEntry<'_> {
    CandidateEntry { setting: &candidate.key, value: &candidate.value }
}

fn tried<'a>(tuning: &Tuning, one: &'a Tried, place: usize) -> TriedEntry<'a> {
    TriedEntry {
        candidate: candidate(&one.candidate),
        target: &one.candidate.target,
        gain: one.gain(),
        chosen: tuning.chosen.contains(&place),
        lost: one.lost.as_deref(),
        comparisons: comparisons(&one.comparisons),
    }
}

fn confirmation(run: i64, confirmed: &Confirmation) -> ConfirmationEntry<'_> {
    ConfirmationEntry {
        run,
        outcome: confirmed.outcome,
        objective: comparisons(&confirmed.objective),
        elsewhere: comparisons(&confirmed.elsewhere),
    }
}

fn comparisons(all: &[Comparison]) -> Vec<ComparisonEntry<'_>> {
    all.iter().map(Into::into).collect()
}
