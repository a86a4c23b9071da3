//! Tests of durable writes on disks with and without FUA and with flushes of known duration, in a guest with exact time.

use super::on_disks::{json, put_plan};
use crate::flush::method;
use crate::lab_guest::{Extras, LabGuest};
use serde_json::Value;

/// Number of commits after which a measurement ends.
const COMMITS: u64 = 256;

/// Duration of each request of the null block device.
const REQUEST_NS: f64 = 2e6;

const PG_TEST_FSYNC: &str = "/usr/lib/postgresql/15/bin/pg_test_fsync";

const PLAN: &str = r#"
suite = "flush"
repeat = 1
defaults = { rw = "write", size = "4m", io_size = "1m", runtime = "60s", ramp_time = "0s" }
workload = [
    { name = "write" },
    { name = "fdatasync", fdatasync = 1 },
    { name = "fsync", fsync = 1 },
    { name = "open_datasync", sync = "dsync" },
]
[[target]]
name = "fua"
device = "/dev/disk-fua"
[[target]]
name = "plain"
device = "/dev/disk-plain"
[[target]]
name = "slow"
device = "/dev/slow"
"#;

fn boot() -> Option<LabGuest> {
    let disk = |name: &str, fua: &str| {
        [
            "-blockdev".to_owned(),
            format!("driver=null-co,read-zeroes=on,size=16777216,node-name={name}"),
            "-device".to_owned(),
            format!("scsi-hd,drive={name},dpofua={fua},serial={name}"),
        ]
    };
    let controller = ["-device".to_owned(), "virtio-scsi-pci".to_owned()];
    let devices = [&controller[..], &disk("fua", "on"), &disk("plain", "off")].concat();
    let mut lab = LabGuest::boot_with(&Extras {
        programs: &["wipefs"],
        files: &[PG_TEST_FSYNC],
        modules: &["virtio_scsi"],
        devices: &devices,
        exact_time: true,
        ..Extras::default()
    })?;
    lab.sh("mkdir -p /tmp /etc && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home && touch /tmp/said");
    lab.sh("insmod /lab/null_blk.ko nr_devices=0 && mkdir /sys/kernel/config/nullb/slow && cd /sys/kernel/config/nullb/slow");
    lab.sh("echo 1 > memory_backed && echo 16 > size && echo 16 > cache_size && echo 2 > irqmode && echo 2000000 > completion_nsec && echo 1 > power");
    lab.sh("cd /");
    Some(lab)
}

#[test]
fn flushes_and_writes_with_fua_are_counted_and_each_takes_its_time() {
    let Some(mut lab) = boot() else { return };
    let node = |lab: &mut LabGuest, query: &str| format!("/dev/{}", lab.sh(query));
    let of_serial = |name: &str| {
        format!(
            "for d in /sys/block/sd*; do grep -q {name} $d/device/vpd_pg80 && echo ${{d#/sys/block/}}; done; true"
        )
    };
    let fua = node(&mut lab, &of_serial("fua"));
    let plain = node(&mut lab, &of_serial("plain"));
    let read = |lab: &mut LabGuest, disk: &str| lab.sh(&format!("cat /sys/block/{}/queue/fua", &disk[5..]));
    assert_eq!((read(&mut lab, &fua), read(&mut lab, &plain)), ("1".into(), "0".into()));
    let named = [("/dev/disk-fua", &*fua), ("/dev/disk-plain", &*plain), ("/dev/slow", "/dev/slow")];
    let plan = named.iter().fold(PLAN.to_owned(), |plan, (from, to)| plan.replace(from, to));
    put_plan(&mut lab, &plan);
    let overwrite = named.map(|(_, disk)| format!("--overwrite {disk}")).join(" ");
    let json = json(&mut lab, &format!("run /tmp/plan.toml {overwrite}"));

    for (target, name, fate) in [
        ("fua", "fdatasync", "kept"),
        ("fua", "open_datasync", "kept"),
        ("plain", "fdatasync", "kept"),
        ("plain", "open_datasync", "kept"),
    ] {
        let flushes = &method(&json, target, name)["flushes"];
        assert_eq!(
            (&flushes["asked"], &flushes["fate"]),
            (&COMMITS.into(), &fate.into()),
            "{target}: {flushes}"
        );
        let levels = flushes["levels"].as_array().expect("levels");
        let counted = levels.last().map(|level| (&level["flushes"], &level["fua_writes"]));
        let all = (&COMMITS.into(), &Value::Null);
        let with_fua = (&0.into(), &COMMITS.into());
        let expected = if (target, name) == ("fua", "open_datasync") { with_fua } else { all };
        assert_eq!(counted, Some(expected), "{flushes}");
    }
    let p50 = |name: &str| method(&json, "slow", name)["p50_ns"].as_f64().expect("known");
    // A commit takes a write and a flush; with FUA, which this device has, the write alone.
    for (name, requests) in [("write", 1.0), ("fdatasync", 2.0), ("fsync", 2.0), ("open_datasync", 1.0)] {
        let ratio = p50(name) / (requests * REQUEST_NS);
        assert!((0.97..1.03).contains(&ratio), "{name}: {} ns", p50(name));
    }
    // It takes the device for its file, and removes the device's node when it ends.
    let said = lab.sh(&format!("{PG_TEST_FSYNC} -s 1 -f /dev/slow"));
    // It writes synchronously: after such a write with O_DSYNC to a device itself, Linux 6.1 sends a flush, though the write had FUA. io_uring's
    // writes have FUA alone.
    for (name, ours_by_theirs) in [("open_datasync", 2.0), ("fdatasync", 1.0), ("fsync", 1.0)] {
        let is_one = |line: &&str| line.split_whitespace().next() == Some(name);
        let line = said.lines().find(is_one).unwrap_or_else(|| panic!("{name}: {said}"));
        let theirs: f64 = line.split_whitespace().nth(1).and_then(|rate| rate.parse().ok()).expect("a rate");
        let ours = method(&json, "slow", name)["per_second"].as_f64().expect("known");
        let ratio = ours / theirs / ours_by_theirs;
        assert!((0.97..1.03).contains(&ratio), "{name}: {ours} and {theirs} a second\n{said}");
    }
}
