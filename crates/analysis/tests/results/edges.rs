//! Tests that a ladder's graph has the edges an engineer would draw, and no others.

use iotax_analysis::edges;
use iotax_analysis::judge;
use iotax_model::{Plan, WarningKind};

use iotax_testkit::runs::ladder;

/// A plan of targets given as (name, rest of the table).
fn plan(targets: &[(&str, &str)]) -> Plan {
    let tables: Vec<String> =
        targets.iter().map(|(name, rest)| format!("[[target]]\nname = \"{name}\"\n{rest}\n")).collect();
    let noisy = if tables.concat().contains("neighbour") {
        "[[neighbour]]\n[neighbour.target]\nname = \"loud\"\nfile = { dir = \"/noise\" }\n"
    } else {
        ""
    };
    let text = format!("{}{noisy}[[workload]]\nname = \"w\"\nrw = \"read\"\n", tables.concat());
    Plan::from_toml(&text).unwrap_or_else(|error| panic!("{error}"))
}

/// The edges as `to - from: name`.
fn drawn(targets: &[(&str, &str)]) -> Vec<String> {
    edges(&plan(targets).targets).iter().map(|e| format!("{} - {}: {}", e.to, e.from, e.name)).collect()
}

const DIR: &str = "file = { dir = \"/srv\" }";
const QCOW2: &str = "file = { dir = \"/srv\", format = \"qcow2\", preallocation = \"metadata\" }";
const SNAPSHOT: &str =
    "file = { dir = \"/srv\", format = \"qcow2\", preallocation = \"metadata\", snapshot = \"external\" }";

#[test]
fn the_ladders_of_files_and_of_a_device() {
    let guest = |bottom: &str| format!("{bottom}\nguest = {{}}");
    let device = "device = \"/dev/sdx\"";
    let lvm = "device = \"/dev/sdx\"\nlvm = {}";
    let on_lvm = format!("{lvm}\nfilesystem = {{ type = \"ext4\" }}\nfile = {{}}");
    let found = drawn(&[
        ("host-file", DIR),
        ("vm-raw", &guest(DIR)),
        ("vm-qcow2", &guest(QCOW2)),
        ("vm-qcow2-snapshot", &guest(SNAPSHOT)),
        ("host-device", device),
        ("host-lvm", lvm),
        ("host-lvm-file", &on_lvm),
        ("vm-device", &guest(device)),
        ("vm-lvm", &guest(lvm)),
    ]);
    assert_eq!(
        found,
        [
            "vm-raw - host-file: virtio-blk + guest",
            "vm-qcow2 - vm-raw: qcow2",
            "vm-qcow2-snapshot - vm-qcow2: external snapshot",
            "host-lvm - host-device: LVM",
            "host-lvm-file - host-lvm: ext4",
            "vm-device - host-device: virtio-blk + guest",
            "vm-lvm - host-lvm: virtio-blk + guest",
            "vm-lvm - vm-device: LVM",
        ]
    );
}

#[test]
fn a_guest_is_held_against_the_same_disk_without_it() {
    let on = |bottom: &str, above: &str| format!("{bottom}\n{above}");
    let rungs = |virtio: &str, guest: &str| {
        drawn(&[
            ("host-file", DIR),
            ("virtio-raw", &on(DIR, virtio)),
            ("virtio-qcow2", &on(QCOW2, virtio)),
            ("vm-raw", &on(DIR, guest)),
            ("vm-qcow2", &on(QCOW2, guest)),
        ])
    };
    let native =
        ["virtio-raw - host-file: QEMU's block layer and virtio", "virtio-qcow2 - virtio-raw: qcow2"];
    let alone = ["vm-raw - virtio-raw: guest", "vm-qcow2 - virtio-qcow2: guest", "vm-qcow2 - vm-raw: qcow2"];
    assert_eq!(rungs("virtio = {}", "guest = {}"), [&native[..], &alone].concat());
    let iothread = "virtio = { iothread = true }";
    assert_eq!(rungs(iothread, "guest = { iothread = 1 }"), [&native[..], &alone].concat());
    // Another bus, or another cache mode, is more than the guest.
    let whole = ["vm-raw - host-file: nvme + guest", "vm-qcow2 - vm-raw: qcow2"];
    assert_eq!(rungs("virtio = {}", "guest = { bus = \"nvme\" }"), [&native[..], &whole].concat());
    let whole = ["vm-raw - host-file: virtio-blk + guest", "vm-qcow2 - vm-raw: qcow2"];
    let guest = "guest = { cache = \"writeback\" }";
    assert_eq!(rungs("virtio = {}", guest), [&native[..], &whole].concat());
}

