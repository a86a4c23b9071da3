//! Tests of durable writes: exact counts of flushes by layer, and their cost.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use iotax_testkit::require;
use serde_json::Value;

use crate::lab::{Lab, assert_valid, text};
use crate::nbd_server::FlushCounter;

/// Writes of one measurement that ends by itself.
const WRITES: u64 = 512;

/// A plan of the suite with workloads that end after [`WRITES`] commits and start right after the counters were read.
fn plan(lab: &Lab, stacks: &[(&str, &str)], writes: u64, workloads: &str) -> String {
    let targets =
        stacks.iter().map(|(name, line)| format!("[[target]]\nname = '{name}'\nstack = '{line}'\n"));
    let head = format!(
        "suite = 'flush'\nrepeat = 1\n[defaults]\nrw = 'write'\nsize = '16m'\nio_size = '{}'\nruntime = '60s'\nramp_time = '0s'\n",
        writes * 4096
    );
    lab.plan(&format!("{head}{}{workloads}", targets.collect::<String>())).display().to_string()
}

const BOTH: &str =
    "[[workload]]\nname = 'fdatasync'\nfdatasync = 1\n[[workload]]\nname = 'open_datasync'\nsync = 'dsync'\n";

/// Returns the figures of a method of durable writes on a target.
pub(crate) fn method<'a>(json: &'a Value, target: &str, name: &str) -> &'a Value {
    let methods = json["durable_writes"]["methods"].as_array().expect("methods");
    methods.iter().find(|one| one["target"] == target && one["workload"] == name).expect(name)
}

/// Returns the flush count of a target's layer.
fn count_of(method: &Value, layer: impl Fn(&str) -> bool) -> Option<u64> {
    let levels = method["flushes"]["levels"].as_array().expect("levels");
    levels.iter().find(|level| layer(level["name"].as_str().expect("a name")))?["flushes"].as_u64()
}

/// Tests that the kernel's count at a loop device below QEMU equals the number of flushes that QEMU passed on.
#[test]
fn qemu_passes_on_every_flush_or_none_as_its_cache_mode_says() {
    require!(root);
    require!(program "qemu-storage-daemon", "losetup");
    let lab = Lab::new();
    let stacks = [
        ("loop", "WORK > raw file > loop"),
        ("none", "WORK > raw file > loop > virtio cache=none"),
        ("writeback", "WORK > raw file > loop > virtio cache=writeback"),
        ("unsafe", "WORK > raw file > loop > virtio cache=unsafe"),
    ];
    let json = lab.json(&["run", &plan(&lab, &stacks, WRITES, BOTH), "--yes", "--json", "-"]);
    assert_valid(&json);
    for (target, _) in stacks {
        for name in ["fdatasync", "open_datasync"] {
            let found = method(&json, target, name);
            let flushes = &found["flushes"];
            let passed = count_of(found, |layer| layer.starts_with("loop")).expect("counted");
            assert_eq!(flushes["asked"], WRITES, "{found}");
            if target == "unsafe" {
                assert_eq!(passed, 0, "{found}");
                assert_eq!(flushes["fate"], "swallowed", "{found}");
                assert_eq!(flushes["by"], "QEMU (cache=unsafe)", "{found}");
            } else {
                assert_eq!(passed, WRITES, "{found}");
                assert_eq!(flushes["fate"], "kept", "{found}");
            }
        }
    }
    lab.assert_nothing_left();
}

/// Tests that each msync writes the mapping's pages and flushes the device below.
#[test]
fn an_msync_is_a_flush_of_the_device() {
    require!(root);
    require!(program "losetup");
    let lab = Lab::new();
    let msync = "[[workload]]\nname = 'msync'\nioengine = 'mmap'\ndirect = false\nfdatasync = 1\n";
    let plan = plan(&lab, &[("loop", "WORK > raw file > loop")], WRITES, msync);
    let json = lab.json(&["run", &plan, "--yes", "--json", "-"]);
    let found = method(&json, "loop", "msync");
    assert_eq!(found["flushes"]["asked"], WRITES, "{found}");
    assert_eq!(count_of(found, |layer| layer.starts_with("loop")), Some(WRITES), "{found}");
    assert_eq!(found["flushes"]["fate"], "kept", "{found}");
    lab.assert_nothing_left();
}

