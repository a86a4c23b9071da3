//! Compares the classic workloads with the original tools on the same filesystem.
//!
//! Rates may differ by a large factor, because other work may slow down one of the two.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use iotax_engine::measure;
use iotax_model::record::{Outcome, Tally};
use iotax_model::suite::{Suite, SuiteOptions};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::Job;
use iotax_model::workload::{Test, Workload, WorkloadKeys};

const SIZE: u64 = 128 << 20;
/// The largest accepted ratio of two rates.
const FACTOR: f64 = 6.0;

fn here() -> tempfile::TempDir {
    tempfile::TempDir::new_in(env!("CARGO_MANIFEST_DIR")).expect("directory")
}

/// Measures a workload on the file, or in a new directory next to it.
fn outcome(workload: Workload, file: &Path) -> Outcome {
    let directory = here();
    let size = workload.size.unwrap_or(Bytes(SIZE));
    let job = Job {
        writable: true,
        directory: Some(directory.path().display().to_string()),
        ..Job::new(workload, size, 7, Nanos::from_millis(500))
    };
    measure(&job, file, &mut |_| {}).expect("measured")
}

fn kib_per_s(outcome: &Outcome, tally: Option<&Tally>) -> f64 {
    tally.expect("done").bytes as f64 / 1024.0 / (outcome.duration_ns as f64 / 1e9)
}

fn alike(what: &str, ours: f64, theirs: f64) {
    eprintln!("{what}: {ours:.0} KiB/s here, {theirs:.0} KiB/s there");
    assert!(ours / theirs < FACTOR && theirs / ours < FACTOR, "{what}: {ours} and {theirs}");
}

#[test]
fn bonnie_finds_what_our_bonnie_finds() {
    iotax_testkit::require!(program "bonnie++");
    let dir = here();
    let theirs = Command::new("bonnie++")
        // Without single-byte tests, which take long on a busy machine.
        .args(["-q", "-f", "-n", "0", "-r", "64", "-s", "128:8k", "-u", "root", "-d"])
        .arg(dir.path())
        .stderr(Stdio::null())
        .output()
        .expect("bonnie++ starts");
    let line = String::from_utf8_lossy(&theirs.stdout).into_owned();
    let fields: Vec<&str> = line.trim().split(',').collect();
    if !theirs.status.success() || fields.len() < 21 {
        iotax_testkit::skip!("bonnie++ does not run here: {line:?}, {}", theirs.status);
    }
    let file = dir.path().join("area");
    std::fs::write(&file, vec![7; usize::try_from(SIZE).expect("it fits")]).expect("written");
    let suite = Suite::named("bonnie").expect("the suite");
    let options = SuiteOptions {
        size: Some(Bytes(SIZE)),
        runtime: Some(Nanos::from_secs(5)),
        ..SuiteOptions::default()
    };
    for workload in (suite.workloads)(&options) {
        let field = match workload.name.as_str() {
            "put_block" => 11,
            "rewrite" => 13,
            _ => continue,
        };
        // `+++++` where it was too quick to tell.
        let Ok(theirs) = fields[field].parse::<f64>() else { continue };
        let name = workload.name.clone();
        let outcome = outcome(workload, &file);
        assert_eq!(outcome.errors, [], "{name}");
        alike(&name, kib_per_s(&outcome, outcome.tallies.write.as_ref()), theirs);
    }
}

#[test]
fn dd_writes_as_fast_as_write_new() {
    iotax_testkit::require!(program "dd");
    let dir = here();
    let begun = Instant::now();
    let dd = Command::new("dd")
        .args(["if=/dev/zero", "bs=64k", "conv=fsync", "status=none"])
        .arg(format!("count={}", SIZE / 65536))
        .arg(format!("of={}", dir.path().join("theirs").display()))
        .status();
    let took = begun.elapsed().as_secs_f64();
    assert!(dd.expect("dd starts").success());
    let area = dir.path().join("area");
    std::fs::write(&area, "").expect("written");
    let keys = WorkloadKeys {
        test: Some(Test::WriteNew),
        bs: Some(Bytes(64 << 10)),
        size: Some(Bytes(SIZE)),
        loops: Some(1),
        end_fsync: Some(true),
        zero_buffers: Some(true),
        direct: Some(false),
        ramp_time: Some(Nanos(0)),
        ..WorkloadKeys::default()
    };
    let outcome = outcome(keys.complete(&WorkloadKeys::default()), &area);
    assert_eq!(outcome.tallies.write.as_ref().map(|write| write.bytes), Some(SIZE));
    alike("write-new", kib_per_s(&outcome, outcome.tallies.write.as_ref()), SIZE as f64 / 1024.0 / took);
}