#[test]
fn a_setting_is_told_apart_from_its_first_value() {
    let cache = |mode: &str| format!("{DIR}\nguest = {{ cache = \"{mode}\", aio = \"threads\" }}");
    assert_eq!(
        drawn(&[
            ("writeback", &cache("writeback")),
            ("host", DIR),
            ("none", &cache("none")),
            ("unsafe", &cache("unsafe")),
        ]),
        [
            "writeback - host: virtio-blk + guest",
            "none - writeback: cache=none instead of writeback",
            "unsafe - writeback: cache=unsafe instead of writeback",
        ]
    );
}

#[test]
fn every_layer_and_setting_has_its_words() {
    let guest = |keys: &str| format!("{DIR}\nguest = {{ {keys} }}");
    let image = |keys: &str| format!("file = {{ dir = \"/srv\", format = \"qcow2\", {keys} }}\nguest = {{}}");
    let group = |keys: &str| format!("lvm = {{ vg = \"vg0\", {keys} }}");
    let on = |keys: &str| format!("device = \"/dev/sdx\"\nfilesystem = {{ {keys} }}\nfile = {{}}");
    let stack = |line: &str| format!("stack = \"/srv > raw file > loop direct_io=true{line}\"");
    for (from, to, name) in [
        (DIR.into(), format!("{DIR}\nloop = {{}}"), "loop device"),
        (stack(""), stack(" > thick LVM volume"), "LVM"),
        (stack(" > luks"), stack(" > luks > thick LVM volume"), "LVM"),
        (stack(" > thick LVM volume"), stack(" > luks > thick LVM volume"), "dm-crypt"),
        (stack(" > thick LVM volume"), stack(" > thick LVM volume + snapshot"), "LVM snapshot"),
        (guest(""), guest("filesystem = \"xfs\""), "xfs in the guest"),
        (guest(""), format!("{}\nneighbour = \"loud\"", guest("")), "noise of loud"),
        (guest(""), guest("count = 4"), "4 guests instead of 1"),
        (guest(""), guest("bus = \"nvme\""), "nvme instead of virtio-blk"),
        (guest(""), guest("machine = \"pc\""), "pc instead of q35"),
        (guest(""), guest("iothread = false"), "iothread=0 instead of 1"),
        // A bus brings its machine and its threads along.
        (guest(""), guest("bus = \"ide\""), "ide instead of virtio-blk"),
        (guest("iothread = false"), guest("bus = \"sata\""), "sata instead of virtio-blk"),
        (
            format!("{DIR}\nvirtio = {{}}"),
            format!("{DIR}\nvirtio = {{ queue_size = 128 }}"),
            "queue_size=128 instead of 1024",
        ),
        (guest(""), guest("queues = 2"), "queues=2 instead of default"),
        (guest(""), guest("discard = \"ignore\""), "discard=ignore instead of unmap"),
        (guest(""), guest("kernel = \"/boot/k\""), "kernel=/boot/k instead of default"),
        (guest("filesystem = \"ext4\""), guest("filesystem = \"xfs\""), "xfs in the guest instead of ext4"),
        (image(""), image("cluster_size = \"2m\""), "cluster_size=2m instead of default"),
        (image(""), image("extended_l2 = true"), "extended_l2=true instead of default"),
        (image(""), image("encrypt = \"luks\""), "encrypt=luks instead of default"),
        (image("encrypt = \"luks\""), image(""), "without encrypt=luks"),
        (image(""), image("snapshot = \"internal\", internal_snapshots = 3"), "3 internal snapshots"),
        (image(""), image("snapshot = \"internal\""), "internal snapshot"),
        (
            image("snapshot = \"external\""),
            image("snapshot = \"external\", backing_depth = 8"),
            "backing_depth=8 instead of 1",
        ),
        (
            image("snapshot = \"internal\""),
            image("snapshot = \"internal\", internal_snapshots = 8"),
            "internal_snapshots=8 instead of 1",
        ),
        (group(""), group("kind = \"thin\""), "thin LVM instead of thick"),
        (group(""), group("snapshot = true"), "LVM snapshot"),
        (on("type = \"ext4\""), on("type = \"btrfs\""), "btrfs instead of ext4"),
        (on("type = \"btrfs\""), on("type = \"btrfs\", nodatacow = true"), "nodatacow=true instead of false"),
        ("device = \"/dev/sdx\"".into(), on("type = \"xfs\", mount_options = \"noatime\""), "xfs"),
        (DIR.into(), DIR.replace(" }", ", preallocation = \"full\" }"), "preallocation=full instead of off"),
    ] {
        let (from, to): (String, String) = (from, to);
        assert_eq!(drawn(&[("a", &from), ("b", &to)]), [format!("b - a: {name}")]);
    }
}

