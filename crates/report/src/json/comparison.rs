//! The document `iotax-compare/1`, whose JSON Schema is `crates/report/schema/iotax-compare-1.schema.json`.

use serde_json::Value;

use super::{any, filled, merged, number, object, ratio};
use crate::sentences;
use iotax_analysis::compare::{
    Account, Cell, Compared, Difference, GateResult, Missing, RateCell, Side, TargetPair, WorkloadPair,
};

/// The value of `schema`; its number rises by the rule of [`super::SCHEMA`].
pub const SCHEMA: &str = "iotax-compare/1";

/// The comparison of two runs, or of two targets of one run.
///
/// `ratio` is the other side over the baseline; `low` and `high` are its interval at the given `confidence` (Holm's
/// level), `low_95` and `high_95` at 95%. A cell's `a` and `b` are geometric means over the rounds, in nanoseconds,
/// I/Os or bytes per second. `needed_rounds` is a total for each side.
#[must_use]
pub fn document(a: &Side<'_>, b: &Side<'_>, compared: &Compared) -> Value {
    let is_asked = |m: &&Missing| m.metric.is_none_or(|metric| compared.metrics.contains(&metric));
    object([
        ("schema", Some(SCHEMA.into())),
        ("a", Some(side(a))),
        ("b", Some(side(b))),
        ("baseline", Some(compared.baseline.word().into())),
        ("paired", Some(compared.paired.into())),
        ("margin", number(Some(compared.margin))),
        ("machines", Some(differences(&compared.machines))),
        ("targets", Some(compared.targets.iter().map(target).collect())),
        ("workloads", Some(compared.workloads.iter().map(workload).collect())),
        ("missing", Some(compared.missing.iter().filter(is_asked).map(missing).collect())),
        ("cells", Some(compared.shown().map(|cell| told(compared, cell)).collect())),
        ("rates", filled(compared.rates.iter().map(|cell| rate(compared, cell)).collect())),
        ("gates", filled(compared.gates.iter().map(|result| gate(compared, result)).collect())),
        ("conclusions", any(&sentences::compared::conclusions(compared))),
    ])
}

fn side(side: &Side<'_>) -> Value {
    let Account { label, id, name, started_at, source, .. } = side.account;
    object([
        ("label", Some(label.as_str().into())),
        ("run", Some((*id).into())),
        ("name", Some(name.as_str().into())),
        ("started_at", Some(started_at.as_str().into())),
        ("target", side.target.map(Value::from)),
        ("source", source.as_ref().and_then(any)),
    ])
}

pub(super) fn differences(differences: &[Difference]) -> Value {
    let told = |d: &Difference| {
        object([
            ("what", Some(d.what.as_str().into())),
            ("a", d.a.clone().map(Value::from)),
            ("b", d.b.clone().map(Value::from)),
        ])
    };
    differences.iter().map(told).collect()
}

fn target(pair: &TargetPair) -> Value {
    object([
        ("a", Some(pair.a.as_str().into())),
        ("b", Some(pair.b.as_str().into())),
        ("matched", Some(pair.matched.word().into())),
        ("differences", Some(differences(&pair.differences))),
        ("emulated_a", Some(pair.emulated.0.into())),
        ("emulated_b", Some(pair.emulated.1.into())),
    ])
}

fn workload(pair: &WorkloadPair) -> Value {
    object([
        ("a", Some(pair.a.name.as_str().into())),
        ("b", Some(pair.b.as_str().into())),
        ("differences", Some(differences(&pair.differences))),
    ])
}

fn missing(missing: &Missing) -> Value {
    object([
        ("side", Some(missing.side.word().into())),
        ("target", missing.target.clone().map(Value::from)),
        ("workload", missing.workload.clone().map(Value::from)),
        ("metric", missing.metric.map(|metric| metric.word().into())),
        ("reason", Some(missing.reason.as_str().into())),
    ])
}

/// The names of a cell's target and workload in A and in B.
fn place(compared: &Compared, cell: &Cell) -> [(&'static str, Option<Value>); 4] {
    names(&compared.targets[cell.target], &compared.workloads[cell.workload])
}

fn names(target: &TargetPair, workload: &WorkloadPair) -> [(&'static str, Option<Value>); 4] {
    [
        ("target_a", Some(target.a.as_str().into())),
        ("target_b", Some(target.b.as_str().into())),
        ("workload_a", Some(workload.a.name.as_str().into())),
        ("workload_b", Some(workload.b.as_str().into())),
    ]
}

fn told(compared: &Compared, cell: &Cell) -> Value {
    let figures = object([
        ("metric", Some(cell.metric.word().into())),
        ("a", number(Some(cell.a))),
        ("b", number(Some(cell.b))),
        ("rounds_a", Some(cell.rounds.0.into())),
        ("rounds_b", Some(cell.rounds.1.into())),
    ]);
    merged([object(place(compared, cell)), figures, ratio(&cell.ratio)])
}

fn rate(compared: &Compared, cell: &RateCell) -> Value {
    let figures = object([
        ("what", Some(cell.what.as_str().into())),
        ("a", number(Some(cell.a))),
        ("b", number(Some(cell.b))),
        ("ratio", number(Some(cell.ratio))),
        ("low", number(cell.interval.map(|ends| ends.low))),
        ("high", number(cell.interval.map(|ends| ends.high))),
        ("verdict", Some(cell.verdict.word().into())),
    ]);
    merged([object(names(&compared.targets[cell.target], &compared.workloads[cell.workload])), figures])
}

fn gate(compared: &Compared, result: &GateResult) -> Value {
    let tripped = result.tripped.iter().map(|(cell, interval)| {
        let cell = &compared.cells[*cell];
        let figures = object([
            ("ratio", number(Some(cell.ratio.mean))),
            ("low", number(Some(interval.low))),
            ("high", number(Some(interval.high))),
        ]);
        merged([object(place(compared, cell)), figures])
    });
    let open = result.open.iter().map(|cell| object(place(compared, &compared.cells[*cell])));
    object([
        ("gate", Some(result.gate.to_string().into())),
        ("metric", Some(result.gate.metric.word().into())),
        ("cells", Some(result.cells.into())),
        ("tripped", Some(tripped.collect())),
        ("undecided", Some(open.collect())),
    ])
}
