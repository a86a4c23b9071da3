//! Tests of power cuts with journals kept elsewhere: on another disk, over ssh, and over a guest's serial line.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iotax_testkit::require;
use serde_json::Value;

use crate::lab::{Lab, start_until, text, with_mounts};
use crate::lab_guest::{Extras, LabGuest};
use crate::sshd::Sshd;

/// Size of a journal with some hundred records.
const SOME: u64 = 40 * 500;

fn utf8(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

/// A mounted volatile directory; unmounted on drop.
struct Disk {
    below: PathBuf,
    point: PathBuf,
    control: BufReader<UnixStream>,
    process: Child,
}

impl Disk {
    fn mount(lab: &Lab, faults: &[&str]) -> Self {
        let (below, point) = (lab.path("below"), lab.path("disk"));
        fs::create_dir(&below).and_then(|()| fs::create_dir(&point)).expect("made");
        let (control, theirs) = UnixStream::pair().expect("a socket");
        let mut command = lab.iotax();
        command.arg("volatile").args([&below, &point]).args(["--marker", "lab", "--seed", "1"]).args(faults);
        let process = command.stdout(OwnedFd::from(theirs)).spawn().expect("iotax starts");
        drop(command);
        let mut disk = Self { below, point, control: BufReader::new(control), process };
        assert_eq!(disk.hear().trim(), "mounted");
        disk
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.control.read_line(&mut line).expect("it answers");
        line
    }

    /// Cuts the power. Returns the account.
    fn cut(&mut self) -> Value {
        writeln!(self.control.get_mut(), "cut").expect("it listens");
        serde_json::from_str(&self.hear()).expect("JSON")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.point).status();
        let _ = self.process.wait();
    }
}

