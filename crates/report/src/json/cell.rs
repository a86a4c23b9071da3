//! The JSON of a cell (one target and workload over all rounds), and of a run's timing.

use iotax_model::record::Gap;
use serde_json::Value;

use super::certainty::percentile;
use super::parts::latency;
use super::{any, filled, high, low, metrics, number, object};
use iotax_analysis::amplification::{Level, Passed};
use iotax_analysis::cpu_breakdown::Role;
use iotax_analysis::fairness::Fairness;
use iotax_analysis::network::{Hop, StreamTotals};
use iotax_analysis::{
    CellJudgement, CpuByRole, Failure, GroupFairness, Judgement, LatencyBreakdown, Metric, NeighbourLoad,
    Network, Timing,
};

/// One measured cell.
pub(super) fn cell(judgement: &Judgement, cell: &CellJudgement) -> Value {
    let summary = &cell.summary;
    // Of all I/Os together; their mean is the cell's, to which each round contributes alike.
    let mut latencies = latency(&summary.latency);
    if let (Some(told), Some(mean)) = (&mut latencies, summary.of(Metric::LATENCY_MEAN)) {
        told["mean"] = mean.into();
    }
    object([
        ("workload", Some(cell.workload.as_str().into())),
        ("target", Some(cell.target.as_str().into())),
        ("rounds", Some(summary.rounds.into())),
        ("metrics", Some(metrics(&judgement.figures, |metric| summary.of(metric)))),
        ("latency_ns", latencies),
        ("percentiles", Some(summary.percentiles.iter().map(percentile).collect())),
        ("cpu", cell.cpu.as_ref().map(by_role)),
        ("network", cell.network.as_ref().map(packets)),
        ("inside", cell.latency.as_ref().map(taken_apart)),
        ("levels", cell.amplification.as_ref().map(|flow| flow.levels.iter().map(level).collect())),
        ("guests", cell.guests.as_ref().map(members)),
        ("jobs", cell.jobs.as_ref().map(members)),
        ("neighbour", cell.neighbour.as_ref().map(neighbour)),
        ("failed", cell.failure.as_ref().map(failed)),
    ])
}

fn failed(failure: &Failure) -> Value {
    object([
        ("measurements", Some(failure.measurements.into())),
        ("ios", Some(failure.ios.ios.into())),
        ("of", Some(failure.ios.of.into())),
        ("reason", Some(failure.reason.as_str().into())),
    ])
}

fn by_role(cpu: &CpuByRole) -> Value {
    let roles = |of: &[(Role, f64)]| {
        let told = of.iter().filter_map(|(role, ns)| Some((role.word().to_owned(), number(Some(*ns))?)));
        Some(Value::Object(told.collect())).filter(|_| !of.is_empty())
    };
    object([
        ("ns_per_io", roles(&cpu.roles)),
        ("ns_per_gib", roles(&cpu.per_gib)),
        ("steal", number(cpu.steal)),
        ("nested", number(cpu.nested)),
    ])
}

fn packets(network: &Network) -> Value {
    let gap = |(round, gap): &(u32, Gap)| {
        let mut told = any(gap).unwrap_or_default();
        told["round"] = (*round).into();
        told
    };
    let hop = |hop: &Hop| {
        let mut told = any(&hop.activity).unwrap_or_default();
        told["name"] = hop.name.as_str().into();
        if let Some(place) = &hop.place {
            told["place"] = place.as_str().into();
        }
        told
    };
    object([
        ("ways", filled(network.ways.iter().map(way).collect())),
        ("probes", network.probes.as_ref().and_then(any)),
        ("mdev_ns", number(network.mdev_ns)),
        ("guest_cpu_ns_per_gib", number(network.guest_cpu_per_gib)),
        ("guest_cpu_ns_per_io", number(network.guest_cpu_per_io)),
        ("server_cpu_ns_per_gib", number(network.server_cpu_per_gib)),
        ("gaps", filled(network.gaps.iter().map(gap).collect())),
        ("interfaces", filled(network.hops.iter().map(hop).collect())),
    ])
}

fn way(way: &StreamTotals) -> Value {
    let rtt = way.rtt_ns.map(|[min, mean, max]| {
        object([("min", number(Some(min))), ("mean", number(Some(mean))), ("max", number(Some(max)))])
    });
    object([
        ("direction", Some(way.word().into())),
        ("streams", Some(way.streams.into())),
        ("bytes_per_s", number(way.bytes_per_s)),
        ("sent_packets", way.sent.map(Value::from)),
        ("received_packets", way.received.map(Value::from)),
        ("lost", way.lost.map(Value::from)),
        ("out_of_order", way.out_of_order.map(Value::from)),
        ("duplicates", way.duplicates.map(Value::from)),
        ("retransmits", way.retransmits.map(Value::from)),
        ("jitter_ns", number(way.jitter_ns)),
        ("rtt_ns", rtt),
        ("fairness", way.fairness.map(fairness)),
    ])
}

fn fairness(fairness: Fairness) -> Value {
    object([
        ("mean", number(Some(fairness.mean))),
        ("low", low(fairness.interval)),
        ("high", high(fairness.interval)),
    ])
}

fn taken_apart(inside: &LatencyBreakdown) -> Value {
    let views =
        inside.views.iter().filter_map(|(view, ns)| Some((view.word().to_owned(), number(Some(*ns))?)));
    let stretch = |(name, ns): &(String, f64)| {
        object([("name", Some(name.as_str().into())), ("ns", number(Some(*ns)))])
    };
    object([
        ("views_ns", Some(Value::Object(views.collect()))),
        ("stretches", Some(inside.stretches.iter().map(stretch).collect())),
        ("not_separable", any(&inside.not_separable)),
        ("qemu_p50_ns", number(inside.qemu_p50_ns)),
        ("qemu_p99_ns", number(inside.qemu_p99_ns)),
    ])
}

fn level(level: &Level) -> Value {
    object([
        ("name", Some(level.name.as_str().into())),
        ("read", Some(passed(&level.read))),
        ("write", Some(passed(&level.write))),
    ])
}

fn passed(passed: &Passed) -> Value {
    object([
        ("ios", Some(passed.ios.into())),
        ("bytes", Some(passed.bytes.into())),
        ("merges", passed.merges.map(Value::from)),
        ("mean_wait_ns", number(passed.wait_ns)),
        ("ios_ratio", number(passed.ios_ratio)),
        ("bytes_ratio", number(passed.bytes_ratio)),
    ])
}

fn members(crowd: &GroupFairness) -> Value {
    let members = crowd.members.iter().map(|member| {
        object([
            ("name", Some(member.name.as_str().into())),
            ("iops", number(member.iops)),
            ("bytes_per_s", number(member.bytes_per_s)),
            ("latency_ns", latency(&member.latency)),
        ])
    });
    object([("members", filled(members.collect())), ("fairness", crowd.fairness.map(fairness))])
}

fn neighbour(noise: &NeighbourLoad) -> Value {
    object([
        ("name", Some(noise.name.as_str().into())),
        ("iops", number(noise.iops)),
        ("bytes_per_s", number(noise.bytes_per_s)),
    ])
}

pub(super) fn timing(timing: &Timing) -> Value {
    let phases = timing.phases.iter().map(|(phase, share)| {
        object([
            ("name", Some(phase.name.as_str().into())),
            ("duration_s", number(Some(phase.duration_ns as f64 / 1e9))),
            ("share", number(Some(*share))),
        ])
    });
    object([
        ("phases", Some(phases.collect())),
        ("duration_s", number(Some(timing.total_ns as f64 / 1e9))),
        ("outside", number(Some(timing.outside))),
    ])
}
