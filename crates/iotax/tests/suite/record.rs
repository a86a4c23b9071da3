//! Tests of traces from the command line: recording, display, export, replay.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iotax_testkit::{require, skip};
use rustix::process::{Pid, Signal};

use crate::lab::{Lab, assert_valid, start_until, text};

const BLOCK: u64 = 4096;

/// An iolog of 200 I/Os in one second, 75% of them reads.
fn iolog(path: &Path) {
    let line = |n: u64| {
        let kind = if n % 4 == 3 { "write" } else { "read" };
        format!("{} /trace {kind} {} {BLOCK}\n", n * 5000, n * 7919 % 1024 * BLOCK)
    };
    let lines: String = (0..200).map(line).collect();
    fs::write(path, format!("fio version 3 iolog\n0 /trace add\n0 /trace open\n{lines}")).expect("written");
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

#[test]
fn a_trace_is_shown_and_the_same_in_every_format() {
    let lab = Lab::new();
    iolog(&lab.path("t.log"));
    let shown = lab.run(&["trace", "t.log"]);
    let said = text(&shown.stdout);
    assert!(said.starts_with("t.log (iolog): 200 I/Os in "), "{said}");
    assert!(
        said.contains("150 reads, 50 writes") && said.contains("--rwmixread 75 --bs 4k --rate-iops 200"),
        "{said}"
    );
    assert!(
        said.contains("no block is used twice") && said.contains("half of the I/Os go to 50.0% of"),
        "{said}"
    );
    for format in ["parquet", "csv", "iolog"] {
        let out = format!("t.{format}");
        let written = lab.run(&["trace", "t.log", "--export", format, &out]);
        assert!(written.status.success(), "{}", text(&written.stderr));
        let document = lab.json(&["trace", &out, "--json"]);
        let schema: serde_json::Value =
            serde_json::from_str(include_str!("../../../report/schema/iotax-trace-1.schema.json"))
                .expect("JSON");
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        assert!(validator.is_valid(&document), "{document}");
        let profile = &document["profile"];
        assert_eq!(
            (profile["reads"].as_u64(), profile["writes"].as_u64()),
            (Some(150), Some(50)),
            "{format}"
        );
        assert_eq!(document["format"], format);
        // What is there stays.
        let again = lab.run(&["trace", "t.log", "--export", format, &out]);
        assert_eq!(again.status.code(), Some(2), "{}", text(&again.stderr));
    }
}

#[test]
fn a_trace_is_replayed_on_each_target_and_fio_does_the_same_ios() {
    require!(program "fio");
    let lab = Lab::new();
    iolog(&lab.path("t.log"));
    let work = lab.work();
    let target = format!("host-file:{}", utf8(&work));
    let run = ["run", "t.log", "--target", &target, "--yes", "--repeat", "2", "--json", "-"];
    let document = lab.json(&run);
    assert_valid(&document);
    let measured = document["measurements"].as_array().expect("measurements");
    assert_eq!(measured.len(), 2);
    for m in measured {
        let replayed = &m["replayed"];
        let counts = ["due", "begun", "left_out", "not_begun", "wrapped"].map(|key| replayed[key].as_u64());
        assert_eq!(counts, [Some(200), Some(200), Some(0), Some(0), Some(0)], "{replayed}");
        assert_eq!((m["read"]["ios"].as_u64(), m["write"]["ios"].as_u64()), (Some(150), Some(50)), "{m}");
        assert_eq!(replayed["recorded_ns"].as_u64(), Some(199 * 5_000_000));
    }
    let file = work.join("for-fio");
    fs::write(&file, vec![7; 4 << 20]).expect("written");
    let fio = Command::new("fio")
        .args(["--name=replay", "--read_iolog=t.log", "--ioengine=psync", "--output-format=json"])
        .arg(format!("--replay_redirect={}", file.display()))
        .current_dir(lab.path(""))
        .output()
        .expect("fio starts");
    let out = text(&fio.stdout);
    let json: serde_json::Value =
        serde_json::from_str(&out[out.find('{').expect("JSON")..]).expect("fio's JSON");
    let ios = |direction: &str| json["jobs"][0][direction]["total_ios"].as_u64();
    assert_eq!((ios("read"), ios("write")), (Some(150), Some(50)), "{}", text(&fio.stderr));
}

#[test]
fn a_replay_stays_within_a_target_that_is_too_small_and_says_so() {
    let lab = Lab::new();
    iolog(&lab.path("t.log"));
    let target = format!("host-file:{}", utf8(&lab.work()));
    let document = lab.json(&["run", "t.log", "--target", &target, "--yes", "--size", "1m", "--json", "-"]);
    let replayed = &document["measurements"][0]["replayed"];
    assert_eq!(replayed["begun"].as_u64(), Some(200), "{replayed}");
    assert!((100..200).contains(&replayed["wrapped"].as_u64().expect("counted")), "{replayed}");
    assert_eq!(document["measurements"][0]["errors"].as_array().map(Vec::len), Some(0));
}

#[test]
fn merged_traces_are_replayed_as_one_each_in_its_own_part() {
    let lab = Lab::new();
    iolog(&lab.path("a.log"));
    fs::copy(lab.path("a.log"), lab.path("b.log")).expect("copied");
    let refused = lab.run(&["trace", "a.log", "b.log"]);
    assert!(text(&refused.stderr).contains("2 traces are given"), "{}", text(&refused.stderr));
    let merged = lab.run(&["trace", "a.log", "b.log", "--export", "parquet", "both.parquet"]);
    assert!(text(&merged.stderr).contains("400 I/Os in both.parquet"), "{}", text(&merged.stderr));
    let shown = lab.run(&["trace", "both.parquet"]);
    let said = text(&shown.stdout);
    assert!(said.contains("a.log + b.log") && said.contains("2 volumes"), "{said}");
    let target = format!("host-file:{}", utf8(&lab.work()));
    let document = lab.json(&["run", "both.parquet", "--target", &target, "--yes", "--json", "-"]);
    let replayed = &document["measurements"][0]["replayed"];
    let counts = ["begun", "moved", "recorded_ns"].map(|key| replayed[key].as_u64());
    assert_eq!(counts, [Some(400), Some(0), Some(199 * 5_000_000)], "{replayed}");
    // A trace reaches up to 4 MiB.
    assert_eq!(document["workloads"][0]["size"], "8m", "{document}");
    lab.assert_nothing_left();
}

#[test]
fn a_large_disk_s_working_set_is_replayed_on_a_target_of_its_size() {
    let lab = Lab::new();
    // 16 streams over 60 GiB, each of 16 blocks.
    let line = |n: u64| format!("{} /d write {} {BLOCK}\n", n * 1000, n % 16 * (4 << 30) + n / 16 * BLOCK);
    let lines: String = (0..256).map(line).collect();
    fs::write(lab.path("far.log"), format!("fio version 3 iolog\n0 /d add\n0 /d open\n{lines}"))
        .expect("written");
    let plan = |offsets: &str| {
        let plan = format!(
            "name = 'far'\n[[target]]\nname = 'a'\nfile = {{ dir = '{}' }}\n[[workload]]\nread_iolog = 'far.log'\nreplay_offsets = '{offsets}'\n",
            utf8(&lab.work())
        );
        fs::write(lab.path("far.toml"), plan).expect("written");
        lab.json(&["run", "far.toml", "--yes", "--json", "-"])
    };
    let document = plan("working_set");
    assert_valid(&document);
    let replayed = &document["measurements"][0]["replayed"];
    let counts = ["begun", "wrapped", "moved", "sequential", "recorded_sequential"];
    let counts = counts.map(|key| replayed[key].as_u64());
    // The first stream stays where it was. What follows a stream begins where it ends.
    assert_eq!(counts, [Some(256), Some(0), Some(240), Some(240), Some(240)], "{replayed}");
    assert_eq!(document["workloads"][0]["size"], "1m", "{document}");
    let warnings = document["warnings"].as_array().expect("warnings");
    assert!(warnings.iter().any(|warning| warning["kind"] == "scaled_replay"), "{warnings:?}");
    // The flags of iotax bench say the same.
    let work = lab.work();
    let by_flags = ["--read-iolog", "far.log", "--replay-offsets", "working_set", "--yes", "--json", "-"];
    let by_flags = lab.json(&[&["bench", utf8(&work)], &by_flags[..]].concat());
    assert_eq!(by_flags["measurements"].as_array().map(Vec::len), Some(1));
    assert_eq!(by_flags["measurements"][0]["replayed"]["moved"].as_u64(), Some(240), "{by_flags}");
    let compressed = plan("compress");
    let replayed = &compressed["measurements"][0]["replayed"];
    assert_eq!(
        (replayed["begun"].as_u64(), replayed["wrapped"].as_u64()),
        (Some(256), Some(0)),
        "{replayed}"
    );
    lab.assert_nothing_left();
}

#[test]
fn what_cannot_be_replayed_is_refused_in_words() {
    let lab = Lab::new();
    iolog(&lab.path("t.log"));
    fs::write(lab.path("cut.log"), "fio version 3 iolog\n5 /f read 0 4096\n9 /f read 0\n").expect("written");
    fs::write(lab.path("none.log"), "fio version 3 iolog\n0 /f add\n").expect("written");
    let host = format!("host-file:{}", utf8(&lab.work()));
    let guest = format!("vm-raw:{}", utf8(&lab.work()));
    let confine = ["--confine", utf8(&lab.work())].map(str::to_owned);
    fs::write(
        lab.path("plan.toml"),
        format!(
            "name = 'p'\n[[target]]\nname = 'a'\nfile = {{ dir = '{}' }}\n[[workload]]\nread_iolog = '{}'\n",
            utf8(&lab.work()),
            utf8(&lab.path("t.log"))
        ),
    )
    .expect("written");
    for (arguments, words) in [
        (vec!["run", "t.log", "--yes"], "t.log is a trace; say where to replay it with --target"),
        (vec!["run", "t.log", "--target", &guest, "--yes"], "replay in a guest is not possible yet"),
        (vec!["run", "cut.log", "--target", &host, "--yes"], "cut.log: line 3: the length is"),
        (vec!["run", "none.log", "--target", &host, "--yes"], "none.log: it has no I/O"),
        (vec!["run", "t.log", "--target", &host, "--section", "a"], "--section a: it is for job files"),
        (vec!["run", "plan.toml", "--yes", &confine[0], &confine[1]], "read_iolog = "),
        (vec!["trace", "plan.toml"], "its format is not known; accepted: "),
        (
            vec!["trace", "t.log", "--export", "xml", "o"],
            "\"xml\" is not a known format; accepted: iolog, parquet, csv",
        ),
        (vec!["bench", utf8(&lab.work()), "--replay-time-scale", "200"], "needs read_iolog"),
        (
            vec!["tune", utf8(&lab.work()), "--read-iolog", "t.log"],
            "iotax trace t.log prints the nearest one",
        ),
        (vec!["record", "/proc", "-o", "o"], "not on one block device"),
        (vec!["record", "work", "-o", "o", "--pid", "4194305"], "--pid 4194305: there is no such process"),
        (
            vec!["record", "work", "-o", "o", "--cgroup", "work"],
            "it is no cgroup; accepted: a directory with cgroup.procs",
        ),
    ] {
        let refused = lab.run(&arguments);
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(words), "{arguments:?}: {said}");
    }
    assert!(!lab.path("o").exists());
}

