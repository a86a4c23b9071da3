//! The layers of a target by its plan, from the bottom up.

use std::collections::BTreeMap;
use std::path::Path;

use iotax_model::TargetSpec;
use iotax_model::target::{
    BottomLocation, FileSpec, Format, NbdExportSpec, NetPath, NetworkSpec, Nic, PlannedLayer, Snapshot,
};
use serde::Serialize;
use serde_json::Value;

/// The start of the kind of an image's format; a raw image is no layer.
const IMAGE: &str = "image ";

/// One layer of a target with what can be set on it.
#[derive(Debug)]
pub(super) struct Part {
    /// Identifies the layer, whatever its settings.
    pub(super) kind: String,
    /// Its usual name.
    pub(super) name: String,
    /// The plan's keys for it; what the plan leaves open is absent.
    pub(super) settings: BTreeMap<String, String>,
    /// Values of keys that the plan may leave open, where other keys decide them.
    open: BTreeMap<&'static str, String>,
}

impl Part {
    /// Returns whether it is the format of an image.
    pub(super) fn is_format(&self) -> bool {
        self.kind.starts_with(IMAGE)
    }

    /// The value of a key, as far as the plan alone decides it.
    pub(super) fn value(&self, key: &str) -> Option<&String> {
        self.settings.get(key).or_else(|| self.open.get(key))
    }

    /// Returns whether a key is set differently in another part of this kind. A value that follows from another key does not
    /// count.
    pub(super) fn differs(&self, other: &Self, key: &str) -> bool {
        self.settings.get(key) != other.settings.get(key) && self.value(key) != other.value(key)
    }

    /// A layer without settings, identified by its name.
    fn plain(name: impl Into<String>) -> Self {
        let name = name.into();
        Self { kind: name.clone(), name, settings: BTreeMap::new(), open: BTreeMap::new() }
    }

    /// A layer whose settings are the keys of `spec` but for those that are layers of their own.
    fn new(kind: &str, name: impl Into<String>, spec: &impl Serialize, without: &[&str]) -> Self {
        Self { kind: kind.into(), settings: settings(spec, without), ..Self::plain(name) }
    }
}

/// Taken from the plan's own form, so that a new key is a setting without being named here.
fn settings(spec: &impl Serialize, without: &[&str]) -> BTreeMap<String, String> {
    let Ok(Value::Object(keys)) = serde_json::to_value(spec) else { return BTreeMap::new() };
    keys.into_iter()
        .filter(|(key, value)| !value.is_null() && !without.contains(&key.as_str()))
        .map(|(key, value)| match value {
            Value::String(text) => (key, text),
            other => (key, other.to_string()),
        })
        .collect()
}

/// The parts of a network other than its two ends: loopback has no link between them, and only some paths begin in a guest. A
/// guest's link, of any kind, counts like a veth pair, so that a guest is compared with the pair, and one guest's link with
/// another's.
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
        part.settings.extend(settings(network, &["peer", "mtu"]));
        part.open.insert("machine", guest.machine_type().to_string());
        let several = network.via == NetPath::Bridge && network.nic == Nic::VirtioNet;
        part.open.insert("queues", if several { guest.vcpus } else { 1 }.to_string());
        parts.push(part);
    }
    parts.extend(target.neighbour.iter().map(|name| Part::plain(format!("noise of {name}"))));
    parts
}

/// The parts of a target. Places differ in kind: what stands on another disk is not the same target plus something.
pub(super) fn parts(target: &TargetSpec) -> Vec<Part> {
    if let Some(network) = target.network() {
        return paths(target, network);
    }
    let mut bottom = Part::plain(place(target));
    bottom.settings.extend(settings(&target.settings, &[]));
    let mut parts = vec![bottom];
    for layer in target.stack.layers() {
        // An overlay adds itself alone: what a file in it is it is without it too.
        let below = parts.iter_mut().rev().find(|part| part.kind != OVERLAY);
        for part in of_layer(layer, below) {
            let alike = parts.iter().filter(|below| below.kind == part.kind).count();
            let kind = if alike == 0 { part.kind.clone() } else { format!("{} {}", part.kind, alike + 1) };
            parts.push(Part { kind, ..part });
        }
    }
    parts.extend(target.neighbour.iter().map(|name| Part::plain(format!("noise of {name}"))));
    parts
}

