//! Tests of images of a Ceph cluster on raw files.

use std::fs;

use iotax_testkit::require;
use serde_json::Value;

use crate::fuse::{MIXED, layers, plan};
use crate::lab::{Lab, OtherUser, assert_valid, processes, start_until, text};
use crate::servers::{assert_signals_cost_one_target, assert_stacks_are_refused};

/// Returns whether this machine has the daemons of a cluster, and a client in QEMU.
pub(crate) fn possible() -> bool {
    require!(program "qemu-storage-daemon", "ceph-mon", "ceph-osd", "ceph", "rbd", "ceph-authtool", "ip", "nsenter");
    require!(file "/usr/lib/x86_64-linux-gnu/qemu/block-rbd.so");
    // It makes a network namespace.
    require!(root);
    true
}

/// Default directories of Ceph's programs.
const DIRECTORIES: [&str; 4] =
    ["/run/ceph", "/var/log/ceph", "/var/lib/ceph/mon", "/var/lib/ceph/crash/posted"];

/// Returns the files in these directories.
fn kept() -> Vec<String> {
    let entries = DIRECTORIES.iter().filter_map(|directory| fs::read_dir(directory).ok()).flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path().display().to_string())).collect()
}

/// Returns the command lines of daemons and tools of clusters for a target of this name, which only this test uses.
fn programs(target: &str) -> Vec<String> {
    processes("ceph").into_iter().filter(|line| line.contains(&format!("-{target}-rbd "))).collect()
}

fn assert_nothing_left(lab: &Lab, target: &str) {
    lab.assert_nothing_left();
    assert_eq!(programs(target), Vec::<String>::new(), "daemons left");
    let spaces = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let own = format!("-{target}-rbd");
    let left: Vec<_> = spaces.map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(&own)), "namespaces left: {left:?}");
}

/// Returns the measurements of a target.
fn of<'a>(json: &'a Value, target: &str) -> Vec<&'a Value> {
    let all = json["measurements"].as_array().expect("measurements");
    all.iter().filter(|measurement| measurement["target"] == target).collect()
}

#[test]
fn what_is_written_to_a_ceph_image_is_kept_and_nothing_is_left() {
    if !possible() {
        return;
    }
    let (lab, before) = (Lab::new(), kept());
    let stacks = [
        ("rbdkeep", "WORK > raw file > rbd > virtio"),
        (
            "rbdkeep2",
            "WORK > raw file > rbd object_size=1m media=hdd > throttle rate=1g > virtio cache=writeback",
        ),
    ];
    let verified = format!("{MIXED}verify = 'crc32c'\n");
    let json = lab.json(&["run", &plan(&lab, &stacks, &verified), "--yes", "--json", "-"]);
    assert_valid(&json);
    for (name, _) in stacks {
        let found = layers(&json, name);
        assert!(found.contains(&"Ceph RBD") && found.ends_with(&["virtio-blk export"]), "{name}: {found:?}");
        let measurements = of(&json, name);
        assert_eq!(measurements.len(), 2);
        for measurement in measurements {
            assert!(measurement["write"]["iops"].as_f64() > Some(0.0), "{measurement}");
            assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
            let verify = &measurement["verify"];
            assert!(verify["checked"].as_u64() > Some(0) && verify["unfinished"] != true, "{measurement}");
            assert_eq!(verify["faults"].as_array().map_or(0, Vec::len), 0, "{measurement}");
            // The CPU time of the cluster is separate from that of QEMU.
            let threads = &measurement["guest_threads"];
            assert!(threads["ceph-osd"]["user_ns"].as_u64() > Some(0), "{threads}");
            assert!(threads.get("ceph-mon").is_some() && threads.get("main").is_some(), "{threads}");
        }
        assert_nothing_left(&lab, name);
    }
    let cells = json["cells"].as_array().expect("cells");
    let roles = cells.iter().map(|cell| &cell["cpu"]["ns_per_io"]["storage_server"]);
    assert!(roles.clone().all(|ns| ns.as_f64() > Some(0.0)), "{:?}", roles.collect::<Vec<_>>());
    assert_eq!(kept(), before);
}

