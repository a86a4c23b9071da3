//! What a network carried: what only a network's measurement has.

use serde::{Deserialize, Serialize};

use super::CpuTime;

/// The network's part of an [`super::Outcome`], over its window.
///
/// Of streams the outcome's tallies hold for `write` (the near end sends) and `read` (it receives) what the receiving end got, as
/// bytes and packets: datagrams of UDP, segments with data of TCP. Of round trips `read` holds those that came back, with their times.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// Each stream's part; empty for round trips without load.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub flows: Vec<Flow>,
    /// CPU time of the far end's process, where it tells.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub far_cpu: Option<CpuTime>,
    /// TCP's congestion control that was used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub congestion: Option<String>,
    /// TCP's largest segment in bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mss: Option<u32>,
    /// Of round trips: what became of the messages.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub probes: Option<Probes>,
    /// Of round trips: their standard deviation, exact, which ping(8) calls mdev.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mdev_ns: Option<u64>,
    /// Longest times without a byte received, over all flows, the longest first; at most ten of those above 10 ms.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub gaps: Vec<Gap>,
}

impl Flow {
    /// The same at these rates over another time, `part` of a count being what falls into that.
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
    /// As many gaps are kept.
    pub const GAPS: usize = 10;

    /// Adds what another network carried at the same time. What one of them does not tell is unknown of both.
    pub fn merge(&mut self, other: &Self) {
        self.flows.extend(other.flows.iter().cloned());
        self.far_cpu = self.far_cpu.zip(other.far_cpu).map(|(one, more)| CpuTime {
            user_ns: one.user_ns + more.user_ns,
            system_ns: one.system_ns + more.system_ns,
        });
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
        // A deviation of all does not follow from those of the parts.
        self.mdev_ns = None;
        self.gaps.extend(&other.gaps);
        self.gaps.sort_by_key(|gap| std::cmp::Reverse(gap.duration_ns));
        self.gaps.truncate(Self::GAPS);
    }
}

/// One stream. What neither end tells is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Whether the near end sends.
    pub up: bool,
    /// Bytes that the sender gave to its kernel.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sent_bytes: Option<u64>,
    /// Bytes that the receiver got.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub received_bytes: Option<u64>,
    /// Datagrams, or segments with data, that the sender sent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sent_packets: Option<u64>,
    /// Those that the receiver got; of datagrams each once.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub received_packets: Option<u64>,
    /// Datagrams that never came.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost: Option<u64>,
    /// Datagrams that came after a later one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub out_of_order: Option<u64>,
    /// Datagrams that came once more.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duplicates: Option<u64>,
    /// Datagrams' interarrival jitter (RFC 3550, section 6.4.1) at the end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub jitter_ns: Option<u64>,
    /// Segments that TCP sent again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retransmits: Option<u64>,
    /// TCP's own estimates of the round trip by interval: their least, mean and greatest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rtt_ns: Option<[u64; 3]>,
    /// The largest congestion window in bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_cwnd: Option<u64>,
}

/// What became of messages that were to come back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probes {
    /// Sent in the window.
    pub sent: u64,
    /// Of these came back, each once.
    pub received: u64,
    /// Came back once more.
    pub duplicates: u64,
    /// Came back after a later one.
    pub out_of_order: u64,
}

/// A time in which a receiver that should have got bytes got none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    /// Whether it was a flow that the near end sends.
    pub up: bool,
    /// When it began, from the start of the measured window.
    pub at_ns: u64,
    /// How long it was.
    pub duration_ns: u64,
    /// Bytes of datagrams that were lost in it; absent for TCP, which loses none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost_bytes: Option<u64>,
}

/// What a network interface did over a window, from /proc/net/dev.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicActivity {
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received, as the kernel counts them: several segments can be one.
    pub rx_packets: u64,
    /// Packets received and dropped, or received with errors.
    pub rx_drops: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped when they were to be sent, or that could not be.
    pub tx_drops: u64,
}

/// A network interface as it was when the measuring began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Its name where it is: `eth0`.
    pub name: String,
    /// Where that is: `near`, `far` or `host`, which lies between them.
    pub place: String,
    /// The driver, as far as it tells: `virtio_net`, `e1000`, `veth`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver: Option<String>,
    /// Largest packet in bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mtu: Option<u32>,
    /// The link's speed in bits a second; absent where the driver has none, as of most virtual ones.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub speed: Option<u64>,
    /// Queues for receiving and for sending.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub queues: Option<(u32, u32)>,
    /// The kernel's names of the offloads that are on, such as `tx-tcp-segmentation`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub offloads: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_does_not_tell_is_unknown_of_both() {
        let gap = |duration_ns| Gap { up: true, at_ns: 0, duration_ns, lost_bytes: None };
        let cpu = CpuTime { user_ns: 1, system_ns: 2 };
        let mut one = Carried {
            flows: vec![Flow::default()],
            far_cpu: Some(cpu),
            congestion: Some("cubic".into()),
            mss: Some(1448),
            gaps: (1..=8).rev().map(gap).collect(),
            ..Carried::default()
        };
        let more = Carried {
            far_cpu: Some(cpu),
            mss: Some(1448),
            gaps: vec![gap(9), gap(3), gap(1)],
            ..one.clone()
        };
        one.merge(&more);
        assert_eq!((one.flows.len(), one.mss, one.congestion.as_deref()), (2, Some(1448), Some("cubic")));
        assert_eq!(one.far_cpu, Some(CpuTime { user_ns: 2, system_ns: 4 }));
        let durations: Vec<u64> = one.gaps.iter().map(|gap| gap.duration_ns).collect();
        assert_eq!(durations, [9, 8, 7, 6, 5, 4, 3, 3, 2, 1]);
        one.merge(&Carried { congestion: Some("bbr".into()), ..Carried::default() });
        assert_eq!((one.far_cpu, one.mss, one.congestion), (None, None, None));
    }
}