/// Waits until a journal has some records.
fn wait_for(journal: &Path) {
    let patience = Instant::now() + Duration::from_mins(2);
    while fs::metadata(journal).map_or(0, |found| found.len()) < SOME {
        assert!(Instant::now() < patience, "nothing was acknowledged");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the only cut in the document of `iotax powercut check`, and the exit code.
fn checked(mut command: Command, target: &Path, journal: &str) -> (Option<i32>, Value) {
    let output = command
        .args(["powercut", "check", utf8(target), "--journal", journal, "--json"])
        .output()
        .expect("iotax starts");
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let schema: Value =
        serde_json::from_str(include_str!("../../../model/schema/crash.schema.json")).expect("JSON");
    assert!(jsonschema::is_valid(&schema, &document), "{document}");
    (output.status.code(), document["targets"][0]["cuts"][0].clone())
}

fn number(cut: &Value, pointer: &str) -> u64 {
    cut.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer}: {cut}"))
}

fn lost_flushed(cut: &Value) -> u64 {
    ["/flushed/stale", "/flushed/torn", "/flushed/damaged"].iter().map(|counter| number(cut, counter)).sum()
}

#[test]
fn a_disk_that_keeps_what_it_flushed_is_told_from_one_that_does_not() {
    require!(program "fusermount3");
    require!(root);
    for (faults, loses) in [(&[][..], false), (&["--drop-flush", "1"], true)] {
        let (lab, elsewhere) = (Lab::new(), in_memory());
        let mut disk = Disk::mount(&lab, faults);
        let journal = elsewhere.path().join("journal");
        let mut start = lab.iotax();
        start.args(["powercut", "start", utf8(&disk.point), "--journal", utf8(&journal), "--size", "4m"]);
        let mut start = start_until(&mut start, "Pull the plug");
        wait_for(&journal);
        let account = disk.cut();
        // The disk alone lost its power: the load ends by itself, and closes its journal.
        assert_eq!(start.wait().expect("it ended").code(), Some(3));
        let target = disk.below.join("iotax-powercut.dat");
        let (code, cut) = checked(lab.iotax(), &target, utf8(&journal));
        assert_eq!((code, lost_flushed(&cut) > 0), (Some(loses.into()), loses), "{cut:#}");
        assert!(number(&cut, "/flushed/checked") > 0 && cut["seconds"].as_f64() > Some(0.0), "{cut:#}");
        // At most the number that the disk lost or tore, because the fate of a write in flight is unknown.
        for fault in ["torn", "lost"] {
            let found = number(&cut, &format!("/acknowledged/{}", fault.replace("lost", "stale")));
            assert!(found <= account[fault].as_u64().expect("a count"), "{fault}: {account} {cut:#}");
        }
        let words = lab.run(&["powercut", "check", utf8(&target), "--journal", utf8(&journal)]);
        let words = text(&words.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        let verdict = if loses { "1 of 1 cut lost flushed writes" } else { "nothing lost that was flushed" };
        assert!(words.contains(verdict) && !words.contains("the journal was not closed"), "{words}");
    }
}

#[test]
fn a_journal_on_another_machine_outlives_a_kill_and_a_lost_connection_ends_the_load() {
    let Some(sshd) = Sshd::start("") else { return };
    let (work, url) = (sshd.lab.work().display().to_string(), sshd.url("journal"));
    let start = |journal: &str| {
        let mut command = sshd.iotax();
        command.args(["powercut", "start", &work, "--journal", journal, "--size", "4m"]);
        command
    };
    let mut running = start_until(&mut start(&url), "Pull the plug");
    wait_for(&sshd.lab.path("journal"));
    running.kill().expect("killed");
    running.wait().expect("it ended");
    let target = sshd.lab.work().join("iotax-powercut.dat");
    let (code, cut) = checked(sshd.iotax(), &target, &url);
    // A kill takes nothing that was acknowledged.
    let lost = lost_flushed(&cut) + number(&cut, "/acknowledged/stale") + number(&cut, "/acknowledged/torn");
    assert_eq!((code, lost), (Some(0), 0), "{cut:#}");
    assert!(number(&cut, "/writes") > 0, "{cut:#}");
    let clean = sshd.lab.run(&["clean"]);
    assert!(clean.status.success(), "{}", text(&clean.stdout));
    // A journal that exists is not written over.
    for (journal, words) in [
        (&url, "/journal: it exists; accepted: a new file"),
        (&sshd.url("nowhere/journal"), "/nowhere/journal: "),
    ] {
        let refused = start(journal).output().expect("iotax starts");
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(words) && !said.contains("POSIX shell"), "{said}");
    }
    sshd.assert_nothing_left();

    let mut running = start(&sshd.url("other")).stderr(Stdio::piped()).spawn().expect("iotax starts");
    wait_for(&sshd.lab.path("other"));
    sshd.cut_connections();
    let ended = running.wait().expect("it ended");
    let mut said = String::new();
    let stderr = running.stderr.take().expect("piped");
    BufReader::new(stderr).lines().for_each(|line| said += &(line.expect("text") + "\n"));
    assert_eq!(ended.code(), Some(3), "{said}");
    assert!(said.contains("the connection of the journal"), "{said}");
    let (code, cut) = checked(sshd.iotax(), &target, &sshd.url("other"));
    assert_eq!((code, lost_flushed(&cut)), (Some(0), 0), "{cut:#}");
    assert!(sshd.lab.run(&["clean"]).status.success());
    sshd.assert_nothing_left();
}

#[test]
fn another_machine_without_room_for_the_journal_ends_the_load() {
    let Some(sshd) = Sshd::start("mkdir LAB/small && mount -t tmpfs -o size=400k tmpfs LAB/small") else {
        return;
    };
    let mut start = sshd.iotax();
    start.args(["powercut", "start", utf8(&sshd.lab.work()), "--size", "4m"]);
    let output = start.args(["--journal", &sshd.url("small/journal")]).output().expect("iotax starts");
    let words = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(3), "{words}");
    assert!(words.contains("The load ended: the connection of the journal: tee: "), "{words}");
    assert!(words.contains("No space left on device"), "{words}");
    assert!(sshd.lab.run(&["clean"]).status.success());
    sshd.assert_nothing_left();
}