/// Tests the volatile directory's count, and the finding of `iotax doctor`.
#[test]
fn a_volatile_directory_that_drops_flushes_is_named_with_its_counts() {
    require!(root);
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let stacks = [
        ("honest", "WORK > volatile > raw file"),
        ("third", "WORK > volatile drop_flush=3 > raw file > virtio"),
        ("all", "WORK > volatile drop_flush=1 > raw file"),
    ];
    let json = lab.json(&["run", &plan(&lab, &stacks, WRITES, BOTH), "--yes", "--json", "-"]);
    assert_valid(&json);
    for (target, dropped) in [("honest", 0), ("third", WRITES / 3), ("all", WRITES)] {
        for name in ["fdatasync", "open_datasync"] {
            let found = method(&json, target, name);
            assert_eq!(found["flushes"]["asked"], WRITES, "{found}");
            assert_eq!(count_of(found, |layer| layer == "volatile"), Some(WRITES), "{found}");
            let levels = found["flushes"]["levels"].as_array().expect("levels");
            let volatile = levels.iter().find(|level| level["name"] == "volatile").expect("there");
            // Those of earlier cells count too, so that the first to drop is any of three.
            assert!(volatile["dropped"].as_u64().unwrap_or(0).abs_diff(dropped) <= 1, "{found}");
            if target != "honest" {
                assert_eq!(found["flushes"]["fate"], "swallowed", "{found}");
                let by = found["flushes"]["by"].as_str().expect("a layer");
                assert!(by.starts_with("volatile (drop_flush="), "{found}");
            }
        }
    }
    let work = lab.work().display().to_string();
    let swallowed = || {
        let found = lab.json(&["doctor", &work, "--json"]);
        let findings = found["findings"].as_array().expect("findings").iter();
        findings.filter(|one| one["rule"] == "flushes-swallowed").cloned().collect::<Vec<Value>>()
    };
    let found = swallowed();
    let [third, all] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((third["component"].as_str(), all["component"].as_str()), (Some("third"), Some("all")));
    assert_eq!(all["observed"], "1,024 asked, 0 passed on by volatile (drop_flush=1)");
    // A later run elsewhere does not affect this directory's finding; one in this directory replaces it.
    let other = lab.path("other");
    std::fs::create_dir(&other).expect("made");
    for (dir, left) in [(other.display().to_string(), 2), (work.clone(), 0)] {
        let later = ["flush", &dir, "--methods=fdatasync", "--runtime=200ms", "--repeat=1", "--yes"];
        let later = lab.run(&later);
        assert!(later.status.success(), "{}", text(&later.stderr));
        assert_eq!(swallowed().len(), left, "{dir}");
    }
    lab.assert_nothing_left();
}

/// Compares flushes and their duration with those recorded by the test's disk.
#[test]
fn a_commit_lasts_as_long_as_its_flush_and_each_flush_arrives() {
    const DELAY: Duration = Duration::from_millis(40);
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let flushed = |writes: u64, cache: &str| -> (u64, Value) {
        // A new file each time, because a changed one is rejected later.
        let socket = lab.path(&format!("{cache}-{writes}.sock"));
        let disk = FlushCounter::serve(&socket, 16 << 20, DELAY);
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let line = format!("{uri} > virtio cache={cache}");
        let workload = "[[workload]]\nname = 'fdatasync'\nfdatasync = 1\n";
        let plan = plan(&lab, &[("disk", &line)], writes, workload);
        let json = lab.json(&["run", &plan, "--overwrite", &uri, "--yes", "--json", "-"]);
        (disk.flushes(), json)
    };
    let ((few, _), (many, json)) = (flushed(20, "none"), flushed(120, "none"));
    // What preparing and ending a run flushes is the same in both.
    assert_eq!(many - few, 100);
    let found = method(&json, "disk", "fdatasync");
    let p50 = found["p50_ns"].as_f64().expect("known") / DELAY.as_nanos() as f64;
    assert!((1.0..1.03).contains(&p50), "{p50}: {found}");
    // Nothing below QEMU counts flushes here, and the report says so.
    assert_eq!(found["flushes"]["fate"], "not_countable", "{found}");
    // QEMU's NBD client sends flushes in every cache mode, so the mode is not reported as swallowing them.
    let ((few, _), (many, json)) = (flushed(20, "unsafe"), flushed(120, "unsafe"));
    assert_eq!(many - few, 100);
    assert_eq!(method(&json, "disk", "fdatasync")["flushes"]["fate"], "not_countable");
    lab.assert_nothing_left();
}

