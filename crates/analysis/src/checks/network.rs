//! Checks of network measurements: packets that took another path, a saturated link or CPU, loss, gaps.

use iotax_model::units::human::listed;
use std::collections::BTreeSet;

use iotax_model::net::{Direction, NetTest, Traffic};
use iotax_model::record::{Flow, Interface, NicActivity, TargetRecord};
use iotax_model::target::NetPath;
use iotax_model::units::human;
use iotax_model::{Warning, WarningKind};

use super::{Case, about_target};
use crate::figures::is_stream;
use crate::finding::Finding;
use crate::network::{GAP_NS, flows, path_nics, share, word};
use crate::packets::over_flows;
use iotax_model::Run;

/// Smallest share of the carried bytes that an interface on the path must have counted. The host sees a window's start and end by messages
/// that may be 50 ms late.
const PASSED: f64 = 0.8;
/// Shortest window, in nanoseconds, that is checked for bypassed interfaces and saturated CPUs; late messages distort shorter ones.
const SHORTEST_NS: u64 = 500_000_000;
/// Largest ratio of an interface's bytes to the carried bytes that short packets' headers, acknowledgements and retransmits explain.
const OTHERS: f64 = 1.5;
/// Background traffic of a quiet network in bytes per second, headers included.
const QUIET: f64 = 1e6;
/// Bytes of headers and gaps per packet on the wire: 38 of Ethernet, 20 of IPv4, 8 of UDP. TCP's headers are longer.
const HEADERS: u64 = 66;
/// Bytes of headers that an interface counts per datagram: 14 of Ethernet, 20 of IPv4, 8 of UDP.
const DATAGRAM_HEADERS: u64 = 42;
/// Smallest loss, as a share of the received bytes, at which the receiving interface's counters show if packets were lost before or after
/// it.
const DISTINCT: f64 = 0.2;
/// Minimum share of a link's speed, headers included, at which the link counts as saturated.
const FULL: f64 = 0.9;
/// Minimum CPU time of a process, as a share of its threads' wall-clock time, at which the process counts as the limit.
const BOUND: f64 = 0.95;
/// ITU-T Y.1541's bound for packet loss in quality classes 0 to 4. One lost TCP segment in 1000 limits a stream's window to some 40
/// segments on any link (Mathis, Semke, Mahdavi and Ott, ACM CCR 27(3), 1997: 1.22 / sqrt(loss)).
const LOST: f64 = 1e-3;
/// Smallest share of the requested bitrate that a stream must reach.
const REACHED: f64 = 0.95;
/// Offloads that are compared: without them the kernel does work of the network card, or each layer handles wire-size packets instead of
/// large segments.
const MATTER: [&str; 8] = [
    "tx-checksum-ip-generic",
    "tx-generic-segmentation",
    "tx-scatter-gather",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "rx-gro",
    "rx-checksum",
];
/// The offload without which the kernel segments TCP in software.
const SEGMENTATION: &str = "tx-tcp-segmentation";

/// Runs the network checks of one measurement; none for disk work.
pub(super) fn findings(case: &Case<'_>) -> Vec<Finding> {
    let Some(net) = case.workload.kind.traffic() else { return Vec::new() };
    let mut found: Vec<Finding> = Vec::new();
    found.extend(bypassed(case, net));
    found.extend(others(case, net));
    found.extend(link(case));
    found.extend(cpu(case, net));
    found.extend(sustained(case, net));
    found.extend(retransmits(case));
    found.extend(lost(case, net));
    found.extend(messages(case));
    found.extend(gaps(case));
    found
}

