//! The plan's targets as a graph: an edge leads from one target to another that has exactly one more layer, one different setting, or a
//! guest in place of a virtio device.

use iotax_model::TargetSpec;
use iotax_model::target::{Bus, LayerKind, Part};

use crate::stack_diff::parts;
use iotax_model::Run;

/// Maximum number of edges into a target; more would repeat the same comparison.
const MOST_INCOMING: usize = 2;

/// Kind of the part that describes a guest.
const GUEST: &str = "guest";
/// Kind of the part that describes a virtio device without a guest.
const VIRTIO: &str = "virtio";

/// Two targets that differ by one layer, by one setting, or by a guest in place of a virtio device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// Name of the target without the layer or guest, or with the setting's value that comes first in the plan.
    pub from: String,
    /// Name of the target with the layer or guest, or with the value that comes later in the plan.
    pub to: String,
    /// Name of the difference: `LVM`, `virtio-blk + guest`, `cache=writeback instead of none`.
    pub name: String,
}

/// The one difference between two targets.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    /// An additional layer of this kind; `height` is the number of layers below it.
    Layer { height: usize, kind: String },
    /// A guest in place of a virtio device without a guest, on the same disk; `height` is the number of layers below it.
    Guest { height: usize },
    /// A different value of one layer's setting.
    Setting { kind: String, key: String },
}

/// A possible edge; [`edges`] selects from these.
struct Candidate {
    from: usize,
    to: usize,
    change: Change,
    /// True if preallocation differs too; such an edge is used only if no edge with equal preallocation shows the same change.
    loose: bool,
    name: String,
}

/// Finds the edges of a plan, in the order of their end targets. Among the edges to one target, the edge that adds the topmost layer comes
/// first.
///
/// Each value of a setting is compared with the value that comes first in the plan, not with all others. If an edge to a target changes a
/// setting of a layer, no other edge to that target adds this layer. At most two edges lead to a target.
#[must_use]
pub fn edges(targets: &[TargetSpec]) -> Vec<Edge> {
    let made_of: Vec<Vec<Part>> = targets.iter().map(parts).collect();
    let mut chosen = Vec::new();
    for to in 0..targets.len() {
        let mut into: Vec<Candidate> = Vec::new();
        for from in (0..targets.len()).filter(|from| *from != to) {
            let Some(found) = difference(&made_of[from], &made_of[to]) else { continue };
            let found = Candidate { from, to, ..found };
            // The edge starts at the value that is first in the plan.
            if matches!(found.change, Change::Setting { .. }) && from > to {
                continue;
            }
            match into.iter_mut().find(|known| known.change == found.change) {
                Some(known) if known.loose && !found.loose => *known = found,
                Some(_) => {}
                None => into.push(found),
            }
        }
        let set = |kind: &str| {
            into.iter().any(|c| matches!(&c.change, Change::Setting { kind: of, .. } if of == kind))
        };
        // An edge that adds the guest alone replaces one that adds it together with QEMU's block layer and virtio.
        let has_guest_alone = into.iter().any(|c| matches!(c.change, Change::Guest { .. }));
        let repeats = |kind: &str| set(kind) || (has_guest_alone && kind == GUEST);
        let mut kept: Vec<&Candidate> = into
            .iter()
            .filter(|c| !matches!(&c.change, Change::Layer { kind, .. } if repeats(kind)))
            .collect();
        kept.sort_by_key(|candidate| match candidate.change {
            Change::Layer { height, .. } | Change::Guest { height } => std::cmp::Reverse(height),
            Change::Setting { .. } => std::cmp::Reverse(0),
        });
        chosen.extend(kept.into_iter().take(MOST_INCOMING).map(|candidate| Edge {
            from: targets[candidate.from].name.clone(),
            to: targets[candidate.to].name.clone(),
            name: candidate.name.clone(),
        }));
    }
    chosen
}

