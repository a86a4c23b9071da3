//! Facts about a network interface.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fact::Known;

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkInterface {
    /// The interface's name.
    pub name: String,
    /// The interface's type in the kernel (DEVTYPE), such as `bridge`, `vxlan`, `bond`; absent if it has none, as most network cards.
    pub kind: Known<String>,
    /// True if the interface is a device: a physical or virtual network card.
    pub is_device: bool,
    /// The largest packet in bytes (MTU).
    pub mtu: Known<u64>,
    /// The bridge or bond that the interface is a port of.
    pub master: Known<String>,
    /// The underlying interface of a VLAN or tunnel; for a veth interface, its peer.
    pub lower: Known<String>,
    /// The operational state, such as `up` or `down`.
    pub state: Known<String>,
    /// The link speed in megabits per second.
    pub speed_mbit: Known<u64>,
    /// The duplex mode: `full` or `half`.
    pub duplex: Known<String>,
    /// The number of receive queues.
    pub receive_queues: Known<u64>,
    /// True if software spreads received packets over CPUs (RPS).
    pub receive_steering: Known<bool>,
    /// The link state of a port of a bond: `up` or `down`.
    pub bond_state: Known<String>,
    /// Packets received since boot.
    pub received: Known<u64>,
    /// Received frames with a wrong checksum (CRC errors), since boot.
    pub checksum_errors: Known<u64>,
    /// Received packets that were dropped because no buffer was free, since boot.
    pub missed: Known<u64>,
    /// The interface's offloads.
    pub features: Known<Vec<Feature>>,
    /// The size of the receive ring.
    pub receive_ring: Known<Ring>,
}

/// An offload of a network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// The offload's name in ethtool.
    pub name: String,
    /// True if the offload is on.
    pub is_on: bool,
    /// True if the offload cannot be changed.
    pub is_fixed: bool,
}

/// The size of a ring of packet buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ring {
    /// The current number of entries.
    pub entries: u64,
    /// The highest possible number of entries.
    pub entries_max: u64,
}