impl Case<'_> {
    fn interfaces(&self) -> &[Interface] {
        self.record.map(|record| record.interfaces.as_slice()).unwrap_or_default()
    }

    /// Returns the bytes uploaded or downloaded, background load included; `None` if these were not reported.
    fn bytes(&self, upload: bool) -> Option<u64> {
        if is_stream(self.m) {
            let tallies = &self.m.outcome.tallies;
            return Some(
                (if upload { &tallies.write } else { &tallies.read }).as_ref().map_or(0, |tally| tally.bytes),
            );
        }
        let load = flows(self.m, upload);
        let load =
            if load.clone().next().is_none() { 0 } else { over_flows(load, |flow| flow.received_bytes)? };
        Some(load + self.m.outcome.tallies.bytes())
    }

    fn goes(&self, via: NetPath) -> bool {
        self.spec.and_then(|spec| spec.network()).is_some_and(|network| network.via == via)
    }

    /// Returns the interface at a place on the path (`client` or `server`) and its counts. Prefers a bridge over its
    /// ports. `None` if no interface is recorded there, or if packets may have passed any of several.
    fn nic(&self, position: &str) -> Option<(&str, &NicActivity)> {
        let all = path_nics(self.m, self.interfaces());
        let there: Vec<_> = all.into_iter().filter(|nic| nic.position == Some(position)).collect();
        let one = match there.as_slice() {
            [one] if self.is_certain(position) => one,
            several if self.goes(NetPath::Bridge) => {
                several.iter().find(|nic| nic.driver == Some("bridge"))?
            }
            _ => return None,
        };
        Some((one.name, one.activity))
    }

    /// Returns whether all packets must have passed the interface at this place. Machines that iotax did not build may have several
    /// interfaces.
    fn is_certain(&self, position: &str) -> bool {
        let there = self.interfaces().iter().filter(|interface| interface.position == position);
        let given = self.spec.and_then(|spec| spec.network()).is_some_and(|network| network.via.is_given());
        !given || there.count() < 2
    }

    /// Returns the number of concurrent guests with the same work; 1 without a guest.
    fn guests(&self) -> u32 {
        self.spec.and_then(|spec| spec.guest()).map_or(1, |guest| guest.count)
    }
}

/// Finds interfaces on the path that counted less traffic than was carried: the packets took another path.
fn bypassed(case: &Case<'_>, net: &Traffic) -> Option<Finding> {
    if case.m.outcome.duration_ns < SHORTEST_NS {
        return None;
    }
    let mut evidence = Vec::new();
    for position in ["client", "server"] {
        let Some((name, counted)) = case.nic(position) else { continue };
        // The client sends uploads, the server downloads.
        let (sent, received) = if position == "client" { (true, false) } else { (false, true) };
        for (upload, bytes, did) in
            [(sent, counted.tx_bytes, "sent"), (received, counted.rx_bytes, "received")]
        {
            // Messages go both ways.
            let streams = if upload { net.direction.sends() } else { net.direction.receives() };
            let asked = streams || net.test.is_rtt();
            let Some(carried) = case.bytes(upload).filter(|bytes| asked && *bytes > 0) else { continue };
            if (bytes as f64) < PASSED * carried as f64 {
                evidence.push(format!(
                    "{} were carried in the {}, and {name} at the {position} {did} {}",
                    human::bytes(carried),
                    word(upload),
                    human::bytes(bytes)
                ));
            }
        }
    }
    let remedy = "the packets took another way: look at both ends' addresses and routes (ip route get), and give --bind the \
                  address of the interface that is meant";
    let found =
        (!evidence.is_empty()).then(|| case.finding(WarningKind::Bypassed, evidence.join("; "), remedy));
    found.map(|found| found.unusable_if(true))
}

/// Finds a client interface that counted far more traffic than the measurement carried: others used the network.
fn others(case: &Case<'_>, net: &Traffic) -> Option<Finding> {
    let (name, counted) = case.nic("client")?;
    // All programs share the loopback interface, and it counts each byte as sent and received.
    if case.m.neighbour.is_some() || name == "lo" {
        return None;
    }
    let seconds = case.m.outcome.duration_ns as f64 / 1e9;
    let both = case.bytes(true)? + case.bytes(false)?;
    let packets = case.m.outcome.tallies.ios().max(both / 1448);
    let lost = over_flows(flows(case.m, net.direction == Direction::Upload), |flow| flow.lost).unwrap_or(0);
    let due = OTHERS * both as f64 + (2 * (packets + lost) * HEADERS) as f64 + QUIET * seconds;
    // Datagrams that were sent and lost still passed the sender's interface.
    let given = over_flows(flows(case.m, true), |flow| flow.sent_bytes).unwrap_or(0) as f64;
    let all = (counted.rx_bytes + counted.tx_bytes) as f64;
    (all > due.max(OTHERS * given + QUIET * seconds)).then(|| {
        let evidence = format!(
            "{name} at the client counted {}, and what was measured came to {}",
            human::rate(all / seconds),
            human::rate(both as f64 / seconds)
        );
        let remedy = "others used the network: measure when it is idle; iftop(8) names them";
        case.finding(WarningKind::OtherLoad, evidence, remedy)
    })
}