/// Tests two rungs that differ only in the delay of a flush.
#[test]
fn a_delay_of_flushes_is_the_price_of_the_rung_that_has_it() {
    const DELAY: Duration = Duration::from_millis(40);
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let rungs = [("quick", Duration::ZERO), ("slow", DELAY)];
    let mut disks = Vec::new();
    let served = rungs.map(|(name, delay)| {
        let socket = lab.path(&format!("{name}.sock"));
        disks.push(FlushCounter::serve(&socket, 16 << 20, delay));
        (name, format!("nbd+unix:///?socket={}", socket.display()))
    });
    let lines: Vec<(&str, String)> =
        served.iter().map(|(name, uri)| (*name, format!("{uri} > virtio"))).collect();
    let stacks: Vec<(&str, &str)> = lines.iter().map(|(name, line)| (*name, line.as_str())).collect();
    let plan = plan(&lab, &stacks, 100, "[[workload]]\nname = 'fdatasync'\nfdatasync = 1\n");
    let overwrite = ["--overwrite", &served[0].1, "--overwrite", &served[1].1];
    let json = lab.json(&[&["run", &plan, "--yes", "--json", "-"][..], &overwrite].concat());
    let p50 = |name| method(&json, name, "fdatasync")["p50_ns"].as_f64().expect("known");
    let price = (p50("slow") - p50("quick")) / DELAY.as_nanos() as f64;
    assert!((0.97..1.03).contains(&price), "{price}: {json}");
    lab.assert_nothing_left();
}

/// Compares with nbdkit's statistics.
#[test]
fn nbdkit_counts_as_many_flushes_as_were_asked_for() {
    require!(program "qemu-storage-daemon", "nbdkit");
    let lab = Lab::new();
    let flushes = |writes: u64| {
        let (socket, statistics) = (lab.path(&format!("{writes}.sock")), lab.path(&format!("{writes}.txt")));
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--exit-with-parent", "--filter=stats", "--unix"]).arg(&socket);
        command.args(["memory", "16M"]).arg(format!("statsfile={}", statistics.display()));
        let mut server = command.spawn().expect("nbdkit starts");
        while !socket.exists() && server.try_wait().expect("asked").is_none() {
            thread::sleep(Duration::from_millis(20));
        }
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let plan = plan(&lab, &[("disk", &format!("{uri} > virtio"))], writes, BOTH);
        lab.json(&["run", &plan, "--overwrite", &uri, "--yes", "--json", "-"]);
        let id = rustix::process::Pid::from_child(&server);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it runs");
        server.wait().expect("it ends");
        of_statistics(&statistics)
    };
    // Each commit of either method is a flush.
    assert_eq!(flushes(WRITES + 100) - flushes(100), 2 * WRITES);
    lab.assert_nothing_left();
}

/// Parses a line such as `flush: 614 ops, 0.000180 s, ...`.
fn of_statistics(path: &Path) -> u64 {
    let written = fs::read_to_string(path).expect("written");
    let line = written.lines().find_map(|line| line.trim().strip_prefix("flush: ")).expect(&written);
    line.split(' ').next().and_then(|count| count.parse().ok()).expect(&written)
}

