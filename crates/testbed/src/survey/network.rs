//! Surveys network interfaces.

use iotax_model::survey::{Fact, Feature, Known, NetworkInterface, Ring};

use super::reader::Reader;
use crate::program::Program;

const ETHTOOL: Program = Program { name: "ethtool", package: "ethtool" };
const CLASS: &str = "/sys/class/net";

pub(super) fn interfaces(reader: &Reader<'_>) -> Vec<NetworkInterface> {
    let mut names = reader.names(CLASS);
    names.retain(|name| name != "lo" && reader.full_path(&format!("{CLASS}/{name}")).is_dir());
    let indices: Vec<(String, u64)> = names
        .iter()
        .filter_map(|name| Some((name.clone(), reader.number(&format!("{CLASS}/{name}/ifindex"))?.value)))
        .collect();
    names.iter().map(|name| interface(reader, name, &indices)).collect()
}

fn interface(reader: &Reader<'_>, name: &str, indices: &[(String, u64)]) -> NetworkInterface {
    let path = |file: &str| format!("{CLASS}/{name}/{file}");
    let number = |file: &str| reader.number(&path(file));
    let is_device = reader.full_path(&path("device")).exists();
    let queues: Vec<String> =
        reader.names(&path("queues")).into_iter().filter(|queue| queue.starts_with("rx-")).collect();
    let steering = queues.iter().filter_map(|queue| reader.text(&path(&format!("queues/{queue}/rps_cpus"))));
    let steering =
        steering.map(|cpus| Fact::new(cpus.value.contains(|c: char| !"0,".contains(c)), cpus.source));
    NetworkInterface {
        name: name.to_owned(),
        kind: reader.text(&path("uevent")).and_then(|all| {
            all.read(|all| all.lines().find_map(|line| line.strip_prefix("DEVTYPE=")).map(str::to_owned))
        }),
        is_device,
        mtu: number("mtu"),
        master: linked(reader, &path("master")),
        lower: lower(reader, name, indices),
        state: reader.text(&path("operstate")),
        // Software links report a speed that they do not keep, and -1 is unknown.
        speed_mbit: if is_device { number("speed") } else { None },
        duplex: if is_device { reader.text(&path("duplex")) } else { None },
        receive_queues: (!queues.is_empty()).then(|| Fact::new(queues.len() as u64, path("queues"))),
        receive_steering: steering.max_by_key(|fact| fact.value),
        bond_state: reader.text(&path("bonding_slave/mii_status")),
        received: number("statistics/rx_packets"),
        checksum_errors: number("statistics/rx_crc_errors"),
        missed: number("statistics/rx_missed_errors"),
        features: if is_device { features(reader, name) } else { None },
        receive_ring: if is_device { ring(reader, name) } else { None },
    }
}

/// Returns the name of the entry that a symbolic link in /sys points to; `None` if there is no link.
fn linked(reader: &Reader<'_>, path: &str) -> Known<String> {
    let target = std::fs::read_link(reader.full_path(path)).ok()?;
    Some(Fact::new(target.file_name()?.to_string_lossy().into_owned(), path))
}

/// Returns the interface below this interface, from a link `lower_NAME` or from the interface index in `iflink`. An index may refer to an
/// interface in another network namespace, so it counts only for VXLAN, or if that interface's index refers back. `None` for bridges and
/// bonds, or if no such interface is known.
fn lower(reader: &Reader<'_>, name: &str, indices: &[(String, u64)]) -> Known<String> {
    let class_dir = format!("{CLASS}/{name}");
    let is_master =
        ["bridge", "bonding"].iter().any(|kind| reader.full_path(&format!("{class_dir}/{kind}")).exists());
    if is_master {
        return None;
    }
    let link = reader.names(&class_dir).into_iter().find(|entry| entry.starts_with("lower_"));
    if let Some(lower) = link.as_deref().and_then(|link| link.strip_prefix("lower_")) {
        return Some(Fact::new(lower.to_owned(), format!("{class_dir}/lower_{lower}")));
    }
    let index = |name: &str, file: &str| reader.number::<u64>(&format!("{CLASS}/{name}/{file}"));
    let own = index(name, "ifindex")?.value;
    let below = index(name, "iflink").filter(|below| below.value != own)?;
    let (peer, _) = indices.iter().find(|(_, index)| *index == below.value)?;
    let is_mutual = index(peer, "iflink").is_some_and(|link| link.value == own);
    let is_tunnel =
        reader.text(&format!("{class_dir}/uevent")).is_some_and(|all| all.value.contains("DEVTYPE=vxlan"));
    (is_mutual || is_tunnel).then(|| Fact::new(peer.clone(), below.source))
}

/// Returns the interface's offloads from ethtool(8), in lines such as `generic-receive-offload: on [fixed]`.
fn features(reader: &Reader<'_>, name: &str) -> Known<Vec<Feature>> {
    reader.command(ETHTOOL, &["-k", name])?.read(|text| {
        let feature = |line: &str| {
            let (name, state) = line.trim().split_once(": ")?;
            let is_on = state.starts_with("on");
            (is_on || state.starts_with("off")).then(|| Feature {
                name: name.to_owned(),
                is_on,
                is_fixed: state.ends_with("[fixed]"),
            })
        };
        Some(text.lines().filter_map(feature).collect())
    })
}

/// Returns the maximum and current number of entries in the receive ring, from the two `RX:` lines of ethtool(8).
fn ring(reader: &Reader<'_>, name: &str) -> Known<Ring> {
    reader.command(ETHTOOL, &["-g", name])?.read(|text| {
        let mut received = text
            .lines()
            .filter_map(|line| line.strip_prefix("RX:"))
            .filter_map(|count| count.trim().parse::<u64>().ok());
        Some(Ring { entries_max: received.next()?, entries: received.next()? })
    })
}