/// Finds the one difference that leads from target `from` to target `to`: a layer that only `to` has, a guest in place of a virtio device,
/// or one setting. `None` if they differ in nothing or in more, and if `from` has a layer that `to` lacks. With an added image format,
/// preallocation may differ too. The caller fills in the positions in the plan.
fn difference(from: &[Part], to: &[Part]) -> Option<Candidate> {
    let find = |parts: &[Part], kind: &str| parts.iter().position(|part| part.kind == kind);
    if let Some(height) = guest_alone(from, to) {
        let change = Change::Guest { height };
        return Some(Candidate { from: 0, to: 0, change, loose: false, name: GUEST.into() });
    }
    if from.iter().any(|part| find(to, &part.kind).is_none()) {
        return None;
    }
    let more: Vec<usize> = (0..to.len()).filter(|i| find(from, &to[*i].kind).is_none()).collect();
    let mut other: Vec<(&Part, &Part, &str)> = Vec::new();
    for part in to {
        let Some(was) = find(from, &part.kind).map(|i| &from[i]) else { continue };
        let new = part.settings.keys().filter(|key| !was.settings.contains_key(*key));
        let differs = |key: &&String| was.differs(part, key);
        other.extend(was.settings.keys().chain(new).filter(differs).map(|key| (was, part, key.as_str())));
    }
    let candidate = |change, loose, name| Some(Candidate { from: 0, to: 0, change, loose, name });
    match (more.as_slice(), other.as_slice()) {
        (&[height], _) => {
            let part = &to[height];
            let format = part.is_format();
            // An image's own allocation takes the place of the raw file's.
            if other.iter().any(|(_, _, key)| !(format && *key == "preallocation")) {
                return None;
            }
            let before = other.first().and_then(|(was, _, key)| was.settings.get(*key)).map(String::as_str);
            let after = part.settings.get("preallocation").map(String::as_str);
            let loose = format
                && after.is_some()
                && before != after
                && (before, after) != (Some("off"), Some("metadata"));
            candidate(Change::Layer { height, kind: part.kind.clone() }, loose, part.name.clone())
        }
        ([], &[(was, part, key)]) => {
            let value = |part: &Part| part.value(key).cloned();
            let name = in_words(key, value(was), value(part));
            candidate(Change::Setting { kind: part.kind.clone(), key: key.into() }, false, name)
        }
        _ => None,
    }
}

/// Returns the number of layers below the guest, if `to` is a guest with a virtio-blk disk, and `from` shows the same disk as a virtio
/// device without a guest; else `None`.
fn guest_alone(from: &[Part], to: &[Part]) -> Option<usize> {
    let find = |parts: &[Part], kind: &str| parts.iter().position(|part| part.kind == kind);
    let (device, guest) = (find(from, VIRTIO)?, find(to, GUEST)?);
    let (of_device, of_guest) = (&from[device], &to[guest]);
    let is_same_bus = of_guest.value("bus").is_some_and(|bus| bus == Bus::VirtioBlk.word());
    // For a guest the setting is a number of I/O threads, for a virtio device it is true or false.
    let set = |(key, value): (&String, &String)| {
        let value = match value.as_str() {
            "true" => "1",
            "false" => "0",
            value => value,
        };
        of_guest.value(key).is_some_and(|of_guest| of_guest == value)
    };
    let same_below = from.len() == to.len()
        && from.iter().zip(to).all(|(one, other)| {
            let either = one.settings.keys().chain(other.settings.keys());
            one.kind == VIRTIO
                || (one.kind == other.kind && either.into_iter().all(|key| !one.differs(other, key)))
        });
    (device == guest && is_same_bus && same_below && of_device.settings.iter().all(set)).then_some(guest)
}

