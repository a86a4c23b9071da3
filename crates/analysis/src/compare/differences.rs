//! Differences between two runs other than their results.

use std::collections::BTreeSet;

use iotax_model::Workload;
use iotax_model::record::{Environment, TargetRecord};
use iotax_model::target::{Layer, LayerKind};
use iotax_model::units::human;
use iotax_model::workload::Kind;
use schemars::JsonSchema;
use serde::Serialize;

use super::account::{Account, AccountedTarget, Settings, flat};

/// Largest relative difference of the load generator's CPU time per I/O that is ignored as measurement noise.
const FLOOR: f64 = 0.25;

/// A property that differs between the two sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Difference {
    /// Name of the property: `kernel`, `guest.cache`, `device`.
    pub what: String,
    /// Value on side A; absent if the property does not exist there or is unknown.
    pub a: Option<String>,
    /// Value on side B; absent if the property does not exist there or is unknown.
    pub b: Option<String>,
}

impl Difference {
    fn between(what: impl Into<String>, a: Option<String>, b: Option<String>) -> Option<Self> {
        (a != b).then(|| Self { what: what.into(), a, b })
    }
}

/// Lists differences between two machines, the most important first.
#[must_use]
pub fn machines(a: &Environment, b: &Environment) -> Vec<Difference> {
    let text = |what, of: fn(&Environment) -> Option<String>| Difference::between(what, of(a), of(b));
    let mut found: Vec<Difference> = [
        text("CPU", |e| e.cpu_model.clone()),
        text("microcode", |e| e.microcode.clone()),
        text("CPUs", |e| e.cpus.map(|n| n.to_string())),
        text("memory", |e| e.memory_bytes.map(human::bytes)),
        text("hypervisor", |e| e.hypervisor.clone()),
        text("kernel", |e| e.kernel.clone()),
        text("system", |e| e.os.clone()),
        text("governor", |e| e.governor.clone()),
        text("clocksource", |e| e.clocksource.clone()),
        text("QEMU", |e| e.qemu.clone()),
        text("accel", |e| e.accel.clone()),
        text("iotax", |e| e.tool.clone()),
    ]
    .into_iter()
    .flatten()
    .collect();
    let names: BTreeSet<&String> = a.mitigations.keys().chain(b.mitigations.keys()).collect();
    found.extend(names.into_iter().filter_map(|name| {
        let of = |e: &Environment| e.mitigations.get(name).cloned();
        Difference::between(format!("mitigation {name}"), of(a), of(b))
    }));
    let floor = |e: &Environment| e.floor_ns_per_io.map(|ns| human::time(ns as f64));
    let near = matches!((a.floor_ns_per_io, b.floor_ns_per_io), (Some(one), Some(other))
        if one.abs_diff(other) as f64 <= FLOOR * one.max(other) as f64);
    if !near {
        found.extend(Difference::between("engine's CPU per I/O", floor(a), floor(b)));
    }
    found
}

/// Lists differences between the tags of two runs. A `key=value` tag with another value on the other side is one difference.
#[must_use]
pub fn tags(a: &[String], b: &[String]) -> Vec<Difference> {
    fn by_key(tags: &[String]) -> Settings {
        let tag = |tag: &String| match tag.split_once('=') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None => (tag.clone(), "yes".to_owned()),
        };
        tags.iter().map(tag).collect()
    }
    let (a, b) = (by_key(a), by_key(b));
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let between =
        |key: &String| Difference::between(format!("tag {key}"), a.get(key).cloned(), b.get(key).cloned());
    keys.into_iter().filter_map(between).collect()
}

/// Lists differences between two targets: first in the plan's settings, then in the targets as built (CPU emulation, the guest's kernel and
/// clocksource, layers), and if there are none, in QEMU's arguments.
#[must_use]
pub fn targets(a: &AccountedTarget, b: &AccountedTarget) -> Vec<Difference> {
    let mut found = settings(&a.settings, &b.settings);
    let (Some(one), Some(other)) = (&a.record, &b.record) else { return found };
    let text = |what, of: fn(&TargetRecord) -> Option<String>| Difference::between(what, of(one), of(other));
    found.extend(text("CPU emulated", |r| Some(if r.emulated { "yes" } else { "no" }.into())));
    found.extend(text("guest's kernel", |r| r.guest_kernel.clone()));
    found.extend(text("guest's clocksource", |r| r.guest_clocksource.clone()));
    found.extend(layers(&one.layers, &other.layers));
    if found.is_empty() {
        found.extend(command_lines(one.command_line.as_deref(), other.command_line.as_deref()));
    }
    found
}

/// Lists the keys with different values, and the keys that only one side has. A table that only one side has is a single difference.
fn settings(a: &Settings, b: &Settings) -> Vec<Difference> {
    let (a, b) = (gathered(a, b), gathered(b, a));
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    keys.into_iter()
        .filter_map(|key| Difference::between(key.clone(), a.get(key).cloned(), b.get(key).cloned()))
        .collect()
}

