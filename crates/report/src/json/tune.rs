//! The document `iotax-tune/1`, whose JSON Schema is `crates/report/schema/iotax-tune-1.schema.json`.

use serde_json::Value;

use super::{number, object};
use iotax_analysis::tune::{Candidate, Confirmation, Tried, Tuning};

/// The value of `schema`; its number rises by the rule of [`super::SCHEMA`].
pub const SCHEMA: &str = "iotax-tune/1";

/// A tuning. `recommended` is empty unless a confirmation in fresh rounds decided that the settings pay. The runs' own documents have
/// all figures.
#[must_use]
pub fn document(tuning: &Tuning) -> Value {
    let recommended = tuning.candidates().filter(|_| tuning.pays()).map(candidate).collect();
    object([
        ("schema", Some(SCHEMA.into())),
        ("screening", tuning.screening.map(Value::from)),
        ("tried", Some(tuning.tried.iter().zip(0..).map(|(one, place)| tried(tuning, one, place)).collect())),
        ("confirmation", tuning.confirmation.as_ref().map(|(run, confirmed)| confirmation(*run, confirmed))),
        ("recommended", Some(recommended)),
        ("emulated", Some(tuning.emulated.into())),
    ])
}

fn candidate(candidate: &Candidate) -> Value {
    object([
        ("setting", Some(candidate.key.as_str().into())),
        ("value", Some(candidate.value.as_str().into())),
    ])
}

fn tried(tuning: &Tuning, one: &Tried, place: usize) -> Value {
    object([
        ("setting", Some(one.candidate.key.as_str().into())),
        ("value", Some(one.candidate.value.as_str().into())),
        ("target", Some(one.candidate.target.as_str().into())),
        ("gain", number(one.gain())),
        ("chosen", Some(tuning.chosen.contains(&place).into())),
        ("lost", one.lost.clone().map(Value::from)),
        ("comparisons", Some(one.comparisons.iter().map(super::comparison).collect())),
    ])
}

fn confirmation(run: i64, confirmed: &Confirmation) -> Value {
    object([
        ("run", Some(run.into())),
        ("outcome", Some(confirmed.outcome.word().into())),
        ("objective", Some(confirmed.objective.iter().map(super::comparison).collect())),
        ("elsewhere", Some(confirmed.elsewhere.iter().map(super::comparison).collect())),
    ])
}
