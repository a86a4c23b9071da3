//! Tests of NVMe/TCP in a guest: the kernel's target and initiator are set up, measured and removed, also after a lost connection.

use iotax_model::units::Bytes;

use super::on_disks::{
    Before, assert_faults_leave_nothing, json, kill_and_clean, layers, put_plan, refused_words, start_until,
    unload,
};
use crate::lab_guest::{Extras, LabGuest};

/// The disk that iotax may overwrite, and the one with the user's files.
const DISKS: [Bytes; 2] = [Bytes(128 << 20), Bytes(1 << 30)];

/// Prints the state that must not change: the target's configuration, connections, and files on the disk that iotax uses.
const STATE: &str = "find /sys/kernel/config/nvmet -mindepth 2 -maxdepth 2; ls /sys/class/nvme; losetup -a; cat /proc/mounts; ls -a /srv /tmp; \
                     ls /dev | grep -v '^loop[0-9]'; head -c 1048576 /dev/vda | sha256sum; ls /tmp/home/.local/state/iotax/undo";

const PLAN: &str = r#"
repeat = 1
defaults = { size = "8m", runtime = "400ms", ramp_time = "0s", bs = "16k" }
workload = [{ name = "read", rw = "randread" }, { name = "write", rw = "randwrite", verify = "crc32c" }]
[[target]]
name = "file"
stack = "/srv > raw file > nvme-tcp"
[[target]]
name = "device"
stack = "device /dev/vda > thick LVM volume > nvme-tcp > ext4 > raw file"
"#;

const RUN: &str = "run /tmp/plan.toml --overwrite /dev/vda";

/// A guest with the user's files in /srv and a subsystem that the user created.
fn boot() -> Option<LabGuest> {
    let mut lab = LabGuest::boot_with(&Extras {
        programs: &["lvm", "wipefs", "mkfs.ext4", "mount", "umount", "losetup"],
        modules: &["nvmet", "nvmet_tcp", "nvme_tcp", "ext4", "loop"],
        disks: &DISKS,
        ..Extras::default()
    })?;
    lab.sh(
        "mkdir -p /tmp /etc /srv && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home",
    );
    lab.sh(
        "ifconfig lo 127.0.0.1 up && mkfs.ext4 -q /dev/vdb && mount /dev/vdb /srv && echo mine > /srv/note",
    );
    lab.sh("mkdir /sys/kernel/config/nvmet/subsystems/mine /sys/kernel/config/nvmet/ports/65535");
    lab.sh("touch /tmp/said /tmp/out /tmp/cleaned /tmp/killed /tmp/plan.toml");
    Some(lab)
}

#[test]
fn a_namespace_is_measured_and_gone_afterwards() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    put_plan(&mut lab, PLAN);
    let json = json(&mut lab, RUN);
    before.assert_nothing_changed(&mut lab, "a run");
    assert_eq!(json["measurements"].as_array().map(Vec::len), Some(4));
    for measurement in json["measurements"].as_array().expect("measurements") {
        assert_eq!(measurement["errors"].as_u64().unwrap_or(0), 0, "{measurement}");
    }
    assert_eq!(layers(&json, "file"), ["device vdb", "filesystem ext4", "file file.raw", "export NVMe"]);
    let on_volume = layers(&json, "device");
    let (bottom, top) = (on_volume.first().map(String::as_str), &on_volume[2..]);
    assert_eq!(bottom, Some("device vda"));
    assert_eq!(top, ["export NVMe", "filesystem ext4", "file device.raw"]);
}

#[test]
fn a_connection_that_is_lost_costs_its_measurement_and_hangs_nothing() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    put_plan(&mut lab, &PLAN.replace("400ms", "20s"));
    start_until(&mut lab, RUN, "cell 1/");
    // Nobody listens any more, and connections end.
    lab.sh("rm /sys/kernel/config/nvmet/ports/[0-9]*/subsystems/nqn*");
    lab.sh("for i in $(seq 1200); do kill -0 $run 2> /tmp/killed || break; usleep 200000; done");
    let (status, _) = lab.try_sh("wait $run");
    assert_eq!(status, "3", "{}", lab.sh("cat /tmp/said"));
    // A file on a filesystem that was lost cannot be removed before that.
    lab.sh("iotax clean > /tmp/cleaned 2>&1 || { cat /tmp/cleaned /tmp/said /tmp/home/.local/state/iotax/undo/*.jsonl; false; }");
    before.assert_nothing_changed(&mut lab, "a lost connection");
}

#[test]
fn a_killed_run_leaves_no_subsystem_and_no_connection() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    put_plan(&mut lab, PLAN);
    start_until(&mut lab, RUN, "cell 3/");
    // Nobody else is let in.
    assert_eq!(lab.sh("cat /sys/kernel/config/nvmet/subsystems/nqn*/attr_allow_any_host | sort -u"), "0");
    assert_eq!(lab.sh("cat /sys/kernel/config/nvmet/ports/6553[0-4]/addr_traddr | sort -u"), "127.0.0.1");
    kill_and_clean(&mut lab);
    before.assert_nothing_changed(&mut lab, "a kill");

    // In a run without a fault, half of the lines record steps, half their undoing.
    let faults: [(&str, usize, &[usize]); 3] =
        [("kill-after", 20, &[3, 4, 5, 8, 12]), ("kill", 20, &[4, 14]), ("error", 12, &[4, 5])];
    assert_faults_leave_nothing(&mut lab, &before, RUN, faults);
}

#[test]
fn what_the_kernel_lacks_is_said_before_anything_is_touched() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, "find /sys/kernel/config/nvmet | sort; ls -a /srv");
    put_plan(&mut lab, PLAN);
    unload(&mut lab, "nvme_tcp nvme_fabrics");
    refused_words(&mut lab, RUN, "4", &["nvme_tcp: there is no /dev/nvme-fabrics: modprobe nvme-tcp"]);
    before.assert_nothing_changed(&mut lab, "a refusal");
}
