//! What an event costs: faults of known length on this host, and in a guest with device mapper.

use std::path::Path;

use iotax_model::units::Bytes;
use iotax_testkit::require;
use serde_json::Value;

use crate::disk::{Disk, run};
use crate::lab::{Lab, assert_valid, text};
use crate::lab_guest::{Extras, LabGuest};

const MS: u64 = 1_000_000;
/// A host that other tests use too stops for a while now and then.
const STALL: u64 = 400;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number: {value}"))
}

/// The gaps of writes: begin and length.
fn gaps_of_writes(episode: &Value) -> Vec<(u64, u64)> {
    let gaps = episode["gaps"].as_array().expect("gaps");
    let writes = gaps.iter().filter(|gap| gap["writes"] == true);
    writes.map(|gap| (number(&gap["at_ns"]), number(&gap["duration_ns"]))).collect()
}

fn timeouts(episode: &Value) -> &[Value] {
    episode["timeouts"].as_array().expect("timeouts")
}

/// The limit in seconds and the verdict of a timeout of the target.
fn timeout<'a>(episode: &'a Value, layer: &str, kind: &str) -> (Option<u64>, &'a str) {
    let is_it = |one: &&Value| one["owner"] == "target" && one["layer"] == layer && one["timeout"] == kind;
    let found = timeouts(episode).iter().find(is_it).unwrap_or_else(|| panic!("{layer}: {episode}"));
    (found["limit_ns"].as_u64().map(|ns| ns / 1000 / MS), found["verdict"].as_str().expect("a verdict"))
}

/// An ext4 filesystem on a loop device.
struct Mounted {
    lab: Lab,
    _disk: Disk,
}

impl Mounted {
    fn new() -> Option<Self> {
        require!(root);
        require!(program "mkfs.ext4", "losetup", "fsfreeze");
        // 1 GiB of it stays free.
        let disk = Disk::new(2 << 30)?;
        run("mkfs.ext4", &["-q".as_ref(), disk.node.as_path()]);
        let lab = Lab::new();
        std::fs::create_dir(lab.path("mnt")).expect("a directory");
        run("mount", &[disk.node.as_path(), &lab.path("mnt")]);
        Some(Self { lab, _disk: disk })
    }

    fn at(&self) -> String {
        self.lab.path("mnt").display().to_string()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &[Path::new(&self.at())]);
    }
}