#[test]
fn bad_places_are_refused_before_anything_is_made() {
    let lab = Lab::new();
    let (work, mine) = (lab.work(), lab.path("mine"));
    fs::write(&mine, "mine").expect("written");
    let start =
        |target: &Path, journal: &str| lab.run(&["powercut", "start", utf8(target), "--journal", journal]);
    let check =
        |target: &Path, journal: &str| lab.run(&["powercut", "check", utf8(target), "--journal", journal]);
    for (output, words) in [
        (start(&mine, "j"), "it exists; accepted: a new file"),
        (start(&work, utf8(&mine)), "it exists, and a journal is a new file"),
        (start(&work, "ssh://host"), "no path; accepted: ssh://"),
        (start(Path::new("/dev/null"), "j"), "it exists; accepted"),
        (start(Path::new("a > raw file"), "j"), "iotax crash cuts stacks that it builds"),
        (start(&work, utf8(&lab.path("new"))), "which is tested, and go with it; accepted"),
        (
            lab.run(&["powercut", "start", utf8(&work), "--journal", "ssh://host/j", "--size", "100"]),
            "workload \"powercut\": size = 100 bytes",
        ),
        (check(&work, "j"), "mount its filesystem first"),
        (check(&mine, utf8(&work)), "it is a directory; accepted: the file of a journal"),
        (check(&mine, utf8(&mine)), "it is no journal"),
        (check(&mine, "/dev/null"), "a line keeps nothing"),
    ] {
        assert_eq!(output.status.code(), Some(2), "{words}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(words), "{words}: {}", text(&output.stderr));
    }
    assert_eq!(fs::read_to_string(&mine).expect("there"), "mine");
    lab.assert_nothing_left();
}

#[test]
fn interrupted_it_removes_what_it_made() {
    let lab = Lab::new();
    let elsewhere = in_memory();
    let journal = elsewhere.path().join("journal");
    let mut start = lab.iotax();
    start.args(["powercut", "start", utf8(&lab.work()), "--journal", utf8(&journal), "--size", "4m"]);
    let mut start = start_until(&mut start, "Pull the plug");
    wait_for(&journal);
    let early = lab.run(&["powercut", "check", utf8(&lab.work()), "--journal", utf8(&journal)]);
    let said = text(&early.stderr);
    assert_eq!(early.status.code(), Some(4), "{said}");
    assert!(
        said.contains("as iotax powercut start does while it writes; check after the power was cut"),
        "{said}"
    );
    let pid = rustix::process::Pid::from_child(&start);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signal sent");
    assert_eq!(start.wait().expect("it ended").code(), Some(130));
    assert!(!journal.exists());
    lab.assert_nothing_left();
}

/// A directory for journals on a different filesystem than labs.
fn in_memory() -> tempfile::TempDir {
    tempfile::TempDir::new_in("/dev/shm").expect("a filesystem in memory")
}

#[test]
fn a_journal_without_room_ends_the_load_with_a_sentence() {
    require!(program "unshare", "mount");
    require!(root);
    let lab = Lab::new();
    let elsewhere = in_memory();
    let journal = elsewhere.path().join("journal");
    let start = |journal: &Path| {
        let mut start = lab.iotax();
        start.args(["powercut", "start", utf8(&lab.work()), "--size", "1m", "--journal", utf8(journal)]);
        start
    };
    // No file grows beyond 2 MiB: room for some 50,000 records.
    let limited = with_mounts(&start(&journal), "ulimit -f 4096", elsewhere.path()).output();
    let said = text(&limited.expect("it starts").stderr);
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("The load ended: the journal has ") && words.contains("File too large"),
        "{words}"
    );
    let target = lab.work().join("iotax-powercut.dat");
    let (code, cut) = checked(lab.iotax(), &target, utf8(&journal));
    assert_eq!((code, lost_flushed(&cut)), (Some(3), 0), "{cut:#}");
    let missing = cut["incomplete"].as_str().expect("a reason");
    let counts: Vec<u64> = missing.split(' ').filter_map(|word| word.parse().ok()).collect();
    // What was in flight and in the queue, and no minutes of load.
    assert!(counts[1] - counts[0] < 200_000, "{missing}");
    assert!(lab.run(&["clean"]).status.success());

    let small = lab.path("small");
    fs::create_dir(&small).expect("made");
    let mount = "mount -t tmpfs -o size=4m tmpfs \"$0\"";
    let output = with_mounts(&start(&small.join("journal")), mount, &small).output().expect("it starts");
    let words = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(3), "{words}");
    assert!(words.contains("The load ended: the journal has no more room: "), "{words}");
    assert!(words.contains(" always stay free (the filesystem has 4.00 MiB)"), "{words}");
    assert!(lab.run(&["clean"]).status.success());
    lab.assert_nothing_left();
}