/// Finds a link whose speed was the limit: streams used 90% of it or more, headers included.
fn link(case: &Case<'_>) -> Option<Finding> {
    if !is_stream(case.m) {
        return None;
    }
    // An emulated NIC's speed is nominal: nothing enforces it.
    let is_real = |found: &&Interface| {
        let emulated = case.in_guest() && found.position == "client";
        found.speed > Some(0) && !emulated && case.is_certain(&found.position)
    };
    let slowest = case.interfaces().iter().filter(is_real);
    let slowest = slowest.min_by_key(|interface| interface.speed)?;
    let speed = slowest.speed? as f64;
    let seconds = case.m.outcome.duration_ns as f64 / 1e9;
    let tallies = &case.m.outcome.tallies;
    let wire = [&tallies.write, &tallies.read].into_iter().flatten();
    let busiest = wire.map(|tally| tally.bytes + tally.ios * HEADERS).max()? as f64 / seconds;
    (busiest * 8.0 >= FULL * speed && busiest * 8.0 <= 1.1 * speed).then(|| {
        let evidence = format!(
            "{} of the {} of {} ({}) were carried, headers included",
            human::bits(busiest),
            human::bits(speed / 8.0),
            slowest.name,
            slowest.position
        );
        let remedy = "the link was measured, not what it costs to reach it: compare CPU per GiB, or measure over a faster link";
        case.finding(WarningKind::LinkBound, evidence, remedy)
    })
}

/// Finds a client or server whose CPU time was the limit. Streams only: round trips wait, or poll on purpose.
fn cpu(case: &Case<'_>, net: &Traffic) -> Option<Finding> {
    if !is_stream(case.m) || case.m.outcome.duration_ns < SHORTEST_NS {
        return None;
    }
    let window = case.m.outcome.duration_ns as f64;
    let threads = net.streams() * case.guests();
    let ends = [
        ("client", Some(case.m.outcome.cpu), net.direction.sends()),
        ("server", case.m.outcome.carried.as_ref()?.server_cpu, net.direction == Direction::Download),
    ];
    let mut evidence: Vec<String> = ends
        .into_iter()
        .filter_map(|(end, cpu, sends)| {
            let used = cpu?.total_ns() as f64 / (window * f64::from(threads));
            let does = if net.direction == Direction::Both {
                "sends and receives"
            } else if sends {
                "sends"
            } else {
                "receives"
            };
            let plural = if threads == 1 { "thread" } else { "threads" };
            (used >= BOUND).then(|| {
                format!("the {end}, which {does}, used {:.0}% of its {threads} {plural}", used * 100.0)
            })
        })
        .collect();
    let inside = case.m.outcome.inside.as_ref().and_then(|inside| inside.cpu);
    evidence.extend(inside.filter(|_| case.in_guest()).and_then(|cpu| {
        let all = cpu.busy_ns() + cpu.idle_ns + cpu.iowait_ns.unwrap_or(0);
        let used = share(cpu.busy_ns(), all)?;
        (used >= BOUND).then(|| format!("the guest's CPUs were busy for {:.0}%", used * 100.0))
    }));
    let remedy = "the CPU was measured, not the path: the path may carry more with more streams (parallel), larger packets (mtu) or \
                  more CPUs; at a bitrate below this, compare CPU per GiB";
    (!evidence.is_empty()).then(|| case.finding(WarningKind::CpuBound, evidence.join("; "), remedy))
}