/// Returns whether the lab's directory can be recorded.
fn can_record(lab: &Lab) -> bool {
    let tried = lab.run(&["record", "work", "-o", "tried.parquet", "--time", "100ms"]);
    tried.status.success() || {
        iotax_testkit::skipped::<()>(text(&tried.stderr));
        false
    }
}

#[test]
fn a_recording_holds_what_a_known_load_did_to_the_disk() {
    require!(program "fio");
    require!(root);
    let lab = Lab::new();
    if !can_record(&lab) {
        return;
    }
    let output = lab.scratch().join("load.parquet");
    let mut record = lab.iotax();
    record.args(["record", "work", "-o", utf8(&output), "--time", "60s"]);
    let mut record = start_until(&mut record, "recording the requests of ");
    let fio = Command::new("fio")
        .args([
            "--name=load",
            "--rw=randread",
            "--bs=8k",
            "--size=8m",
            "--direct=1",
            "--ioengine=psync",
            "--norandommap",
        ])
        .args(["--number_ios=500", "--io_size=100m", "--output-format=terse"])
        .current_dir(lab.work())
        .output()
        .expect("fio starts");
    assert!(fio.status.success(), "{}", text(&fio.stderr));
    let interrupted = rustix::process::kill_process(Pid::from_child(&record), Signal::INT);
    interrupted.expect("signal sent");
    assert!(record.wait().expect("it ends").success());
    let document = lab.json(&["trace", utf8(&output), "--json"]);
    let profile = &document["profile"];
    assert!(profile["reads"].as_u64() >= Some(500), "{document}");
    assert_eq!(document["lost"].as_u64(), Some(0));
    assert!(profile["mean_latency_s"].as_f64() > Some(0.0), "{profile}");
    // Only the I/O of the load, as requested.
    for file in [&lab.work().join("load.0.0"), &output] {
        std::fs::remove_file(file).expect("it is there");
    }
    lab.assert_nothing_left();
}

