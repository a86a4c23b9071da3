//! Tests that job files give the same results with fio and with iotax, and that fio's examples run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use iotax_testkit::{require, thorough};
use serde_json::Value;

use crate::lab::{Lab, text};

/// Examples of fio 3.33 whose engines are available on Linux without special hardware or libraries.
const EXAMPLES: [&str; 41] = [
    "1mbs_clients.fio",
    "aio-read.fio",
    "backwards-read.fio",
    "basic-verify.fio",
    "butterfly.fio",
    "cmdprio-bssplit.fio",
    "cmdprio-percentage.fio",
    "cpp_null.fio",
    "cross-stripe-verify.fio",
    "dedupe-global.fio",
    "disk-zone-profile.fio",
    "enospc-pressure.fio",
    "exitwhat.fio",
    "falloc.fio",
    "filecreate-ioengine.fio",
    "filedelete-ioengine.fio",
    "filestat-ioengine.fio",
    "fio-rand-RW.fio",
    "fio-rand-read.fio",
    "fio-rand-write.fio",
    "fio-seq-RW.fio",
    "fio-seq-read.fio",
    "fio-seq-write.fio",
    "fixed-rate-submission.fio",
    "flow.fio",
    "fsx.fio",
    "ftruncate.fio",
    "iometer-file-access-server.fio",
    "jesd219.fio",
    "null.fio",
    "numa.fio",
    "poisson-rate-submission.fio",
    "rand-zones.fio",
    "ssd-steadystate.fio",
    "ssd-test.fio",
    "steadystate.fio",
    "surface-scan.fio",
    "tiobench-example.fio",
    "waitfor.fio",
    "xnvme-compare.fio",
    "zipf.fio",
];
const FIO_EXAMPLES: &str = "/usr/share/doc/fio/examples";

/// Flags for a small part of one of them.
const SMALL: [&str; 10] = [
    "--size",
    "8m",
    "--runtime",
    "300ms",
    "--ramp_time",
    "0s",
    "--yes",
    "--output-format",
    "json",
    "--output",
];

#[test]
fn fios_examples_are_accepted_or_refused_with_a_reason() {
    require!(file "/usr/share/doc/fio/examples/null.fio");
    let lab = Lab::new();
    let target = lab.work().join("data").display().to_string();
    let mut accepted = Vec::new();
    let mut names: Vec<_> =
        fs::read_dir(FIO_EXAMPLES).expect("a list").map(|entry| entry.expect("a file").file_name()).collect();
    names.sort();
    let is_job = |name: &&str| Path::new(name).extension().is_some_and(|extension| extension == "fio");
    for name in names.iter().filter_map(|name| name.to_str()).filter(is_job) {
        let path = format!("{FIO_EXAMPLES}/{name}");
        let mut command = lab.iotax();
        for (variable, value) in [("FIO_RW", "read"), ("FIO_BS", "4k"), ("FIO_IODEPTH", "4")] {
            command.env(variable, value);
        }
        let output =
            command.args(["plan", "show", &path, "--target", &target, "--size", "512m", "--json"]).output();
        let output = output.expect("iotax starts");
        match output.status.code() {
            Some(0) => accepted.push(name.to_owned()),
            Some(2) => {
                let said = text(&output.stderr);
                assert!(said.contains(name) && said.trim().lines().count() > 0, "{name}: {said}");
            }
            code => panic!("{name}: {code:?}: {}", text(&output.stderr)),
        }
    }
    assert_eq!(accepted, EXAMPLES);
}

#[test]
fn examples_of_every_kind_run() {
    require!(file "/usr/share/doc/fio/examples/null.fio");
    let lab = Lab::new();
    let target = lab.work().join("data").display().to_string();
    let names = [
        "butterfly",
        "cmdprio-bssplit",
        "cpp_null",
        "dedupe-global",
        "exitwhat",
        "falloc",
        "flow",
        "ftruncate",
        "jesd219",
        "rand-zones",
        "waitfor",
    ];
    for name in names {
        let path = format!("{FIO_EXAMPLES}/{name}.fio");
        let mut arguments = vec!["run", path.as_str(), "--target", &target];
        arguments.extend(SMALL);
        arguments.push("-");
        let output = lab.run(&arguments);
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        let run: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        for job in run["jobs"].as_array().expect("jobs") {
            let moved: u64 = ["read", "write", "trim"]
                .iter()
                .filter_map(|direction| job[direction]["total_ios"].as_u64())
                .sum();
            assert!(moved > 0, "{name}: {job}");
            assert_eq!(job["error"], 0, "{name}: {job}");
        }
        lab.assert_nothing_left();
    }
}

