//! The kernel's NBD client in a guest: its device is connected, measured and gone afterwards, and a server that dies or hangs costs its target.

use iotax_model::units::Bytes;
use iotax_testkit::thorough;

use super::on_disks::{Before, json, layers, put_plan, refused_words, start_until, unload};
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

/// A guest with the user's files in /srv, and the second device connected by the user.
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
    lab.sh("mkfs.ext4 -q /dev/vda && mount /dev/vda /srv && echo mine > /srv/note && truncate -s 1m /srv/mine.raw");
    lab.sh("qemu-nbd --persistent -f raw -k /srv/mine.sock /srv/mine.raw 2> /dev/null & sleep 2");
    lab.sh("nbd-client -unix /srv/mine.sock /dev/nbd0 -nonetlink > /tmp/said 2>&1; ls /sys/block/nbd0/pid");
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
    assert_eq!(layers(&json, "raw"), ["device vda", "filesystem ext4", "file raw.raw", "export NBD export"]);
    assert_eq!(layers(&json, "qcow2"), ["device vda"]);
}

#[test]
fn a_server_that_dies_or_hangs_costs_its_target() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    put_plan(&mut lab, &PLAN.replace("400ms", "60s"));
    for signal in ["KILL", "STOP"] {
        start_until(&mut lab, RUN, "cell 1/");
        lab.sh(&format!("pkill -{signal} -f 'qemu.*iotax-' || pkill -{signal} qemu-storage-d"));
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
    lab.sh("{ kill -KILL $run; wait $run; } 2> /tmp/killed; true");
    lab.sh("for i in $(seq 100); do iotax clean > /tmp/cleaned && ! grep -q 'left alone' /tmp/cleaned && break; usleep 100000; done");
    before.assert_nothing_changed(&mut lab, "a kill");
    for (kind, expected, few) in
        [("kill-after", "137", &[6, 9][..]), ("kill", "137", &[7]), ("error", "4", &[6])]
    {
        let all = (1..).take_while(|_| thorough());
        for line in few.iter().copied().filter(|_| !thorough()).chain(all) {
            let fault = format!("{kind}@{line}");
            let (status, _) =
                lab.try_sh(&format!("( IOTAX_FAULT={fault} iotax {RUN} --yes > /tmp/said 2>&1 )"));
            // An error that is met while a cell is measured costs the measurement alone.
            let is_right = [expected, "0"].contains(&&*status) || (kind == "error" && status == "3");
            assert!(is_right, "{fault}: {status}: {}", lab.sh("cat /tmp/said"));
            lab.sh("iotax clean > /tmp/cleaned 2>&1 || { cat /tmp/cleaned; false; }");
            before.assert_nothing_changed(&mut lab, &fault);
            if status == "0" {
                assert!(line > 12, "{fault}: too few lines for these stacks");
                break;
            }
        }
    }
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