/// Finds streams that sent less than 95% of the requested bitrate.
fn sustained(case: &Case<'_>, net: &Traffic) -> Option<Finding> {
    let asked = net.bitrate.filter(|_| is_stream(case.m))?.0 as f64 * f64::from(net.parallel * case.guests());
    let seconds = case.m.outcome.duration_ns as f64 / 1e9;
    let each = [(true, net.direction.sends()), (false, net.direction.receives())];
    let evidence: Vec<String> = each
        .into_iter()
        .filter(|(_, goes)| *goes)
        .filter_map(|(upload, _)| {
            // Loss on the way is a separate check.
            let sent = over_flows(flows(case.m, upload), |flow| flow.sent_bytes)? as f64 * 8.0 / seconds;
            let less = sent < REACHED * asked;
            less.then(|| {
                format!(
                    "{} were asked for in the {} and {} sent",
                    human::bits(asked / 8.0),
                    word(upload),
                    human::bits(sent / 8.0)
                )
            })
        })
        .collect();
    let remedy =
        "the sender or the path cannot sustain this bitrate: lower it, or share it among more streams";
    (!evidence.is_empty()).then(|| case.finding(WarningKind::CannotSustain, evidence.join("; "), remedy))
}

fn retransmits(case: &Case<'_>) -> Option<Finding> {
    let all = || [true, false].into_iter().flat_map(|upload| flows(case.m, upload));
    let again = over_flows(all(), |flow| flow.retransmits)?;
    let part = share(again, over_flows(all(), |flow| flow.sent_packets)?)?;
    (part > LOST).then(|| {
        let evidence = format!("TCP sent {again} segments again, {} of all", percent(part));
        let remedy = "packets were lost on the way: look for drops at the interfaces and queues (ip -s link, tc -s qdisc), or for \
                      another rate limit; what was lost is in the figures as lower throughput";
        case.finding(WarningKind::Retransmits, evidence, remedy)
    })
}

/// Finds lost datagrams; names the place of the loss, before or after the receiving interface, if its counters show this.
fn lost(case: &Case<'_>, net: &Traffic) -> Option<Finding> {
    let mut evidence = Vec::new();
    let mut above = true;
    for upload in [true, false] {
        let Some(lost) = over_flows(flows(case.m, upload), |flow| flow.lost) else { continue };
        let Some(received) = over_flows(flows(case.m, upload), |flow| flow.received_packets) else {
            continue;
        };
        let Some(part) = share(lost, lost + received).filter(|part| *part > LOST) else { continue };
        let position = arrived(case, net, upload, lost, received);
        above &= position == Some(true);
        let position = match position {
            Some(true) => {
                ", after they had reached the receiver's interface: its sockets' buffers overflowed"
            }
            Some(false) => ", before they reached the receiver's interface",
            None => "",
        };
        evidence.push(format!(
            "{} of {} datagrams ({}) were lost in the {}{position}",
            human::count(lost as f64),
            human::count((lost + received) as f64),
            percent(part),
            word(upload)
        ));
    }
    let remedy = if above {
        "the receiver is slower than the path: larger buffers (window), more streams or CPUs there, or a lower bitrate"
    } else {
        "what arrived is in the figures, what was lost is not: lower the bitrate, and look for drops at the interfaces and queues \
         (ip -s link, tc -s qdisc)"
    };
    (!evidence.is_empty()).then(|| case.finding(WarningKind::Loss, evidence.join("; "), remedy))
}

/// Returns whether the receiver's interface got the packets that its sockets missed. `None` if its counters cannot show this: if they are
/// unknown, count other packets too, or are those of the loopback, or if too little was lost.
fn arrived(case: &Case<'_>, net: &Traffic, upload: bool, lost: u64, received: u64) -> Option<bool> {
    let (name, counted) = case.nic(if upload { "server" } else { "client" })?;
    if name == "lo" {
        return None;
    }
    let bytes = over_flows(flows(case.m, upload), |flow: &Flow| flow.received_bytes)?;
    let each = net.length.map_or_else(|| bytes.checked_div(received), |length| Some(length.0))?;
    let missing = lost * each;
    let reached = counted.rx_bytes.saturating_sub(DATAGRAM_HEADERS * counted.rx_packets);
    // True if the interface's count is nearer to the bytes sent than to the bytes that the sockets received.
    (missing as f64 >= DISTINCT * bytes as f64).then_some(reached > bytes + missing / 2)
}