#[test]
fn what_differs_in_two_things_or_in_its_place_has_no_edge() {
    for (from, to) in [
        ("path = \"/a\"".to_owned(), "path = \"/b\"".to_owned()),
        (DIR.into(), DIR.replace("/srv", "/other")),
        (DIR.into(), DIR.into()),
        (DIR.into(), format!("{DIR}\nloop = {{}}\nguest = {{}}")),
        (format!("{DIR}\nguest = {{}}"), format!("{DIR}\nguest = {{ machine = \"q35\", iothread = 1 }}")),
        (format!("{DIR}\nguest = {{}}"), format!("{DIR}\nguest = {{ vcpus = 2, memory = \"1GiB\" }}")),
        ("device = \"/dev/sda\"".into(), "device = \"/dev/sdb\"\nlvm = {}".into()),
    ] {
        assert_eq!(drawn(&[("a", &from), ("b", &to)]), [] as [&str; 0], "{from} {to}");
    }
}

#[test]
fn an_image_is_held_against_the_raw_file_that_is_nearest() {
    let raw = |how: &str| format!("file = {{ dir = \"/srv\", preallocation = \"{how}\" }}\nguest = {{}}");
    let full = "file = { dir = \"/srv\", format = \"qcow2\", preallocation = \"full\" }\nguest = {}";
    assert_eq!(
        drawn(&[("off", &raw("off")), ("full", &raw("full")), ("qcow2", full)]),
        ["full - off: preallocation=full instead of off", "qcow2 - full: qcow2"]
    );
    assert_eq!(drawn(&[("falloc", &raw("falloc")), ("qcow2", full)]), ["qcow2 - falloc: qcow2"]);
}

#[test]
fn a_grid_stays_readable() {
    let mut targets = Vec::new();
    for (cache, aio, vcpus) in [
        ("none", "threads", 1),
        ("none", "threads", 2),
        ("none", "io_uring", 1),
        ("none", "io_uring", 2),
        ("unsafe", "threads", 1),
        ("unsafe", "threads", 2),
        ("unsafe", "io_uring", 1),
        ("unsafe", "io_uring", 2),
    ] {
        let keys = format!("{DIR}\nguest = {{ cache = \"{cache}\", aio = \"{aio}\", vcpus = {vcpus} }}");
        targets.push((format!("{cache}-{aio}-{vcpus}"), keys));
    }
    targets.push(("host".into(), DIR.into()));
    let named: Vec<(&str, &str)> =
        targets.iter().map(|(name, rest)| (name.as_str(), rest.as_str())).collect();
    let found = edges(&plan(&named).targets);
    for (name, _) in &named {
        let into = found.iter().filter(|edge| edge.to == *name).count();
        assert!(into <= 2 && (into > 0 || *name == "host"), "{name}: {into} in {found:?}");
    }
    // The guest's step is drawn once, to the first target in the plan.
    assert_eq!(found.iter().filter(|edge| edge.from == "host").count(), 1);
}

#[test]
fn an_edge_between_devices_is_not_one_layer() {
    let mut run = ladder(false);
    run.targets[1].layers[0].name = "vdb".into();
    let judgement = judge(&run);
    assert!(
        !judgement.edges.iter().any(|edge| edge.to == "vm-raw" || edge.from == "vm-raw"),
        "{:?}",
        judgement.edges
    );
    let said: Vec<&str> = judgement
        .warnings
        .iter()
        .filter(|w| w.kind == WarningKind::Incomplete)
        .map(|w| w.evidence.as_str())
        .collect();
    assert_eq!(said.len(), 2);
    assert!(said[0].contains("vm-raw stands on vdb and host-file on vda"), "{said:?}");
    assert!(said[0].contains("virtio-blk + guest"), "{said:?}");
}

#[test]
fn a_setting_of_a_shared_directory_or_its_guest_is_an_edge() {
    let found = drawn(&[
        ("9p", "9p = { dir = \"/srv\" }\nguest = {}"),
        ("9p-loose", "9p = { dir = \"/srv\", cache = \"loose\" }\nguest = {}"),
        ("9p-2", "9p = { dir = \"/srv\" }\nguest = { vcpus = 2 }"),
        ("virtiofs", "virtiofs = { dir = \"/srv\" }\nguest = {}"),
        ("virtiofs-direct", "virtiofs = { dir = \"/srv\", allow_direct_io = true }\nguest = {}"),
    ]);
    assert_eq!(
        found,
        [
            "9p-loose - 9p: cache=loose instead of none",
            "9p-2 - 9p: vcpus=2 instead of 1",
            "virtiofs-direct - virtiofs: allow_direct_io=true instead of false",
        ]
    );
}
