//! Tests of the kernel's NBD client in a guest: its device is connected, measured and disconnected, and a server that dies or hangs affects
//! only its target.

use iotax_model::units::Bytes;

use super::on_disks::{
    Before, assert_faults_leave_nothing, json, kill_and_clean, layers, put_plan, refused_words, start_until,
    unload,
};
use crate::lab_guest::{Extras, LabGuest};

/// The disk with the user's files.
const DISKS: [Bytes; 1] = [Bytes(1 << 30)];

/// Prints the state that must not change: connected devices, processes, mounts, and the user's files.
const STATE: &str = "ls /sys/block/nbd*/pid; ps | grep -v grep | grep -c 'iotax-'; cat /proc/mounts; ls -a /srv /tmp; \
                     ls /tmp/home/.local/state/iotax/undo";

const PLAN: &str = r#"
repeat = 1
defaults = { size = "8m", runtime = "400ms", ramp_time = "0s", bs = "16k" }
workload = [{ name = "read", rw = "randread" }, { name = "write", rw = "randwrite", verify = "crc32c" }]
[[target]]
name = "raw"
stack = "/srv > raw file > nbd client=kernel"
[[target]]
name = "qcow2"
stack = "/srv > qcow2 file > nbd server=qemu-nbd client=kernel > ext4 > raw file"
"#;

const RUN: &str = "run /tmp/plan.toml";

/// A guest with the user's files in /srv, and a second NBD device connected by the user.
fn boot() -> Option<LabGuest> {
    let mut lab = LabGuest::boot_with(&Extras {
        programs: &[
            "nbd-client",
            "qemu-storage-daemon",
            "qemu-img",
            "qemu-nbd",
            "wipefs",
            "mkfs.ext4",
            "mount",
            "umount",
        ],
        modules: &["nbd", "ext4"],
        disks: &DISKS,
        ..Extras::default()
    })?;
    lab.sh(
        "mkdir -p /tmp /etc /srv && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home",
    );
    lab.sh("mkfs.ext4 -q /dev/vda && mount /dev/vda /srv && echo mine > /srv/note && truncate -s 1048576 /srv/mine.raw");
    lab.sh("qemu-nbd --persistent -f raw -k /srv/mine.sock /srv/mine.raw 2> /dev/null & sleep 2");
    lab.sh("nbd-client -unix /srv/mine.sock /dev/nbd0 -nonetlink > /tmp/said 2>&1; for i in $(seq 100); do [ -e /sys/block/nbd0/pid ] && break; usleep 50000; done; cat /sys/block/nbd0/pid");
    lab.sh("touch /tmp/said /tmp/out /tmp/cleaned /tmp/killed /tmp/plan.toml");
    Some(lab)
}

#[test]
fn its_device_is_measured_and_gone_afterwards() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    put_plan(&mut lab, PLAN);
    let json = json(&mut lab, RUN);
    before.assert_nothing_changed(&mut lab, "a run");
    assert_eq!(json["measurements"].as_array().map(Vec::len), Some(4));
    for measurement in json["measurements"].as_array().expect("measurements") {
        assert_eq!(measurement["errors"].as_u64().unwrap_or(0), 0, "{measurement}");
    }
    assert_eq!(
        layers(&json, "raw"),
        ["device vda", "filesystem ext4", "file raw.raw", "image raw", "export NBD export", "device nbd1"]
    );
    assert_eq!(
        layers(&json, "qcow2"),
        [
            "device vda",
            "filesystem ext4",
            "file qcow2.qcow2",
            "image qcow2",
            "export NBD export",
            "device nbd2",
            "filesystem ext4",
            "file qcow2-2.raw"
        ]
    );
}

#[test]
fn a_server_that_dies_or_hangs_costs_its_target() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    put_plan(&mut lab, &PLAN.replace("400ms", "8s"));
    for signal in ["KILL", "STOP"] {
        start_until(&mut lab, RUN, "cell 1/");
        lab.sh(&format!("kill -{signal} $(pidof qemu-storage-daemon)"));
        lab.sh("for i in $(seq 1200); do kill -0 $run 2> /tmp/killed || break; usleep 200000; done");
        let (status, _) = lab.try_sh("wait $run");
        assert_eq!(status, "3", "{signal}: {}", lab.sh("cat /tmp/said"));
        lab.sh("iotax clean > /tmp/cleaned 2>&1 || { cat /tmp/cleaned /tmp/said; false; }");
        before.assert_nothing_changed(&mut lab, signal);
    }
}

#[test]
fn a_killed_run_leaves_no_connection() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    put_plan(&mut lab, PLAN);
    start_until(&mut lab, RUN, "cell 3/");
    kill_and_clean(&mut lab);
    before.assert_nothing_changed(&mut lab, "a kill");
    let faults: [(&str, usize, &[usize]); 3] =
        [("kill-after", 12, &[6, 9]), ("kill", 12, &[7]), ("error", 6, &[6])];
    assert_faults_leave_nothing(&mut lab, &before, RUN, faults);
}

#[test]
fn what_is_missing_is_said_before_anything_is_touched() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, "ls -a /srv");
    put_plan(&mut lab, PLAN);
    lab.sh("nbd-client -d /dev/nbd0 > /tmp/said 2>&1");
    unload(&mut lab, "nbd");
    refused_words(
        &mut lab,
        RUN,
        "4",
        &["nbd: the kernel has no NBD devices: modprobe nbd", "client = \"qemu\""],
    );
    lab.sh("mv /lab/nbd-client /lab/gone");
    refused_words(&mut lab, RUN, "4", &["nbd-client", "apt-get install nbd-client"]);
    before.assert_nothing_changed(&mut lab, "a refusal");
}