#[test]
fn a_device_can_be_checked_after_it_is_cleaned() {
    require!(program "losetup", "wipefs");
    require!(root);
    let lab = Lab::new();
    let (elsewhere, image) = (in_memory(), lab.path("image"));
    fs::File::create_new(&image).and_then(|file| file.set_len(16 << 20)).expect("an image");
    let attached = Command::new("losetup").args(["--find", "--show"]).arg(&image).output().expect("losetup");
    assert!(attached.status.success(), "{}", text(&attached.stderr));
    let device = LoopDevice(PathBuf::from(text(&attached.stdout).trim()));
    let (device, journal) = (&device.0, elsewhere.path().join("journal"));
    let start = |size: &str| {
        let mut start = lab.iotax();
        start.args(["powercut", "start", utf8(device), "--overwrite", utf8(device), "--size", size]);
        start.args(["--journal", utf8(&journal)]);
        start
    };
    let refused = start("15m").output().expect("iotax starts");
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(
        text(&refused.stderr).contains("15m are to be written; accepted: --size up to 14m"),
        "{}",
        text(&refused.stderr)
    );
    let mut load = start_until(&mut start("14m"), "Pull the plug");
    wait_for(&journal);
    load.kill().expect("killed");
    load.wait().expect("it ended");
    for moment in ["before", "after"] {
        let (code, cut) = checked(lab.iotax(), device, utf8(&journal));
        let lost = number(&cut, "/acknowledged/stale") + number(&cut, "/acknowledged/damaged");
        assert_eq!((code, lost), (Some(0), 0), "{moment}: {cut:#}");
        let clean = lab.run(&["clean"]);
        assert!(clean.status.success(), "{}{}", text(&clean.stdout), text(&clean.stderr));
    }
    let ends = fs::read(&image).expect("read");
    assert!(ends[..1 << 20].iter().chain(&ends[15 << 20..]).all(|byte| *byte == 0), "it was cleaned");
    lab.assert_nothing_left();
}

/// A device, a volume or another filesystem may lie on the disk of the journal all the same.
#[test]
fn a_journal_on_the_disk_below_another_device_is_refused_by_the_disks_name() {
    require!(program "losetup");
    require!(root);
    let (lab, elsewhere) = (Lab::new(), in_memory());
    let attach = |image: &Path| {
        fs::File::create_new(image).and_then(|file| file.set_len(16 << 20)).expect("an image");
        let attached =
            Command::new("losetup").args(["--find", "--show"]).arg(image).output().expect("losetup");
        LoopDevice(PathBuf::from(text(&attached.stdout).trim()))
    };
    let device = attach(&lab.path("image"));
    let name = utf8(&device.0);
    let start = ["powercut", "start", name, "--overwrite", name, "--journal"];
    let refused = lab.run(&[&start[..], &[utf8(&lab.path("journal"))]].concat());
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    let below = iotax_testbed::stack::physical_disks(Path::new("/"), &lab.work());
    let [disk] = below.as_slice() else {
        iotax_testkit::skip!("the disk below {} is not known", lab.work().display())
    };
    assert!(said.contains(&format!("journal: it would lie on {disk}, which is tested")), "{said}");
    // In memory it is another.
    let device = attach(&elsewhere.path().join("image"));
    let name = utf8(&device.0);
    let start = ["powercut", "start", name, "--overwrite", name, "--size", "4m", "--journal"];
    let mut command = lab.iotax();
    let mut load = start_until(command.args(start).arg(lab.path("journal")), "Pull the plug");
    let pid = rustix::process::Pid::from_child(&load);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signal sent");
    assert_eq!(load.wait().expect("it ended").code(), Some(130));
    lab.assert_nothing_left();
}

