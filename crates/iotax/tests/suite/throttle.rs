//! Tests of storage throttled by the kernel: a limit of 500 reads per second must be measured as such.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{Rw, WorkloadKeys};
use iotax_testkit::{skip, thorough};
use rustix::fs::{major, minor};
use serde_json::Value;

use crate::lab::{Lab, text};
use crate::lab_guest::LabGuest;

const RATE: f64 = 500.0;
const SIZE_MIB: usize = 64;

/// A control group with limited read IOPS; removed on drop.
struct Throttle {
    group: PathBuf,
}

impl Throttle {
    /// Limits reads of a directory's disk. Fails with the reason if that is impossible here.
    fn of(dir: &Path) -> Result<Self, String> {
        let disk = disk_beneath(dir)?;
        let (parent, file, limit) = hierarchy(&disk)?;
        let group = parent.join(format!("iotax-test-{}", std::process::id()));
        fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        let throttle = Self { group };
        let path = throttle.group.join(file);
        fs::write(&path, &limit).map_err(|error| format!("{}: {limit}: {error}", path.display()))?;
        Ok(throttle)
    }

    /// Wraps a command so that it runs in the group.
    fn confine(&self, command: &Command) -> Command {
        let mut confined = Command::new("sh");
        confined.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.group.join("cgroup.procs"));
        confined.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => confined.env(name, value),
                None => confined.env_remove(name),
            };
        }
        confined
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // Its processes have ended.
        let _ = fs::remove_dir(&self.group);
    }
}

/// Returns the device number of the whole disk below a directory.
fn disk_beneath(dir: &Path) -> Result<String, String> {
    let device = fs::metadata(dir).map_err(|error| format!("{}: {error}", dir.display()))?.dev();
    let number = format!("{}:{}", major(device), minor(device));
    let entry = fs::canonicalize(format!("/sys/dev/block/{number}"))
        .map_err(|_| format!("{} is on no block device", dir.display()))?;
    let partition = entry.join("partition").exists();
    let disk =
        if partition { entry.parent().expect("a disk of partitions").join("dev") } else { entry.join("dev") };
    fs::read_to_string(&disk)
        .map(|number| number.trim().to_owned())
        .map_err(|error| format!("{}: {error}", disk.display()))
}

/// Returns the directory of block I/O groups, the file for limits, and a limit in its format.
fn hierarchy(disk: &str) -> Result<(PathBuf, &'static str, String), String> {
    const LIMIT: &str = "blkio.throttle.read_iops_device";
    let (first, second) = (Path::new("/sys/fs/cgroup/blkio"), Path::new("/sys/fs/cgroup"));
    if first.join(LIMIT).exists() {
        return Ok((first.to_owned(), LIMIT, format!("{disk} {RATE}")));
    }
    let controllers = fs::read_to_string(second.join("cgroup.controllers")).unwrap_or_default();
    if !controllers.split_whitespace().any(|name| name == "io") {
        return Err("no hierarchy of control groups here has a controller for block I/O".into());
    }
    let control = second.join("cgroup.subtree_control");
    fs::write(&control, "+io").map_err(|error| format!("{}: {error}", control.display()))?;
    Ok((second.to_owned(), "io.max", format!("{disk} riops={RATE}")))
}

