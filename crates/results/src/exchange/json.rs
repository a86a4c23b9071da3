//! The document `iotax/1`, whose JSON Schema is `crates/results/schema/iotax-1.schema.json`.
//!
//! Absent is absent: a figure that is not known has no key. There is no null, NaN or infinity.

use iotax_model::record::{Measurement, Tally};
use iotax_model::{Histogram, Warning};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::judge::figures::{engine_cpu_per_io, host_cpu_per_io, per_second, percentile};
use crate::judge::{Comparison, Judgement};
use crate::report::utc;
use crate::stats::paired::Interval;
use crate::store::Run;

/// The value of `schema`. Its number rises when a key changes its meaning or goes; new keys come with a new edition of
/// the schema's file.
pub const SCHEMA: &str = "iotax/1";

/// A run and what is said of it.
///
/// `comparisons` are those with the baseline; `low` and `high` are the ends of the interval that the verdict rests on,
/// at the `confidence` given (Holm's level), `low_95` and `high_95` those of the plain 95% interval. `needed_blocks` is
/// a total, not an addition. `neighbours` has the same form: each guest against the guest before it.
#[must_use]
pub fn document(run: &Run, judgement: &Judgement) -> Value {
    object([
        ("schema", Some(SCHEMA.into())),
        ("run", Some(head(run))),
        ("targets", any(&run.targets)),
        ("workloads", any(&run.plan.workloads)),
        ("measurements", Some(run.measurements.iter().map(|m| measurement(m, judgement)).collect())),
        ("comparisons", Some(judgement.comparisons.iter().map(comparison).collect())),
        ("neighbours", Some(judgement.neighbours.iter().map(comparison).collect())),
        ("conclusions", any(&judgement.conclusions)),
        ("warnings", any(&judgement.warnings)),
    ])
}

fn head(run: &Run) -> Value {
    object([
        ("id", Some(run.id.into())),
        ("name", Some(run.plan.name.as_str().into())),
        ("state", Some(run.state.word().into())),
        ("seed", Some(run.seed.into())),
        ("started_at", Some(utc(run.started_at_ms).into())),
        ("repeat", Some(run.plan.repeat.into())),
        ("baseline", Some(run.plan.baseline.as_str().into())),
        ("environment", any(&run.environment)),
    ])
}

fn measurement(m: &Measurement, judgement: &Judgement) -> Value {
    let duration_s = m.outcome.duration_ns as f64 / 1e9;
    let direction = |tally: &Tally| {
        object([
            ("ios", Some(tally.ios.into())),
            ("bytes", Some(tally.bytes.into())),
            ("iops", number(per_second(m, tally.ios))),
            ("bytes_per_s", number(per_second(m, tally.bytes))),
            ("latency_ns", latency(&tally.latency)),
            ("response_ns", tally.response.as_ref().and_then(latency)),
        ])
    };
    let about_it = |w: &&Warning| {
        w.target.as_ref() == Some(&m.target)
            && w.workload.as_ref() == Some(&m.workload)
            && w.block == Some(m.block)
    };
    object([
        ("target", Some(m.target.as_str().into())),
        ("workload", Some(m.workload.as_str().into())),
        ("block", Some(m.block.into())),
        ("order", Some(m.order.into())),
        ("started_at", Some(utc(m.started_at_ms).into())),
        ("duration_s", number(Some(duration_s))),
        ("ioengine", m.outcome.ioengine.map(|engine| engine.word().into())),
        ("read", m.outcome.tallies.read.as_ref().map(direction)),
        ("write", m.outcome.tallies.write.as_ref().map(direction)),
        ("trim", m.outcome.tallies.trim.as_ref().map(direction)),
        ("sync", m.outcome.tallies.sync.as_ref().map(direction)),
        ("pacing", m.outcome.pacing.as_ref().and_then(any)),
        ("verify", m.outcome.verify.as_ref().and_then(any)),
        ("stop", m.outcome.stop.map(|stop| stop.word().into())),
        (
            "cpu",
            Some(object([
                ("engine_ns_per_io", number(engine_cpu_per_io(m))),
                ("host_ns_per_io", number(host_cpu_per_io(m))),
            ])),
        ),
        ("errors", any(&m.outcome.errors)),
        ("notes", any(&m.outcome.notes)),
        ("warnings", Some(judgement.warnings.iter().filter(about_it).map(|w| w.kind.word()).collect())),
    ])
}

/// Absent without I/O.
fn latency(histogram: &Histogram) -> Option<Value> {
    (histogram.count() > 0).then(|| {
        object([
            ("mean", number(histogram.mean())),
            ("stddev", number(histogram.stddev())),
            ("min", histogram.min().map(Value::from)),
            ("max", histogram.max().map(Value::from)),
            ("p50", number(percentile(histogram, 0.5))),
            ("p90", number(percentile(histogram, 0.9))),
            ("p99", number(percentile(histogram, 0.99))),
            ("p99_9", number(percentile(histogram, 0.999))),
            ("p99_99", number(percentile(histogram, 0.9999))),
        ])
    })
}

fn comparison(c: &Comparison) -> Value {
    let low = |interval: Option<Interval>| number(interval.map(|i| i.low));
    let high = |interval: Option<Interval>| number(interval.map(|i| i.high));
    let tax = c.tax.map(|tax| {
        object([("mean", number(Some(tax.ns))), ("low", low(tax.interval)), ("high", high(tax.interval))])
    });
    object([
        ("workload", Some(c.workload.as_str().into())),
        ("metric", Some(c.metric.word().into())),
        ("target", Some(c.target.as_str().into())),
        ("baseline", Some(c.baseline.as_str().into())),
        ("ratio", number(Some(c.ratio))),
        ("low", low(c.interval)),
        ("high", high(c.interval)),
        ("confidence", number(c.confidence)),
        ("low_95", low(c.interval_95)),
        ("high_95", high(c.interval_95)),
        ("sign_flip_p", number(c.sign_flip_p)),
        ("tax_ns", tax),
        ("verdict", Some(c.verdict.word().into())),
        ("blocks", Some(c.blocks.into())),
        ("needed_blocks", c.needed_blocks.map(Value::from)),
    ])
}

/// The entries that are there.
fn object<const N: usize>(entries: [(&str, Option<Value>); N]) -> Value {
    Value::Object(
        entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect::<Map<_, _>>(),
    )
}

/// Absent for what JSON cannot say.
fn number(value: Option<f64>) -> Option<Value> {
    serde_json::Number::from_f64(value?).map(Value::Number)
}

fn any(value: &impl Serialize) -> Option<Value> {
    serde_json::to_value(value).ok().map(without_null)
}

/// The environment's facts are null in the record where they could not be read.
fn without_null(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_null(v))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_null).collect(),
        other => other,
    }
}