/// Copies the settings, but merges each table that the other side lacks into one entry: `guest` with `aio=io_uring bus=virtio-blk ...`.
fn gathered(settings: &Settings, other: &Settings) -> Settings {
    let mut found = Settings::new();
    for (key, value) in settings {
        match key.split_once('.') {
            Some((table, rest)) if !other.keys().any(|k| k.split('.').next() == Some(table)) => {
                let all: &mut String = found.entry(table.to_owned()).or_default();
                let apart = if all.is_empty() { "" } else { " " };
                *all = format!("{all}{apart}{rest}={value}");
            }
            _ => {
                found.insert(key.clone(), value.clone());
            }
        }
    }
    found
}

/// Removes the random part from names that a run chose: `iotax-1a2b3c4d/host.raw` becomes `iotax/host.raw`.
fn without_tag(text: &str) -> String {
    const PREFIX: &str = "iotax-";
    let mut parts = text.split(PREFIX);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(part.len());
        plain += if matches!(digits, 8 | 16) { "iotax" } else { PREFIX };
        plain += if matches!(digits, 8 | 16) { &part[digits..] } else { part };
    }
    plain
}

/// Describes a layer without parts that vary between runs of one plan: iotax's tag in names, and the numbers that the kernel assigns to
/// loop devices, mapped devices and zvols.
fn described(layer: &Layer) -> String {
    let (mut name, mut detail) = (layer.name.as_str(), layer.detail.as_str());
    match layer.kind {
        LayerKind::Loop => name = "",
        LayerKind::Zvol => detail = detail.split_once(", ").map_or("", |(_, rest)| rest),
        LayerKind::Dm => {
            detail =
                detail.strip_prefix("dm-").and_then(|rest| Some(rest.split_once(", ")?.1)).unwrap_or(detail);
        }
        _ => {}
    }
    without_tag(&match (name, detail) {
        ("", only) | (only, "") => only.to_owned(),
        (name, detail) => format!("{name} ({detail})"),
    })
}

/// Compares layers kind by kind: the nth layer of a kind on side A with the nth on side B.
fn layers(a: &[Layer], b: &[Layer]) -> Vec<Difference> {
    let mut kinds = Vec::new();
    for layer in a.iter().chain(b) {
        if !kinds.contains(&layer.kind) {
            kinds.push(layer.kind);
        }
    }
    let mut found = Vec::new();
    for kind in kinds {
        let of = |layers: &[Layer]| {
            layers.iter().filter(|layer| layer.kind == kind).map(described).collect::<Vec<_>>()
        };
        let (one, other) = (of(a), of(b));
        for i in 0..one.len().max(other.len()) {
            found.extend(Difference::between(
                format!("layer {}", kind.word()),
                one.get(i).cloned(),
                other.get(i).cloned(),
            ));
        }
    }
    found
}

/// Lists QEMU arguments that only one side has; `None` if there are none, or if a command line is unknown. Skips names and paths, because
/// they differ between any two runs.
fn command_lines(a: Option<&str>, b: Option<&str>) -> Option<Difference> {
    let words = |line: &str| {
        let apart = |c: char| c.is_whitespace() || c == ',';
        let telling = |word: &&str| !word.is_empty() && !word.contains('/') && !word.contains("iotax");
        line.split(apart).filter(telling).map(str::to_owned).collect::<Vec<_>>()
    };
    let (one, other) = (words(a?), words(b?));
    let only = |here: &[String], there: &[String]| {
        let mut rest = there.to_vec();
        let mut left = Vec::new();
        for word in here {
            match rest.iter().position(|known| known == word) {
                Some(index) => drop(rest.remove(index)),
                None => left.push(word.clone()),
            }
        }
        (!left.is_empty()).then(|| left.join(" "))
    };
    Difference::between("QEMU's arguments", only(&one, &other), only(&other, &one))
}

/// Lists differences between two workloads other than their names.
#[must_use]
pub fn workloads(a: &Workload, b: &Workload) -> Vec<Difference> {
    settings(&keys(a), &keys(b))
}

/// Lists differences like [`workloads`], for runs of which one may be imported: a key that the import's source does not state is no
/// difference. Imported work that no key describes is identified by its name only.
pub(super) fn stated((one, a): (&Account, &Workload), (other, b): (&Account, &Workload)) -> Vec<Difference> {
    let known = |account: &Account, workload: &Workload, key: &str| {
        let head = key.split('.').next().unwrap_or_default();
        account.known(workload).is_none_or(|known| known.iter().any(|known| known == head))
    };
    let mut found = workloads(a, b);
    found.retain(|difference| known(one, a, &difference.what) && known(other, b, &difference.what));
    let is_foreign = |workload: &Workload| workload.kind == Kind::Foreign;
    if is_foreign(a) || is_foreign(b) {
        found.extend(Difference::between("name", Some(a.name.clone()), Some(b.name.clone())));
    }
    found
}

