//! Tests of logical volumes in a guest with its own disks: created, measured and removed, without touching anything else. A device's rungs
//! with guests run on this host, because nested guests do not boot there.

use iotax_model::units::Bytes;
use iotax_testkit::{require, thorough};
use serde_json::Value;

use super::on_disks::{
    Before, assert_faults_leave_nothing, json, kill_and_clean, layers, put_plan, refused_words, start_until,
};
use crate::disk::Disk;
use crate::lab::{Lab, assert_valid, text};
use crate::lab_guest::{Extras, LabGuest};

/// The disk that iotax may overwrite, the one with the user's group, and two more.
const DISKS: [Bytes; 4] = [Bytes(2 << 30), Bytes(1 << 30), Bytes(256 << 20), Bytes(256 << 20)];

/// Prints the state that must not change: mappings, volume groups, mounts, and the content of the user's disk.
const STATE: &str = "dmsetup ls | sort; for w in pvs vgs lvs; do DM_DISABLE_UDEV=1 lvm $w 2>&1; done; sha256sum < /dev/users/data; \
                     wipefs --no-act /dev/vda; cat /proc/mounts; losetup -a; ls /etc/lvm /tmp/home/.local/state/iotax/undo /dev";

/// A guest with LVM, with the user's group `users` and its volume `data` on the second disk, and a home for iotax.
fn boot() -> Option<LabGuest> {
    let mut lab = LabGuest::boot_with(&Extras {
        programs: &[
            "lvm",
            "wipefs",
            "mkfs.ext4",
            "mkfs.xfs",
            "mount",
            "umount",
            "losetup",
            "thin_check",
            "blkdiscard",
        ],
        modules: &["dm_thin_pool", "dm_snapshot", "ext4", "xfs", "loop", "raid1"],
        disks: &DISKS,
        ..Extras::default()
    })?;
    lab.sh("mkdir -p /tmp /etc && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home");
    // iotax itself must notice that there is no udev.
    lab.sh("unset DM_DISABLE_UDEV");
    lab.sh("lv() { DM_DISABLE_UDEV=1 lvm \"$@\" > /tmp/lvm.log 2>&1 || { cat /tmp/lvm.log; return 1; }; }");
    lab.sh("lv pvcreate -y /dev/vdb && lv vgcreate users /dev/vdb && lv lvcreate -n data -l 1 users");
    lab.sh("head -c 4194304 /dev/urandom > /dev/users/data");
    Some(lab)
}

/// The state before a run.
fn before(lab: &mut LabGuest) -> Before {
    lab.sh("mkdir -p /etc/lvm");
    Before::of(lab, STATE)
}

/// Windows long enough for completed I/O while other tests run.
const DEFAULTS: &str = r#"
defaults = { size = "8m", runtime = "400ms", ramp_time = "0s", bs = "64k" }
workload = [{ name = "read", rw = "randread" }, { name = "write", rw = "randwrite" }]
"#;

/// Tests each kind of volume, and the device below.
const VOLUMES: &str = r#"
[[target]]
name = "host-device"
device = "/dev/vda"
[[target]]
name = "host-lvm"
device = "/dev/vda"
lvm = {}
[[target]]
name = "snapshot"
device = "/dev/vda"
lvm = { snapshot = true }
[[target]]
name = "thin"
device = "/dev/vda"
lvm = { kind = "thin" }
[[target]]
name = "thin-snapshot"
device = "/dev/vda"
lvm = { kind = "thin", snapshot = true }
[[target]]
name = "ext4"
device = "/dev/vda"
lvm = {}
filesystem = { type = "ext4" }
file = {}
[[target]]
name = "xfs-snapshot"
device = "/dev/vda"
lvm = { snapshot = true }
filesystem = { type = "xfs", mount_options = "noatime" }
file = {}
[[target]]
name = "users-group"
lvm = { vg = "users" }
[[target]]
name = "users-snapshot"
lvm = { vg = "users", snapshot = true }
"#;

