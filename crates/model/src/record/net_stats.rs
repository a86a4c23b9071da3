//! Statistics of network measurements.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CpuTime;

/// The network part of an [`super::Outcome`], over its window.
///
/// For streams, the outcome's tallies hold received bytes and packets (UDP datagrams, TCP segments with data), or sent ones if the receiver
/// reports none: `write` for uploads (the client sends), `read` for downloads. For round trips, `read` holds the completed ones and their
/// times.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// One entry per stream; empty for round trips without load.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub flows: Vec<Flow>,
    /// CPU time of the server process, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_cpu: Option<CpuTime>,
    /// TCP congestion control algorithm; absent if unknown, or if concurrent measurements differ.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub congestion: Option<String>,
    /// TCP's maximum segment size in bytes; absent if unknown, or if concurrent measurements differ.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mss: Option<u32>,
    /// Counts of round-trip messages sent and returned; absent without round trips.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub probes: Option<Probes>,
    /// Exact standard deviation of the round-trip times, ping(8)'s mdev; absent without round trips, and for several concurrent
    /// measurements.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mdev_ns: Option<u64>,
    /// The longest gaps without a received byte, at most ten over all streams, longest first. A gap lasts at least 10 ms and, for a stream
    /// with a bitrate, at least three times the expected time between arrivals.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub gaps: Vec<Gap>,
}

impl Flow {
    /// Scales the counts of the stream to a window of another length. `part` scales one count; times and the congestion window stay the same.
    #[must_use]
    pub fn scaled(&self, part: impl Fn(u64) -> u64) -> Self {
        Self {
            sent_bytes: self.sent_bytes.map(&part),
            received_bytes: self.received_bytes.map(&part),
            sent_packets: self.sent_packets.map(&part),
            received_packets: self.received_packets.map(&part),
            lost: self.lost.map(&part),
            out_of_order: self.out_of_order.map(&part),
            duplicates: self.duplicates.map(&part),
            retransmits: self.retransmits.map(&part),
            ..*self
        }
    }
}

impl Carried {
    /// Maximum number of gaps that are kept; shorter gaps are dropped first.
    pub const GAPS: usize = 10;

    /// Merges the statistics of a concurrent network measurement: streams and gaps are joined, counts and CPU times added. A value that either side
    /// lacks, and a setting that differs, become absent; so does the deviation of round-trip times, which cannot be merged.
    pub fn merge(&mut self, other: &Self) {
        self.flows.extend(other.flows.iter().cloned());
        self.server_cpu = self.server_cpu.zip(other.server_cpu).map(|(one, more)| one.plus(more));
        if self.congestion != other.congestion {
            self.congestion = None;
        }
        if self.mss != other.mss {
            self.mss = None;
        }
        self.probes = self.probes.zip(other.probes).map(|(one, more)| Probes {
            sent: one.sent + more.sent,
            received: one.received + more.received,
            duplicates: one.duplicates + more.duplicates,
            out_of_order: one.out_of_order + more.out_of_order,
        });
        // A total deviation cannot be computed from those of the parts.
        self.mdev_ns = None;
        self.gaps.extend(&other.gaps);
        self.gaps.sort_by_key(|gap| std::cmp::Reverse(gap.duration_ns));
        self.gaps.truncate(Self::GAPS);
    }
}

/// One stream. Values that neither end reports are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// True for an upload: the client sends.
    pub upload: bool,
    /// Bytes handed to the sender's kernel.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sent_bytes: Option<u64>,
    /// Bytes received.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub received_bytes: Option<u64>,
    /// Datagrams sent, or segments with data.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sent_packets: Option<u64>,
    /// Packets received; each datagram counts once.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub received_packets: Option<u64>,
    /// Datagrams lost.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost: Option<u64>,
    /// Datagrams that arrived after a later one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub out_of_order: Option<u64>,
    /// Copies of datagrams received after the first one, over the whole stream.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duplicates: Option<u64>,
    /// Interarrival jitter of datagrams (RFC 3550, section 6.4.1) at the end of the stream.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub jitter_ns: Option<u64>,
    /// TCP segments retransmitted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retransmits: Option<u64>,
    /// Minimum, mean and maximum of TCP's round-trip estimates, sampled once per interval.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rtt_ns: Option<[u64; 3]>,
    /// Largest congestion window in bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_cwnd: Option<u64>,
}

