//! Logical volumes on what other layers make, in a guest with its own disks: on a loop device, dm-crypt, an array, a delay and a volume.

use iotax_model::units::Bytes;

use super::on_disks::{
    Before, assert_faults_leave_nothing, json, kill_and_clean, layers, put_plan, start_until,
};
use crate::lab_guest::{Extras, LabGuest};

/// The disk that iotax may overwrite, the one with the user's files, and the one with the user's group.
const DISKS: [Bytes; 3] = [Bytes(128 << 20), Bytes(1 << 30), Bytes(256 << 20)];

/// Prints the state that must not change: every mapping, group, array, loop device, mount and file, and the ends of the disk.
const STATE: &str = "dmsetup ls | sort; for w in pvs vgs lvs; do DM_DISABLE_UDEV=1 lvm $w 2>&1; done; grep : /proc/mdstat; losetup -a; cat /proc/mounts; \
                     ls -a /srv /tmp /dev/mapper /etc/lvm /run/cryptsetup; ls -R /etc/lvm | grep iotax; ls /dev | grep -v '^loop[0-9]'; wipefs --no-act /dev/vda; \
                     head -c 1048576 /dev/vda | sha256sum; tail -c 1048576 /dev/vda | sha256sum; ls /tmp/home/.local/state/iotax/undo";

/// A guest whose second disk holds the user's files in /srv, and the third the user's group `users`.
fn boot() -> Option<LabGuest> {
    let mut lab = LabGuest::boot_with(&Extras {
        programs: &[
            "cryptsetup",
            "lvm",
            "losetup",
            "mdadm",
            "mkfs.ext4",
            "mount",
            "thin_check",
            "umount",
            "wipefs",
        ],
        modules: &[
            "algif_skcipher",
            "dm_crypt",
            "dm_delay",
            "dm_snapshot",
            "dm_thin_pool",
            "ecb",
            "ext4",
            "loop",
            "raid1",
            "xts",
        ],
        disks: &DISKS,
        ..Extras::default()
    })?;
    lab.sh("mkdir -p /tmp /etc/lvm/archive /run /srv && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home");
    lab.sh("mkfs.ext4 -q /dev/vdb && mount /dev/vdb /srv && echo mine > /srv/note");
    lab.sh("lv() { DM_DISABLE_UDEV=1 lvm \"$@\" > /tmp/lvm.log 2>&1 || { cat /tmp/lvm.log; return 1; }; }");
    lab.sh("lv pvcreate -y /dev/vdc && lv vgcreate users /dev/vdc");
    lab.sh("rm -f /tmp/lvm.log; touch /tmp/said /tmp/out /tmp/cleaned /tmp/killed /tmp/plan.toml");
    // iotax itself must notice that there is no udev.
    lab.sh("unset DM_DISABLE_UDEV");
    Some(lab)
}

/// Windows long enough for completed I/O while other tests run.
const DEFAULTS: &str = r#"
defaults = { size = "4m", runtime = "3s", ramp_time = "0s", bs = "64k" }
workload = [{ name = "read", rw = "randread" }, { name = "write", rw = "randwrite" }]
"#;

const TARGETS: &str = r#"
[[target]]
name = "on-loop"
stack = "/srv > raw file > loop direct_io=true > thick LVM volume"
[[target]]
name = "on-luks"
stack = "/srv > raw file > loop direct_io=true > luks > thick LVM volume + snapshot > ext4 > raw file"
[[target]]
name = "on-raid"
stack = "/srv > raid1 raid_devices=2 > thin LVM volume + snapshot"
[[target]]
name = "on-volume"
stack = "users > thick LVM volume > thick LVM volume"
[[target]]
name = "between"
stack = "/srv > raw file > loop direct_io=true > luks > thick LVM volume > luks"
[[target]]
name = "on-delay"
stack = "device /dev/vda > delay read=1ms > thick LVM volume > ext4 > raw file"
"#;