#[test]
fn examples_of_operations_on_files_run() {
    require!(file "/usr/share/doc/fio/examples/null.fio");
    let lab = Lab::new();
    let target = lab.work().join("data").display().to_string();
    for (name, files) in [("filecreate", 16 * 31_250), ("filedelete", 6 * 200), ("filestat", 6 * 200)] {
        let path = format!("{FIO_EXAMPLES}/{name}-ioengine.fio");
        let run = lab.json(&["run", &path, "--target", &target, "--size", "1m", "--yes", "--json", "-"]);
        let counted = &run["measurements"][0]["meta"]["ios"];
        assert_eq!(counted, files, "{name}: {run}");
        lab.assert_nothing_left();
    }
}

/// Runs a job file with fio or with iotax in a separate directory. Returns IOPS by job and direction.
fn iops(lab: &Lab, is_fio: bool, job: &str) -> BTreeMap<String, f64> {
    let dir = lab.work();
    let path = lab.path("job.fio");
    fs::write(&path, format!("[global]\ndirectory={}\ngroup_reporting\n{job}", dir.display()))
        .expect("written");
    let path = path.display().to_string();
    let output = if is_fio {
        Command::new(iotax_testkit::program("fio"))
            .args(["--output-format=json", &path])
            .output()
            .expect("fio runs")
    } else {
        lab.run(&["run", &path, "--yes", "--output-format", "json", "--output", "-"])
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
    for entry in fs::read_dir(&dir).expect("a list") {
        remove(&entry.expect("a file").path());
    }
    let run: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut found = BTreeMap::new();
    for job in run["jobs"].as_array().expect("jobs") {
        for direction in ["read", "write"] {
            let iops = job[direction]["iops"].as_f64().expect("a rate");
            let name = format!("{} {direction}", job["jobname"].as_str().expect("a name"));
            assert!(iops <= 0.0 || found.insert(name, iops).is_none(), "a job comes once: {run}");
        }
    }
    found
}

fn remove(path: &Path) {
    fs::remove_file(path).expect("removed");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Tests that run while no other test does.
mod alone {
    use super::*;

    /// Options about caches, memory and new files once made a difference of 2 to 70 times.
    #[test]
    fn a_job_file_measures_what_fio_measures() {
        require!(program "fio");
        let lab = Lab::alone();
        // Each goes on for more than half a second: one that took 40 ms was halved or doubled by a single pause of the disk.
        let jobs = [
            "[a]\nrw=randread\nbs=4k\nsize=32m\ntime_based\nruntime=600ms\n",
            "[a]\nrw=write\nbs=2300\nsize=8m\nfdatasync=1\n",
            "[a]\nrw=randread\nbs=256k\nsize=64m\ndirect=1\nioengine=libaio\niodepth=16\ntime_based\nruntime=600ms\n",
            "[a]\nrw=read\nbs=64k\nsize=32m\ntime_based\nruntime=1\n",
            "[a]\nrw=randread\nbs=4k\nsize=32m\nloops=3\n",
            "[a]\nrw=write\nbs=4k\nsize=32m\nfdatasync=1\noverwrite=1\n",
        ];
        for job in &jobs[..if thorough() { jobs.len() } else { 3 }] {
            let mut ratios: BTreeMap<String, Vec<f64>> = BTreeMap::new();
            for pair in 0..5 {
                let first = iops(&lab, pair % 2 == 0, job);
                let second = iops(&lab, pair % 2 != 0, job);
                let (theirs, ours) = if pair % 2 == 0 { (first, second) } else { (second, first) };
                assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
                for (name, ours) in ours {
                    ratios.entry(name.clone()).or_default().push(ours / theirs[&name]);
                }
            }
            for (name, ratios) in ratios {
                let ratio = median(ratios.clone());
                eprintln!("{job}{name}: ratio {ratio:.2} of {ratios:.2?}");
                assert!((0.6..1.67).contains(&ratio), "{job}{name}: {ratios:.2?}");
            }
        }
        lab.assert_nothing_left();
    }
}

/// A load at a fixed rate is steady from the start: both tools end once the criterion has held for its duration, and not before.
#[test]
fn a_steady_state_ends_a_job_as_it_ends_fios() {
    require!(program "fio");
    let lab = Lab::new();
    let job = lab.path("steady.fio");
    let job_of = |duration: u32| {
        fs::write(
            &job,
            format!(
                "[steady]\nioengine=null\nsize=1g\nrw=randread\nrate_iops=500\ntime_based\nruntime=8\nss=iops:20%\nss_dur={duration}\nss_ramp=1\n"
            ),
        )
        .expect("written");
    };
    let path = job.to_str().expect("UTF-8");
    let ours = || {
        let file_path = lab.work().join("file").display().to_string();
        let json = lab.json(&["bench", &file_path, "--job", path, "--json", "-"]);
        json["measurements"][0].clone()
    };
    job_of(3);
    let output = Command::new("fio").args(["--output-format=json", path]).current_dir(lab.work()).output();
    let fios: Value = serde_json::from_slice(&output.expect("fio starts").stdout).expect("JSON");
    let fios = &fios["jobs"][0];
    assert_eq!(fios["steadystate"]["attained"], 1, "{fios}");
    let fios = fios["job_runtime"].as_f64().expect("milliseconds") / 1e3;
    let measurement = ours();
    let seconds = measurement["duration_s"].as_f64().expect("seconds");
    // fio begins to count one interval after its ramp, and looks once a second.
    assert!(
        (3.9..4.5).contains(&seconds) && (seconds..seconds + 2.0).contains(&fios),
        "{seconds} s, fio {fios} s"
    );
    assert_eq!(measurement["steadystate"]["attained_ns"], 4_000_000_000_u64, "{measurement}");
    let said = text(&lab.run(&["report", "1"]).stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("steadystate = iops:20%: steady in 1 round, after 4.00 s at most"), "{said}");

    // One that the runtime has no room for.
    job_of(10);
    let measurement = ours();
    let seconds = measurement["duration_s"].as_f64().expect("seconds");
    assert!((7.9..8.2).contains(&seconds), "{seconds}");
    assert_eq!(measurement["steadystate"]["attained_ns"], Value::Null, "{measurement}");
    let said = text(&lab.run(&["report", "2"]).stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("NOT steady in 1 of 1 round"), "{said}");
}

#[test]
fn the_null_engine_takes_no_space() {
    let lab = Lab::new();
    let job = lab.path("null.fio");
    fs::write(
        &job,
        "[null]\nioengine=null\nsize=100t\nrw=randread\nnorandommap\ntime_based\nruntime=300ms\n",
    )
    .expect("written");
    let (job, work) = (job.display().to_string(), lab.work().display().to_string());
    let show = lab.json(&["plan", "show", &job, "--target", &work, "--json"]);
    assert_eq!(show["space_bytes"][&work], 0, "{show}");
    let small = lab.json(&["run", &job, "--target", &work, "--size", "1t", "--yes", "--json", "-"]);
    assert!(small["measurements"][0]["metrics"]["iops"].as_f64() > Some(0.0), "{small}");
    lab.assert_nothing_left();
}

#[test]
fn what_only_writes_meets_an_unwritten_file_and_what_reads_a_filled_one() {
    let lab = Lab::new();
    let job = lab.path("both.fio");
    let text = "[global]\nsize=4m\ndirect=1\nverify=crc32c\n[writes]\nrw=write\nio_size=1m\n[reads]\nstonewall\nrw=read\n";
    fs::write(&job, text).expect("written");
    let (job, work) = (job.display().to_string(), lab.work().display().to_string());
    let run = lab.json(&["run", &job, "--target", &work, "--repeat", "3", "--yes", "--json", "-"]);
    let reads: Vec<&Value> =
        run["measurements"].as_array().expect("a list").iter().filter(|m| m["workload"] == "reads").collect();
    assert_eq!(reads.len(), 3);
    for m in reads {
        // Every block has a stamp, of the filling or of a write: none was left unwritten. Each is read, and read back at the end.
        assert_eq!((&m["verify"]["checked"], m["verify"].get("faults")), (&2048.into(), None), "{m}");
    }
    lab.assert_nothing_left();
}

#[test]
fn what_is_done_to_space_leaves_the_next_job_a_filled_file() {
    let lab = Lab::new();
    let job = lab.path("space.fio");
    let text_of_job = "[global]\nsize=4m\nbs=4k\n[cut]\nioengine=ftruncate\nrw=randwrite\n[punch]\nstonewall\nioengine=falloc\n\
                       rw=randtrim\n[alloc]\nstonewall\nioengine=falloc\nrw=write\n[read]\nstonewall\nrw=read\ndirect=1\n";
    fs::write(&job, text_of_job).expect("written");
    let (job, work) = (job.display().to_string(), lab.work().display().to_string());
    let done = lab.run(&["run", &job, "--target", &work, "--repeat", "3", "--yes", "--json", "-"]);
    let said = text(&done.stderr);
    assert!(done.status.success(), "{said}");
    let run: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    for m in run["measurements"].as_array().expect("a list") {
        let ios: u64 =
            ["read", "write", "trim"].iter().filter_map(|direction| m[direction]["ios"].as_u64()).sum();
        assert_eq!(ios, 1024, "{m}");
    }
    // What reads or punches finds no holes of another one: the file is filled again in between.
    let (mut is_filled, mut cells) = (false, 0);
    let lines: Vec<&str> = said.lines().collect();
    for (line, next) in lines.iter().zip(&lines[1..]) {
        is_filled |= line.contains("filled work");
        let Some(name) = line.split_whitespace().last().filter(|_| line.contains("  cell ")) else {
            continue;
        };
        cells += 1;
        if matches!(name, "read" | "punch") {
            assert!(is_filled || next.contains("filled work"), "{name}: {said}");
        }
        is_filled = name == "read";
    }
    assert_eq!(cells, 12, "{said}");
    lab.assert_nothing_left();
}

#[test]
fn operations_on_directories_run() {
    let lab = Lab::new();
    let work = lab.work().display().to_string();
    for (engine, ios) in [("dircreate", 60), ("dirstat", 180), ("dirdelete", 60)] {
        let job = lab.path("dirs.fio");
        let loops = if engine == "dirstat" { "loops=3\n" } else { "" };
        let text = format!(
            "[global]\nioengine={engine}\nnrfiles=20\nfilesize=4k\nunlink=0\n{loops}[a]\n[b]\nnumjobs=2\n"
        );
        fs::write(&job, text).expect("written");
        let run = lab.json(&["run", &job.display().to_string(), "--target", &work, "--yes", "--json", "-"]);
        assert_eq!(run["measurements"][0]["meta"]["ios"], ios, "{engine}: {run}");
        lab.assert_nothing_left();
    }
}

#[test]
fn jobs_end_together_and_in_proportion_if_they_say_so() {
    let lab = Lab::new();
    let work = lab.work().display().to_string();
    let run = |text: &str| {
        let job = lab.path("job.fio");
        fs::write(&job, text).expect("written");
        let job = job.display().to_string();
        lab.json(&["run", &job, "--target", &work, "--yes", "--output-format", "json", "--output", "-"])
    };
    let of = |run: &Value, name: &str, figure: &str| {
        let job = run["jobs"].as_array().expect("jobs").iter().find(|job| job["jobname"] == name);
        job.and_then(|job| job.pointer(figure))
            .and_then(Value::as_u64)
            .unwrap_or_else(|| panic!("{name}: {run}"))
    };
    let ended = run("[global]\nsize=1m\nrw=read\n[short]\nexitall\n[long]\ntime_based\nruntime=120\n");
    assert!(of(&ended, "long", "/job_runtime") < 60_000, "{ended}");
    let flows = run(
        "[global]\nsize=1m\nrw=randread\ntime_based\nruntime=1\n[one]\nflow=1\n[four]\nflow=4\nflow_sleep=100\n",
    );
    let ratio = of(&flows, "four", "/read/total_ios") as f64 / of(&flows, "one", "/read/total_ios") as f64;
    assert!((3.5..4.5).contains(&ratio), "{ratio}: {flows}");
    lab.assert_nothing_left();
}
