//! Rules on network interfaces and TCP.

use iotax_model::survey::{Fact, NetworkInterface, Survey};

use crate::rule::{Rule, Subject, Sureness, Violation, interfaces, violation};

/// Bytes that VXLAN over IPv4 adds to a packet.
const VXLAN_BYTES: u64 = 50;
/// Number of CPUs from which an interface with a single receive queue is reported.
const MANY_CPUS: u32 = 4;
/// Buffer limit in bytes below which TCP cannot fill 1 Gbit/s at a round-trip time of 10 ms. The kernel's default for receiving is 6 MiB.
const SMALL_BUFFER: u64 = 1 << 20;

fn named<'a>(survey: &'a Survey, name: &str) -> Option<&'a NetworkInterface> {
    survey.interfaces.iter().find(|interface| interface.name == name)
}

fn mtu_set(interface: &str, mtu: u64) -> String {
    format!("ip link set {interface} mtu {mtu}")
}

/// Returns an interface that exchanges frames with this one but has another MTU; `None` if there is none. For a port: its bridge, if that
/// has a larger MTU, else the bridge's port with the smallest MTU, if that is smaller. For a veth interface: its peer, if the interface's
/// name sorts before that of the peer.
fn partner<'a>(survey: &'a Survey, interface: &NetworkInterface) -> Option<&'a NetworkInterface> {
    let own = interface.mtu.as_ref()?.value;
    let mtu = |other: &&NetworkInterface| other.mtu.as_ref().map(|mtu| mtu.value);
    if let Some(master) = &interface.master {
        // What the bridge sends must fit the port; what the port receives must fit the other ports.
        let larger = named(survey, &master.value).filter(|master| mtu(master).is_some_and(|mtu| mtu > own));
        let is_port =
            |other: &&NetworkInterface| other.master.as_ref().is_some_and(|of| of.value == master.value);
        let smallest =
            survey.interfaces.iter().filter(is_port).min_by_key(|port| mtu(port).unwrap_or(u64::MAX));
        return larger.or(smallest.filter(|port| mtu(port).is_some_and(|mtu| mtu < own)));
    }
    let peer = interface.lower.as_ref().filter(|_| interface.kind.is_none());
    let peer = peer.and_then(|peer| named(survey, &peer.value));
    // Report a veth pair once, at the end whose name sorts first.
    peer.filter(|peer| interface.name < peer.name && mtu(peer).is_some_and(|mtu| mtu != own))
}

fn tcp_off(fact: Option<&Fact<u64>>, name: &str) -> Vec<Violation> {
    let off = fact.filter(|fact| fact.value == 0);
    off.and_then(|fact| violation("tcp", format!("{name} 0"), fact, format!("sysctl net.ipv4.{name}=1")))
        .into_iter()
        .collect()
}