#[test]
fn a_volume_stands_on_any_device_that_iotax_made_and_is_gone_afterwards() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    put_plan(&mut lab, &format!("repeat = 1{DEFAULTS}{TARGETS}"));
    let json = json(&mut lab, "run /tmp/plan.toml --overwrite /dev/vda");
    before.assert_nothing_changed(&mut lab, "a run");
    assert_eq!(json["measurements"].as_array().map(Vec::len), Some(6 * 2));
    for measurement in json["measurements"].as_array().expect("measurements") {
        assert_eq!(measurement["errors"].as_u64().unwrap_or(0), 0, "{measurement}");
    }

    let on_file =
        |name: &str| ["device vdb".to_owned(), "filesystem ext4".into(), format!("file {name}.raw")];
    for (name, above) in [
        ("on-loop", &["dm iotax-TAG/volume1"][..]),
        (
            "on-luks",
            &["dm iotax-TAG-on-luks", "dm iotax-TAG-1/volume1", "filesystem ext4", "file on-luks-2.raw"],
        ),
        ("between", &["dm iotax-TAG-between", "dm iotax-TAG-4/volume1", "dm iotax-TAG-between-2"]),
    ] {
        let found = layers(&json, name);
        assert_eq!(found[..3], on_file(name), "{found:?}");
        assert!(found[3].starts_with("loop loop"), "{found:?}");
        assert!(
            found[4..].starts_with(&above.iter().map(|layer| (*layer).to_owned()).collect::<Vec<_>>()),
            "{found:?}"
        );
    }
    let raid = layers(&json, "on-raid");
    assert!(raid.iter().any(|layer| layer.starts_with("md md")), "{raid:?}");
    assert!(raid.contains(&"dm iotax-TAG-2/volume1".to_owned()), "{raid:?}");
    let volumes = ["device vdc", "dm users/iotax-TAG-volume1", "dm iotax-TAG-3/volume1"];
    assert_eq!(layers(&json, "on-volume"), volumes);
    let delayed = ["device vda", "dm iotax-TAG-on-delay-delay", "dm iotax-TAG-5/volume1", "filesystem ext4"];
    assert_eq!(layers(&json, "on-delay")[..4], delayed);

    // A killed run, one of whose volumes has lost its device.
    start_until(&mut lab, "run /tmp/plan.toml --overwrite /dev/vda", "cell 2/");
    lab.sh("kill -STOP $run $(pidof iotax)");
    let tag = lab.sh("ls /tmp/home/.local/state/iotax/undo | sed -n 's/[.]jsonl$//p'");
    lab.sh(&format!("dmsetup remove --noudevsync --force iotax-{tag}-between 2> /tmp/killed; true"));
    let table = lab.sh(&format!("dmsetup table iotax-{tag}-between"));
    assert!(table.ends_with("error"), "{table}");
    kill_and_clean(&mut lab);
    before.assert_nothing_changed(&mut lab, "a killed run");
}

/// Few effects of many kinds.
const STACKS: &str = r#"
repeat = 1
defaults = { size = "4m", runtime = "100ms", ramp_time = "0s", bs = "64k" }
workload = [{ name = "write", rw = "randwrite" }]
[[target]]
name = "file"
stack = "/srv > raw file > loop direct_io=true > luks > thick LVM volume + snapshot > ext4 > raw file"
[[target]]
name = "raid"
stack = "/srv > raid1 raid_devices=2 > thin LVM volume"
"#;

#[test]
fn a_fault_at_any_line_of_the_undo_log_leaves_no_volume_on_a_layer() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    put_plan(&mut lab, STACKS);
    // A line that cannot be written fails what it announces; that something is undone need not be written down to be true.
    let faults: [(&str, usize, &[usize]); 3] = [
        ("kill-after", 40, &[7, 9, 11, 22, 36, 37, 38, 39]),
        ("kill", 40, &[8, 12, 37]),
        ("error", 20, &[9, 37]),
    ];
    assert_faults_leave_nothing(&mut lab, &before, "run /tmp/plan.toml", faults);
}
