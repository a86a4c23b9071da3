//! The document `iotax-compare/1`, whose JSON Schema is `crates/report/schema/iotax-compare-1.schema.json`.

use serde_json::Value;

use super::{any, filled, number, object};
use crate::sentences;
use iotax_analysis::compare::{
    Account, Cell, Compared, Difference, GateResult, Missing, Side, TargetPair, WorkloadPair,
};
use iotax_analysis::stats::paired::Interval;

/// The value of `schema`; its number rises as that of `iotax/1` does.
pub const SCHEMA: &str = "iotax-compare/1";

/// Two runs, or two targets of one, held against one another.
///
/// `ratio`, `low` and `high` are of the side that is not the baseline to the baseline; `low` and `high` at the `confidence` given
/// (Holm's level), `low_95` and `high_95` at 95%. A cell's `a` and `b` are geometric means over the rounds, in nanoseconds, I/Os or
/// bytes per second. `needed_rounds` is a total for each side.
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

/// Where a cell is, by A's names and B's.
fn place(compared: &Compared, cell: &Cell) -> [(&'static str, Option<Value>); 4] {
    let (target, workload) = (&compared.targets[cell.target], &compared.workloads[cell.workload]);
    [
        ("target_a", Some(target.a.as_str().into())),
        ("target_b", Some(target.b.as_str().into())),
        ("workload_a", Some(workload.a.name.as_str().into())),
        ("workload_b", Some(workload.b.as_str().into())),
    ]
}

fn merged(parts: [Value; 2]) -> Value {
    let maps =
        parts.into_iter().filter_map(|part| if let Value::Object(map) = part { Some(map) } else { None });
    Value::Object(maps.flatten().collect())
}

fn told(compared: &Compared, cell: &Cell) -> Value {
    let low = |interval: Option<Interval>| number(interval.map(|i| i.low));
    let high = |interval: Option<Interval>| number(interval.map(|i| i.high));
    let tax = cell.tax.map(|tax| {
        object([("mean", number(Some(tax.ns))), ("low", low(tax.interval)), ("high", high(tax.interval))])
    });
    let figures = object([
        ("metric", Some(cell.metric.word().into())),
        ("a", number(Some(cell.a))),
        ("b", number(Some(cell.b))),
        ("ratio", number(Some(cell.ratio))),
        ("low", low(cell.interval)),
        ("high", high(cell.interval)),
        ("confidence", number(cell.confidence)),
        ("low_95", low(cell.interval_95)),
        ("high_95", high(cell.interval_95)),
        ("tax_ns", tax),
        ("verdict", Some(cell.verdict.word().into())),
        ("rounds_a", Some(cell.rounds.0.into())),
        ("rounds_b", Some(cell.rounds.1.into())),
        ("needed_rounds", cell.needed_rounds.map(Value::from)),
        ("withheld", cell.withheld.clone().map(Value::from)),
    ]);
    merged([object(place(compared, cell)), figures])
}

fn gate(compared: &Compared, result: &GateResult) -> Value {
    let tripped = result.tripped.iter().map(|(cell, interval)| {
        let cell = &compared.cells[*cell];
        let figures = object([
            ("ratio", number(Some(cell.ratio))),
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
