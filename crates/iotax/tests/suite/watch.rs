//! Tests of the cost of events: faults of known length on this host, and in a guest with device mapper.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use iotax_testkit::require;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::disk::{Disk, run};
use crate::lab::{Lab, assert_valid, text};
use crate::lab_guest::Extras;
use crate::watch_lab::{
    MS, STALL, boot, gap_and_event, gaps_of_writes, memory_disks, number, nvme_tcp, observations,
    observed_at, timeout, timeouts, watch,
};

/// An ext4 filesystem on a loop device.
pub(crate) struct Mounted {
    pub(crate) lab: Lab,
    _disk: Disk,
}

impl Mounted {
    pub(crate) fn new() -> Option<Self> {
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

    pub(crate) fn at(&self) -> String {
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
    let watch = ["watch", &at, "--runtime", "9", "--event", &freeze, "--late", "600ms"];
    let requires = ["--require", "lost = 0", "--require", "errors = 0", "--require", "recovery < 6s"];
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
    // Below the filesystem nothing stalled.
    let stalled = episode["stalled"].as_array().expect("a loop device, at least");
    assert!(stalled.iter().all(|device| device["gap"].is_null()), "{episode}");
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
    assert!(recovery >= gap - 50 * MS && recovery < 6000 * MS, "{episode}");
    mounted.lab.assert_nothing_left();

    let strict = [&watch[..], &common, &["--require", "gap < 1s"]].concat();
    let strict = mounted.lab.run(&strict);
    let said = text(&strict.stdout);
    assert_eq!((strict.status.code(), said.contains("gap < 1s: FAILED (1.")), (Some(1), true), "{said}");

    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("guests' defaults not reached: Linux 30s, Windows 1m"), "{said}");

    // Without an event nothing is reported.
    let blackout = format!("{STALL}ms");
    let quiet =
        ["watch", &at, "--runtime", "3", "--blackout", &blackout, "--require", "gap < 400ms", "--json", "-"];
    let quiet = mounted.lab.json(&[&quiet[..], &common].concat());
    let episode = &quiet["watch"][0];
    assert_eq!((&episode["gaps"], &episode["late"]), (&Value::Array(Vec::new()), &0.into()), "{episode}");
    let printed = mounted.lab.run(&["report", "3", "--detail"]);
    assert!(
        printed.status.success() && !text(&printed.stdout).contains("imeouts"),
        "{}",
        text(&printed.stdout)
    );
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
    assert!(said.contains("event pull failed: exit status: 3: no such path"), "{said}");
    assert!(said.contains("errors = 0: undecided (pull failed)"), "{said}");
    // Its effect after the load was not observed.
    let long = ["watch", dir, "--event", "long@500ms = sleep 2", "--require", "errors = 0"];
    let too_short = lab.run(&[&long[..], &keys].concat());
    let said = format!("{}{}", text(&too_short.stdout), text(&too_short.stderr));
    assert_eq!(too_short.status.code(), Some(5), "{said}");
    for words in
        ["event long went on for 1.", "errors = 0: undecided (long went on for 1.", "waiting for event long"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    for (more, words) in [
        (
            ["--event", "pull"],
            "or an operation on a guest or image (stop, snapshot, commit, stream, resize, mirror, backup, backup-fleecing)",
        ),
        (["--event", "a\u{7}b = true"], "cannot be called so: accepted: one line of 1 to 60 characters"),
        (["--event", "pull@5s = true"], "event \"pull\" at 5s: accepted: before 1s"),
        (["--require", "gap < 30"], "\"gap < 30\" is not a requirement"),
        (["--require", "speed < 3s"], "accepted: gap < TIME"),
        (["--verify", "none"], "add verify = \"xxh3\""),
        (["--require", "gap < 50ms"], "records gaps from 100ms on"),
        (["--event", "backup"], "accepted: one guest or virtio device over a file that iotax creates"),
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

/// Tests that commands of a stored plan, which may come from another user, run only after they were shown or with an option.
#[test]
fn commands_out_of_the_store_do_not_run_unseen() {
    let lab = Lab::new();
    let work = lab.work();
    let dir = work.to_str().expect("text");
    let keys = ["--size", "8m", "--runtime", "1", "--ramp-time", "0", "--yes"];
    let done = lab.run(&[&["watch", dir, "--event", "touch = true"][..], &keys].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    let refused = lab.run(&["resume", "1", "--yes"]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("run 1 runs commands") && said.contains("sh -c \"true\""), "{said}");
    let allowed = lab.run(&["resume", "1", "--yes", "--commands"]);
    assert!(allowed.status.success(), "{}", text(&allowed.stderr));
}

#[test]
fn a_command_that_goes_on_is_left_running_by_ctrl_c_and_the_rest_is_kept() {
    let lab = Lab::new();
    let work = lab.work();
    let mut watch = lab.iotax();
    watch.args(["watch", work.to_str().expect("text"), "--size", "8m", "--runtime", "2", "--ramp-time", "0"]);
    watch.args(["--event", "forever@200ms = sleep 600", "--yes"]);
    let mut watch = watch.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(watch.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let mut lines = lines.skip_while(|line| !line.contains("waiting for event forever (process "));
    let waits = lines.next().expect("it says what it waits for");
    let pid = waits.split(['(', ')', ' ']).find_map(|word| word.parse::<i32>().ok()).expect("a process");
    let process = |pid: u32| Pid::from_raw(pid.cast_signed()).expect("a process");
    kill_process(process(watch.id()), Signal::INT).expect("it is there");
    let said: Vec<String> = lines.collect();
    let status = watch.wait().expect("it ends");
    assert_eq!(status.code(), Some(130), "{said:?}");
    // It still runs, in a separate session.
    let command = Pid::from_raw(pid).expect("a process");
    kill_process_group(command, Signal::TERM).expect("it was left running");
    let printed = text(&lab.run(&["report", "1"]).stdout);
    assert!(printed.contains(&format!("event forever failed: process {pid} was left running")), "{printed}");
    assert!(printed.contains("no gap; none late"), "{printed}");
    lab.assert_nothing_left();
}

#[test]
fn a_command_that_outlives_a_killed_run_is_ended_by_clean() {
    let lab = Lab::new();
    let work = lab.work();
    let pids = lab.work().join("pids");
    // The second process has another user's environment, as under sudo(8).
    let event = format!(
        "forever@100ms = (env -i sleep 600 & echo $!; echo $$) > {0}.new; mv {0}.new {0}; sleep 600",
        pids.display()
    );
    let mut watch = lab.iotax();
    watch.args([
        "watch",
        work.to_str().expect("text"),
        "--size",
        "8m",
        "--runtime",
        "60",
        "--ramp-time",
        "0",
    ]);
    let mut watch = watch.args(["--event", &event, "--yes"]).stdin(Stdio::null()).spawn().expect("it starts");
    let until = Instant::now() + Duration::from_mins(1);
    while !pids.exists() {
        assert!(Instant::now() < until, "the event has not begun");
        thread::sleep(Duration::from_millis(20));
    }
    watch.kill().expect("it is there");
    watch.wait().expect("it ended");
    let left = fs::read_to_string(&pids).expect("written");
    fs::remove_file(&pids).expect("made by the event");
    let lives = |pid: &&str| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        !line.is_empty()
    };
    assert_eq!(left.lines().filter(lives).count(), 2, "{left}: a kill of iotax ends neither");
    let clean = lab.run(&["clean"]);
    let said = text(&clean.stdout) + &text(&clean.stderr);
    assert!(clean.status.success() && said.contains("commands of events"), "{said}");
    assert_eq!(left.lines().filter(lives).count(), 0, "{left}: {said}");
    lab.assert_nothing_left();
}

/// A veth pair on this host, both ends up.
struct Pair {
    name: String,
}

impl Pair {
    fn new() -> Option<Self> {
        require!(root);
        require!(program "ip");
        // Unique, and at most 15 characters.
        let name = format!("iotx{}", std::process::id());
        let peer = format!("{name}p");
        run("ip", &["link", "add", &name, "type", "veth", "peer", "name", &peer].map(Path::new));
        let pair = Self { name };
        for end in [&pair.name, &peer] {
            run("ip", &["link", "set", end, "up"].map(Path::new));
        }
        Some(pair)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        run("ip", &["link", "del", &self.name].map(Path::new));
    }
}

#[test]
fn a_link_that_goes_down_and_a_mark_are_seen_at_their_times() {
    let Some(pair) = Pair::new() else { return };
    let name = &pair.name;
    let lab = Lab::new();
    let nobody = lab.run(&["mark", "cable pulled"]);
    let said = text(&nobody.stderr);
    assert_eq!((nobody.status.code(), said.contains("no watch")), (Some(2), true), "{said}");

    let work = lab.work();
    let down = format!("flap@1500ms = ip link set {name} down; sleep 1; ip link set {name} up");
    let mut watch = lab.iotax();
    watch.args(["watch", work.to_str().expect("text"), "--size", "8m", "--runtime", "6", "--ramp-time", "0"]);
    watch.args(["--rate-iops", "200", "--event", &down, "--yes", "--json", "-"]);
    let watch = watch.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let end = Instant::now() + Duration::from_mins(1);
    // It takes marks once its window has begun.
    let marked = loop {
        thread::sleep(Duration::from_millis(50));
        let marked = lab.run(&["mark", "cable pulled"]);
        if marked.status.success() || Instant::now() > end {
            break text(&marked.stdout);
        }
    };
    assert!(marked.starts_with("run 1, ") && marked.contains(": marked at "), "{marked}");
    let refused = lab.run(&["mark", "a\u{1b}[2J"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));

    let output = watch.wait_with_output().expect("it ends");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_valid(&json);
    let episode = &json["watch"][0];
    let observations = observations(episode);
    let of_pair = observations
        .iter()
        .filter(|(source, line)| *source == "link" && line.starts_with(&format!("{name}:")));
    let of_pair: Vec<&str> = of_pair.map(|(_, line)| &line[name.len() + 2..]).collect();
    assert_eq!(of_pair, ["down", "up"], "{episode}");
    assert!(observations.contains(&("mark", "cable pulled")), "{episode}");
    let at = |source: &str, words: &str| {
        let found = observed_at(episode, source, words);
        *found.first().unwrap_or_else(|| panic!("{words}: {episode}"))
    };
    let events = episode["events"].as_array().expect("events");
    let [mark, flap] = &events[..] else { panic!("{episode}") };
    assert_eq!((&mark["name"], &mark["mark"]), (&"cable pulled".into(), &true.into()), "{episode}");
    assert_eq!(
        (at("mark", "cable pulled"), &flap["mark"]),
        (number(&mark["at_ns"]), &Value::Null),
        "{episode}"
    );
    let begin = number(&flap["at_ns"]);
    let (down, up) = (at("link", &format!("{name}: down")), at("link", &format!("{name}: up")));
    assert!(down >= begin && down < begin + 900 * MS && up >= begin + 1000 * MS, "{episode}");
    assert!(up < begin + number(&flap["duration_ns"]) + STALL * MS, "{episode}");
    lab.assert_nothing_left();

    let brief = text(&lab.run(&["report", "1"]).stdout);
    assert!(
        brief.contains("cable pulled") && brief.contains("other changes: iotax report 1 --detail"),
        "{brief}"
    );
    let detail = text(&lab.run(&["report", "1", "--detail"]).stdout);
    assert!(
        detail.contains("What was seen") && detail.contains(&format!(", link: {name}: down")),
        "{detail}"
    );
}

#[test]
fn what_was_seen_until_ctrl_c_is_kept() {
    let lab = Lab::new();
    let (work, flag) = (lab.work(), lab.path("happened"));
    let event = format!("touch@1500ms = touch {}", flag.display());
    let mut command = lab.iotax();
    command.args(["watch", work.to_str().expect("text"), "--event", &event, "--event", "never@50s = true"]);
    command.args(["--size", "8m", "--rate-iops", "200", "--runtime", "60", "--ramp-time", "0", "--yes"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("iotax starts");
    let patience = Instant::now() + Duration::from_mins(1);
    while !flag.exists() && Instant::now() < patience {
        thread::sleep(Duration::from_millis(50));
    }
    thread::sleep(Duration::from_secs(2));
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let began = Instant::now();
    let status = child.wait().expect("it ends");
    assert!(status.code() == Some(130) && began.elapsed() < Duration::from_secs(30), "{status}");
    lab.assert_nothing_left();
    let json = lab.json(&["report", "1", "--json", "-"]);
    assert_valid(&json);
    let episode = &json["watch"][0];
    // Known up to its end; the second event did not happen.
    assert_eq!((&episode["whole"], &episode["lost"]), (&true.into(), &0.into()), "{episode}");
    assert!(number(&episode["late"]) < 100, "{episode}");
    let events = episode["events"].as_array().expect("events");
    assert!(events[0].get("failure").is_none(), "{episode}");
    assert_eq!(events[1]["failure"], "the run was interrupted before it", "{episode}");
}

#[test]
fn an_agent_that_dies_has_told_what_it_saw_until_then() {
    require!(program "pkill");
    let lab = Lab::new();
    let work = lab.work();
    // The pattern does not match the shell that has it in its command.
    let die = "die@2s = pkill -KILL -P $PPID -f '[e]xe agent'";
    let all = ["watch", work.to_str().expect("text"), "--event", die, "--size", "8m", "--rate-iops", "200"];
    let more =
        ["--runtime", "30", "--ramp-time", "0", "--require", "lost = 0", "--require", "gap < 1m", "--yes"];
    let died = lab.run(&[&all[..], &more].concat());
    let said = text(&died.stdout);
    assert_eq!(died.status.code(), Some(3), "{said} {}", text(&died.stderr));
    assert!(said.contains("was gone after 1.") || said.contains("was gone after 2."), "{said}");
    assert!(said.contains("lost = 0: undecided") && said.contains("gap < 1m: undecided"), "{said}");
    lab.assert_nothing_left();
    let json = lab.json(&["report", "1", "--json", "-"]);
    assert_valid(&json);
    assert!(json["watch"][0]["whole"] == false && json["watch"][0].get("gaps").is_none(), "{json}");
}

mod guests {
    use super::*;

    #[test]
    fn what_device_mapper_does_is_what_is_told() {
        let extras = Extras { programs: &["wipefs"], ..Extras::default() };
        let Some(mut guest) = boot(&extras) else { return };
        memory_disks(&mut guest, 1, 64);
        guest.map("lun", &["0 131072 linear /dev/ram0 0".to_owned()]);
        let device = "/dev/mapper/lun";
        let linear = "echo 0 131072 linear /dev/ram0 0 | dmsetup load lun";

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
        // Resuming is an event of the kernel's.
        let printed = observations(&suspended);
        let resumed =
            printed.iter().any(|(source, line)| *source == "device" && line.starts_with("change dm-0"));
        assert!(resumed, "{suspended}");

        // The same above a SCSI disk, within its timeout and beyond it.
        guest.sh("insmod /lab/scsi_debug.ko dev_size_mb=16");
        guest.map("path", &["0 32768 linear /dev/sda 0".to_owned()]);
        for (seconds, verdict) in [(30, "spare"), (1, "exceeded")] {
            guest.sh(&format!("echo {seconds} > /sys/block/sda/device/timeout"));
            let event = "path@2s = dmsetup suspend path; sleep 2; dmsetup resume path";
            let suspended = watch(&mut guest, "/dev/mapper/path", event, "");
            assert_eq!(timeout(&suspended, "sda", "SCSI command timeout"), (Some(seconds), verdict));
        }

        // Errors for a second: failed I/Os are counted, and acknowledged data is kept.
        let failing = format!(
            "broken@2s = echo 0 131072 error | dmsetup load lun; dmsetup resume lun; sleep 1; {linear}; dmsetup resume lun"
        );
        let failing = watch(&mut guest, device, &failing, "");
        let failed = number(&failing["failed"]);
        assert!((150..400).contains(&failed) && number(&failing["lost"]) == 0, "{failing}");
        assert!(gaps_of_writes(&failing).iter().any(|(_, gap)| *gap >= 900 * MS), "{failing}");

        // Writes that are acknowledged and dropped.
        let lying = format!(
            "lying@2s = echo 0 131072 flakey /dev/ram0 0 0 1000000 1 drop_writes | dmsetup load lun; dmsetup resume lun; sleep 1; {linear}; dmsetup resume lun"
        );
        let lying = watch(&mut guest, device, &lying, "--require \"lost = 0\"");
        let lost = number(&lying["lost"]);
        assert!((40..200).contains(&lost) && number(&lying["failed"]) == 0, "{lying}");
        assert_eq!(lying["requirements"][0]["verdict"], "failed", "{lying}");
    }

    /// Tests QEMU's operations on a guest's disk against the same load without them. The difference of both clocks shows for how long QEMU
    /// stopped the guest.
    #[test]
    fn operations_on_a_guests_disk_have_a_price_and_leave_nothing() {
        require!(guests);
        let lab = Lab::new();
        let work = lab.work();
        let target = format!("vm-qcow2:{}", work.display());
        let names = [
            "stop@2s",
            "snapshot@4s",
            "commit@5500ms",
            "backup@7s",
            "resize@8s",
            "stream@9s",
            "mirror@11s",
            "backup-fleecing@13s",
        ];
        let events: Vec<&str> = names.iter().flat_map(|name| ["--event", name]).collect();
        let keys = ["--size", "64m", "--rate-iops", "200", "--runtime", "15s", "--ramp-time", "0"];
        let more = ["--control", "--repeat", "2", "--require", "lost = 0", "--yes", "--json", "-"];
        let json = lab.json(&[&["watch", &target][..], &events, &keys, &more].concat());
        assert_valid(&json);
        let episodes = json["watch"].as_array().expect("a watch");
        let (controls, others): (Vec<&Value>, Vec<&Value>) =
            episodes.iter().partition(|episode| episode["workload"] == "control");
        assert_eq!((controls.len(), others.len()), (2, 2), "{json}");
        for control in controls {
            assert!(control["events"].as_array().is_some_and(Vec::is_empty), "{control}");
        }
        for episode in others {
            let events = episode["events"].as_array().expect("events");
            let failed = events.iter().find(|event| event.get("failure").is_some());
            assert!(events.len() == 8 && failed.is_none(), "{episode}");
            // The guest's clock shows for how long it was stopped, to the millisecond; the rest is the time of QEMU's monitor.
            let gaps = episode["gaps"].as_array().expect("gaps");
            let stood: Vec<(u64, u64)> = gaps
                .iter()
                .filter(|gap| gap["of"] == "guest")
                .map(|gap| (number(&gap["at_ns"]), number(&gap["duration_ns"])))
                .collect();
            let (at, took) = (number(&events[0]["at_ns"]), number(&events[0]["duration_ns"]));
            let is_it =
                |(begin, ns): &(u64, u64)| begin.abs_diff(at) < 50 * MS && ns.abs_diff(took) < 100 * MS;
            assert!(stood.iter().any(is_it), "{stood:?} of {took} from {at}");
            assert_eq!(number(&episode["lost"]), 0, "{episode}");
        }
        let prices = json["prices"].as_array().expect("prices");
        let priced: Vec<&str> = prices.iter().filter_map(|price| price["event"].as_str()).collect();
        assert_eq!(
            priced,
            ["stop", "snapshot", "commit", "backup", "resize", "stream", "mirror", "backup-fleecing"]
        );
        for price in prices {
            assert_eq!(price["rounds"], 2, "{price}");
            let mean = &price["response_mean_ns"];
            assert!(mean["without"].as_f64() > Some(0.0) && mean["with"].as_f64() > Some(0.0), "{price}");
        }
        lab.assert_nothing_left();
        let printed = text(&lab.run(&["report", "1"]).stdout);
        assert!(
            printed.contains("What each event costs") && printed.contains("lost = 0: passed in 2 windows"),
            "{printed}"
        );
    }

    #[test]
    fn paths_that_fail_cost_what_multipath_is_told_to_do_without_any() {
        let modules = ["dm_multipath", "dm_round_robin"];
        let extras = Extras { programs: &["wipefs"], modules: &modules, ..Extras::default() };
        let Some(mut guest) = boot(&extras) else { return };
        memory_disks(&mut guest, 1, 64);
        let linear = "0 131072 linear /dev/ram0 0";
        for path in ["p0", "p1"] {
            guest.map(path, &[linear.to_owned()]);
        }
        let paths = "round-robin 0 2 1 /dev/mapper/p0 1 /dev/mapper/p1 1";
        guest.map("lun", &[format!("0 131072 multipath 3 queue_if_no_path queue_mode bio 0 1 1 {paths}")]);
        let device = "/dev/mapper/lun";
        let table =
            |path: &str, table: &str| format!("echo {table} | dmsetup load {path}; dmsetup resume {path}");
        let fails = |path: &str| table(path, "0 131072 error");
        let returns = |path: &str| {
            let reinstate = format!("dmsetup message lun 0 \"reinstate_path /dev/mapper/{path}\"");
            format!("{}; {reinstate}", table(path, linear))
        };

        // One of two: the other one takes over.
        let one = format!("path@2s = {}; sleep 1; {}", fails("p0"), returns("p0"));
        let one = watch(&mut guest, device, &one, "");
        assert_eq!((number(&one["failed"]), number(&one["lost"])), (0, 0), "{one}");
        assert!(gaps_of_writes(&one).iter().all(|(_, gap)| *gap < STALL * MS), "{one}");
        let lines = observations(&one);
        assert!(lines.iter().any(|(_, text)| text.contains("DM_ACTION=PATH_FAILED")), "{lines:?}");

        // Both, with queue_if_no_path: everything waits until they return.
        let both = [fails("p0"), fails("p1"), "sleep 2".into(), returns("p0"), returns("p1")].join("; ");
        let queued = watch(&mut guest, device, &format!("paths@2s = {both}"), "");
        let ((at, gap), (begin, took)) = gap_and_event(&queued);
        assert!(gap >= 1950 * MS && gap <= took + 50 * MS, "{queued}");
        assert!(at + 50 * MS >= begin && at + gap <= begin + took + 50 * MS, "{queued}");
        assert_eq!((number(&queued["failed"]), number(&queued["lost"])), (0, 0), "{queued}");

        // Both without multipath: I/Os due meanwhile fail, and acknowledged data is kept.
        guest.sh("dmsetup message lun 0 fail_if_no_path");
        let failing = watch(&mut guest, device, &format!("paths@2s = {both}"), "");
        let ((_, gap), _) = gap_and_event(&failing);
        assert!(gap >= 1950 * MS, "{failing}");
        // 200 a second for the two seconds.
        assert!((350..600).contains(&number(&failing["failed"])), "{failing}");
        assert_eq!(number(&failing["lost"]), 0, "{failing}");
    }

    #[test]
    fn a_cable_that_is_down_is_a_gap_and_no_more() {
        let modules = ["nvmet_tcp", "nvme_tcp"];
        let extras = Extras { programs: &["wipefs"], modules: &modules, ..Extras::default() };
        let Some(mut guest) = boot(&extras) else { return };
        memory_disks(&mut guest, 1, 64);
        guest.sh("ip link set lo up");
        nvme_tcp(&mut guest, "127.0.0.1", "");
        let cable = "cable@2s = ip link set lo down; sleep 2; ip link set lo up";
        let pulled = watch(&mut guest, "/dev/nvme0n1", cable, "");
        let ((at, gap), (begin, took)) = gap_and_event(&pulled);
        // TCP sends again after 0.2, 0.6, 1.4, 3 seconds.
        let down = *observed_at(&pulled, "link", "lo: down").first().expect("it went down");
        assert!(at + 50 * MS >= begin && at.abs_diff(down) <= 50 * MS, "{pulled}");
        assert!(gap >= 1950 * MS && gap <= 2 * took + STALL * MS, "{pulled}");
        assert_eq!((number(&pulled["failed"]), number(&pulled["lost"])), (0, 0), "{pulled}");
        // It arose in the network: the disk behind it had nothing to do.
        let hung: Vec<&str> = pulled["stalled"]
            .as_array()
            .expect("devices")
            .iter()
            .filter(|device| !device["gap"].is_null())
            .filter_map(|device| device["device"].as_str())
            .collect();
        assert_eq!(hung, ["nvme0c0n1"], "{pulled}");
    }
}
