//! Tests of `iotax doctor` from the command line, and on real stacks in a guest.

use std::collections::BTreeSet;

use iotax_testkit::require;
use serde_json::Value;

use crate::lab::{Lab, text};
use crate::lab_guest::{Extras, LabGuest};
use crate::sshd::{PORT, Sshd};

const UNSAFE: &str = "<domain type='kvm'><name>web1</name><devices><disk type='file' device='disk'>\
    <driver name='qemu' type='raw' cache='unsafe'/><source file='/nowhere/a.img'/><target dev='vda' bus='virtio'/></disk></devices></domain>";

#[test]
fn a_domain_is_judged_by_its_file() {
    let lab = Lab::new();
    let file = lab.path("web1.xml");
    std::fs::write(&file, UNSAFE).expect("written");
    let file = file.to_str().expect("UTF-8");

    let output = lab.run(&["doctor", file]);
    // Lines wrap at the terminal's width.
    let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains(": 1 known fault") && said.contains("cache=unsafe") && said.contains("remedy: "),
        "{said}"
    );
    // Another machine may be its host.
    assert!(said.contains("Looked at: 1 guest.") && !said.contains("/nowhere/a.img"), "{said}");
    for (limit, code) in [("fault", 1), ("cost", 1), ("depends", 1)] {
        let status = lab.run(&["doctor", file, "--fail-if", limit]).status;
        assert_eq!(status.code(), Some(code), "{limit}");
    }
    let document = lab.json(&["doctor", file, "--json"]);
    let schema = include_str!("../../../report/schema/iotax-doctor-1.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    let errors: Vec<String> = jsonschema::validator_for(&schema)
        .expect("a schema")
        .iter_errors(&document)
        .map(|error| error.to_string())
        .collect();
    assert_eq!(errors, Vec::<String>::new());
    assert_eq!(document["schema"], "iotax-doctor/1");
    assert_eq!(document["findings"][0]["rule"], "cache-unsafe");
    assert_eq!(document["findings"][0]["evidence"], file);
    assert_eq!(document["survey"]["guests"][0]["disks"][0]["cache"]["value"], "unsafe");

    std::fs::write(lab.path("web1.xml"), "<pool/>").expect("written");
    let refused = lab.run(&["doctor", file]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("accepted: <domain>"), "{}", text(&refused.stderr));
}

