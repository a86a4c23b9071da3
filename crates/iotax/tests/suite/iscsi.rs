//! Tests of raw files served by iSCSI.

use std::fs;

use iotax_testkit::require;
use serde_json::Value;

use crate::fuse::{MIXED, layers, plan};
use crate::lab::{Lab, OtherUser, assert_valid, start_until, text};
use crate::servers::{assert_signals_cost_one_target, assert_stacks_are_refused};

/// Returns whether this machine has a target, and an initiator in QEMU.
fn possible() -> bool {
    require!(program "qemu-storage-daemon", "tgtd", "tgtadm");
    require!(file "/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so");
    true
}

const STACKS: [(&str, &str, &str); 3] = [
    ("virtio", "WORK > raw file > iscsi > virtio", "virtio-blk export"),
    ("fuse", "WORK > raw file > iscsi > fuse", "FUSE export"),
    ("limited", "WORK > raw file > iscsi > throttle rate=1g > virtio", "virtio-blk export"),
];

fn lines() -> [(&'static str, &'static str); 3] {
    STACKS.map(|(name, line, _)| (name, line))
}

/// Returns the measurements. Asserts their number and that none had errors.
fn measurements(json: &Value, count: usize) -> &[Value] {
    let all = json["measurements"].as_array().expect("measurements");
    assert_eq!(all.len(), count);
    for measurement in all {
        assert!(measurement["write"]["iops"].as_f64() > Some(0.0), "{measurement}");
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    all
}

#[test]
fn what_is_written_to_an_iscsi_disk_is_kept_and_nothing_is_left() {
    if !possible() {
        return;
    }
    let lab = Lab::new();
    let verified = format!("{MIXED}verify = 'crc32c'\n");
    let shown: Vec<(&str, &str)> = lines().into_iter().filter(|(name, _)| *name != "fuse").collect();
    let json = lab.json(&["run", &plan(&lab, &shown, &verified), "--yes", "--json", "-"]);
    assert_valid(&json);
    for measurement in measurements(&json, 2 * shown.len()) {
        let verify = &measurement["verify"];
        assert!(verify["checked"].as_u64() > Some(0) && verify["unfinished"] != true, "{measurement}");
        assert_eq!(verify["faults"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    // What is written at the same time through FUSE QEMU 10.0 loses by itself.
    let json = lab.json(&["run", &plan(&lab, &lines(), MIXED), "--yes", "--json", "-"]);
    measurements(&json, 2 * STACKS.len());
    for (name, _, top) in STACKS {
        let found = layers(&json, name);
        assert!(found.contains(&"iSCSI") && found.ends_with(&[top]), "{name}: {found:?}");
    }
    lab.assert_nothing_left();
}

#[test]
fn an_iscsi_disk_needs_no_root() {
    if !possible() || !iotax_testkit::is_root() {
        return;
    }
    let lab = Lab::new();
    let user = OtherUser::beside(&lab);
    let work = user.path("work");
    fs::create_dir(&work).expect("made");
    std::os::unix::fs::chown(&work, Some(65534), Some(65534)).expect("root may");
    let target = format!("{} > raw file > iscsi > virtio", work.display());
    let load = ["--size=16m", "--rw=randread", "--runtime=300ms", "--repeat=1", "--yes"];
    let done = user.iotax().args(["bench", &target]).args(load).output().expect("setpriv starts");
    assert!(done.status.success(), "{}", text(&done.stderr));
    let left: Vec<_> = fs::read_dir(&work).expect("there").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn killed_at_any_moment_the_target_can_be_cleaned() {
    if !possible() {
        return;
    }
    for moment in ["creating files", "filled virtio", "cell 2/"] {
        let lab = Lab::new();
        let path = plan(&lab, &lines(), "[[workload]]\nrw = 'randrw'\n");
        let child = start_until(lab.iotax().args(["run", &path, "--yes"]), moment);
        lab.kill_and_clean(child, moment);
    }
}

#[test]
fn a_target_that_dies_or_stands_still_costs_its_own_measurements_alone() {
    if !possible() {
        return;
    }
    assert_signals_cost_one_target(
        ["dying", "stopped"],
        "WORK > raw file > iscsi > virtio",
        |name| format!("tgtd .*-{name}-iscsi"),
        |lab, _| lab.assert_nothing_left(),
    );
}

#[test]
fn what_cannot_be_served_is_refused_with_the_remedy() {
    if !possible() {
        return;
    }
    let stacks = [
        ("WORK > qcow2 file > iscsi > virtio", "iscsi needs a raw file, and file is a disk image"),
        ("WORK > raw file > iscsi", "add virtio = {} or fuse = {}"),
        ("WORK > raw file > iscsi aio=native > virtio", "aio"),
    ];
    assert_stacks_are_refused("t", &stacks, |lab, _| lab.assert_nothing_left());
}