/// The kind of an overlay's part.
const OVERLAY: &str = "overlay";

/// The parts that a layer adds to those below it.
fn of_layer(layer: &PlannedLayer, below: Option<&mut Part>) -> Vec<Part> {
    match layer {
        PlannedLayer::Path(_)
        | PlannedLayer::NbdExport(_)
        | PlannedLayer::Device(_)
        | PlannedLayer::Network(_) => Vec::new(),
        PlannedLayer::Image(image) => image.overlay.iter().map(|_| Part::plain("overlay")).collect(),
        PlannedLayer::Lvm(lvm) => {
            let volume = Part::new("lvm", "LVM", lvm, &["vg", "snapshot"]);
            let snapshot = lvm.snapshot.then(|| Part::plain("LVM snapshot"));
            [volume].into_iter().chain(snapshot).collect()
        }
        PlannedLayer::Filesystem(filesystem) => {
            vec![Part::new("filesystem", filesystem.kind.word(), filesystem, &[])]
        }
        PlannedLayer::Overlay(overlay) => vec![Part::new(OVERLAY, "overlayfs", overlay, &["dir"])],
        // A raw file is there with the place or the filesystem that it lies on.
        PlannedLayer::File(file) if file.format == Format::Raw => {
            below.into_iter().for_each(|below| below.settings.extend(settings(file, &["dir", "format"])));
            Vec::new()
        }
        PlannedLayer::File(file) => image(file).collect(),
        PlannedLayer::Fuse(export) => vec![Part::new("fuse", "QEMU's block layer by FUSE", export, &[])],
        PlannedLayer::Filter(filter) => vec![Part::new("filter", filter.kind.word(), filter, &["type"])],
        PlannedLayer::Nbd(nbd) => vec![Part::new("nbd", "NBD", nbd, &[])],
        PlannedLayer::Virtio(export) => {
            vec![Part::new("virtio", "QEMU's block layer and virtio", export, &[])]
        }
        PlannedLayer::Loop(over) => vec![Part::new("loop", "loop device", over, &[])],
        PlannedLayer::Guest(guest) => {
            let part = Part::new("guest", format!("{} + guest", guest.bus), guest, &["filesystem"]);
            let open =
                [("machine", guest.machine_type().to_string()), ("iothread", guest.iothreads().to_string())];
            let guest_part = Part { open: BTreeMap::from(open), ..part };
            let filesystem = guest.filesystem.map(|filesystem| {
                let mut part = Part::plain(format!("{filesystem} in the guest"));
                part.kind = "guest filesystem".into();
                part.settings.insert("filesystem".into(), filesystem.to_string());
                part
            });
            [guest_part].into_iter().chain(filesystem).collect()
        }
    }
}

fn place(target: &TargetSpec) -> String {
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

fn image(file: &FileSpec) -> impl Iterator<Item = Part> {
    const SNAPSHOT: [&str; 2] = ["snapshot", "backing_depth"];
    let kind = format!("{IMAGE}{}", file.format);
    let mut without = [&["dir", "format"][..], &SNAPSHOT].concat();
    if file.format != Format::Qcow2 {
        // The only one that there is.
        without.push("preallocation");
    }
    let format = Part::new(&kind, file.format.word(), file, &without);
    let snapshot = file.snapshot.map(|kind| {
        let mut part = Part::plain(format!("{kind} snapshot"));
        if kind == Snapshot::External {
            part.settings.insert("backing_depth".into(), file.backing_depth.unwrap_or(1).to_string());
        }
        part
    });
    [format].into_iter().chain(snapshot)
}
