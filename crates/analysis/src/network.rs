//! Packet statistics of a network: losses, retransmits, fairness between streams, interface counters on the path, and gaps.

use iotax_model::Workload;
use iotax_model::record::{Flow, Gap, HostCpu, Interface, Measurement, NicActivity, Probes, TargetRecord};

use crate::fairness::{Fairness, jain};
use crate::figures::{is_stream, per_gib, per_io};
use crate::packets::over_flows;
use crate::stats::median;

/// Linux' minimum TCP retransmission timeout (TCP_RTO_MIN) in nanoseconds. A single lost packet does not explain a longer gap.
pub const GAP_NS: u64 = 200_000_000;

/// Packet statistics of a workload on a target, over all rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// Totals of the streams by direction, upload first. For round trips under load: totals of the background load.
    pub directions: Vec<StreamTotals>,
    /// Counts of round-trip messages over all rounds; absent if no round trips were measured.
    pub probes: Option<Probes>,
    /// Standard deviation of round trips in nanoseconds, which ping(8) calls mdev: median over the rounds; absent if unknown.
    pub mdev_ns: Option<f64>,
    /// CPU nanoseconds of the guest per GiB of streams, by the guest's own accounting: median over the rounds; absent if unknown.
    pub guest_cpu_per_gib: Option<f64>,
    /// CPU nanoseconds of the guest per packet or round trip: median over the rounds; absent if unknown.
    pub guest_cpu_per_io: Option<f64>,
    /// CPU nanoseconds of the server's process per GiB of streams: median over the rounds; absent if unknown.
    pub server_cpu_per_gib: Option<f64>,
    /// Periods longer than [`GAP_NS`] without a received byte, each with its round, the longest first.
    pub gaps: Vec<(u32, Gap)>,
    /// Watched interfaces on the path, from the client to the server.
    pub hops: Vec<Hop>,
}

/// Totals of the streams of one direction. A count is absent if any stream does not report it.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamTotals {
    /// True for uploads: the client sends.
    pub upload: bool,
    /// Largest number of streams in a round.
    pub streams: usize,
    /// Median over the rounds of bytes per second received; for background load, from the counts of its streams. Absent if unknown.
    pub bytes_per_s: Option<f64>,
    /// Number of packets sent; absent if a stream does not report it.
    pub sent: Option<u64>,
    /// Number of packets that arrived; absent if a stream does not report it.
    pub received: Option<u64>,
    /// Number of datagrams that never arrived; absent if a stream does not report it.
    pub lost: Option<u64>,
    /// Number of datagrams that arrived after a later one; absent if a stream does not report it.
    pub out_of_order: Option<u64>,
    /// Number of datagrams that arrived more than once; absent if a stream does not report it.
    pub duplicates: Option<u64>,
    /// Number of TCP segments that were retransmitted; absent if a stream does not report it.
    pub retransmits: Option<u64>,
    /// Jitter of datagrams in nanoseconds: median over the rounds of the streams' mean; absent if unknown.
    pub jitter_ns: Option<f64>,
    /// Round-trip times in nanoseconds as measured by TCP: the minimum, the median over the rounds of the streams' mean, and the maximum.
    /// Absent if unknown.
    pub rtt_ns: Option<[f64; 3]>,
    /// Fairness between the streams, by bytes received; absent for a single stream, or if unknown in every round.
    pub fairness: Option<Fairness>,
}

impl StreamTotals {
    /// Returns `upload` or `download`, the word for the streams' direction.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        word(self.upload)
    }

    /// Returns the share of datagrams lost, 0 to 1; `None` if unknown.
    #[must_use]
    pub fn loss(&self) -> Option<f64> {
        share(self.lost?, self.lost? + self.received?)
    }

    /// Returns the share of segments that were retransmitted, 0 to 1; `None` if unknown.
    #[must_use]
    pub fn retransmit_share(&self) -> Option<f64> {
        share(self.retransmits?, self.sent?)
    }
}

/// A network interface on the path, with its packet counts while a target was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Hop {
    /// The interface's name on its machine.
    pub name: String,
    /// Position on the path: `client`, `host` or `server`; absent if unknown.
    pub position: Option<String>,
    /// The interface's driver, if known.
    pub driver: Option<String>,
    /// The interface's counts over all rounds.
    pub activity: NicActivity,
}

/// Returns `upload` or `download`, the word for the direction.
#[must_use]
pub const fn word(upload: bool) -> &'static str {
    if upload { "upload" } else { "download" }
}

/// Returns `part` / `whole`; `None` if `whole` is 0.
pub fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Iterates over the streams of one direction in a measurement.
pub(crate) fn flows(m: &Measurement, upload: bool) -> impl Iterator<Item = &Flow> + Clone {
    m.outcome.carried.iter().flat_map(|carried| &carried.flows).filter(move |flow| flow.upload == upload)
}

