//! The document `iotax-tune/1`, whose JSON Schema is `crates/report/schema/iotax-tune-1.schema.json`.

use iotax_analysis::Comparison;
use iotax_analysis::tune::{Candidate, Confirmation, ConfirmedGain, Tried, Tuning};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::json;
use super::ratio::ComparisonEntry;
use crate::mark::Mark;

/// Value of the key `schema`; see [`super::SCHEMA`] for when its number rises.
pub const SCHEMA: &str = "iotax-tune/1";

/// Identifies a file as an `iotax-tune/1` document.
pub const MARK: Mark = Mark::schema(SCHEMA, &["schema"]);

/// Settings that `iotax tune` tried, and those that it recommends. The documents of the runs have all figures. Unknown values have no key.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "A tuning of iotax")]
pub(super) struct TuneDocument<'a> {
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    /// Number of the run that tried all settings; absent with a single candidate.
    screening: Option<i64>,
    tried: Vec<TriedEntry<'a>>,
    /// Comparison of all chosen settings at once with the present settings, in fresh rounds; absent if no setting seemed to help.
    confirmation: Option<ConfirmationEntry<'a>>,
    /// The recommended settings; empty unless the confirmation decided that they help.
    recommended: Vec<CandidateEntry<'a>>,
    /// True if a guest's CPU was emulated.
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
    /// Geometric mean of the improvements over the workloads; above 1 is better than the present setting.
    gain: Option<f64>,
    /// True if the setting was tried again in the confirmation.
    chosen: bool,
    /// The reason why the setting was not measured; absent if it was measured.
    lost: Option<&'a str>,
    /// Comparisons of this setting with the present one.
    comparisons: Vec<ComparisonEntry<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct ConfirmationEntry<'a> {
    run: i64,
    outcome: ConfirmedGain,
    /// Effect on the objective, for each workload.
    objective: Vec<ComparisonEntry<'a>>,
    /// Effect on mean latency, 99th percentile and CPU time for each workload, without the metric of the objective, and without mean
    /// latency if the objective is IOPS.
    elsewhere: Vec<ComparisonEntry<'a>>,
}

/// Builds the document of `iotax tune`. `recommended` is empty unless fresh rounds confirmed that the settings help.
#[must_use]
pub fn document(tuning: &Tuning) -> Value {
    json(&TuneDocument {
        schema: SCHEMA,
        screening: tuning.screening,
        tried: tuning.tried.iter().zip(0..).map(|(one, index)| tried(tuning, one, index)).collect(),
        confirmation: tuning.confirmation.as_ref().map(|(run, confirmed)| confirmation(*run, confirmed)),
        recommended: tuning.candidates().filter(|_| tuning.pays()).map(candidate).collect(),
        emulated: tuning.emulated,
    })
}

fn candidate(candidate: &Candidate) -> CandidateEntry<'_> {
    CandidateEntry { setting: &candidate.key, value: &candidate.value }
}

fn tried<'a>(tuning: &Tuning, one: &'a Tried, index: usize) -> TriedEntry<'a> {
    TriedEntry {
        candidate: candidate(&one.candidate),
        target: &one.candidate.target,
        gain: one.gain(),
        chosen: tuning.chosen.contains(&index),
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