#[test]
fn every_kind_of_volume_is_measured_and_gone_afterwards() {
    let Some(mut lab) = boot() else { return };
    let before = before(&mut lab);
    let rounds = if thorough() { 2 } else { 1 };
    put_plan(&mut lab, &format!("repeat = {rounds}{DEFAULTS}{VOLUMES}"));
    let json = json(&mut lab, "run /tmp/plan.toml --overwrite /dev/vda");
    before.assert_nothing_changed(&mut lab, "a run");

    for comparison in json["comparisons"].as_array().expect("comparisons") {
        assert!(comparison["verdict"].is_string(), "{comparison}");
    }
    assert_eq!(json["measurements"].as_array().map(Vec::len), Some(9 * 2 * rounds));
    assert_eq!(layers(&json, "host-device"), ["device vda"]);
    // Both plain targets of the device share a volume; each of the others has a separate one.
    assert_eq!(layers(&json, "host-lvm"), ["device vda", "dm iotax-TAG/volume1"]);
    assert_eq!(layers(&json, "snapshot"), ["device vda", "dm iotax-TAG/volume2", "snapshot LVM snapshot"]);
    let pool = |number: u32| {
        ["_tmeta", "_tdata", "-tpool"].map(|part| format!("dm iotax-TAG/volume{number}-pool{part}"))
    };
    let thin = [&["device vda".to_owned()], &pool(3)[..], &["dm iotax-TAG/volume3".to_owned()]].concat();
    assert_eq!(layers(&json, "thin"), thin);
    let file = ["device vda", "dm iotax-TAG/volume5", "filesystem ext4", "file ext4.raw"];
    assert_eq!(layers(&json, "ext4"), file);
    let snapshot = layers(&json, "xfs-snapshot");
    assert_eq!(snapshot[1..3], ["dm iotax-TAG/volume6", "filesystem xfs"]);
    assert_eq!(snapshot[4], "snapshot LVM snapshot");
    assert_eq!(layers(&json, "users-group"), ["device vdb", "dm users/iotax-TAG-volume1"]);

    // The rungs of the ladder that need no guest, which this one could not boot.
    let ladder = "ladder --device /dev/vda --overwrite /dev/vda --rungs host-device,host-lvm,host-lvm-file --size 32m --repeat 2 \
                  --runtime 400ms --ramp-time 0s --workloads randread-4k-qd32,randwrite-4k-qd32";
    let json = self::json(&mut lab, ladder);
    assert_eq!(json["run"]["baseline"], "host-device", "{}", json["run"]);
    assert_eq!(layers(&json, "host-lvm"), ["device vda", "dm iotax-TAG/volume1"]);
    before.assert_nothing_changed(&mut lab, "a ladder");
}

/// A device below LVM of the run's own is purged, a group that exists is not; both are limited as the disks that they are on.
#[test]
fn volumes_until_a_steady_state_share_the_limit_of_their_disk() {
    let Some(mut lab) = boot() else { return };
    let before = before(&mut lab);
    let target = |name: &str, layers: &str| format!("[[target]]\nname = \"{name}\"\n{layers}\n");
    let targets = [
        target("plain", "device = \"/dev/vda\"\nlvm = {}"),
        target("thin", "device = \"/dev/vda\"\nlvm = { kind = \"thin\" }"),
        target("group", "lvm = { vg = \"users\" }"),
    ]
    .concat();
    // Each is filled with 2 MiB in two passes, and written with 1 MiB a round.
    let work =
        "rw = \"write\", bs = \"64k\", size = \"1m\", io_size = \"1m\", runtime = \"5s\", ramp_time = \"0s\"";
    let limit = "repeat = 5\nuntil_steady = { may_write = \"9m\" }";
    put_plan(&mut lab, &format!("{limit}\nworkload = [{{ name = \"w\", {work} }}]\n{targets}"));
    let json = json(&mut lab, "run /tmp/plan.toml --overwrite /dev/vda");
    let said = lab.sh("cat /tmp/said").split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "vda (plain, thin): filled with 4.00 MiB in two passes, and written until a steady state, with 9.00 MiB in all",
        "vdb (group): filled with 2.00 MiB in two passes",
        "volume group users: not discarded, because others' data is there",
        "stopped: vda was written with 8.00 MiB, another round writes about 2.00 MiB",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(json["steady_state"]["last_round"], 2, "{json}");
    let purged = |index: usize| json["targets"][index]["purged"].as_str();
    assert_eq!(
        (purged(0), purged(1), purged(2)),
        (Some("purged by discard"), Some("purged by discard"), None)
    );
    before.assert_nothing_changed(&mut lab, "a run until a steady state");
}