impl Network {
    /// Computes the packet statistics over all rounds; `None` for disk work, or if nothing was reported.
    pub fn of(
        workload: &Workload,
        record: Option<&TargetRecord>,
        measurements: &[&Measurement],
    ) -> Option<Self> {
        workload.kind.traffic()?;
        let carried = || measurements.iter().filter_map(|m| Some((*m, m.outcome.carried.as_ref()?)));
        carried().next()?;
        let over_rounds = |figure: &dyn Fn(&Measurement) -> Option<f64>| {
            median(&measurements.iter().filter_map(|m| figure(m)).collect::<Vec<_>>())
        };
        let probes = carried().filter_map(|(_, carried)| carried.probes).reduce(|all, probes| Probes {
            sent: all.sent + probes.sent,
            received: all.received + probes.received,
            duplicates: all.duplicates + probes.duplicates,
            out_of_order: all.out_of_order + probes.out_of_order,
        });
        let mut gaps: Vec<(u32, Gap)> = carried()
            .flat_map(|(m, carried)| carried.gaps.iter().map(|gap| (m.round, *gap)))
            .filter(|(_, gap)| gap.duration_ns > GAP_NS)
            .collect();
        gaps.sort_by_key(|(_, gap)| std::cmp::Reverse(gap.duration_ns));
        let inside = |m: &Measurement| m.outcome.inside.as_ref()?.cpu.as_ref().map(HostCpu::busy_ns);
        Some(Self {
            directions: [true, false]
                .into_iter()
                .filter_map(|upload| direction_totals(upload, measurements))
                .collect(),
            probes,
            mdev_ns: over_rounds(&|m| m.outcome.carried.as_ref()?.mdev_ns.map(|ns| ns as f64)),
            guest_cpu_per_gib: over_rounds(&|m| per_gib(m, inside(m)?)),
            guest_cpu_per_io: over_rounds(&|m| per_io(m, inside(m)?)),
            server_cpu_per_gib: over_rounds(&|m| {
                per_gib(m, m.outcome.carried.as_ref()?.server_cpu?.total_ns())
            }),
            gaps,
            hops: hops(record, measurements),
        })
    }
}

/// Computes the totals of one direction; `None` without streams in that direction.
fn direction_totals(upload: bool, measurements: &[&Measurement]) -> Option<StreamTotals> {
    let all = || measurements.iter().flat_map(|m| flows(m, upload));
    let streams =
        measurements.iter().map(|m| flows(m, upload).count()).max().filter(|streams| *streams > 0)?;
    let over_rounds = |figure: &dyn Fn(&Measurement) -> Option<f64>| {
        median(&measurements.iter().filter_map(|m| figure(m)).collect::<Vec<_>>())
    };
    let mean = |m: &Measurement, of: fn(&Flow) -> Option<u64>| {
        Some(over_flows(flows(m, upload), of)? as f64 / flows(m, upload).count() as f64)
    };
    let least = all().filter_map(|flow| flow.rtt_ns.map(|rtt| rtt[0])).min();
    let most = all().filter_map(|flow| flow.rtt_ns.map(|rtt| rtt[2])).max();
    let middle = over_rounds(&|m| mean(m, |flow| flow.rtt_ns.map(|rtt| rtt[1])));
    let evenly = measurements.iter().filter_map(|m| evenness(m, upload));
    Some(StreamTotals {
        upload,
        streams,
        bytes_per_s: over_rounds(&|m| {
            // Streams are already counted over the client's window; a load next to round trips is not.
            let tally = if upload { &m.outcome.tallies.write } else { &m.outcome.tallies.read };
            let bytes = match tally {
                Some(tally) if is_stream(m) => tally.bytes,
                _ => over_flows(flows(m, upload), |flow| flow.received_bytes)?,
            };
            (m.outcome.duration_ns > 0).then(|| bytes as f64 / (m.outcome.duration_ns as f64 / 1e9))
        }),
        sent: over_flows(all(), |flow| flow.sent_packets),
        received: over_flows(all(), |flow| flow.received_packets),
        lost: over_flows(all(), |flow| flow.lost),
        out_of_order: over_flows(all(), |flow| flow.out_of_order),
        duplicates: over_flows(all(), |flow| flow.duplicates),
        retransmits: over_flows(all(), |flow| flow.retransmits),
        jitter_ns: over_rounds(&|m| mean(m, |flow| flow.jitter_ns)),
        rtt_ns: least
            .zip(middle)
            .zip(most)
            .map(|((least, middle), most)| [least as f64, middle, most as f64]),
        fairness: Fairness::over(evenly.collect(), 1.0 / streams as f64),
    })
}

/// Computes Jain's index of one measurement's streams of one direction, by bytes received; `None` for fewer than two streams, if a stream
/// does not report its bytes, or if nothing was received.
#[must_use]
pub fn evenness(m: &Measurement, upload: bool) -> Option<f64> {
    let got: Option<Vec<f64>> = flows(m, upload).map(|flow| Some(flow.received_bytes? as f64)).collect();
    jain(&got.filter(|got| got.len() > 1)?)
}

