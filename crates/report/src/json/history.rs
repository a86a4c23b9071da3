//! The document `iotax-history/1`, whose JSON Schema is `crates/report/schema/iotax-history-1.schema.json`.

use serde_json::Value;

use super::comparison::differences;
use super::{high, low, number, object};
use crate::mark::Mark;
use iotax_analysis::Ratio;
use iotax_analysis::compare::{Account, Compared, History, Point, Track};

/// The value of `schema`; its number rises by the rule of [`super::SCHEMA`].
pub const SCHEMA: &str = "iotax-history/1";

/// Marks a file as such a document.
pub const MARK: Mark = Mark::schema(SCHEMA, &["schema"]);

/// Several runs side by side. A point's `run` is the index of the run in `runs`; its mean and band are in the metric's unit: I/Os or
/// bytes per second, else nanoseconds.
#[must_use]
pub fn document(accounts: &[Account], history: &History) -> Value {
    object([
        ("schema", Some(SCHEMA.into())),
        ("runs", Some(accounts.iter().zip(0..).map(|(account, i)| run(account, i, history)).collect())),
        ("tracks", Some(history.tracks.iter().map(track).collect())),
    ])
}

fn run(account: &Account, index: usize, history: &History) -> Value {
    let before = index.checked_sub(1).and_then(|i| history.neighbours.get(i)?.as_ref());
    let differences = |compared: &Compared| {
        let targets = compared.targets.iter().filter(|t| !t.differences.is_empty()).map(|t| {
            object([
                ("target", Some(t.b.as_str().into())),
                ("differences", Some(differences(&t.differences))),
            ])
        });
        object([("machines", Some(differences(&compared.machines))), ("targets", Some(targets.collect()))])
    };
    object([
        ("id", Some(account.id.into())),
        ("name", Some(account.name.as_str().into())),
        ("started_at", Some(account.started_at.as_str().into())),
        ("against_previous", before.map(differences)),
    ])
}

fn track(track: &Track) -> Value {
    object([
        ("target", Some(track.target.as_str().into())),
        ("workload", Some(track.workload.as_str().into())),
        ("metric", Some(track.metric.word().into())),
        ("points", Some(track.points.iter().map(point).collect())),
    ])
}

fn point(point: &Point) -> Value {
    object([
        ("run", Some(point.run.into())),
        ("emulated", Some(point.emulated.into())),
        ("rounds", Some(point.rounds.into())),
        ("mean", number(Some(point.mean))),
        ("low_95", low(point.band)),
        ("high_95", high(point.band)),
        ("against_first", point.since_first.as_ref().map(change)),
        ("against_previous", point.since_previous.as_ref().map(change)),
    ])
}

fn change(change: &Ratio) -> Value {
    object([
        ("ratio", number(Some(change.mean))),
        ("low", low(change.interval)),
        ("high", high(change.interval)),
        ("verdict", Some(change.verdict.word().into())),
        ("withheld", change.withheld.clone().map(Value::from)),
    ])
}
