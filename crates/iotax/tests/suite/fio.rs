//! Agreement with fio on the same jobs: a check of correctness, not of speed.
//!
//! The cached job is large blocks at depth 1, where the kernel's copying dominates. On small cached blocks the two differ
//! by what each tool costs, and at depth they differ because fio takes its buffers in turn while iotax takes the one
//! that is warm in the CPU's cache: both are subjects of a benchmark.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::lab::{Lab, needs, text};
use serde_json::Value;

const SIZE: u64 = 1 << 30;
/// Interleaved pairs of runs, of which the medians are compared.
const PAIRS: usize = 5;

struct Job {
    ioengine: &'static str,
    rw: &'static str,
    bs: &'static str,
    iodepth: &'static str,
    direct: &'static str,
}

fn fio(job: &Job, file: &Path) -> f64 {
    let output = Command::new("fio")
        .args(["--name=job", "--time_based", "--runtime=2", "--ramp_time=0.5s", "--output-format=json"])
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--size={SIZE}"))
        .args([
            format!("--ioengine={}", job.ioengine),
            format!("--rw={}", job.rw),
            format!("--bs={}", job.bs),
            format!("--iodepth={}", job.iodepth),
        ])
        .args([format!("--direct={}", job.direct), "--invalidate=0".to_owned(), "--readonly".to_owned()])
        .output()
        .expect("fio runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("fio's JSON");
    json["jobs"][0]["read"]["iops"].as_f64().expect("a figure")
}

fn iotax(lab: &Lab, job: &Job, file: &Path) -> f64 {
    let json = lab.json(&[
        "bench",
        file.to_str().expect("utf-8"),
        "--ioengine",
        job.ioengine,
        "--rw",
        job.rw,
        "--bs",
        job.bs,
        "--iodepth",
        job.iodepth,
        &format!("--direct={}", job.direct),
        "--invalidate=0",
        "--runtime",
        "2s",
        "--ramp-time",
        "500ms",
        "--json",
        "-",
    ]);
    json["measurements"][0]["read"]["iops"].as_f64().expect("a figure")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn agree(job: &Job) {
    if !needs(&["fio"]) {
        return;
    }
    let lab = Lab::alone();
    let path = lab.work().join("data");
    let mut file = std::fs::File::create(&path).expect("created");
    let chunk: Vec<u8> = (0..1_u32 << 18).flat_map(|n| n.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
    (0..SIZE >> 20).for_each(|_| file.write_all(&chunk).expect("written"));
    file.sync_all().expect("synced");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        theirs.push(fio(job, &path));
        ours.push(iotax(&lab, job, &path));
    }
    let ratio = median(ours.clone()) / median(theirs.clone());
    eprintln!(
        "{} {} qd{} direct={}: iotax {ours:.0?}, fio {theirs:.0?}, ratio {ratio:.3}",
        job.rw, job.bs, job.iodepth, job.direct
    );
    assert!((0.85..=1.15).contains(&ratio), "ratio {ratio:.3}: iotax {ours:?}, fio {theirs:?}");
}

#[test]
fn the_same_job_gives_the_same_iops() {
    agree(&Job { ioengine: "psync", rw: "randread", bs: "256k", iodepth: "1", direct: "0" });
    agree(&Job { ioengine: "io_uring", rw: "randread", bs: "4k", iodepth: "16", direct: "1" });
}
