//! JSON of a cell (one target and workload over all rounds), and of a run's timing.

use std::collections::BTreeMap;

use iotax_analysis::amplification::Level;
use iotax_analysis::cpu_breakdown::Role;
use iotax_analysis::fairness::Fairness;
use iotax_analysis::latency_breakdown::View;
use iotax_analysis::{
    CellJudgement, CpuByRole, Failure, GroupFairness, Judgement, LatencyBreakdown, Metric, NeighbourLoad,
    Timing,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::certainty::{PercentileEntry, percentile};
use super::network::{NetworkEntry, network};
use super::parts::{Latencies, latency};
use super::{Metrics, metrics};

/// Results of one target on one workload over all rounds.
#[derive(Serialize, JsonSchema)]
pub(super) struct CellEntry<'a> {
    workload: &'a str,
    target: &'a str,
    rounds: u32,
    metrics: Metrics,
    /// Latencies of the I/Os of all rounds together. The mean is the cell's mean, in which every round has the same weight.
    latency_ns: Option<Latencies>,
    percentiles: Vec<PercentileEntry>,
    cpu: Option<CpuEntry>,
    network: Option<NetworkEntry<'a>>,
    inside: Option<LatencyBreakdownEntry<'a>>,
    /// I/Os of each layer over all rounds, from the program down; absent for network workloads, after failed measurements, with a noisy
    /// neighbour, if the I/O engine moves no data, or if only the program counted I/O.
    levels: Option<&'a [Level]>,
    guests: Option<MembersEntry<'a>>,
    jobs: Option<MembersEntry<'a>>,
    neighbour: Option<NeighbourEntry<'a>>,
    failed: Option<FailureEntry<'a>>,
}

/// Failed measurements of a cell: more than 1% of the I/Os failed, a flush failed, verification was incomplete, a measurement ended early,
/// or too many windows completed no I/O.
#[derive(Serialize, JsonSchema)]
struct FailureEntry<'a> {
    /// Number of failed measurements of the cell.
    measurements: u32,
    /// Number of failed I/Os in all measurements of the cell.
    ios: u64,
    /// Number of I/Os in all measurements of the cell, including failed ones.
    of: u64,
    /// Evidence of the first failure.
    reason: &'a str,
}

/// CPU time by the name of its role, such as host kernel or QEMU.
type ByRole = BTreeMap<&'static str, f64>;

#[derive(Serialize, JsonSchema)]
struct CpuEntry {
    /// Host CPU time per I/O by role; medians over the rounds.
    #[schemars(extend("propertyNames" = { "enum": Role::ALL.map(Role::word) }))]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ns_per_io: ByRole,
    /// Host CPU time per GiB of network streams by role; medians over the rounds.
    #[schemars(extend("propertyNames" = { "enum": Role::ALL.map(Role::word) }))]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ns_per_gib: ByRole,
    /// Steal time as a share of the guest's CPU time, idle time included, 0 to 1; median over the rounds. Absent if no
    /// guest reports its CPU time.
    steal: Option<f64>,
    /// Time in nested guests as a share of the guest's CPU time, idle time included, 0 to 1; median over the rounds. Absent if no
    /// guest reports its CPU time.
    nested: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
struct LatencyBreakdownEntry<'a> {
    /// Mean latency as seen at each place; medians over the rounds.
    #[schemars(extend("propertyNames" = { "enum": View::ALL.map(View::word) }))]
    views_ns: BTreeMap<&'static str, f64>,
    /// Parts of the latency between the places, from the bottom up; they add up to the program's latency.
    stretches: Vec<StretchEntry<'a>>,
    not_separable: &'a [String],
    qemu_p50_ns: Option<f64>,
    qemu_p99_ns: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
struct StretchEntry<'a> {
    name: &'a str,
    ns: f64,
}

/// Guests, servers or jobs that ran concurrently, over all rounds.
#[derive(Serialize, JsonSchema)]
struct MembersEntry<'a> {
    members: Vec<MemberEntry<'a>>,
    fairness: Option<Fairness>,
}

#[derive(Serialize, JsonSchema)]
struct MemberEntry<'a> {
    name: &'a str,
    iops: Option<f64>,
    bytes_per_s: Option<f64>,
    latency_ns: Option<Latencies>,
}