#[test]
fn the_device_is_measured_where_its_volume_lies_and_a_killed_run_can_be_cleaned() {
    let Some(mut lab) = boot() else { return };
    let before = before(&mut lab);
    put_plan(&mut lab, &format!("repeat = 1{DEFAULTS}{VOLUMES}"));
    let moments = ["filled users-snapshot", "cell 9/", "creating files", "filled snapshot"];
    for moment in &moments[..if thorough() { 4 } else { 2 }] {
        start_until(&mut lab, "run /tmp/plan.toml --overwrite /dev/vda", moment);
        if *moment == "cell 9/" {
            lab.sh("kill -STOP $run $(pidof iotax)");
            let offset = lab.sh("dmsetup table /dev/iotax-*/volume1 | cut -d' ' -f5");
            assert_eq!(offset, "2048", "sectors before the first extent");
            let of =
                |source: &str| format!("dd if={source} bs=1M count=8 iflag=direct 2> /tmp/dd | sha256sum");
            let volume = lab.sh(&of("$(echo /dev/iotax-*/volume1)"));
            assert_eq!(lab.sh(&of("/dev/vda skip=1")), volume);
            // Filled, and not a hole.
            assert_ne!(lab.sh(&of("/dev/zero")), volume);
        }
        kill_and_clean(&mut lab);
        before.assert_nothing_changed(&mut lab, moment);
        eprintln!("killed at {moment:?}: {}", lab.sh("cat /tmp/cleaned").lines().count());
    }
}

/// Tests faults with a few steps of many kinds: on the device, and in the user's group.
const STACKS: &str = r#"
repeat = 1
defaults = { size = "4m", runtime = "100ms", ramp_time = "0s", bs = "64k" }
workload = [{ name = "write", rw = "randwrite" }]
[[target]]
name = "file"
device = "/dev/vda"
lvm = { snapshot = true }
filesystem = { type = "ext4" }
file = {}
[[target]]
name = "thin"
lvm = { vg = "users", kind = "thin", snapshot = true }
"#;

#[test]
fn a_fault_at_any_line_of_the_undo_log_leaves_nothing() {
    let Some(mut lab) = boot() else { return };
    let before = before(&mut lab);
    put_plan(&mut lab, STACKS);
    // If a line cannot be written, the announced step fails; an undone step needs no line.
    let faults: [(&str, usize, &[usize]); 3] =
        [("kill-after", 20, &[3, 10, 17]), ("kill", 20, &[7, 14]), ("error", 10, &[5, 9])];
    assert_faults_leave_nothing(&mut lab, &before, "run /tmp/plan.toml --overwrite /dev/vda", faults);
}