/// Finds round-trip messages that never came back.
fn messages(case: &Case<'_>) -> Option<Finding> {
    let probes = case.m.outcome.carried.as_ref()?.probes?;
    let lost = probes.sent.checked_sub(probes.received)?;
    let part = share(lost, probes.sent)?;
    // The last message may still be in flight.
    (lost > 1 && part > LOST).then(|| {
        let evidence = format!("{lost} of {} messages ({}) never came back", probes.sent, percent(part));
        let remedy = "no percentile knows of them: they count as lost, not as late; look for drops on the way (ip -s link, \
                      tc -s qdisc)";
        case.finding(WarningKind::Loss, evidence, remedy)
    })
}

/// Finds periods of more than 200 ms without a received byte, which a single lost packet does not explain.
fn gaps(case: &Case<'_>) -> Option<Finding> {
    let gaps = &case.m.outcome.carried.as_ref()?.gaps;
    let long: Vec<String> = gaps
        .iter()
        .filter(|gap| gap.duration_ns > GAP_NS)
        .map(|gap| {
            let lost =
                gap.lost_bytes.map(|bytes| format!(", {} lost", human::bytes(bytes))).unwrap_or_default();
            format!(
                "{} {} from {} into the window on{lost}",
                word(gap.upload),
                human::time(gap.duration_ns as f64),
                human::time(gap.at_ns as f64)
            )
        })
        .collect();
    let remedy = "a link went down, or a queue stood still: the kernel logs of both ends may say which; the throughput has the gap in it";
    (!long.is_empty())
        .then(|| case.finding(WarningKind::Gap, format!("nothing arrived: {}", listed(&long)), remedy))
}

/// Finds targets whose offloads at the client or server differ from the baseline's, or whose kernel segments TCP in software.
pub(super) fn offloads(run: &Run) -> Vec<Warning> {
    let base = run.targets.iter().find(|record| record.name == run.plan.baseline);
    run.targets.iter().filter_map(|record| offloads_of(run, record, base)).collect()
}

fn offloads_of(run: &Run, record: &TargetRecord, base: Option<&TargetRecord>) -> Option<Warning> {
    let has = |interface: &Interface| -> Option<BTreeSet<String>> {
        let on = interface.offloads.as_ref()?;
        Some(on.iter().filter(|name| MATTER.contains(&name.as_str())).cloned().collect())
    };
    let ends = record.interfaces.iter().filter(|interface| interface.position != "host");
    let mut nets = run.plan.workloads.iter().filter_map(|workload| workload.kind.traffic());
    let tcp = nets.any(|net| net.test == NetTest::Tcp || net.loaded);
    let mut evidence = Vec::new();
    for interface in ends {
        let Some(mine) = has(interface) else { continue };
        let other = base.filter(|base| base.name != record.name).and_then(|base| {
            let same = base.interfaces.iter().find(|other| other.position == interface.position)?;
            Some((base, same, has(same)?))
        });
        let called = format!("{} at the {}", interface.name, interface.position);
        if let Some((base, same, theirs)) = other.filter(|(.., theirs)| *theirs != mine) {
            let list = |names: Vec<&String>| listed(&names.into_iter().cloned().collect::<Vec<_>>());
            let (less, more) =
                (list(theirs.difference(&mine).collect()), list(mine.difference(&theirs).collect()));
            let parts = [("lacks", less), ("has", more)].into_iter().filter(|(_, list)| !list.is_empty());
            let parts: Vec<String> = parts.map(|(word, list)| format!("{word} {list}")).collect();
            evidence.push(format!("{called} {} unlike {} of {}", parts.join(" and "), same.name, base.name));
        } else if tcp && !mine.contains(SEGMENTATION) {
            evidence.push(format!("{called} has no {SEGMENTATION}: the kernel cuts TCP into packets"));
        }
    }
    let remedy = "it is part of what is compared if the card cannot do it; else set both alike (ethtool -K)";
    (!evidence.is_empty()).then(|| about_target(record, WarningKind::Offloads, evidence.join("; "), remedy))
}

/// Formats a share as a percentage: `0.12%`, `3.4%`.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 0.995 { format!("{percent:.2}%") } else { format!("{percent:.1}%") }
}