/// Streams of one direction in one interval, as seen by the client. Values that neither end reports are absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectionSample {
    /// True for uploads: the client sends.
    pub upload: bool,
    /// Datagrams lost in the interval.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost: Option<u64>,
    /// Datagrams that arrived after a later one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub out_of_order: Option<u64>,
    /// Copies of datagrams received after the first one, in the interval.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duplicates: Option<u64>,
    /// Mean interarrival jitter of the streams at the end of the interval, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub jitter_ns: Option<u64>,
    /// TCP segments retransmitted in the interval.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retransmits: Option<u64>,
    /// TCP's estimate of the first stream's round-trip time at the end of the interval, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rtt_ns: Option<u64>,
    /// Congestion window of the first stream in bytes at the end of the interval.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cwnd: Option<u64>,
}

impl DirectionSample {
    /// Merges other streams of the same direction. A count that either side lacks becomes absent. Round-trip time and congestion window stay those
    /// of the first stream; jitter becomes absent, because the streams' weights are not known.
    pub(super) fn merge(&mut self, other: Self) {
        let Self { upload: _, lost, out_of_order, duplicates, jitter_ns: _, retransmits, rtt_ns: _, cwnd: _ } =
            other;
        let sum = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        self.lost = sum(self.lost, lost);
        self.out_of_order = sum(self.out_of_order, out_of_order);
        self.duplicates = sum(self.duplicates, duplicates);
        self.retransmits = sum(self.retransmits, retransmits);
        self.jitter_ns = None;
    }
}

/// Counts of round-trip messages over a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Probes {
    /// Messages sent in the window.
    pub sent: u64,
    /// Messages returned, each counted once.
    pub received: u64,
    /// Further returns of messages that had returned already.
    pub duplicates: u64,
    /// Messages returned after a later one.
    pub out_of_order: u64,
}

/// A period in which a receiver got no bytes although some were due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    /// True for an upload: the client sends.
    pub upload: bool,
    /// Start of the gap, from the start of the measured window.
    pub at_ns: u64,
    /// Length of the gap.
    pub duration_ns: u64,
    /// Bytes of the datagrams lost during the gap; absent for TCP, which loses none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost_bytes: Option<u64>,
}

/// The activity of a network interface over a window, from /proc/net/dev.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NicActivity {
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received, as the kernel counts them: with receive offloads, one packet may hold several TCP segments.
    pub rx_packets: u64,
    /// Packets received and dropped, or received with errors.
    pub rx_drops: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped on sending, or sent with errors.
    pub tx_drops: u64,
}

/// A network interface at the start of measuring. Values that the kernel does not report are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// The interface's name on its machine: `eth0`.
    pub name: String,
    /// The interface's location: `client`, `server`, or `host` for one between them.
    pub position: String,
    /// The driver, if it is reported: `virtio_net`, `e1000`, `veth`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver: Option<String>,
    /// Largest packet in bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mtu: Option<u32>,
    /// Link speed in bits per second; absent if the driver reports none, as with most virtual interfaces.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub speed: Option<u64>,
    /// Number of receive and transmit queues.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub queues: Option<(u32, u32)>,
    /// The kernel's names of the enabled offloads, such as `tx-tcp-segmentation`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub offloads: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_does_not_tell_is_unknown_of_both() {
        let gap = |duration_ns| Gap { upload: true, at_ns: 0, duration_ns, lost_bytes: None };
        let cpu = CpuTime { user_ns: 1, system_ns: 2 };
        let mut one = Carried {
            flows: vec![Flow::default()],
            server_cpu: Some(cpu),
            congestion: Some("cubic".into()),
            mss: Some(1448),
            gaps: (1..=8).rev().map(gap).collect(),
            ..Carried::default()
        };
        let more = Carried {
            server_cpu: Some(cpu),
            mss: Some(1448),
            gaps: vec![gap(9), gap(3), gap(1)],
            ..one.clone()
        };
        one.merge(&more);
        assert_eq!((one.flows.len(), one.mss, one.congestion.as_deref()), (2, Some(1448), Some("cubic")));
        assert_eq!(one.server_cpu, Some(CpuTime { user_ns: 2, system_ns: 4 }));
        let durations: Vec<u64> = one.gaps.iter().map(|gap| gap.duration_ns).collect();
        assert_eq!(durations, [9, 8, 7, 6, 5, 4, 3, 3, 2, 1]);
        one.merge(&Carried { congestion: Some("bbr".into()), ..Carried::default() });
        assert_eq!((one.server_cpu, one.mss, one.congestion), (None, None, None));
    }
}
