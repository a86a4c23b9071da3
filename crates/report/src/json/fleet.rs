//! The document `iotax-fleet/1`, whose JSON Schema is `crates/report/schema/iotax-fleet-1.schema.json`.

use iotax_analysis::fleet::{Fleet, FleetRun, HostCell, HostFigures, SharedCell, SharedGroup};
use iotax_model::record::FleetMode;
use serde_json::Value;

use super::{high, low, number, object};
use crate::mark::Mark;

/// The value of `schema`; its number rises by the rule of [`super::SCHEMA`].
pub const SCHEMA: &str = "iotax-fleet/1";

/// Marks a file as such a document.
pub const MARK: Mark = Mark::schema(SCHEMA, &["schema"]);

/// A fleet. What is unknown has no key.
#[must_use]
pub fn document(fleet: &Fleet) -> Value {
    let mode = match fleet.mode {
        FleetMode::Each => "each",
        FleetMode::Shared => "shared",
    };
    object([
        ("schema", Some(SCHEMA.into())),
        ("fleet", Some(fleet.id.as_str().into())),
        ("name", Some(fleet.name.as_str().into())),
        ("mode", Some(mode.into())),
        ("members", Some(fleet.members.iter().map(member).collect())),
        ("hosts", Some(fleet.hosts.iter().map(host_cell).collect())),
        ("shared", Some(fleet.shared.iter().map(shared_cell).collect())),
    ])
}

fn member(member: &FleetRun) -> Value {
    object([
        ("member", Some(member.name.as_str().into())),
        ("machine", member.machine.clone().map(Value::from)),
        ("run", Some(member.run.into())),
        ("state", Some(member.state.word().into())),
        ("measurements", Some(member.measured.into())),
        ("reason", member.reason.clone().map(Value::from)),
    ])
}

fn host_cell(cell: &HostCell) -> Value {
    object([
        ("workload", Some(cell.workload.as_str().into())),
        ("target", Some(cell.target.as_str().into())),
        ("median_ns", number(Some(cell.median_ns))),
        ("judged", Some(cell.is_judged.into())),
        ("hosts", Some(cell.hosts.iter().map(host).collect())),
    ])
}

fn host(host: &HostFigures) -> Value {
    object([
        ("member", Some(host.member.as_str().into())),
        ("rounds", Some(host.rounds.into())),
        ("iops", number(host.iops)),
        ("mean_ns", number(Some(host.mean_ns))),
        ("low_95", low(host.interval)),
        ("high_95", high(host.interval)),
        ("p99_ns", number(host.p99_ns)),
        ("ratio", number(Some(host.ratio))),
        ("score", number(host.score)),
        ("outlier", Some(host.is_outlier.into())),
    ])
}

fn shared_cell(cell: &SharedCell) -> Value {
    let withheld = cell.withheld.iter().map(|round| {
        object([("round", Some(round.round.into())), ("reason", Some(round.reason.as_str().into()))])
    });
    object([
        ("workload", Some(cell.workload.as_str().into())),
        ("target", Some(cell.target.as_str().into())),
        ("groups", Some(cell.groups.iter().map(group).collect())),
        ("withheld", Some(withheld.collect())),
    ])
}

fn group(group: &SharedGroup) -> Value {
    let shares = group.shares.iter().map(|(member, share)| {
        object([("member", Some(member.as_str().into())), ("share", number(Some(*share)))])
    });
    let skew = object([
        ("p99_ns", Some(group.skew.p99_ns.into())),
        ("longest_ns", Some(group.skew.longest_ns.into())),
        ("uncertainty_ns", Some(group.skew.uncertainty_ns.into())),
    ]);
    object([
        ("rounds", Some(group.rounds.into())),
        ("iops", number(Some(group.iops))),
        ("iops_low_95", low(group.iops_interval)),
        ("iops_high_95", high(group.iops_interval)),
        ("bytes_per_s", number(Some(group.bytes_per_s))),
        ("ios", Some(group.ios.into())),
        ("p50_ns", number(group.percentile(0.5))),
        ("p99_ns", number(group.percentile(0.99))),
        ("fairness", number(group.fairness.map(|fairness| fairness.mean))),
        ("start_skew", Some(skew)),
        ("shares", Some(shares.collect())),
    ])
}