/// A loop device; detached on drop.
struct LoopDevice(PathBuf);

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// Returns the blocks that match the log of dm-log-writes. A write is in the log once a later flush or FUA completed. Format:
/// Documentation/admin-guide/device-mapper/log-writes.rst and the kernel's dm-log-writes.c.
fn logged(log: &Path, area: usize) -> Vec<u8> {
    const MAGIC: u64 = 0x6a_7366_7773_6872;
    const DISCARD: u64 = 4;
    const MARK: u64 = 8;
    let log = fs::read(log).expect("the log");
    let word = |at: usize| u64::from_le_bytes(log[at..at + 8].try_into().expect("8 bytes"));
    assert_eq!((word(0), word(8)), (MAGIC, 1), "a log of version 1");
    let sectors = |at: usize| usize::try_from(word(at)).expect("a place in memory") * 512;
    // Of the length of a sector and a checksum, the first half.
    let (entries, sector) = (word(16), usize::try_from(word(24) & 0xffff_ffff).expect("a short one"));
    let mut blocks = vec![0; area];
    let mut at = sector;
    for _ in 0..entries {
        let (begin, bytes, flags) = (sectors(at), sectors(at + 8), word(at + 16));
        at += sector;
        if flags & (DISCARD | MARK) != 0 {
            assert_eq!(bytes, 0, "the workload discards nothing");
            continue;
        }
        let end = (begin + bytes).min(area);
        if begin < end {
            blocks[begin..end].copy_from_slice(&log[at..at + end - begin]);
        }
        at += bytes;
    }
    blocks
}

mod guests {
    use super::*;