#[test]
fn methods_are_told_with_their_price_and_their_flushes() {
    let lab = Lab::new();
    let work = lab.work().display().to_string();
    let short = ["--size=4m", "--runtime=200ms", "--ramp-time=50ms", "--repeat=2"];
    let run = ["flush", &work, "--yes", "--json=results.json", "--html=report.html"];
    // A table of 80 columns has no room for a verdict behind the longest name.
    let output = lab.iotax().env("COLUMNS", "120").args([&run[..], &short].concat()).output();
    let output = output.expect("iotax starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for words in
        ["fdatasync", "sync_file_range (not durable)", "against fsync", "Flushes, from the program down"]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let json: Value =
        serde_json::from_str(&fs::read_to_string(lab.path("results.json")).expect("written")).expect("JSON");
    assert_valid(&json);
    let methods = json["durable_writes"]["methods"].as_array().expect("methods");
    assert_eq!(methods.len(), 8);
    for one in methods {
        let is_durable = !["write", "sync_file_range"].contains(&one["workload"].as_str().expect("a name"));
        assert_eq!(one["durable"], is_durable, "{one}");
        assert_eq!(one["flushes"].is_object(), is_durable, "{one}");
        assert!(one["per_second"].as_f64() > Some(0.0) && one["p50_ns"].as_f64() > Some(0.0), "{one}");
        assert_eq!(one["against_reference"].is_object(), one["workload"] != "fsync", "{one}");
    }
    assert!(fs::read_to_string(lab.path("report.html")).expect("written").contains("Durable writes of 4k"));
    let again = lab.run(&["report", "--markdown"]);
    assert!(text(&again.stdout).contains("Durable writes of 4k"), "{}", text(&again.stdout));
    for (arguments, words) in [
        (&["flush", ".", "--methods", "fdatasnyc"][..], "did you mean \"fdatasync\""),
        (&["flush"], "TARGET"),
    ] {
        let output = lab.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
    lab.assert_nothing_left();
}

/// Each commit of a sweep is counted as its own: by size, depth, jobs and state of the file.
#[test]
fn a_sweep_measures_every_combination_that_can_be() {
    let lab = Lab::new();
    let work = lab.work().display().to_string();
    let lists = ["--bs=4k,64k", "--iodepth=1,8", "--numjobs=1,2", "--layout=filled,allocated,empty"];
    let methods = "--methods=fdatasync,open_datasync,fsync";
    let short = ["--size=1m", "--repeat=1", "--runtime=60s", "--yes", "--json=results.json", methods];
    let output = lab.iotax().env("COLUMNS", "160").args(["flush", &work]).args(lists).args(short).output();
    let output = output.expect("iotax starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("Without fdatasync and fsync with --iodepth 8: a job waits"), "{said}");
    let shown = text(&output.stdout);
    let head = shown.lines().find(|line| line.contains("against fsync")).expect(&shown);
    let columns: Vec<&str> = head.split_whitespace().take(5).collect();
    assert_eq!(columns, ["bs", "numjobs", "iodepth", "layout", "per"], "{shown}");
    let json: Value =
        serde_json::from_str(&fs::read_to_string(lab.path("results.json")).expect("written")).expect("JSON");
    assert_valid(&json);
    let all = json["durable_writes"]["methods"].as_array().expect("methods");
    // Sizes x jobs x layouts, by two methods at one depth and by one at two.
    assert_eq!(all.len(), 2 * 2 * 3 * (2 + 2));
    for one in all {
        let name = one["workload"].as_str().expect("a name");
        let length = if name.contains("-64k-") { 64 << 10 } else { 4 << 10 };
        // The area is written once, whatever divides it.
        assert_eq!(one["flushes"]["asked"], (1 << 20) / length, "{one}");
        let has_reference = one["method"] != "fsync" && name.contains("-qd1-");
        assert_eq!(one["against_reference"].is_object(), has_reference, "{one}");
    }
    lab.assert_nothing_left();
}

#[test]
fn a_sweep_that_cannot_be_is_refused_by_name() {
    let lab = Lab::new();
    let many = (1..=201).map(|kib| format!("{kib}k")).collect::<Vec<_>>().join(",");
    let many = format!("--bs={many}");
    for (arguments, words) in [
        (
            &["--methods=fsync", "--iodepth=8"][..],
            "fsync with --iodepth 8: a job waits until its write is durable",
        ),
        (
            &["--methods=fsync,open_datasync", "--iodepth=8,32"],
            "fsync with --iodepth 8 and --iodepth 32: a job",
        ),
        (&["--methods=rwf_dsync", "--iodepth=1,2"], "rwf_dsync with --iodepth 2"),
        (&["--methods=msync", "--layout=filled,sparse"], "msync with --layout sparse: a mapping has no room"),
        (&["--bs=4k,8k,4096"], "--bs has 4k twice"),
        (&["--layout=alocated"], "did you mean \"allocated\""),
        (&["--layout=empty", "--ramp-time=1s"], "--ramp-time 1s with --layout empty: after a warm-up"),
        (&[&many], "201 combinations for each method; accepted: up to 200 workloads"),
        (
            &["--bs=1k,2k,4k,8k,16k,32k,64k", "--numjobs=1,2,4,8,16", "--repeat=10"],
            "280 workloads on 1 targets are 2800 measurements, about 1 h",
        ),
        (
            &["--methods=fsync,fdatasync", "--bs=1k,2k,4k,8k,16k,32k,64k", "--repeat=1000"],
            "14 workloads on 1 targets are 14000 measurements, about ",
        ),
    ] {
        let output = lab.run(&[&["flush", "work"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {}", text(&output.stderr));
    }
    let output = lab.run(&["flush", "work > raw file > virtio", "--layout=allocated"]);
    assert!(
        text(&output.stderr).contains("is a virtio device") && output.status.code() == Some(2),
        "{}",
        text(&output.stderr)
    );
    lab.assert_nothing_left();
}
