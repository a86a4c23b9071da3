//! JSON of durable writes: the methods on each target, and their flushes at each layer.

use iotax_analysis::durability::{DurableWrites, MethodOnTarget};
use iotax_analysis::flushes::{FlushAccount, FlushCount, FlushFate, FlushLevel, SwallowEvidence};
use schemars::JsonSchema;
use serde::Serialize;

use super::ratio::RatioEntry;

/// Methods of making a write durable, compared in a run of the suite `flush`.
#[derive(Serialize, JsonSchema)]
pub(super) struct DurableWritesEntry<'a> {
    /// The method that the other methods on the same target are compared with; absent if no method is durable.
    reference: Option<&'a str>,
    methods: Vec<MethodEntry<'a>>,
}

/// Results of a method on a target, over all rounds.
#[derive(Serialize, JsonSchema)]
struct MethodEntry<'a> {
    workload: &'a str,
    /// The workload's name without its size, jobs, depth and layout, which a sweep adds.
    method: &'a str,
    target: &'a str,
    /// False if a power cut may lose data that this method wrote.
    durable: bool,
    /// Commits per second; for a method that is not durable, `sync_file_range` calls per second, or writes per second without such calls.
    /// Absent if unknown.
    per_second: Option<f64>,
    /// Median time from the submission of a commit's first write to the end of the commit; absent for too few commits, or if several I/Os
    /// were in flight.
    p50_ns: Option<f64>,
    /// 99th percentile of the time from the submission of a commit's first write to the end of the commit; absent for too few commits, or
    /// if several I/Os were in flight.
    p99_ns: Option<f64>,
    /// CPU time of the host per commit; for a method that is not durable, per `sync_file_range` call, or per write without such calls.
    /// Absent if unknown.
    cpu_ns: Option<f64>,
    /// The method's rate divided by the reference method's with the same size, jobs, depth and layout; absent for the reference, if it was not
    /// measured with these, and if the measurements of either method are unusable or have no round in common.
    against_reference: Option<RatioEntry<'a>>,
    flushes: Option<FlushAccountEntry<'a>>,
}

/// Flushes of a method by layer, all rounds together; absent for a method that requests none, and with a noisy neighbour.
#[derive(Serialize, JsonSchema)]
struct FlushAccountEntry<'a> {
    /// Flushes, or individually durable writes, that the program requested.
    asked: u64,
    /// Layers below the program, from the top down.
    levels: Vec<FlushLevelEntry<'a>>,
    fate: FateWord,
    /// For `swallowed`, the layer that swallowed the flushes, or the two layers between which they were lost. For `not_needed`, the lowest
    /// device. Absent otherwise.
    by: Option<&'a str>,
    /// For `swallowed`, the kind of evidence: `setting` or `count`. For `not_countable`, the reason as text. Absent otherwise.
    reason: Option<&'a str>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FateWord {
    Kept,
    Swallowed,
    NotNeeded,
    NotCountable,
}

#[derive(Serialize, JsonSchema)]
struct FlushLevelEntry<'a> {
    name: &'a str,
    /// Flushes that the layer completed in the windows, including those of other programs; absent if there is no count.
    flushes: Option<u64>,
    /// Writes with FUA that the layer completed in the windows; absent if none were counted.
    fua_writes: Option<u64>,
    /// Flushes that the layer acknowledged without passing them on, by the layer's own count; absent if the layer dropped none, or has no
    /// such count.
    dropped: Option<u64>,
    /// Reason why the layer has no count of flushes; absent if it has one.
    reason: Option<NoCount>,
}

#[derive(Serialize, JsonSchema)]
enum NoCount {
    #[serde(rename = "no volatile cache")]
    NoVolatileCache,
    #[serde(rename = "FUA")]
    Fua,
    #[serde(rename = "not counted")]
    NotCounted,
}

/// Builds the JSON entry on the durable-write methods of a run.
pub(super) fn entry<'a>(writes: &'a DurableWrites<'a>) -> DurableWritesEntry<'a> {
    DurableWritesEntry { reference: writes.reference, methods: writes.cells.iter().map(method).collect() }
}

fn method<'a>(cell: &'a MethodOnTarget<'a>) -> MethodEntry<'a> {
    MethodEntry {
        workload: &cell.workload.name,
        method: cell.method,
        target: cell.target,
        durable: cell.is_durable(),
        per_second: cell.per_second,
        p50_ns: cell.p50_ns,
        p99_ns: cell.p99_ns,
        cpu_ns: cell.cpu_ns,
        against_reference: cell.against_reference.as_ref().map(Into::into),
        flushes: cell.flushes.as_ref().map(account),
    }
}

fn account(account: &FlushAccount) -> FlushAccountEntry<'_> {
    let (fate, by, reason) = match &account.fate {
        FlushFate::Kept(_) => (FateWord::Kept, None, None),
        FlushFate::Swallowed { by, evidence } => {
            let is_setting = *evidence == SwallowEvidence::Setting;
            (FateWord::Swallowed, Some(by.as_str()), Some(if is_setting { "setting" } else { "count" }))
        }
        FlushFate::NotNeeded { device } => (FateWord::NotNeeded, Some(device.as_str()), None),
        FlushFate::NotCountable { reason } => (FateWord::NotCountable, None, Some(reason.as_str())),
    };
    FlushAccountEntry {
        asked: account.asked,
        levels: account.levels.iter().map(level).collect(),
        fate,
        by,
        reason,
    }
}

fn level(level: &FlushLevel) -> FlushLevelEntry<'_> {
    let (flushes, reason) = match level.flushes {
        FlushCount::Counted(count)
        | FlushCount::Dropping { done: count, .. }
        | FlushCount::WithFua { flushes: count, .. } => (Some(count), None),
        FlushCount::NoVolatileCache => (None, Some(NoCount::NoVolatileCache)),
        FlushCount::Fua => (None, Some(NoCount::Fua)),
        FlushCount::NotCounted => (None, Some(NoCount::NotCounted)),
    };
    let dropped = match level.flushes {
        FlushCount::Dropping { dropped, .. } => Some(dropped),
        _ => None,
    };
    let fua_writes = match level.flushes {
        FlushCount::WithFua { fua_writes, .. } => Some(fua_writes),
        _ => None,
    };
    FlushLevelEntry { name: &level.name, flushes, fua_writes, dropped, reason }
}