#[test]
fn a_frozen_filesystem_is_a_gap_of_writes_as_long_as_it_was_frozen() {
    let Some(mounted) = Mounted::new() else { return };
    let at = mounted.at();
    let freeze = format!("freeze@2s = fsfreeze -f {at}; sleep 1.2; fsfreeze -u {at}");
    let common = ["--size", "16m", "--rate-iops", "400", "--iodepth", "2048", "--ramp-time", "0", "--yes"];
    let watch = ["watch", &at, "--runtime", "6", "--event", &freeze, "--late", "600ms"];
    let requires = ["--require", "lost = 0", "--require", "errors = 0", "--require", "recovery < 3s"];
    let all = [&watch[..], &common, &requires, &["--json", "-"]].concat();
    let json = mounted.lab.json(&all);
    assert_valid(&json);
    let episode = &json["watch"][0];
    let event = &episode["events"][0];
    let (begin, took) = (number(&event["at_ns"]), number(&event["duration_ns"]));
    let gaps = gaps_of_writes(episode);
    let (gap_at, gap) = *gaps.iter().max_by_key(|(_, length)| *length).expect("a gap");
    // Freezing writes out first, so that only the end is known from outside.
    assert!(gap_at >= begin && gap >= 1150 * MS && gap <= took + 50 * MS, "{episode}");
    assert!((gap_at + gap).abs_diff(begin + took) < 100 * MS, "{episode}");
    // 200 writes a second, those of its first half.
    let late = number(&episode["late"]);
    assert!((90..=(gap - 600 * MS) / (5 * MS) + 30).contains(&late), "{episode}");
    assert_eq!((number(&episode["failed"]), number(&episode["lost"])), (0, 0), "{episode}");
    // The loop device has no timeout, its filesystem no limit; a Linux guest has 30 s by default.
    let all = timeouts(episode);
    assert!(all.iter().all(|one| !one["layer"].as_str().expect("text").starts_with("loop")), "{episode}");
    let errors = all.iter().find(|one| one["layer"] == at.as_str()).expect("ext4's reaction to errors");
    assert_eq!((&errors["owner"], &errors["verdict"]), (&"target".into(), &"on_error".into()), "{episode}");
    assert!(errors["timeout"].as_str().is_some_and(|word| word.starts_with("errors=")), "{episode}");
    let linux = all.iter().find(|one| one["owner"] == "guest_default").expect("a default");
    let hung = 30_000 * MS - number(&linux["spare_ns"]);
    // The slowest I/O may wait for others after the gap.
    assert!(linux["layer"] == "Linux" && hung >= gap && hung <= gap + 1000 * MS, "{episode}");
    let recovery = number(&event["recovery_ns"]);
    assert!(recovery >= gap - 50 * MS && recovery < 3000 * MS, "{episode}");
    mounted.lab.assert_nothing_left();

    let strict = [&watch[..], &common, &["--require", "gap < 1s"]].concat();
    let strict = mounted.lab.run(&strict);
    let said = text(&strict.stdout);
    assert_eq!((strict.status.code(), said.contains("gap < 1s: FAILED (1.")), (Some(1), true), "{said}");

    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("guests' defaults not reached: Linux 30s, Windows 1m"), "{said}");

    // Without an event nothing is told.
    let blackout = format!("{STALL}ms");
    let quiet =
        ["watch", &at, "--runtime", "3", "--blackout", &blackout, "--require", "gap < 400ms", "--json", "-"];
    let quiet = mounted.lab.json(&[&quiet[..], &common].concat());
    let episode = &quiet["watch"][0];
    assert_eq!((&episode["gaps"], &episode["late"]), (&Value::Array(Vec::new()), &0.into()), "{episode}");
    let told = mounted.lab.run(&["report", "3", "--detail"]);
    assert!(told.status.success() && !text(&told.stdout).contains("imeouts"), "{}", text(&told.stdout));
}

#[test]
fn an_event_that_did_not_happen_lets_nothing_pass() {
    let lab = Lab::new();
    let work = lab.work();
    let dir = work.to_str().expect("text");
    let keys = ["--size", "8m", "--runtime", "1", "--ramp-time", "0", "--yes"];
    let failing =
        ["watch", dir, "--event", "pull = echo no such path >&2; exit 3", "--require", "errors = 0"];
    let failed = lab.run(&[&failing[..], &keys].concat());
    let said = text(&failed.stdout);
    assert_eq!(failed.status.code(), Some(3), "{said}");
    assert!(said.contains("event pull: its command failed: exit status: 3: no such path"), "{said}");
    assert!(said.contains("errors = 0: undecided"), "{said}");
    for (more, words) in [
        (["--event", "pull"], "accepted: NAME = COMMAND or NAME@TIME = COMMAND"),
        (["--event", "pull@5s = true"], "event \"pull\" at 5s: accepted: before 1s"),
        (["--require", "gap < 30"], "\"gap < 30\" is not a requirement"),
        (["--require", "speed < 3s"], "accepted: gap < TIME"),
        (["--verify", "none"], "add verify = \"xxh3\""),
        (["--require", "gap < 50ms"], "records gaps from 100ms on"),
        (["--numjobs", "2"], "accepted: one job"),
        (["--loops", "1"], "leave out loops"),
        (["--blackout", "10us"], "blackout = 10us: accepted: 1ms and more"),
    ] {
        let refused = lab.run(&[&["watch", dir, "--require", "lost = 0"], &keys[..], &more].concat());
        let said = text(&refused.stderr);
        assert_eq!((refused.status.code(), said.contains(words)), (Some(2), true), "{more:?}: {said}");
    }
    lab.assert_nothing_left();
}

