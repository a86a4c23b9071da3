//! The layers of a target as planned, from the bottom up.

use std::path::Path;

use iotax_model::TargetSpec;
use iotax_model::target::{BottomLocation, NbdExportSpec, NetPath, NetworkSpec, Nic, Part, PlannedLayer};

/// Lists the parts of a network path: the network itself, the link if iotax built one other than loopback, the guest if the path starts in
/// one, and a noisy neighbour. Every guest link counts as a veth pair, so that guests can be compared with the pair and with one another.
fn paths(target: &TargetSpec, network: &NetworkSpec) -> Vec<Part> {
    let mut ends = Part::plain(match &network.peer {
        Some(peer) => format!("network to {peer}"),
        None => "network".to_owned(),
    });
    ends.settings.extend(network.mtu.map(|mtu| ("mtu".to_owned(), mtu.to_string())));
    let mut parts = vec![ends];
    if network.via != NetPath::Loopback && !network.via.is_given() {
        let mut link = Part::plain("veth pair");
        link.kind = "link".into();
        parts.push(link);
    }
    if let Some(guest) = &target.guest() {
        // The settings of a guest's disk do not affect its NIC.
        let disk = ["bus", "cache", "aio", "iothread", "queues", "discard", "filesystem"];
        let mut part = Part::new("guest", format!("{} + guest", network.nic), guest, &disk);
        part.settings.extend(Part::settings_of(network, &["peer", "mtu"]));
        part.open.insert("machine", guest.machine_type().to_string());
        let several = network.via == NetPath::Bridge && network.nic == Nic::VirtioNet;
        part.open.insert("queues", if several { guest.vcpus } else { 1 }.to_string());
        parts.push(part);
    }
    parts.extend(target.neighbour.iter().map(|name| Part::plain(format!("noise of {name}"))));
    parts
}

/// Lists the parts of a target from the bottom up. The location is a part too: targets on different disks then differ
/// by more than one layer.
pub(super) fn parts(target: &TargetSpec) -> Vec<Part> {
    if let Some(network) = target.network() {
        return paths(target, network);
    }
    let mut bottom = Part::plain(bottom_text(target));
    bottom.settings.extend(Part::settings_of(&target.settings, &[]));
    let mut parts = vec![bottom];
    for layer in target.stack.layers() {
        let own = match layer {
            PlannedLayer::Guest(guest) if target.shared_directory().is_some() => {
                vec![guest.part_without_disk()]
            }
            layer => layer.kind().parts(),
        };
        for part in own {
            if part.kind.is_empty() {
                let below = parts.iter_mut().rev().find(|part| !part.aside);
                below.into_iter().for_each(|below| below.settings.extend(part.settings.clone()));
                continue;
            }
            let alike = parts.iter().filter(|below| below.kind == part.kind).count();
            let kind = if alike == 0 { part.kind.clone() } else { format!("{} {}", part.kind, alike + 1) };
            parts.push(Part { kind, ..part });
        }
    }
    parts.extend(target.neighbour.iter().map(|name| Part::plain(format!("noise of {name}"))));
    parts
}

fn bottom_text(target: &TargetSpec) -> String {
    match target.stack.location() {
        Some(BottomLocation::Path(path)) => format!("path {}", path.display()),
        Some(BottomLocation::Device(device)) => format!("device {}", device.display()),
        Some(BottomLocation::Group(group)) => format!("group {group}"),
        Some(BottomLocation::Directory(dir)) => format!("directory {}", dir.display()),
        None => match target.stack.find::<NbdExportSpec>() {
            Some(export) => format!("export {export}"),
            None => format!("path {}", target.path().unwrap_or(Path::new("")).display()),
        },
    }
}