/// Lists the observed interfaces with their counts summed over all rounds, from the client to the server.
fn hops(record: Option<&TargetRecord>, measurements: &[&Measurement]) -> Vec<Hop> {
    let known = record.map(|record| record.interfaces.as_slice()).unwrap_or_default();
    let mut hops: Vec<Hop> = Vec::new();
    for nic in measurements.iter().flat_map(|m| path_nics(m, known)) {
        let same = |hop: &&mut Hop| hop.name == nic.name && hop.position.as_deref() == nic.position;
        match hops.iter_mut().find(same) {
            Some(hop) => hop.activity = hop.activity.plus(*nic.activity),
            None => hops.push(Hop {
                name: nic.name.into(),
                position: nic.position.map(str::to_owned),
                driver: nic.driver.map(str::to_owned),
                activity: *nic.activity,
            }),
        }
    }
    let order = |hop: &Hop| {
        POSITIONS.iter().position(|position| hop.position.as_deref() == Some(*position)).unwrap_or(1)
    };
    hops.sort_by_key(order);
    hops
}

/// Positions of interfaces on the path, from the client to the server.
const POSITIONS: [&str; 3] = ["client", "host", "server"];

/// An interface observed in one measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathNic<'a> {
    /// Position on the path: `client`, `host` or `server`; `None` if unknown.
    pub(crate) position: Option<&'a str>,
    pub(crate) name: &'a str,
    pub(crate) driver: Option<&'a str>,
    pub(crate) activity: &'a NicActivity,
}

/// Returns the counts of each watched interface in one measurement. A guest's agent observes the client from inside; the host observes the
/// other interfaces, named `PLACE/NAME`, or by the bare name if that is unambiguous. If the path's interfaces are known, others are left
/// out.
pub(crate) fn path_nics<'a>(m: &'a Measurement, known: &'a [Interface]) -> Vec<PathNic<'a>> {
    let inside = m.outcome.inside.iter().flat_map(|inside| &inside.nics).map(|nic| (true, nic));
    let host = m.host.iter().flat_map(|host| &host.nics).map(|nic| (false, nic));
    let in_guest = inside.clone().next().is_some();
    let one = |(within, (key, activity)): (bool, (&'a String, &'a NicActivity))| {
        let (stated, name) = match key.split_once('/') {
            Some((position, name)) if POSITIONS.contains(&position) => (Some(position), name),
            _ => (None, key.as_str()),
        };
        let fits = |interface: &&Interface| {
            let position = interface.position.as_str();
            let near = position == POSITIONS[0];
            let here =
                stated.map_or(if within { near } else { !(near && in_guest) }, |stated| stated == position);
            here && interface.name == name
        };
        let mut fitting = known.iter().filter(fits);
        // Two interfaces of one name cannot be distinguished.
        let found = fitting.next().filter(|_| fitting.next().is_none());
        let position = stated.or(found.map(|found| found.position.as_str()));
        PathNic { position, name, driver: found.and_then(|found| found.driver.as_deref()), activity }
    };
    inside.chain(host).map(one).filter(|nic| known.is_empty() || nic.position.is_some()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::record::{Carried, Outcome};

    fn measurement(flows: Vec<Flow>) -> Measurement {
        let carried = Some(Carried { flows, ..Carried::default() });
        Measurement {
            round: 1,
            outcome: Outcome { duration_ns: 2_000_000_000, carried, ..Outcome::default() },
            ..Measurement::default()
        }
    }

    #[test]
    fn what_one_stream_does_not_know_is_not_known_of_all() {
        let flow = |lost| Flow {
            upload: true,
            received_bytes: Some(1000),
            received_packets: Some(90),
            lost,
            ..Flow::default()
        };
        let both = measurement(vec![flow(Some(10)), flow(Some(0))]);
        let found = direction_totals(true, &[&both]).expect("streams");
        assert_eq!((found.streams, found.lost, found.bytes_per_s), (2, Some(10), Some(1000.0)));
        assert!(found.loss().is_some_and(|loss| (loss - 10.0 / 190.0).abs() < 1e-12));
        assert_eq!((found.retransmits, found.retransmit_share()), (None, None), "not 0");
        let partly = measurement(vec![flow(Some(10)), flow(None)]);
        assert_eq!(direction_totals(true, &[&partly]).and_then(|totals| totals.lost), None);
        assert_eq!(direction_totals(false, &[&both]), None, "nothing came down");
    }

    #[test]
    fn streams_are_held_against_one_another_by_bytes() {
        let flow = |bytes| Flow { upload: false, received_bytes: Some(bytes), ..Flow::default() };
        assert_eq!(evenness(&measurement(vec![flow(5), flow(5)]), false), Some(1.0));
        assert_eq!(evenness(&measurement(vec![flow(8), flow(0)]), false), Some(0.5));
        assert_eq!(evenness(&measurement(vec![flow(8)]), false), None, "one alone");
        assert_eq!(evenness(&measurement(vec![flow(8), Flow::default()]), true), None);
    }
}