#[test]
fn what_cannot_be_made_is_refused_before_anything_is_touched() {
    let Some(mut lab) = boot() else { return };
    lab.sh("lv vgcreate -y away /dev/vdd && lv vgexport away");
    let before = before(&mut lab);
    let refused = |lab: &mut LabGuest, target: &str, size: &str, status: &str, words: &[&str]| {
        let targets = format!("[[target]]\nname = \"t\"\n{target}");
        let workload = format!("repeat = 1\nworkload = [{{ rw = \"randwrite\", size = \"{size}\" }}]");
        put_plan(lab, &format!("{workload}\n{targets}"));
        let device = target.split('"').nth(1).filter(|word| word.starts_with("/dev")).unwrap_or("/dev/vda");
        let overwrite =
            if target.contains("device") { format!("--overwrite {device}") } else { String::new() };
        refused_words(lab, &format!("run /tmp/plan.toml {overwrite}"), status, words);
    };
    let users = |rest: &str| format!("lvm = {{ vg = \"users\"{rest} }}");
    refused(&mut lab, "lvm = { vg = \"none\" }", "8m", "2", &["\"none\"", "accepted: away, users"]);
    refused(&mut lab, "lvm = { vg = \"away\" }", "8m", "4", &["group away is exported"]);
    let room = ["group users", "volumes of t", "extents of 4.00 MiB", "are free"];
    refused(&mut lab, &users(""), "1g", "4", &room);
    // There is room for the volume and not for its snapshot.
    refused(&mut lab, &users(", snapshot = true"), "600m", "4", &room);
    refused(&mut lab, &users(", kind = \"thin\", snapshot = true"), "600m", "4", &room);
    let on = |device: &str| format!("device = \"{device}\"\nlvm = {{}}");
    refused(&mut lab, &on("/dev/vda"), "3g", "4", &["/dev/vda: 3.00 GiB are needed for the volumes of t"]);
    let sum = format!("{}\n[[target]]\nname = \"u\"\n{}", on("/dev/vda"), on("/dev/vda"));
    let sum = sum.replace("lvm = {}", "lvm = { kind = \"thin\" }");
    refused(&mut lab, &sum, "1200m", "4", &["GiB are needed for the volumes of t, u and it holds 2.00 GiB"]);

    // Devices held by LVM, device mapper and RAID.
    refused(&mut lab, &on("/dev/vdb"), "8m", "4", &["vdb is held by", "users-data"]);
    refused(&mut lab, &on("/dev/vdd"), "8m", "4", &["LVM2_member"]);
    before.assert_nothing_changed(&mut lab, "refusals of LVM's own");
    lab.sh("export DM_DISABLE_UDEV=1");
    lab.map("mapped", &["0 131072 linear /dev/vdc 0".to_owned()]);
    refused(&mut lab, &on("/dev/vdc"), "8m", "4", &["vdc is held by", "mapped"]);
    lab.sh("mkfs.ext4 -q /dev/mapper/mapped && mount /dev/mapper/mapped /mnt");
    refused(&mut lab, "device = \"/dev/mapper/mapped\"", "8m", "4", &["mounted on /mnt"]);
    lab.sh("umount /mnt");
    refused(&mut lab, "device = \"/dev/mapper/mapped\"", "8m", "4", &["ext4"]);
    lab.sh("dmsetup remove mapped && wipefs -qa /dev/vdc");
    lab.sh("echo md0 > /sys/module/md_mod/parameters/new_array && cat /sys/block/vdc/dev > /sys/block/md0/md/new_dev");
    refused(&mut lab, &on("/dev/vdc"), "8m", "4", &["vdc is held by", "md0"]);
}

#[test]
fn a_device_has_rungs_in_guests_and_without_lvm() {
    require!(guests);
    let Some(disk) = Disk::new(128 << 20) else { return };
    let lab = Lab::new();
    let node = disk.name();
    let length = ["--size", "32m", "--repeat", "2", "--runtime", "200ms", "--ramp-time", "0s"];
    let work = ["--workloads", "randread-4k-qd32,randwrite-4k-qd32", "--yes", "--json", "-"];
    let ladder = ["ladder", "--device", node, "--overwrite", node, "--emulated"];
    let output = lab.run(&[&ladder[..], &length, &work].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_valid(&json);
    assert_eq!(json["run"]["baseline"], "host-device");
    let name = node.trim_start_matches("/dev/");
    assert!(layers(&json, "host-device").contains(&format!("loop {name}")));
    let guest = layers(&json, "vm-device");
    assert!(
        guest.contains(&format!("loop {name}")) && guest.contains(&"guest guest".to_owned()),
        "{guest:?}"
    );
    // Rungs that this kernel cannot build are left out with a message, unless they were asked for.
    if !text(&output.stdout).contains("host-lvm") {
        assert!(
            text(&output.stderr).contains("Without host-lvm, host-lvm-file, vm-lvm: "),
            "{}",
            text(&output.stderr)
        );
        let asked =
            lab.run(&["ladder", "--device", node, "--overwrite", node, "--rungs", "host-lvm", "--yes"]);
        assert_eq!(asked.status.code(), Some(4), "{}", text(&asked.stderr));
    }
    assert_eq!(disk.signatures(), "");
    lab.assert_nothing_left();
}
