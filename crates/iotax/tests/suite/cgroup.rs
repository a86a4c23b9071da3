//! Tests of a control group as a layer on this machine's kernel: the rate equals the limit, and no group is left.

use std::fs;
use std::path::Path;

use iotax_testkit::{require, skip};

use crate::lab::{Lab, text};

const RATE: f64 = 500.0;

/// The cgroup hierarchy that limits I/O on this machine.
pub(crate) fn hierarchy() -> Option<&'static Path> {
    let (first, second) = (Path::new("/sys/fs/cgroup/blkio"), Path::new("/sys/fs/cgroup"));
    let has_io = || {
        fs::read_to_string(second.join("cgroup.controllers"))
            .is_ok_and(|all| all.split_whitespace().any(|name| name == "io"))
    };
    if first.join("blkio.throttle.read_iops_device").exists() {
        Some(first)
    } else {
        has_io().then_some(second)
    }
}

/// Returns the groups created by runs of iotax.
fn groups(hierarchy: &Path) -> Vec<String> {
    let names = fs::read_dir(hierarchy).expect("a hierarchy").flatten().map(|entry| entry.file_name());
    let names = names.into_iter().map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("iotax-") && !name.starts_with("iotax-test")).collect()
}

/// Tests that run while no other test does.
mod alone {
    use super::*;

    #[test]
    fn a_limit_on_the_load_is_its_rate() {
        require!(root);
        require!(program "qemu-storage-daemon");
        let Some(hierarchy) = hierarchy() else {
            skip!("no hierarchy of control groups here limits block I/O")
        };
        let lab = Lab::alone();
        let before = groups(hierarchy);
        for layers in ["cgroup riops=500", "virtio > cgroup riops=500"] {
            let stack = format!("{} > raw file > {layers}", lab.work().display());
            // A busy machine only ever takes from the rate, so one attempt of three must be calm.
            let is_calm = (0..3).any(|_| {
                let mut command = lab.iotax();
                command.arg("bench").arg(&stack).args(["--size", "16m", "--iodepth", "4"]);
                command.args(["--runtime", "4s", "--ramp-time", "1s", "--json", "-"]);
                let output = command.output().expect("iotax starts");
                assert!(output.status.success(), "{}", text(&output.stderr));
                let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
                let iops = json["measurements"][0]["read"]["iops"].as_f64().expect("a rate");
                eprintln!("{layers}: {iops:.1} IOPS");
                assert!(iops <= RATE * 1.02, "{iops} IOPS");
                iops >= RATE * 0.98
            });
            assert!(is_calm, "{layers}: not {RATE} IOPS in three attempts, see above");
            assert_eq!(groups(hierarchy), before, "{layers}");
        }
    }
}

#[test]
fn a_fault_at_any_line_leaves_no_group() {
    require!(root);
    let Some(hierarchy) = hierarchy() else { skip!("no hierarchy of control groups here limits block I/O") };
    let lab = Lab::new();
    let stack = format!("{} > raw file > cgroup riops=5000", lab.work().display());
    for line in 1.. {
        let mut command = lab.iotax();
        command.arg("bench").arg(&stack).args(["--size", "1m", "--runtime", "100ms", "--ramp-time", "0s"]);
        let output = command.env("IOTAX_FAULT", format!("kill-after@{line}")).output().expect("iotax starts");
        assert!(lab.iotax().arg("clean").output().expect("iotax starts").status.success());
        let tags = fs::read_dir(lab.work()).expect("a directory").count();
        assert_eq!(tags, 0, "{line}");
        if output.status.success() {
            assert!(line > 5, "{line}: too few lines for this stack");
            break;
        }
        assert!(line < 40, "{}", text(&output.stderr));
    }
    assert_eq!(groups(hierarchy), Vec::<String>::new());
}

#[test]
fn what_a_limit_does_not_reach_is_refused() {
    let lab = Lab::new();
    let dir = lab.work();
    for (stack, words) in [
        ("tmpfs > raw file > cgroup riops=5".to_owned(), "tmpfs has no disk"),
        (format!("{} > volatile > raw file > cgroup riops=5", dir.display()), "by a process of its own"),
        (format!("{} > raw file > cgroup", dir.display()), "needs a limit: riops, wiops, rbps or wbps"),
        (format!("{} > raw file > cgroup riops=0", dir.display()), "riops = 0: accepted: 1 or more"),
        (format!("{} > raw file > cgroup riops=5 > loop", dir.display()), "stands on top"),
    ] {
        let mut command = lab.iotax();
        // Nothing in memory is past the page cache.
        let direct = format!("--direct={}", !stack.starts_with("tmpfs"));
        command.arg("bench").arg(&stack).args(["--size", "1m", &direct]);
        let output = command.output().expect("iotax starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stack}: {said}");
        assert!(said.contains(words), "{stack}: {said}");
    }
}
