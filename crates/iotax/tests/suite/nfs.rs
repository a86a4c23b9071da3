//! Tests of raw files served by NFS.

use std::fs;

use iotax_testkit::require;

use crate::fuse::{MIXED, layers, plan};
use crate::lab::{Lab, OtherUser, assert_valid, start_until, text};
use crate::servers::{assert_signals_cost_one_target, assert_stacks_are_refused};
use crate::ssh::await_end;

/// Returns whether this machine has a server, and a client in QEMU.
fn possible() -> bool {
    require!(program "qemu-storage-daemon", "ganesha.nfsd", "rpcbind", "rpcinfo", "ip", "nsenter");
    require!(file "/usr/lib/x86_64-linux-gnu/qemu/block-nfs.so");
    require!(file "/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so");
    // It makes a network namespace.
    require!(root);
    true
}

const STACKS: [(&str, &str, &str); 3] = [
    ("virtio", "WORK > raw file > nfs > virtio", "virtio-blk export"),
    ("fuse", "WORK > raw file > nfs > fuse", "FUSE export"),
    ("limited", "WORK > raw file > nfs > throttle rate=1g > virtio", "virtio-blk export"),
];

fn lines() -> [(&'static str, &'static str); 3] {
    STACKS.map(|(name, line, _)| (name, line))
}

/// Returns the command lines of servers that serve the lab's files.
fn servers(lab: &Lab) -> Vec<String> {
    let dir = lab.path("").display().to_string();
    let processes = fs::read_dir("/proc").expect("there");
    let lines = processes.filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains("ganesha") && line.contains(&dir)).collect()
}

/// Returns the portmappers in other network namespaces.
fn portmappers() -> Vec<u32> {
    let here = fs::read_link("/proc/self/ns/net").expect("there");
    let processes = fs::read_dir("/proc").expect("there");
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_elsewhere = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "rpcbind")
            && fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|net| net != here)
    };
    pids.filter(is_elsewhere).collect()
}

fn assert_nothing_left(lab: &Lab) {
    lab.assert_nothing_left();
    assert_eq!(servers(lab), Vec::<String>::new(), "servers left");
}

#[test]
fn what_is_written_to_nfs_is_kept_and_nothing_is_left() {
    if !possible() {
        return;
    }
    let lab = Lab::new();
    let verified = format!("{MIXED}verify = 'crc32c'\n");
    let shown: Vec<(&str, &str)> = lines().into_iter().filter(|(name, _)| *name != "fuse").collect();
    let json = lab.json(&["run", &plan(&lab, &shown, &verified), "--yes", "--json", "-"]);
    assert_valid(&json);
    let measurements = json["measurements"].as_array().expect("measurements");
    assert_eq!(measurements.len(), 2 * shown.len());
    for measurement in measurements {
        let verify = &measurement["verify"];
        assert!(verify["checked"].as_u64() > Some(0) && verify["unfinished"] != true, "{measurement}");
        assert_eq!(verify["faults"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    // What is written at the same time through FUSE QEMU 10.0 loses by itself.
    let json = lab.json(&["run", &plan(&lab, &lines(), MIXED), "--yes", "--json", "-"]);
    let measurements = json["measurements"].as_array().expect("measurements");
    assert_eq!(measurements.len(), 2 * STACKS.len());
    for measurement in measurements {
        assert!(measurement["write"]["iops"].as_f64() > Some(0.0), "{measurement}");
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    for (name, _, top) in STACKS {
        let found = layers(&json, name);
        assert!(found.contains(&"NFS") && found.ends_with(&[top]), "{name}: {found:?}");
    }
    assert_nothing_left(&lab);
}

#[test]
fn killed_at_any_moment_the_server_can_be_cleaned() {
    if !possible() {
        return;
    }
    for moment in ["creating files", "filled virtio", "cell 2/"] {
        let lab = Lab::new();
        let path = plan(&lab, &lines(), "[[workload]]\nrw = 'randrw'\n");
        let child = start_until(lab.iotax().args(["run", &path, "--yes"]), moment);
        lab.kill_and_clean(child, moment);
        assert_nothing_left(&lab);
    }
}

#[test]
fn a_portmapper_ends_with_its_run() {
    if !possible() {
        return;
    }
    let lab = Lab::new();
    let path = plan(&lab, &lines()[..1], "[[workload]]\nrw = 'randread'\n");
    let child = start_until(lab.iotax().args(["run", &path, "--yes"]), "cell 1/");
    let own: Vec<u32> = portmappers().into_iter().filter(|pid| is_of(*pid, &lab)).collect();
    assert_eq!(own.len(), 1, "{own:?}");
    lab.kill_and_clean(child, "cell 1/");
    await_end(|| !portmappers().contains(&own[0]));
}

/// Returns whether a process sees the lab's directory shared.
fn is_of(pid: u32, lab: &Lab) -> bool {
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    let work = lab.work().display().to_string();
    mounts.lines().any(|line| line.contains(" /run/export ") && line.contains(&work))
}

#[test]
fn a_server_that_dies_or_stands_still_costs_its_own_measurements_alone() {
    if !possible() {
        return;
    }
    assert_signals_cost_one_target(
        ["dying", "stopped"],
        "WORK > raw file > nfs > virtio",
        |name| format!("ganesha.nfsd .*-{name}-nfs"),
        |lab, _| assert_nothing_left(lab),
    );
}

#[test]
fn what_cannot_be_served_is_refused_with_the_remedy() {
    if !possible() {
        return;
    }
    let stacks = [
        ("WORK > qcow2 file > nfs > virtio", "nfs needs a raw file, and file is a disk image"),
        ("WORK > raw file > nfs", "add virtio = {} or fuse = {}"),
        ("WORK > raw file > nfs vers=4 > virtio", "vers"),
    ];
    let lab = assert_stacks_are_refused("t", &stacks, |lab, _| assert_nothing_left(lab));
    let user = OtherUser::beside(&lab);
    let target = format!("{} > raw file > nfs > virtio", user.path("").display());
    let refused =
        user.iotax().args(["bench", &target, "--size=16m", "--yes"]).output().expect("setpriv starts");
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(4) && said.contains("run this as root"), "{said}");
}