/// Runs a watch in the guest.
fn watch(guest: &mut LabGuest, device: &str, event: &str, more: &str) -> Value {
    let command = format!(
        "iotax watch {device} --overwrite {device} --size 4m --rate-iops 200 --iodepth 1024 --runtime 6 --ramp-time 0 --yes --json - --event '{event}' {more}"
    );
    let (_, printed) = guest.try_sh(&format!("{command} 2> /tmp/said; true"));
    let json: Value = serde_json::from_str(&printed).unwrap_or_else(|error| {
        let said = guest.sh("cat /tmp/said");
        panic!("{error}: {printed} {said}")
    });
    assert_valid(&json);
    json["watch"][0].clone()
}

#[test]
fn what_device_mapper_does_is_what_is_told() {
    let disks = [Bytes(64 << 20)];
    let extras = Extras { programs: &["wipefs"], disks: &disks, ..Extras::default() };
    let Some(mut guest) = LabGuest::boot_with(&extras) else { return };
    guest.sh("mkdir -p /tmp && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home");
    guest.map("lun", &["0 131072 linear /dev/vda 0".to_owned()]);
    let device = "/dev/mapper/lun";
    let linear = "echo 0 131072 linear /dev/vda 0 | dmsetup load lun";

    // Suspended for two seconds: nothing is lost, and nothing completes.
    let suspended =
        watch(&mut guest, device, "path@2s = dmsetup suspend lun; sleep 2; dmsetup resume lun", "");
    let (at, gap) = *gaps_of_writes(&suspended).iter().max_by_key(|gap| gap.1).expect("a gap");
    let event = &suspended["events"][0];
    let (begin, took) = (number(&event["at_ns"]), number(&event["duration_ns"]));
    assert!(gap >= 1950 * MS && gap <= took + 50 * MS, "{suspended}");
    assert!(at + 50 * MS >= begin && at + gap <= begin + took + 50 * MS, "{suspended}");
    assert_eq!((number(&suspended["failed"]), number(&suspended["lost"])), (0, 0), "{suspended}");
    assert!(number(&suspended["late"]) >= 150, "{suspended}");

    assert_eq!(timeout(&suspended, "vda", "virtio-blk request timeout"), (None, "unlimited"));

    // The same above a SCSI disk, within its timeout and beyond it.
    guest.sh("insmod /lab/scsi_debug.ko dev_size_mb=16");
    guest.map("path", &["0 32768 linear /dev/sda 0".to_owned()]);
    for (seconds, verdict) in [(30, "spare"), (1, "exceeded")] {
        guest.sh(&format!("echo {seconds} > /sys/block/sda/device/timeout"));
        let event = "path@2s = dmsetup suspend path; sleep 2; dmsetup resume path";
        let suspended = watch(&mut guest, "/dev/mapper/path", event, "");
        assert_eq!(timeout(&suspended, "sda", "SCSI command timeout"), (Some(seconds), verdict));
    }

    // Errors for a second: what failed is counted, and what was acknowledged is there.
    let failing = format!(
        "broken@2s = echo 0 131072 error | dmsetup load lun; dmsetup resume lun; sleep 1; {linear}; dmsetup resume lun"
    );
    let failing = watch(&mut guest, device, &failing, "");
    let failed = number(&failing["failed"]);
    assert!((150..400).contains(&failed) && number(&failing["lost"]) == 0, "{failing}");
    assert!(gaps_of_writes(&failing).iter().any(|(_, gap)| *gap >= 900 * MS), "{failing}");

    // Writes that are acknowledged and dropped.
    let lying = format!(
        "lying@2s = echo 0 131072 flakey /dev/vda 0 0 1000000 1 drop_writes | dmsetup load lun; dmsetup resume lun; sleep 1; {linear}; dmsetup resume lun"
    );
    let lying = watch(&mut guest, device, &lying, "--require \"lost = 0\"");
    let lost = number(&lying["lost"]);
    assert!((40..200).contains(&lost) && number(&lying["failed"]) == 0, "{lying}");
    assert_eq!(lying["requirements"][0]["verdict"], "failed", "{lying}");
}
