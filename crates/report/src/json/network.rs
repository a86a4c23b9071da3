//! JSON of a cell's network traffic: streams, packets and interfaces.

use iotax_analysis::Network;
use iotax_analysis::fairness::Fairness;
use iotax_analysis::network::{Hop, StreamTotals};
use iotax_model::record::{Gap, NicActivity, Probes};
use schemars::JsonSchema;
use serde::Serialize;

/// Network figures of one target and workload over all rounds: streams, round trips, CPU time, gaps in the traffic, and interfaces. A count
/// of streams is absent unless every stream reports it.
#[derive(Serialize, JsonSchema)]
pub(super) struct NetworkEntry<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    directions: Vec<StreamTotalsEntry>,
    probes: Option<&'a Probes>,
    /// Standard deviation of the round-trip times; median over the rounds. Absent if unknown.
    mdev_ns: Option<f64>,
    /// CPU time of the guest per GiB of streams, by the guest's own accounting; median over the rounds. Absent if unknown.
    guest_cpu_ns_per_gib: Option<f64>,
    guest_cpu_ns_per_io: Option<f64>,
    /// CPU time of the server's process per GiB that the streams transferred, in nanoseconds; median over the rounds. Absent if unknown.
    server_cpu_ns_per_gib: Option<f64>,
    /// Periods longer than 200 ms without a received byte, the longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<GapEntry<'a>>,
    /// Network interfaces on the path, from the client to the server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<HopEntry<'a>>,
}

/// Totals of all streams of one direction.
#[derive(Serialize, JsonSchema)]
struct StreamTotalsEntry {
    direction: StreamDirection,
    streams: usize,
    bytes_per_s: Option<f64>,
    sent_packets: Option<u64>,
    received_packets: Option<u64>,
    lost: Option<u64>,
    out_of_order: Option<u64>,
    duplicates: Option<u64>,
    retransmits: Option<u64>,
    jitter_ns: Option<f64>,
    rtt_ns: Option<RoundTripTimes>,
    fairness: Option<Fairness>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum StreamDirection {
    Upload,
    Download,
}

/// Round-trip times in nanoseconds as TCP measures them.
#[derive(Serialize, JsonSchema)]
struct RoundTripTimes {
    min: f64,
    mean: f64,
    max: f64,
}

#[derive(Serialize, JsonSchema)]
struct GapEntry<'a> {
    #[serde(flatten)]
    gap: &'a Gap,
    round: u32,
}

#[derive(Serialize, JsonSchema)]
struct HopEntry<'a> {
    name: &'a str,
    /// Location of the interface: `client`, `host` or `server`; absent if unknown.
    position: Option<&'a str>,
    #[serde(flatten)]
    activity: &'a NicActivity,
}

pub(super) fn network(network: &Network) -> NetworkEntry<'_> {
    NetworkEntry {
        directions: network.directions.iter().map(direction_entry).collect(),
        probes: network.probes.as_ref(),
        mdev_ns: network.mdev_ns,
        guest_cpu_ns_per_gib: network.guest_cpu_per_gib,
        guest_cpu_ns_per_io: network.guest_cpu_per_io,
        server_cpu_ns_per_gib: network.server_cpu_per_gib,
        gaps: network.gaps.iter().map(|(round, gap)| GapEntry { gap, round: *round }).collect(),
        interfaces: network.hops.iter().map(hop).collect(),
    }
}

fn hop(hop: &Hop) -> HopEntry<'_> {
    HopEntry { name: &hop.name, position: hop.position.as_deref(), activity: &hop.activity }
}

fn direction_entry(totals: &StreamTotals) -> StreamTotalsEntry {
    StreamTotalsEntry {
        direction: if totals.upload { StreamDirection::Upload } else { StreamDirection::Download },
        streams: totals.streams,
        bytes_per_s: totals.bytes_per_s,
        sent_packets: totals.sent,
        received_packets: totals.received,
        lost: totals.lost,
        out_of_order: totals.out_of_order,
        duplicates: totals.duplicates,
        retransmits: totals.retransmits,
        jitter_ns: totals.jitter_ns,
        rtt_ns: totals.rtt_ns.map(|[min, mean, max]| RoundTripTimes { min, mean, max }),
        fairness: totals.fairness,
    }
}