/// A lab with a file to read and a throttle on its disk; skips the test if that is impossible.
fn throttled() -> Option<(Lab, PathBuf, Throttle)> {
    let lab = Lab::alone();
    let throttle = match Throttle::of(&lab.work()) {
        Ok(throttle) => throttle,
        Err(reason) => skip!("{reason}"),
    };
    let path = lab.work().join("data");
    let mut file = fs::File::create(&path).expect("created");
    let chunk: Vec<u8> = (0..1_u32 << 18).flat_map(|n| n.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
    (0..SIZE_MIB).for_each(|_| file.write_all(&chunk).expect("written"));
    file.sync_all().expect("synced");
    Some((lab, path, throttle))
}

/// Measures four seconds of 4k random reads in the throttled group, after one second of warm-up.
fn read(lab: &Lab, path: &Path, throttle: &Throttle, more: &[&str]) -> Value {
    let mut command = lab.iotax();
    command.arg("bench").arg(path).args(["--runtime", "4s", "--ramp-time", "1s", "--json", "-"]).args(more);
    let output = throttle.confine(&command).output().expect("a shell");
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Uses latency limits of 50 ms or more, so that the load of other tests hardly matters.
#[test]
fn a_search_finds_the_rate_of_the_disk() {
    let Some((lab, path, throttle)) = throttled() else { return };
    // A queue of 200 ms is there only at the rate of the disk, one of 50 ms somewhere below it. A minute has room for six pairs of
    // rates alone, which find a limit that sets in within 1% of the rate to a fifth.
    let (searches, slo, time, near) =
        if thorough() { (5, "p99 <= 200ms", "180s", 0.05) } else { (1, "p99 <= 50ms", "60s", 0.2) };
    for _ in 0..searches {
        let mut command = lab.iotax();
        command.arg("ask").arg(&path).args(["--slo", slo, "--time", time, "--yes", "--json", "-"]);
        let output = throttle.confine(&command).output().expect("a shell");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let answer = &answer["answers"][0];
        eprintln!("{answer}");
        let rate = answer["rate"].as_f64().unwrap_or_else(|| panic!("{answer}"));
        assert!((rate / RATE - 1.0).abs() < near, "{answer}");
    }
}

/// Tests that run while no other test does.
mod alone {
    use super::*;

    #[test]
    fn a_closed_loop_runs_at_the_rate_of_the_disk() {
        let Some((lab, path, throttle)) = throttled() else { return };
        for iodepth in [1.0, 16.0] {
            // A busy machine only ever takes from the rate, so one attempt of five must be calm.
            let calm = (0..3).any(|_| {
                let json = read(&lab, &path, &throttle, &["--iodepth", &iodepth.to_string()]);
                let read = &json["measurements"][0]["read"];
                let iops = read["iops"].as_f64().expect("a rate");
                let mean_s = read["latency_ns"]["mean"].as_f64().expect("a mean") / 1e9;
                eprintln!("qd{iodepth}: {iops} IOPS, mean {:.3} ms", mean_s * 1e3);
                assert!(iops <= RATE * 1.02, "{iops} IOPS");
                iops >= RATE * 0.98 && (iops * mean_s / iodepth - 1.0).abs() <= 0.03
            });
            assert!(calm, "not {RATE} IOPS in three attempts, see above");
        }
    }

    #[test]
    fn an_open_loop_that_asks_for_more_says_so() {
        const ASKED: f64 = 800.0;
        let Some((lab, path, throttle)) = throttled() else { return };
        let attempt = || {
            let json = read(&lab, &path, &throttle, &["--rate-iops", &ASKED.to_string()]);
            let measurement = &json["measurements"][0];
            let warnings = measurement["warnings"].as_array().expect("warnings");
            assert!(warnings.iter().any(|warning| *warning == "cannot_sustain"), "{warnings:?}");
            let (read, pacing) = (&measurement["read"], &measurement["pacing"]);
            let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("a number: {measurement}"));
            let second = |name: &str| number(&read["response_ns"][name]) / 1e9;
            eprintln!("{read}, {pacing}");
            let (backlog, expected) = (number(&pacing["backlog"]), 5.0 * (ASKED - RATE));
            // The kernel passes I/O in slices of 100 ms and may be part of a slice ahead or behind; the backlog shows by how much.
            let ahead_s = (expected - backlog) / RATE;
            // An I/O that begins t seconds after the start was due at t x 500 / 800; the window is from 1 to 5.
            let wait = |at: f64| at * (1.0 - RATE / ASKED) - ahead_s;
            let figures = [
                ("IOPS", number(&read["iops"]), RATE),
                ("I/Os due", number(&pacing["due"]), 4.0 * ASKED),
                ("backlog", backlog, expected),
                ("mean response", second("mean"), wait(3.0)),
                ("longest response", second("max"), wait(5.0)),
                ("mean service", number(&read["latency_ns"]["mean"]) / 1e9, 1.0 / RATE),
            ];
            let off = figures.iter().filter(|(_, value, truth)| (value / truth - 1.0).abs() > 0.05);
            let off: Vec<String> =
                off.map(|(what, value, truth)| format!("{what}: {value}, not {truth}")).collect();
            eprintln!("{off:?}");
            off.is_empty()
        };
        // A busy machine only ever makes it wait, so one attempt of five must be calm.
        assert!((0..5).any(|_| attempt()), "off in five attempts, see above");
    }
}

mod guests {
    use super::*;

    /// Tests that run while no other test does.
    mod alone {
        use super::*;

        /// Same with cgroup v2, which this machine may lack, and for writes.
        #[test]
        fn a_guest_runs_at_the_rate_of_its_group() {
            let Some(mut guest) = LabGuest::boot_in_exact_time() else { return };
            guest.sh("insmod /lab/null_blk.ko nr_devices=1 gb=1; mount -t cgroup2 cgroup2 /sys/fs/cgroup");
            guest.sh(
            "cd /sys/fs/cgroup; echo +io > cgroup.subtree_control; mkdir slow; echo $agent > slow/cgroup.procs",
        );
            guest.sh("echo $(cat /sys/block/nullb0/dev) riops=500 wiops=250 > /sys/fs/cgroup/slow/io.max");
            for (rw, rate) in [(Rw::RandRead, 500.0), (Rw::RandWrite, 250.0)] {
                let keys = WorkloadKeys {
                    rw: Some(rw),
                    iodepth: Some(4),
                    runtime: Some(Nanos::from_secs(4)),
                    ..WorkloadKeys::default()
                };
                let outcome =
                    guest.measure(Path::new("/dev/nullb0"), Bytes(64 << 20), &keys).expect("measured");
                let iops = outcome.tallies.ios() as f64 * 1e9 / outcome.duration_ns as f64;
                let mean_s = outcome.tallies.latency().mean().expect("I/Os") / 1e9;
                eprintln!("{rw}: {iops:.1} IOPS, mean {:.3} ms", mean_s * 1e3);
                assert!((iops / rate - 1.0).abs() <= 0.02, "{rw}: {iops} IOPS");
                assert!((iops * mean_s / 4.0 - 1.0).abs() <= 0.03, "{rw}: {iops} IOPS of {mean_s} s");
            }
        }
    }
}