#[derive(Serialize, JsonSchema)]
struct NeighbourEntry<'a> {
    name: &'a str,
    iops: Option<f64>,
    bytes_per_s: Option<f64>,
}

/// Wall time of a run, by phase.
#[derive(Serialize, JsonSchema)]
pub(super) struct TimingEntry<'a> {
    phases: Vec<PhaseEntry<'a>>,
    duration_s: f64,
    /// Share of the run's time outside the phase `measure` (warm-up and window), 0 to 1.
    outside: f64,
}

#[derive(Serialize, JsonSchema)]
struct PhaseEntry<'a> {
    name: &'a str,
    duration_s: f64,
    share: f64,
}

/// Builds the JSON of a measured cell.
pub(super) fn cell<'a>(judgement: &'a Judgement, cell: &'a CellJudgement) -> CellEntry<'a> {
    let summary = &cell.summary;
    let mut latency_ns = latency(&summary.latency);
    if let (Some(latencies), Some(mean)) = (&mut latency_ns, summary.of(Metric::LATENCY_MEAN)) {
        latencies.mean = Some(mean);
    }
    CellEntry {
        workload: &cell.workload,
        target: &cell.target,
        rounds: summary.rounds,
        metrics: metrics(&judgement.figures, |metric| summary.of(metric)),
        latency_ns,
        percentiles: summary.percentiles.iter().map(percentile).collect(),
        cpu: cell.cpu.as_ref().map(cpu),
        network: cell.network.as_ref().map(network),
        inside: cell.latency.as_ref().map(latency_breakdown),
        levels: cell.amplification.as_ref().map(|amplification| amplification.levels.as_slice()),
        guests: cell.guests.as_ref().map(members),
        jobs: cell.jobs.as_ref().map(members),
        neighbour: cell.neighbour.as_ref().map(neighbour),
        failed: cell.failure.as_ref().map(failed),
    }
}

fn failed(failure: &Failure) -> FailureEntry<'_> {
    FailureEntry {
        measurements: failure.measurements,
        ios: failure.ios.ios,
        of: failure.ios.of,
        reason: &failure.reason,
    }
}

fn cpu(cpu: &CpuByRole) -> CpuEntry {
    let by_role = |of: &[(Role, f64)]| of.iter().map(|(role, ns)| (role.word(), *ns)).collect();
    CpuEntry {
        ns_per_io: by_role(&cpu.roles),
        ns_per_gib: by_role(&cpu.per_gib),
        steal: cpu.steal,
        nested: cpu.nested,
    }
}

fn latency_breakdown(inside: &LatencyBreakdown) -> LatencyBreakdownEntry<'_> {
    LatencyBreakdownEntry {
        views_ns: inside.views.iter().map(|(view, ns)| (view.word(), *ns)).collect(),
        stretches: inside.stretches.iter().map(|(name, ns)| StretchEntry { name, ns: *ns }).collect(),
        not_separable: &inside.not_separable,
        qemu_p50_ns: inside.qemu_p50_ns,
        qemu_p99_ns: inside.qemu_p99_ns,
    }
}

fn members(group: &GroupFairness) -> MembersEntry<'_> {
    let members = group.members.iter().map(|member| MemberEntry {
        name: &member.name,
        iops: member.iops,
        bytes_per_s: member.bytes_per_s,
        latency_ns: latency(&member.latency),
    });
    MembersEntry { members: members.collect(), fairness: group.fairness }
}

fn neighbour(load: &NeighbourLoad) -> NeighbourEntry<'_> {
    NeighbourEntry { name: &load.name, iops: load.iops, bytes_per_s: load.bytes_per_s }
}

pub(super) fn timing(timing: &Timing) -> TimingEntry<'_> {
    let phases = timing.phases.iter().map(|(phase, share)| PhaseEntry {
        name: &phase.name,
        duration_s: phase.duration_ns as f64 / 1e9,
        share: *share,
    });
    TimingEntry {
        phases: phases.collect(),
        duration_s: timing.total_ns as f64 / 1e9,
        outside: timing.outside,
    }
}
