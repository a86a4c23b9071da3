//! Tests of running libvirt guests (`libvirt://DOMAIN`), measured on an attached disk.

use std::fs;
use std::process::Command;

use iotax_testkit::thorough;
use serde_json::Value;

use crate::lab::{start_until, text};
use crate::libvirt_lab::{DomainSettings, LibvirtLab};

/// A short random read/write workload.
const LOAD: [&str; 4] = ["--size=8m", "--rw=randrw", "--ramp-time=0s", "--yes"];

fn bench(lab: &LibvirtLab, target: &str) -> Command {
    let mut command = lab.iotax();
    command.args(["bench", target]).args(LOAD);
    command
}

/// The same with a window of 300 ms.
fn short_bench(lab: &LibvirtLab, target: &str) -> Command {
    let mut command = bench(lab, target);
    command.arg("--runtime=300ms");
    command
}

/// Measures the domain. Returns the layers of its target.
fn layers(lab: &LibvirtLab) -> Vec<String> {
    let measured = short_bench(lab, "libvirt://web1").args(["--json", "-"]).output().expect("setpriv starts");
    assert!(measured.status.success(), "{}", text(&measured.stderr));
    let run: Value = serde_json::from_slice(&measured.stdout).expect("JSON");
    let target = &run["targets"][0];
    assert_eq!(target["emulated"], true, "{target}");
    let layer =
        |layer: &Value| ["kind", "name"].map(|key| layer[key].as_str().expect("text").to_owned()).join(" ");
    target["layers"].as_array().expect("layers").iter().map(layer).collect()
}

/// Runs a command to its end. Returns its exit code and stderr.
fn ended(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("setpriv starts");
    (output.status.code(), text(&output.stderr))
}

#[test]
fn a_running_guest_is_measured_on_a_disk_like_its_own() {
    let qcow2 = DomainSettings {
        machine: "pc",
        format: "qcow2",
        disk: "vda",
        options: "cache='writeback' discard='unmap'",
    };
    let Some(lab) = LibvirtLab::boot(&qcow2) else { return };
    let layers = layers(&lab);
    assert!(
        layers.ends_with(&["image qcow2", "bus virtio-blk", "guest web1"].map(str::to_owned)),
        "{layers:?}"
    );
    lab.assert_nothing_left("a run to its end");
    // Two disks of one guest, each with an agent.
    let plan = lab.user.path("two.toml");
    let targets = "[[target]]\nname = 'a'\npath = 'libvirt://web1'\n[[target]]\nname = 'b'\npath = 'libvirt://web1:vda'\n";
    let load = "size = '4m'\nrw = 'randrw'\nruntime = '200ms'\nramp_time = '0s'\nverify = 'xxh3'\n";
    fs::write(&plan, format!("repeat = 2\n[[workload]]\n{load}{targets}")).expect("written");
    let (exit, said) = ended(lab.iotax().arg("run").arg(&plan).arg("--yes"));
    assert_eq!(exit, Some(0), "{said}");
    lab.assert_nothing_left("two disks");
    // The guest itself is inspected in the same way.
    let (exit, said) = ended(lab.iotax().args(["doctor", "libvirt://web1"]));
    assert_eq!(exit, Some(0), "{said}");
    lab.assert_nothing_left("a look");
}

#[test]
fn killed_at_any_moment_nothing_stays_attached() {
    let raw =
        DomainSettings { machine: "q35", format: "raw", disk: "vda", options: "cache='none' io='native'" };
    let Some(lab) = LibvirtLab::boot(&raw) else { return };
    let clean = |moment: &str| {
        let (exit, said) = ended(lab.iotax().arg("clean"));
        assert_eq!(exit, Some(0), "{moment}: {said}");
        lab.assert_nothing_left(moment);
    };
    // The program stays in the guest: it is copied once.
    let measuring = |lab: &LibvirtLab| {
        let mut command = bench(lab, "libvirt://web1");
        command.args(["--leave-agent", "--runtime=60"]);
        command
    };
    let mut killed = start_until(&mut measuring(&lab), "round 1/1");
    killed.kill().expect("killed");
    killed.wait().expect("ended");
    clean("measuring");
    for line in (1..40).filter(|line| thorough() || [1, 3, 7, 11].contains(line)) {
        let fault = format!("kill-after@{line}");
        let mut command = short_bench(&lab, "libvirt://web1");
        let output =
            command.arg("--leave-agent").env("IOTAX_FAULT", &fault).output().expect("setpriv starts");
        if output.status.success() {
            assert!(line > 11, "{fault}: no such line");
            break;
        }
        clean(&fault);
    }
}

#[test]
fn what_cannot_be_measured_is_refused_with_the_remedy() {
    let scsi = DomainSettings { machine: "pc", format: "raw", disk: "sda", options: "cache='writethrough'" };
    let Some(lab) = LibvirtLab::boot(&scsi) else { return };
    let layers = layers(&lab);
    assert!(layers.ends_with(&["bus virtio-scsi", "guest web1"].map(str::to_owned)), "{layers:?}");
    lab.assert_nothing_left("a run to its end");
    let refused = |target: &str, exit: i32, words: &str| {
        let (found, said) = ended(&mut short_bench(&lab, target));
        assert_eq!(found, Some(exit), "{target}: {said}");
        assert!(said.contains(words), "{target}: {said}");
        lab.assert_nothing_left(target);
    };
    refused("libvirt://web2", 4, "failed to get domain 'web2'");
    refused("libvirt://web1:vdz", 2, "it has no disk \"vdz\"; accepted: sda");
    refused("libvirt://web1/srv/x", 2, "accepted: libvirt://domain[:disk]");
    let (exit, said) = ended(short_bench(&lab, "libvirt://web1").arg("--keep"));
    assert_eq!(exit, Some(2), "{said}");
    assert!(said.contains("leave --keep out"), "{said}");
    lab.virsh(&["suspend", "web1"]);
    let (exit, said) = ended(&mut short_bench(&lab, "libvirt://web1"));
    assert_eq!(exit, Some(4), "{said}");
    assert!(said.contains("let it go on (virsh resume)"), "{said}");
    lab.virsh(&["resume", "web1"]);
    lab.begin_in_guest("kill -STOP $(pidof qemu-ga)");
    let (exit, said) = ended(&mut short_bench(&lab, "libvirt://web1"));
    assert_eq!(exit, Some(4), "{said}");
    assert!(said.contains("does qemu-guest-agent run in the guest?"), "{said}");
    lab.virsh(&["destroy", "web1"]);
    refused("libvirt://web1", 4, "the domain is shut off; start it (virsh start)");
}
