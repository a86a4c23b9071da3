//! The document `iotax-trend/1`, whose JSON Schema is `crates/report/schema/iotax-trend-1.schema.json`.

use serde_json::Value;

use super::comparison::differences;
use super::{number, object};
use crate::mark::Mark;
use iotax_analysis::time::utc;
use iotax_analysis::trend::{LEVEL, PastRun, Trend, TrendChange, TrendGate, TrendPoint, Trends};

/// The value of `schema`; its number rises by the rule of [`super::SCHEMA`].
pub const SCHEMA: &str = "iotax-trend/1";

/// Marks a file as such a document.
pub const MARK: Mark = Mark::schema(SCHEMA, &["schema"]);

/// A history. Runs are named by their numbers in the store; means are in the metric's unit: I/Os or bytes per second, else nanoseconds.
#[must_use]
pub fn document(runs: &[PastRun], trends: &Trends) -> Value {
    object([
        ("schema", Some(SCHEMA.into())),
        ("level", number(Some(LEVEL))),
        ("runs", Some(runs.iter().map(run).collect())),
        ("series", Some(trends.trends.iter().map(|one| trend(runs, one)).collect())),
        ("gates", Some(trends.gates.iter().map(|one| gate(runs, trends, one)).collect())),
    ])
}

fn run(run: &PastRun) -> Value {
    object([
        ("id", Some(run.id.into())),
        ("started_at", Some(utc(run.started_at_ms).into())),
        ("user", run.environment.user.clone().map(Value::from)),
        ("machine", run.environment.hostname.clone().map(Value::from)),
        ("tags", (!run.tags.is_empty()).then(|| run.tags.clone().into())),
        ("note", (!run.note.is_empty()).then(|| run.note.clone().into())),
    ])
}

fn id(runs: &[PastRun], trend: &Trend, point: usize) -> Value {
    runs[trend.points[point].run].id.into()
}

fn trend(runs: &[PastRun], trend: &Trend) -> Value {
    object([
        ("target", Some(trend.target.as_str().into())),
        ("workload", Some(trend.workload.name.as_str().into())),
        ("metric", Some(trend.metric.word().into())),
        ("control", trend.control.clone().map(Value::from)),
        ("is_control", Some(trend.is_control.into())),
        ("noise", number(trend.noise)),
        ("enough_runs", Some((!trend.is_short()).into())),
        ("points", Some(trend.points.iter().map(|one| point(runs, one)).collect())),
        ("changes", Some(trend.changes.iter().map(|one| change(runs, trend, one)).collect())),
        (
            "pending",
            trend.pending.map(|pending| {
                object([
                    ("runs", Some(pending.points.into())),
                    ("ratio", number(Some(pending.ratio))),
                    ("needed_runs", pending.needed.map(Value::from)),
                ])
            }),
        ),
    ])
}

fn point(runs: &[PastRun], point: &TrendPoint) -> Value {
    object([
        ("run", Some(runs[point.run].id.into())),
        ("rounds", Some(point.rounds.into())),
        ("mean", number(Some(point.mean))),
        ("control", number(point.control)),
        ("followed", number(Some(point.followed))),
    ])
}

fn change(runs: &[PastRun], trend: &Trend, change: &TrendChange) -> Value {
    object([
        ("run", Some(id(runs, trend, change.at))),
        ("last_run_before", Some(id(runs, trend, change.last_before))),
        ("first_run_after", Some(id(runs, trend, change.first_after))),
        ("ratio", number(Some(change.ratio))),
        ("low_95", number(Some(change.interval.low))),
        ("high_95", number(Some(change.interval.high))),
        ("direction", Some(if change.is_worse { "slower" } else { "faster" }.into())),
        ("runs_before", Some(change.points.0.into())),
        ("runs_after", Some(change.points.1.into())),
        ("counts", Some(change.is_new.into())),
        (
            "machine",
            change.control.map(|(ratio, interval)| {
                object([
                    ("ratio", number(Some(ratio))),
                    ("low_95", number(Some(interval.low))),
                    ("high_95", number(Some(interval.high))),
                ])
            }),
        ),
        ("differences", Some(differences(&change.causes))),
    ])
}

fn gate(runs: &[PastRun], trends: &Trends, gate: &TrendGate) -> Value {
    let tripped = gate.tripped.iter().map(|(series, change)| {
        let trend = &trends.trends[*series];
        object([
            ("series", Some((*series).into())),
            ("run", Some(id(runs, trend, trend.changes[*change].at))),
        ])
    });
    object([
        ("gate", Some(gate.gate.to_string().into())),
        ("metric", Some(gate.gate.metric.word().into())),
        ("series_judged", Some(gate.judged.into())),
        ("tripped", Some(tripped.collect())),
    ])
}