/// Returns a workload's settings by dotted key, without its name.
fn keys(workload: &Workload) -> Settings {
    let mut keys = flat(&serde_json::to_value(workload).unwrap_or_default());
    keys.remove("name");
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(differences: &[Difference]) -> Vec<String> {
        let side = |side: &Option<String>| side.clone().unwrap_or_else(|| "-".into());
        differences.iter().map(|d| format!("{}: {} | {}", d.what, side(&d.a), side(&d.b))).collect()
    }

    #[test]
    fn every_fact_of_a_machine_is_held_against_the_others() {
        let one = Environment {
            kernel: Some("6.1".into()),
            cpus: Some(2),
            floor_ns_per_io: Some(20),
            mitigations: [("mds".to_owned(), "Not affected".to_owned())].into(),
            ..Environment::default()
        };
        assert_eq!(machines(&one, &one), vec![]);
        let other = Environment {
            kernel: Some("6.2".into()),
            governor: Some("powersave".into()),
            floor_ns_per_io: Some(24),
            mitigations: [("mds".to_owned(), "Vulnerable".to_owned())].into(),
            ..one.clone()
        };
        assert_eq!(
            named(&machines(&one, &other)),
            ["kernel: 6.1 | 6.2", "governor: - | powersave", "mitigation mds: Not affected | Vulnerable"]
        );
        let slow = Environment { floor_ns_per_io: Some(40), ..one.clone() };
        assert_eq!(named(&machines(&one, &slow)), ["engine's CPU per I/O: 20.0 ns | 40.0 ns"]);
        let unknown = Environment { floor_ns_per_io: None, ..one.clone() };
        assert_eq!(named(&machines(&one, &unknown)), ["engine's CPU per I/O: 20.0 ns | -"]);
    }

    #[test]
    fn a_table_that_one_side_lacks_is_one_difference() {
        let of = |pairs: &[(&str, &str)]| -> Settings {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let host = of(&[("file.dir", "/srv")]);
        let guest = of(&[("file.dir", "/srv"), ("guest.bus", "nvme"), ("guest.vcpus", "2")]);
        assert_eq!(named(&settings(&host, &guest)), ["guest: - | bus=nvme vcpus=2"]);
        let other = of(&[("file.dir", "/srv"), ("guest.bus", "nvme"), ("guest.iothread", "true")]);
        assert_eq!(named(&settings(&guest, &other)), ["guest.iothread: - | true", "guest.vcpus: 2 | -"]);
    }

    #[test]
    fn layers_of_one_kind_are_held_against_one_another() {
        let device = |detail: &str| Layer::new(LayerKind::Device, "vda", detail);
        let ext4 = Layer::new(LayerKind::Filesystem, "ext4", "rw,noatime");
        let one = [device("scheduler none"), ext4.clone()];
        let other = [device("scheduler mq-deadline")];
        assert_eq!(
            named(&layers(&one, &other)),
            [
                "layer device: vda (scheduler none) | vda (scheduler mq-deadline)",
                "layer filesystem: ext4 (rw,noatime) | -"
            ]
        );
    }

    #[test]
    fn names_that_a_run_makes_up_are_no_difference() {
        let run = |tag: &str, number: u32, image: &str| {
            [
                Layer::new(LayerKind::File, "host.raw", format!("/srv/iotax-{tag}/host.raw, 1.00 GiB")),
                Layer::new(LayerKind::Loop, format!("loop{number}"), format!("of /srv/iotax-{tag}/{image}")),
                Layer::new(
                    LayerKind::Dm,
                    format!("vg/iotax-{tag}-volume1"),
                    format!("dm-{number}, LVM, 1.00 GiB"),
                ),
            ]
        };
        let one = run("f356b447", 0, "image");
        assert_eq!(layers(&one, &run("00c0ffee", 3, "image")), vec![]);
        assert_eq!(
            named(&layers(&one, &run("00c0ffee", 3, "iotax-mine"))),
            ["layer loop: of /srv/iotax/image | of /srv/iotax/iotax-mine"]
        );
    }

    #[test]
    fn of_command_lines_only_what_another_run_would_not_change_is_named() {
        let line = |tag: &str, rest: &str| {
            format!("qemu -name iotax-{tag} -qmp unix:/run/iotax-{tag}/qmp.sock,server=on {rest}")
        };
        let same = command_lines(Some(&line("1", "-smp 2")), Some(&line("2", "-smp 2")));
        assert_eq!(same, None);
        let found = command_lines(Some(&line("1", "-cpu host -smp 2")), Some(&line("2", "-smp 2 -cpu max")));
        assert_eq!(found.map(|d| named(&[d])), Some(vec!["QEMU's arguments: host | max".into()]));
    }
}