/// Number of direct reads in the load to record.
const OWN: u64 = 100;

/// Reads `OWN` blocks of a new file directly, in this thread: the process of an ended thread is unknown.
fn read_directly(path: &Path) {
    const LENGTH: usize = 4096;
    let size = 1 << 20;
    let mut area = vec![7_u8; size + LENGTH];
    let begin = area.as_ptr().align_offset(LENGTH);
    fs::write(path, &area[..size]).and_then(|()| fs::File::open(path)?.sync_all()).expect("written");
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
    let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).expect("direct I/O");
    for n in 0..OWN {
        let buffer = &mut area[begin..begin + LENGTH];
        let read = rustix::io::pread(&file, buffer, n * 7919 % 256 * BLOCK).expect("read");
        assert_eq!(read, LENGTH);
    }
}

/// A cgroup; removed on drop.
struct OwnCgroup(PathBuf);

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_recording_of_a_process_or_a_cgroup_leaves_out_what_others_do_meanwhile() {
    require!(program "fio");
    require!(root);
    let lab = Lab::new();
    if !can_record(&lab) {
        return;
    }
    let fio = "exec fio --name=other --rw=randread --bs=8k --size=8m --direct=1 --ioengine=psync --norandommap --number_ios=500 --io_size=100m";
    let Some(hierarchy) = crate::cgroup::hierarchy() else { skip!("no hierarchy of cgroups for I/O here") };
    let own = std::process::id().to_string();
    let cgroup = OwnCgroup(hierarchy.join(format!("iotax-test-{own}")));
    fs::create_dir(&cgroup.0).expect("a cgroup");
    let procs = cgroup.0.join("cgroup.procs");
    for (flag, value, is_own) in [("--pid", &*own, true), ("--cgroup", utf8(&cgroup.0), false)] {
        let output = lab.scratch().join(format!("{is_own}.parquet"));
        let mut record = lab.iotax();
        record.args(["record", "work", "-o", utf8(&output), "--time", "60s", flag, value]);
        let mut record = start_until(&mut record, "recording the requests of ");
        read_directly(&lab.work().join("own"));
        let other = Command::new("sh")
            .args(["-c", &format!("echo $$ > {} && {fio}", procs.display())])
            .current_dir(lab.work())
            .output()
            .expect("a shell");
        assert!(other.status.success(), "{}", text(&other.stderr));
        rustix::process::kill_process(Pid::from_child(&record), Signal::INT).expect("signal sent");
        assert!(record.wait().expect("it ends").success());
        let document = lab.json(&["trace", utf8(&output), "--json"]);
        let reads = document["profile"]["reads"].as_u64().expect("counted");
        // fio reads its file's blocks once before, to fill it, and what the filesystem needs.
        let expected = if is_own { OWN..=OWN } else { 500..=600 };
        assert!(expected.contains(&reads), "{flag}: {document}");
        fs::remove_file(&output).expect("there");
    }
    for file in ["own", "other.0.0"] {
        fs::remove_file(lab.work().join(file)).expect("there");
    }
    lab.assert_nothing_left();
}

#[test]
fn a_recording_that_is_killed_leaves_an_instance_that_clean_removes() {
    require!(root);
    let lab = Lab::new();
    if !can_record(&lab) {
        return;
    }
    let mut record = lab.iotax();
    record.args(["record", "work", "-o", "killed.parquet", "--time", "60s"]).stdout(Stdio::null());
    let child = start_until(&mut record, "recording the requests of ");
    lab.kill_and_clean(child, "while recording");
}