    /// The layer that loses acknowledged writes.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Loser {
        /// No layer.
        Nobody,
        /// iotax's volatile directory at a cut; QEMU does not pass flushes to it.
        Volatile,
        /// dm-flakey, which acknowledges and drops writes and flushes from some time on.
        Flakey,
    }

    /// Tests that the journal and dm-log-writes below the load agree on the number of lost blocks.
    #[test]
    fn dm_log_writes_and_the_journal_miss_as_many_blocks_whoever_loses_them() {
        const DEVICE: usize = 8 << 20;
        const SECTORS: usize = DEVICE / 512;
        // Beside what iotax wipes at a device's begin and end when it leaves it.
        const AREA: Range<usize> = 1 << 20..5 << 20;
        require!(program "fusermount3");
        require!(root);
        for loser in [Loser::Nobody, Loser::Volatile, Loser::Flakey] {
            let lab = Lab::new();
            // A torn block would be one that is there in part.
            let mut disk = Disk::mount(&lab, &["--whole"]);
            let (image, log, journal) = (disk.point.join("image"), lab.path("log"), lab.path("journal"));
            let make = |path: &Path, length| {
                fs::File::create_new(path).and_then(|file| file.set_len(length)).expect("made");
            };
            make(&image, DEVICE as u64);
            make(&log, 256 << 20);
            let mode = if loser == Loser::Volatile { "cache.no-flush=on" } else { "cache.direct=on" };
            let devices = [
                "-blockdev",
                &format!("driver=file,node-name=cut,filename={},{mode}", image.display()),
                "-device",
                "virtio-blk-pci,drive=cut",
                "-blockdev",
                &format!("driver=file,node-name=log,filename={}", log.display()),
                "-device",
                "virtio-blk-pci,drive=log",
                "-chardev",
                &format!("file,id=line,path={}", journal.display()),
                "-device",
                "isa-serial,chardev=line",
            ]
            .map(str::to_owned);
            let extras = Extras {
                programs: &["wipefs"],
                modules: &["dm_log_writes"],
                devices: &devices,
                ..Extras::default()
            };
            let Some(mut guest) = LabGuest::boot_with(&extras) else { return };
            guest.map("disk", &[format!("0 {SECTORS} linear /dev/vda 0")]);
            let target = guest.map("logged", &[format!("0 {SECTORS} log-writes /dev/mapper/disk /dev/vdb")]);
            if loser == Loser::Flakey {
                // After some 500 of 2,048 writes: a write has a record of 40 bytes.
                let drops = format!("0 {SECTORS} flakey /dev/vda 0 0 1000000 1 drop_writes");
                guest.sh(&format!(
                    "{{ while ! [ -e /journal ] || [ \"$(wc -c < /journal)\" -lt 20000 ]; do usleep 20000; done; \
                     dmsetup suspend disk && dmsetup load disk --table '{drops}' && dmsetup resume disk; }} > /dev/null 2>&1 &"
                ));
            }
            // Twice each block. It ends with a flush.
            guest.sh(&format!(
                "HOME=/ iotax bench {0} --overwrite {0} --yes --rw randwrite --iodepth 8 --offset 1m --size 4m --io-size 8m --ramp-time 0s --runtime 300s \
                 --repeat 1 --fdatasync 16 --verify xxh3 --do-verify=0 --write-journal /journal > /said 2>&1 || {{ cat /said; false; }}",
                target.display()
            ));
            // Its log ends with the device.
            guest.sh("dmsetup remove logged; dmsetup remove disk; sync");
            guest.sh("stty -F /dev/ttyS1 raw -echo; cat /journal > /dev/ttyS1; wc -c < /journal");
            disk.cut();
            drop(guest);
            let wanted = &logged(&log, DEVICE)[AREA];
            let found = &fs::read(disk.below.join("image")).expect("left")[AREA];
            let both = wanted.chunks(4096).zip(found.chunks(4096));
            let missing = both.filter(|(one, other)| one != other).count() as u64;
            let loses = loser != Loser::Nobody;
            let (code, cut) = checked(lab.iotax(), &disk.below.join("image"), utf8(&journal));
            assert_eq!((code, missing > 0), (Some(loses.into()), loses), "{loser:?}: {cut:#}");
            assert_eq!(number(&cut, "/acknowledged/checked"), AREA.len() as u64 / 4096, "{loser:?}: {cut:#}");
            assert_eq!(number(&cut, "/acknowledged/stale"), missing, "{loser:?}: {cut:#}");
            assert_eq!(lost_flushed(&cut) > 0, loses, "{loser:?}: {cut:#}");
        }
    }

    #[test]
    fn a_guest_whose_qemu_is_killed_loses_what_its_disk_did_not_flush() {
        require!(program "fusermount3");
        require!(root);
        for (mode, loses) in [("cache.direct=on", false), ("cache.no-flush=on", true)] {
            let lab = Lab::new();
            let mut disk = Disk::mount(&lab, &[]);
            let journal = lab.path("journal");
            let image = disk.point.join("image");
            fs::File::create_new(&image).and_then(|file| file.set_len(16 << 20)).expect("an image");
            let devices = [
                "-blockdev",
                &format!("driver=file,node-name=cut,filename={},{mode}", image.display()),
                "-device",
                "virtio-blk-pci,drive=cut",
                "-chardev",
                &format!("file,id=line,path={}", journal.display()),
                "-device",
                "isa-serial,chardev=line",
            ]
            .map(str::to_owned);
            let extras = Extras { programs: &["wipefs"], devices: &devices, ..Extras::default() };
            let Some(mut guest) = LabGuest::boot_with(&extras) else { return };
            // The first port is the console's.
            let start =
                "HOME=/ iotax powercut start /dev/vda --overwrite /dev/vda --size 4m --journal /dev/ttyS1";
            let (_, said) = guest.try_sh(start);
            assert!(said.contains("make it raw: stty -F /dev/ttyS1 raw -echo"), "{said}");
            guest.sh("stty -F /dev/ttyS1 raw -echo");
            guest.sh(&format!("{start} </dev/null >/log 2>&1 &"));
            let until = "while ! grep -q 'Pull the plug\\|^iotax: ' /log; do usleep 100000; done; cat /log";
            let log = guest.sh(until);
            assert!(log.contains("Pull the plug"), "{log}");
            wait_for(&journal);
            disk.cut();
            drop(guest);
            let (code, cut) = checked(lab.iotax(), &disk.below.join("image"), utf8(&journal));
            assert_eq!((code, lost_flushed(&cut) > 0), (Some(loses.into()), loses), "{mode}: {cut:#}");
            assert!(number(&cut, "/flushed/checked") > 0, "{cut:#}");
        }
    }
}