/// Returns the kinds of warnings about a target.
fn warnings(json: &Value, target: &str) -> Vec<String> {
    let all = json["warnings"].as_array().into_iter().flatten();
    all.filter(|warning| warning["target"] == target).map(|warning| warning["kind"].to_string()).collect()
}

#[test]
fn caches_of_client_and_server_are_on_only_where_they_are_asked_for() {
    if !possible() {
        return;
    }
    let lab = Lab::new();
    let stacks = [
        ("rbdoff", "WORK > raw file > rbd > virtio"),
        ("rbdserver", "WORK > raw file > rbd buffered_read=true > virtio"),
        ("rbdclient", "WORK > raw file > rbd > virtio cache=writeback"),
    ];
    // Reads of 64k: even a slow machine has read the whole area by the end of the first window.
    let work = "[[workload]]\nname = 'r'\nrw = 'randread'\nbs = '64k'\niodepth = 4\nruntime = '1s'\n\
                [[workload]]\nname = 'w'\nrw = 'randwrite'\nruntime = '1s'\n";
    let json = lab.json(&["run", &plan(&lab, &stacks, work), "--yes", "--json", "-"]);
    let of_workload = |target, workload: &str| -> Vec<&Value> {
        of(&json, target).into_iter().filter(|it| it["workload"] == workload).collect()
    };
    // Each read comes from the OSD's disk, or none does once all of it is in its memory.
    let lie = "\"cache_lie\"".to_owned();
    assert!(!warnings(&json, "rbdoff").contains(&lie), "{:?}", warnings(&json, "rbdoff"));
    assert!(warnings(&json, "rbdserver").contains(&lie), "{:?}", warnings(&json, "rbdserver"));
    // A write waits for the OSD's disk, or for the client's memory.
    let mean = |target| {
        let all = of_workload(target, "w");
        all.iter().filter_map(|it| it["write"]["latency_ns"]["mean"].as_f64()).fold(f64::NAN, f64::min)
    };
    let (off, on) = (mean("rbdoff"), mean("rbdclient"));
    assert!(on * 2.0 < off, "{on} ns with the client's cache, {off} ns without");
    assert_nothing_left(&lab, "rbdoff");
}

#[test]
fn killed_at_any_moment_the_cluster_can_be_cleaned() {
    if !possible() {
        return;
    }
    for (moment, name) in
        [("creating files", "rbdkill1"), ("filled rbdkill2", "rbdkill2"), ("cell 2/", "rbdkill3")]
    {
        let lab = Lab::new();
        let path = plan(&lab, &[(name, "WORK > raw file > rbd > virtio")], "[[workload]]\nrw = 'randrw'\n");
        let child = start_until(lab.iotax().args(["run", &path, "--yes"]), moment);
        lab.kill_and_clean(child, moment);
        assert_nothing_left(&lab, name);
    }
}

#[test]
fn an_osd_that_dies_or_stands_still_costs_its_own_measurements_alone() {
    if !possible() {
        return;
    }
    assert_signals_cost_one_target(
        ["rbddies", "rbdstill"],
        "WORK > raw file > rbd > virtio",
        |name| format!("ceph-osd .*-{name}-rbd "),
        assert_nothing_left,
    );
}

#[test]
fn what_cannot_be_a_cluster_is_refused_with_the_remedy() {
    if !possible() {
        return;
    }
    let stacks = [
        ("WORK > qcow2 file > rbd > virtio", "rbd needs a raw file, and file is a disk image"),
        ("WORK > raw file > rbd", "add virtio = {} or fuse = {}"),
        ("WORK > raw file > rbd object_size=3m > virtio", "accepted: a power of two from 4k to 32m"),
        ("WORK > raw file > rbd replicas=3 > virtio", "replicas"),
    ];
    let lab = assert_stacks_are_refused("rbdno", &stacks, assert_nothing_left);
    let user = OtherUser::beside(&lab);
    let target = format!("{} > raw file > rbd > virtio", user.path("").display());
    let refused =
        user.iotax().args(["bench", &target, "--size=16m", "--yes"]).output().expect("setpriv starts");
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(4) && said.contains("run this as root"), "{said}");
}
