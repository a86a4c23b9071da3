//! Facts about a network interface.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fact::Known;

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkInterface {
    /// Its name.
    pub name: String,
    /// The kind of a virtual one, such as `bridge`, `vxlan`, `bond`; `None` for a device.
    pub kind: Known<String>,
    /// True if it is a device: a card or a virtual card.
    pub is_device: bool,
    /// The largest packet.
    pub mtu: Known<u64>,
    /// The interface that it belongs to as a port: a bridge or a bond.
    pub master: Known<String>,
    /// The interface below it: of a VLAN, a tunnel; for a veth its peer.
    pub lower: Known<String>,
    /// Such as `up` or `down`.
    pub state: Known<String>,
    /// Megabits per second.
    pub speed_mbit: Known<u64>,
    /// `full` or `half`.
    pub duplex: Known<String>,
    /// Receive queues.
    pub receive_queues: Known<u64>,
    /// True if received packets are spread over CPUs by software.
    pub receive_steering: Known<bool>,
    /// The state of a bond's port: `up` or `down`.
    pub bond_state: Known<String>,
    /// Packets received since boot.
    pub received: Known<u64>,
    /// Packets with a wrong checksum since boot.
    pub checksum_errors: Known<u64>,
    /// Packets that were lost because no buffer was free, since boot.
    pub missed: Known<u64>,
    /// Offloads.
    pub features: Known<Vec<Feature>>,
    /// The ring of received packets.
    pub receive_ring: Known<Ring>,
}

/// An offload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// Its name in ethtool.
    pub name: String,
    /// True if it is on.
    pub is_on: bool,
    /// True if it cannot be changed.
    pub is_fixed: bool,
}

/// The entries of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ring {
    /// Entries now.
    pub entries: u64,
    /// The most entries.
    pub entries_max: u64,
}