/// Returns the first of the offloads `names` that is off but can be turned on, with the fact that lists it; `None` if there is none.
fn off<'a>(
    interface: &'a NetworkInterface,
    names: &'a [&str],
) -> Option<(&'a str, &'a Fact<Vec<iotax_model::survey::Feature>>)> {
    let features = interface.features.as_ref()?;
    let found = features
        .value
        .iter()
        .find(|feature| names.contains(&feature.name.as_str()) && !feature.is_on && !feature.is_fixed)?;
    Some((&found.name, features))
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "mtu-mismatch",
        subject: Subject::Network,
        sureness: Sureness::Fault,
        title: "Two ends of a link have different MTUs",
        why: "The end with the smaller one drops larger frames without a word; connections stall once they send full packets.",
        source: "Linux: net/bridge/br_if.c, br_mtu_auto_adjust; RFC 2923",
        check: |survey| {
            interfaces(survey, |interface| {
                let partner = partner(survey, interface)?;
                let (own, other) = (interface.mtu.as_ref()?, partner.mtu.as_ref()?);
                let value =
                    format!("MTU {}, {} has {} ({})", own.value, partner.name, other.value, other.source);
                let (smaller, larger) =
                    if own.value < other.value { (interface, other.value) } else { (partner, own.value) };
                violation(&interface.name, value, own, mtu_set(&smaller.name, larger))
            })
        },
    },
    Rule {
        id: "tunnel-mtu",
        subject: Subject::Network,
        sureness: Sureness::Fault,
        title: "Packets of a tunnel do not fit the interface below",
        why: "With the tunnel's header they exceed the MTU below: they are fragmented or dropped.",
        source: "RFC 7348, section 4.3",
        check: |survey| {
            interfaces(survey, |interface| {
                interface.kind.as_ref().filter(|kind| kind.value == "vxlan")?;
                let own = interface.mtu.as_ref()?;
                let below = named(survey, &interface.lower.as_ref()?.value)?;
                let room = below.mtu.as_ref()?.value.checked_sub(VXLAN_BYTES)?;
                let value = format!("MTU {}, {} has room for {room}", own.value, below.name);
                (own.value > room)
                    .then(|| violation(&interface.name, value, own, mtu_set(&interface.name, room)))?
            })
        },
    },
    Rule {
        id: "half-duplex",
        subject: Subject::Network,
        sureness: Sureness::Fault,
        title: "A network card is half duplex",
        why: "Negotiation failed, mostly because one end has fixed settings: collisions look like loss.",
        source: "Linux: Documentation/ABI/testing/sysfs-class-net, duplex",
        check: |survey| {
            interfaces(survey, |interface| {
                let duplex = interface.duplex.as_ref().filter(|duplex| duplex.value == "half")?;
                violation(
                    &interface.name,
                    "half",
                    duplex,
                    format!("ethtool -s {} autoneg on, on both ends", interface.name),
                )
            })
        },
    },
    Rule {
        id: "checksum-errors",
        subject: Subject::Network,
        sureness: Sureness::Fault,
        title: "A network card receives damaged packets",
        why: "A cable, a transceiver or a port is bad; each damaged packet is sent again.",
        source: "Linux: Documentation/ABI/testing/sysfs-class-net-statistics, rx_crc_errors",
        check: |survey| {
            interfaces(survey, |interface| {
                let errors = interface.checksum_errors.as_ref().filter(|errors| errors.value > 0)?;
                let received = interface.received.as_ref()?.value;
                let is_often = errors.value > received / 10_000_000;
                let value = format!("{} of {received} packets", errors.value);
                is_often.then(|| {
                    violation(
                        &interface.name,
                        value,
                        errors,
                        "replace the cable or the transceiver, then look again",
                    )
                })?
            })
        },
    },
    Rule {
        id: "bond-port-down",
        subject: Subject::Network,
        sureness: Sureness::Fault,
        title: "A port of a bond is down",
        why: "The bond has less bandwidth, and one failure less to give.",
        source: "Linux: Documentation/networking/bonding.rst, MII Status",
        check: |survey| {
            interfaces(survey, |interface| {
                let state = interface.bond_state.as_ref().filter(|state| state.value == "down")?;
                let bond = interface.master.as_ref().map_or("its bond", |master| master.value.as_str());
                violation(
                    &interface.name,
                    format!("down in {bond}"),
                    state,
                    format!("ip link show {}; check its cable", interface.name),
                )
            })
        },
    },
    Rule {
        id: "link-slow",
        subject: Subject::Network,
        sureness: Sureness::Cost,
        title: "A network card runs at 100 Mbit/s or less",
        why: "A gigabit link needs all four pairs of its cable; with a bad one it falls back.",
        source: "Linux: Documentation/ABI/testing/sysfs-class-net, speed",
        check: |survey| {
            interfaces(survey, |interface| {
                let speed = interface.speed_mbit.as_ref().filter(|speed| (1..=100).contains(&speed.value))?;
                let is_up = interface.state.as_ref().is_some_and(|state| state.value == "up");
                let value = format!("{} Mbit/s", speed.value);
                is_up.then(|| {
                    violation(
                        &interface.name,
                        value,
                        speed,
                        format!("ethtool {}; try another cable", interface.name),
                    )
                })?
            })
        },
    },
    Rule {
        id: "offload-off",
        subject: Subject::Network,
        sureness: Sureness::Cost,
        title: "An offload that joins or splits packets is off",
        why: "The kernel then handles each packet of 1500 bytes by itself, instead of 64 KiB at a time.",
        source: "Linux: Documentation/networking/segmentation-offloads.rst",
        check: |survey| {
            const NAMES: [&str; 3] =
                ["tcp-segmentation-offload", "generic-segmentation-offload", "generic-receive-offload"];
            interfaces(survey, |interface| {
                let (name, fact) = off(interface, &NAMES)?;
                violation(
                    &interface.name,
                    format!("{name}: off"),
                    fact,
                    format!("ethtool -K {} {name} on", interface.name),
                )
            })
        },
    },
    Rule {
        id: "checksum-offload-off",
        subject: Subject::Network,
        sureness: Sureness::Cost,
        title: "The CPU computes checksums that the card could",
        why: "Without them the card cannot split packets either, so that segmentation offload is lost too.",
        source: "Linux: Documentation/networking/checksum-offloads.rst",
        check: |survey| {
            interfaces(survey, |interface| {
                let (name, fact) = off(interface, &["tx-checksumming"])?;
                violation(
                    &interface.name,
                    format!("{name}: off"),
                    fact,
                    format!("ethtool -K {} tx on", interface.name),
                )
            })
        },
    },
    Rule {
        id: "ring-small",
        subject: Subject::Network,
        sureness: Sureness::Cost,
        title: "Packets were lost because the receive ring was full",
        why: "A burst found no free buffer, and the ring can be larger.",
        source: "Linux: Documentation/ABI/testing/sysfs-class-net-statistics, rx_missed_errors; ethtool(8), -G",
        check: |survey| {
            interfaces(survey, |interface| {
                let missed = interface.missed.as_ref().filter(|missed| missed.value > 0)?;
                let ring = interface
                    .receive_ring
                    .as_ref()
                    .filter(|ring| ring.value.entries < ring.value.entries_max)?;
                let value =
                    format!("{} packets, ring of {} ({})", missed.value, ring.value.entries, ring.source);
                violation(
                    &interface.name,
                    value,
                    missed,
                    format!("ethtool -G {} rx {}", interface.name, ring.value.entries_max),
                )
            })
        },
    },
    Rule {
        id: "one-receive-queue",
        subject: Subject::Network,
        sureness: Sureness::Depends,
        title: "One CPU receives all packets of a card",
        why: "The card has one receive queue and nothing spreads its packets over the other CPUs.",
        source: "Linux: Documentation/networking/scaling.rst, RPS",
        check: |survey| {
            let cpus = survey.machine.environment.cpus.unwrap_or(1);
            interfaces(survey, |interface| {
                let queues = interface.receive_queues.as_ref().filter(|queues| queues.value == 1)?;
                let is_spread = interface.receive_steering.as_ref().is_none_or(|steering| steering.value);
                let fits = interface.is_device && cpus >= MANY_CPUS && !is_spread;
                let value = format!("1 receive queue for {cpus} CPUs, rps_cpus 0");
                fits.then(|| violation(&interface.name, value, queues, format!("more queues for the guest's card, or: echo ff > /sys/class/net/{}/queues/rx-0/rps_cpus", interface.name)))?
            })
        },
    },
    Rule {
        id: "tcp-window-scaling-off",
        subject: Subject::Network,
        sureness: Sureness::Cost,
        title: "TCP windows end at 64 KiB",
        why: "A connection has 64 KiB under way at most: 5 Mbit/s over 100 ms.",
        source: "RFC 7323, section 2; Linux: Documentation/networking/ip-sysctl.rst, tcp_window_scaling",
        check: |survey| tcp_off(survey.machine.tcp.window_scaling.as_ref(), "tcp_window_scaling"),
    },
    Rule {
        id: "tcp-sack-off",
        subject: Subject::Network,
        sureness: Sureness::Cost,
        title: "TCP repeats more than what was lost",
        why: "Without selective acknowledgement several losses in one window take several round trips.",
        source: "RFC 2018; Linux: Documentation/networking/ip-sysctl.rst, tcp_sack",
        check: |survey| tcp_off(survey.machine.tcp.selective_ack.as_ref(), "tcp_sack"),
    },
    Rule {
        id: "tcp-buffer-small",
        subject: Subject::Network,
        sureness: Sureness::Cost,
        title: "TCP's buffers cannot grow",
        why: "A connection has at most this much under way; the kernel's own limit is 6 MiB for received data and 4 MiB for sent data.",
        source: "Linux: Documentation/networking/ip-sysctl.rst, tcp_rmem and tcp_wmem",
        check: |survey| {
            let tcp = &survey.machine.tcp;
            let all = [
                (tcp.receive_max_bytes.as_ref(), "tcp_rmem", "4096 131072 6291456"),
                (tcp.send_max_bytes.as_ref(), "tcp_wmem", "4096 16384 4194304"),
            ];
            all.into_iter()
                .filter_map(|(fact, name, usual)| {
                    let most = fact.filter(|most| most.value < SMALL_BUFFER)?;
                    violation(
                        "tcp",
                        format!("{name} ends at {}", most.value),
                        most,
                        format!("sysctl net.ipv4.{name}='{usual}'"),
                    )
                })
                .collect()
        },
    },
];
