//! The JSON of durable writes: the methods on each target, and the account of their flushes.

use iotax_analysis::Judgement;
use iotax_analysis::durability::{DurableWrites, MethodOnTarget};
use iotax_analysis::flushes::{FlushAccount, FlushCount, FlushFate, FlushLevel};
use iotax_model::Run;
use serde_json::Value;

use super::{number, object, ratio};

/// The methods of a run; absent for a run of other work.
pub(super) fn all(run: &Run, judgement: &Judgement) -> Option<Value> {
    let writes = DurableWrites::of(run, judgement)?;
    Some(object([
        ("reference", writes.reference.map(Value::from)),
        ("methods", Some(writes.cells.iter().map(method).collect())),
    ]))
}

fn method(cell: &MethodOnTarget<'_>) -> Value {
    object([
        ("workload", Some(cell.workload.name.as_str().into())),
        ("target", Some(cell.target.into())),
        ("durable", Some(cell.is_durable().into())),
        ("per_second", number(cell.per_second)),
        ("p50_ns", number(cell.p50_ns)),
        ("p99_ns", number(cell.p99_ns)),
        ("cpu_ns", number(cell.cpu_ns)),
        ("against_reference", cell.against_reference.as_ref().map(ratio)),
        ("flushes", cell.flushes.as_ref().map(account)),
    ])
}

fn account(account: &FlushAccount) -> Value {
    let (fate, by, reason) = match &account.fate {
        FlushFate::Kept(_) => ("kept", None, None),
        FlushFate::Swallowed { by, is_setting } => {
            ("swallowed", Some(by), Some(if *is_setting { "setting" } else { "count" }.to_owned()))
        }
        FlushFate::NotNeeded { device } => ("not_needed", Some(device), None),
        FlushFate::NotCountable { reason } => ("not_countable", None, Some(reason.clone())),
    };
    object([
        ("asked", Some(account.asked.into())),
        ("levels", Some(account.levels.iter().map(level).collect())),
        ("fate", Some(fate.into())),
        ("by", by.map(|by| by.as_str().into())),
        ("reason", reason.map(Value::from)),
    ])
}

fn level(level: &FlushLevel) -> Value {
    let (count, reason) = match level.flushes {
        FlushCount::Counted(count) => (Some(count), None),
        FlushCount::NoVolatileCache => (None, Some("no volatile cache")),
        FlushCount::Fua => (None, Some("FUA")),
        FlushCount::NotCounted => (None, Some("not counted")),
    };
    object([
        ("name", Some(level.name.as_str().into())),
        ("flushes", count.map(Value::from)),
        ("reason", reason.map(Value::from)),
    ])
}
