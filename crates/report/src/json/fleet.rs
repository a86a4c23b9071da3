//! The document `iotax-fleet/1`, whose JSON Schema is `crates/report/schema/iotax-fleet-1.schema.json`.

use iotax_analysis::fleet::{
    FleetAnswer, FleetRun, HostCell, HostFigures, SharedCell, SharedGroup, StartSkew, WithheldRound,
};
use iotax_model::RunState;
use iotax_model::record::FleetMode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::json;
use super::ratio::Interval95;
use crate::mark::Mark;

/// Value of the key `schema`; see [`super::SCHEMA`] for when its number rises.
pub const SCHEMA: &str = "iotax-fleet/1";

/// Identifies a file as an `iotax-fleet/1` document.
pub const MARK: Mark = Mark::schema(SCHEMA, &["schema"]);

/// Results of a fleet: several machines measured together. Unknown values have no key.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "One plan of iotax on many machines")]
pub(super) struct FleetDocument<'a> {
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    fleet: &'a str,
    name: &'a str,
    mode: FleetMode,
    members: Vec<FleetMemberEntry<'a>>,
    /// Comparison of the hosts, if each member has its own storage.
    hosts: Vec<HostCellEntry<'a>>,
    /// Sums over the members, if all share one storage.
    shared: Vec<SharedCellEntry<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct FleetMemberEntry<'a> {
    member: &'a str,
    machine: Option<&'a str>,
    run: i64,
    state: RunState,
    measurements: usize,
    /// The reason why the member's run did not finish, if known.
    reason: Option<&'a str>,
}

#[derive(Serialize, JsonSchema)]
struct HostCellEntry<'a> {
    workload: &'a str,
    target: &'a str,
    /// The median of the hosts' mean latencies.
    median_ns: f64,
    /// True if there are enough hosts to call one of them an outlier.
    judged: bool,
    hosts: Vec<HostEntry<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct HostEntry<'a> {
    member: &'a str,
    rounds: usize,
    iops: Option<f64>,
    mean_ns: f64,
    #[serde(flatten)]
    interval: Interval95,
    p99_ns: Option<f64>,
    /// `mean_ns` divided by the median of all hosts.
    ratio: f64,
    /// Modified z-score (Iglewicz and Hoaglin, 1993) of the host among the logarithms of all hosts' `mean_ns`; absent if their median
    /// absolute deviation is 0.
    score: Option<f64>,
    outlier: bool,
}

#[derive(Serialize, JsonSchema)]
struct SharedCellEntry<'a> {
    workload: &'a str,
    target: &'a str,
    /// Rounds grouped by the set of members that took part; the group with the most rounds comes first.
    groups: Vec<SharedGroupEntry<'a>>,
    withheld: &'a [WithheldRound],
}

#[derive(Serialize, JsonSchema)]
struct SharedGroupEntry<'a> {
    rounds: usize,
    /// I/Os per second of all members together; median over the rounds.
    iops: f64,
    iops_low_95: Option<f64>,
    iops_high_95: Option<f64>,
    bytes_per_s: f64,
    ios: u64,
    /// Median latency of the I/Os of all members together.
    p50_ns: Option<f64>,
    p99_ns: Option<f64>,
    /// Jain's fairness index (Jain, Chiu and Hawe, 1984) of the members' I/Os per second, up to 1 for equal shares; absent if no round had
    /// I/O.
    fairness: Option<f64>,
    start_skew: StartSkew,
    shares: Vec<MemberShare<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct MemberShare<'a> {
    member: &'a str,
    share: f64,
}

/// Builds the document with the results of a fleet: several hosts measured together.
#[must_use]
pub fn document(fleet: &FleetAnswer) -> Value {
    json(&FleetDocument {
        schema: SCHEMA,
        fleet: &fleet.id,
        name: &fleet.name,
        mode: fleet.mode,
        members: fleet.members.iter().map(member).collect(),
        hosts: fleet.hosts.iter().map(host_cell).collect(),
        shared: fleet.shared.iter().map(shared_cell).collect(),
    })
}

fn member(member: &FleetRun) -> FleetMemberEntry<'_> {
    FleetMemberEntry {
        member: &member.name,
        machine: member.machine.as_deref(),
        run: member.run,
        state: member.state,
        measurements: member.measured,
        reason: member.reason.as_deref(),
    }
}

fn host_cell(cell: &HostCell) -> HostCellEntry<'_> {
    HostCellEntry {
        workload: &cell.workload,
        target: &cell.target,
        median_ns: cell.median_ns,
        judged: cell.is_judged,
        hosts: cell.hosts.iter().map(host).collect(),
    }
}

fn host(host: &HostFigures) -> HostEntry<'_> {
    HostEntry {
        member: &host.member,
        rounds: host.rounds,
        iops: host.iops,
        mean_ns: host.mean_ns,
        interval: host.interval.into(),
        p99_ns: host.p99_ns,
        ratio: host.ratio,
        score: host.score,
        outlier: host.is_outlier,
    }
}

fn shared_cell(cell: &SharedCell) -> SharedCellEntry<'_> {
    SharedCellEntry {
        workload: &cell.workload,
        target: &cell.target,
        groups: cell.groups.iter().map(group).collect(),
        withheld: &cell.withheld,
    }
}

fn group(group: &SharedGroup) -> SharedGroupEntry<'_> {
    SharedGroupEntry {
        rounds: group.rounds,
        iops: group.iops,
        iops_low_95: group.iops_interval.map(|interval| interval.low),
        iops_high_95: group.iops_interval.map(|interval| interval.high),
        bytes_per_s: group.bytes_per_s,
        ios: group.ios,
        p50_ns: group.percentile(0.5),
        p99_ns: group.percentile(0.99),
        fairness: group.fairness.map(|fairness| fairness.mean),
        start_skew: group.skew,
        shares: group.shares.iter().map(|(member, share)| MemberShare { member, share: *share }).collect(),
    }
}