#[test]
fn what_cannot_be_looked_at_is_refused_with_what_is_accepted() {
    let lab = Lab::new();
    for (arguments, code, words) in [
        (&["doctor", "/no/such/file"][..], 2, "name an existing file"),
        (&["doctor", "x", "--fail-if", "costs"], 2, "accepted: fault, cost, depends"),
        (&["doctor", "ssh://", "--json"], 2, "ssh://[user@]host[:port]/path"),
        (&["doctor", "--rules", "--json"], 2, "cannot be used with"),
    ] {
        let output = lab.run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    let rules = text(&lab.run(&["doctor", "--rules"]).stdout);
    assert!(rules.lines().count() > 45 && rules.contains("raid-degraded (layer, known fault)"), "{rules}");
}

/// Returns the component and rule of each finding.
fn findings(document: &Value) -> Vec<(String, String)> {
    let all = document["findings"].as_array().expect("findings");
    let word = |value: &Value| value.as_str().expect("a word").to_owned();
    all.iter().map(|finding| (word(&finding["component"]), word(&finding["rule"]))).collect()
}

#[test]
fn links_whose_ends_differ_are_found() {
    require!(root);
    require!(program "ip");
    let lab = Lab::new();
    let namespace = format!("iotax-doctor-{}", std::process::id());
    let ip = |line: &str| {
        let words = line.replace("NS", &namespace);
        let output = std::process::Command::new(iotax_testkit::program("ip")).args(words.split(' ')).output();
        assert!(output.expect("ip starts").status.success(), "ip {words}");
    };
    ip("netns add NS");
    let checked = std::panic::catch_unwind(|| {
        for line in [
            "-n NS link add left type veth peer name right",
            "-n NS link set left mtu 9000",
            "-n NS link add low type veth peer name far",
            "-n NS link add tunnel type vxlan id 7 dev low dstport 4789",
            // The kernel sees to it that a tunnel fits when it is made, and not later.
            "-n NS link set low mtu 1400",
            "-n NS link set far mtu 1400",
        ] {
            ip(line);
        }
        let mut command = lab.iotax();
        let program = command.get_program().to_owned();
        command = std::process::Command::new(iotax_testkit::program("ip"));
        command.args(["netns", "exec", &namespace]).arg(program).args(["doctor", "--json"]);
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let mut found = findings(&document);
        found.retain(|(_, rule)| rule.contains("mtu"));
        found
    });
    ip("netns del NS");
    let found = checked.expect("looked");
    let expected = [("left", "mtu-mismatch"), ("tunnel", "tunnel-mtu")];
    assert_eq!(found, expected.map(|(component, rule)| (component.to_owned(), rule.to_owned())));
}

#[test]
fn another_machine_is_looked_at_and_nothing_is_left() {
    let Some(sshd) = Sshd::start("") else { return };
    for (target, has_interfaces) in
        [(sshd.url("work"), false), (format!("ssh://root@127.0.0.1:{PORT}"), true)]
    {
        let output = sshd.run(&["doctor", &target, "--json"]);
        assert!(output.status.success(), "{target}: {}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(document["survey"]["machine"]["swappiness"]["value"].is_u64(), "{target}: {document}");
        assert_eq!(
            document["survey"]["interfaces"].as_array().is_some_and(|all| !all.is_empty()),
            has_interfaces
        );
        sshd.assert_nothing_left();
    }
    let missing = sshd.run(&["doctor", &sshd.url("work/missing")]);
    assert_eq!(missing.status.code(), Some(4), "{}", text(&missing.stderr));
    assert!(text(&missing.stderr).contains("work/missing"), "{}", text(&missing.stderr));
}

/// Faults planted in a guest: the shell command, and the component and rule of the finding.
const IN_A_GUEST: &[(&str, &str, &str)] = &[
    // A disk with physical blocks of 4 KiB and a volatile cache, and volumes on it.
    ("echo 'write through' > /sys/block/sda/queue/write_cache", "sda", "flushes-dropped"),
    ("echo 0 > /sys/block/sda/queue/read_ahead_kb", "sda", "read-ahead-off"),
    ("echo 2 > /sys/block/sda/queue/nomerges", "sda", "merges-off"),
    ("echo '0 8192 linear /dev/sda 2049' | dmsetup create crooked", "crooked", "layer-misaligned"),
    // What LVM makes for a volume with a snapshot: a hidden one, a store, and two devices above.
    ("echo '0 8192 linear /dev/sda 16384' | dmsetup create real --uuid LVM-0a-real", "", ""),
    ("echo '0 256 linear /dev/sda 32768' | dmsetup create cow --uuid LVM-0b-cow", "", ""),
    (
        "echo '0 8192 snapshot /dev/mapper/real /dev/mapper/cow P 8' | dmsetup create snap --uuid LVM-0b",
        "",
        "",
    ),
    (
        "echo '0 8192 snapshot-origin /dev/mapper/real' | dmsetup create origin --uuid LVM-0a",
        "origin",
        "volume-has-snapshot",
    ),
    ("dd if=/dev/zero of=/dev/mapper/origin bs=4k count=200 conv=fsync 2>/dev/null", "snap", "snapshot-full"),
    (
        "echo '0 8192 multipath 1 queue_if_no_path 0 1 1 round-robin 0 1 1 /dev/sda 1000' | dmsetup create lun --uuid mpath-1",
        "lun",
        "multipath-one-path",
    ),
    ("true", "lun", "multipath-waits-forever"),
    ("dmsetup message lun 0 fail_path 8:0", "lun", "multipath-path-failed"),
    ("echo 8 > /sys/block/sda/queue/max_sectors_kb", "sda", "requests-small"),
    // A mirror of two with one member, as mdadm would make it.
    (
        "echo '0 8192 linear /dev/sda 49152' | dmsetup create leg; echo md127 > /sys/module/md_mod/parameters/new_array",
        "",
        "",
    ),
    (
        "cd /sys/block/md127/md && echo none > metadata_version && echo raid1 > level && echo 2 > raid_disks && echo 4096 > component_size",
        "",
        "",
    ),
    (
        "dmsetup info -c --noheadings --separator : -o major,minor leg > new_dev && cd dev-dm-* && echo 4096 > size && echo 0 > slot && cd .. && echo active > array_state && cd /",
        "md127",
        "raid-degraded",
    ),
    ("true", "md127", "raid-without-bitmap"),
    // The machine.
    ("echo 1048576 > /proc/sys/vm/dirty_bytes", "machine", "dirty-limit-small"),
    ("echo 0 > /proc/sys/net/ipv4/tcp_sack", "tcp", "tcp-sack-off"),
    (
        "cd /sys/devices/system/clocksource/clocksource0; grep -qw hpet available_clocksource && echo hpet > current_clocksource || echo acpi_pm > current_clocksource; cd /",
        "machine",
        "clocksource-slow",
    ),
    (
        "mount -t cgroup2 none /sys/fs/cgroup; echo +io > /sys/fs/cgroup/cgroup.subtree_control; mkdir /sys/fs/cgroup/box; echo '8:0 wbps=1048576' > /sys/fs/cgroup/box/io.max; echo $$ > /sys/fs/cgroup/box/cgroup.procs",
        "this process",
        "cgroup-limit",
    ),
];

mod guests {
    use super::*;

    #[test]
    fn faults_of_a_guests_stacks_are_found_and_none_before() {
        let extras = Extras {
            modules: &["dm_snapshot", "dm_multipath", "dm_round_robin", "raid1"],
            ..Extras::default()
        };
        let Some(mut guest) = LabGuest::boot_with(&extras) else { return };
        guest.sh("insmod /lab/scsi_debug.ko dev_size_mb=64 physblk_exp=3");
        guest.sh("until [ -e /dev/sda ]; do usleep 10000; done");
        let findings_of = |guest: &mut LabGuest| -> Vec<(String, String)> {
            let said = guest.sh("iotax doctor --json - 2>/dev/null");
            findings(&serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}")))
        };
        assert_eq!(findings_of(&mut guest), [], "a guest as it boots");
        for (line, ..) in IN_A_GUEST {
            guest.sh(line);
        }
        let found: BTreeSet<(String, String)> = findings_of(&mut guest).into_iter().collect();
        let planted = IN_A_GUEST.iter().filter(|(_, component, _)| !component.is_empty());
        let planted: BTreeSet<_> =
            planted.map(|(_, component, rule)| ((*component).to_owned(), (*rule).to_owned())).collect();
        assert_eq!(found, planted);
        // At last, as nothing answers afterwards.
        guest.sh("echo offline > /sys/block/sda/device/state");
        assert!(findings_of(&mut guest).contains(&("sda".to_owned(), "disk-offline".to_owned())));
    }
}