/// Describes a changed setting: `cache=writeback instead of none`; for keys such as `bus` only the values: `virtio-scsi instead of
/// virtio-blk`. A setting that is left out afterwards is named as it was: `without encrypt=luks`.
fn in_words(key: &str, before: Option<String>, after: Option<String>) -> String {
    if let (Some(before), None) = (&before, &after) {
        return format!("without {key}={before}");
    }
    let given = |value: Option<String>| value.unwrap_or_else(|| "default".into());
    let (before, after) = (given(before), given(after));
    match key {
        "count" => format!("{after} guests instead of {before}"),
        "bus" | "machine" | "type" | "nic" | "via" => format!("{after} instead of {before}"),
        "kind" => format!("{after} LVM instead of {before}"),
        "filesystem" => format!("{after} in the guest instead of {before}"),
        _ => format!("{key}={after} instead of {before}"),
    }
}

/// Returns the names of the devices below both ends of an edge, if these are known and differ. The cost along such an edge includes the
/// difference between the devices.
pub(super) fn other_devices(run: &Run, edge: &Edge) -> Option<(String, String)> {
    let devices = |name: &str| {
        let record = run.targets.iter().find(|record| record.name == name)?;
        let mut names: Vec<&str> = record
            .layers
            .iter()
            .filter(|layer| layer.kind == LayerKind::Device)
            .map(|layer| layer.name.as_str())
            .collect();
        names.sort_unstable();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let (from, to) = (devices(&edge.from)?, devices(&edge.to)?);
    (from != to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_the_kernel_are_held_against_what_lies_below_them() {
        let on_file = "/srv > raw file > loop direct_io=true";
        let array = "/srv > raid1 raid_devices=2";
        let targets = [
            ("loop", on_file.to_owned()),
            ("luks", format!("{on_file} > luks")),
            ("inline", format!("{on_file} > luks no_read_workqueue=true")),
            ("integrity", format!("{on_file} > integrity mode=journal")),
            ("bitmap", format!("{on_file} > integrity mode=bitmap")),
            ("cache", format!("{on_file} > dm-cache size=64m")),
            ("back", format!("{on_file} > dm-cache size=64m mode=writeback")),
            ("writecache", format!("{on_file} > dm-writecache size=64m")),
            ("nvme", format!("{on_file} > nvme-tcp")),
            ("limited", format!("{on_file} > cgroup riops=500")),
            ("file", "/srv > raw file".to_owned()),
            ("share", "/srv > nfs share > raw file".to_owned()),
            ("connections", "/srv > nfs share nconnect=4 > raw file".to_owned()),
            ("smb", "/srv > smb share > raw file".to_owned()),
            ("sealed", "/srv > smb share seal=true > raw file".to_owned()),
            ("raid1", array.to_owned()),
            ("three", array.replace('2', "3")),
            ("raid1-luks", format!("{array} > luks")),
        ];
        let targets = targets.map(|(name, line)| {
            TargetSpec::new(name, iotax_model::target::Stack::parse(&line).expect("a stack"))
        });
        let found = edges(&targets);
        let found: Vec<_> = found.iter().map(|e| (e.from.as_str(), e.to.as_str(), e.name.as_str())).collect();
        let expected = [
            ("file", "loop", "loop device"),
            ("loop", "luks", "dm-crypt"),
            ("luks", "inline", "no_read_workqueue=true instead of false"),
            ("loop", "integrity", "dm-integrity"),
            ("integrity", "bitmap", "mode=bitmap instead of journal"),
            ("loop", "cache", "dm-cache"),
            ("cache", "back", "mode=writeback instead of default"),
            ("loop", "writecache", "dm-writecache"),
            ("loop", "nvme", "NVMe/TCP"),
            ("loop", "limited", "cgroup limit"),
            ("file", "share", "NFS share"),
            ("share", "connections", "nconnect=4 instead of 1"),
            ("share", "smb", "protocol=smb instead of nfs"),
            ("smb", "sealed", "seal=true instead of false"),
            ("loop", "raid1", "raid1"),
            ("raid1", "three", "raid_devices=3 instead of 2"),
            ("raid1", "raid1-luks", "dm-crypt"),
            ("luks", "raid1-luks", "raid1"),
        ];
        assert_eq!(found, expected);
    }
}
