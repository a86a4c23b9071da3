//! Tests of pgbench on this machine.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use iotax_testkit::{postgres, require};

use crate::lab::{Lab, assert_valid, text, with_mounts};
use crate::slow_disk::SlowDisk;

/// The arguments of a measurement of `target`.
fn bench<'a>(target: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["bench", target, "--test", "pgbench", "--direct=false", "--yes"], more].concat()
}

/// Returns the names of the processes with this working directory.
fn within(directory: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("read").flatten().map(|entry| entry.path());
    let here = processes
        .filter(|process| fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(directory)));
    here.filter_map(|process| fs::read_to_string(process.join("comm")).ok()).collect()
}

#[test]
fn transactions_have_a_rate_times_and_what_they_cost() {
    require!(file postgres::PROGRAM);
    let lab = Lab::new();
    let work = lab.work().display().to_string();
    let more = ["--numjobs", "2", "--runtime", "2s", "--ramp-time", "500ms", "--json", "-"];
    let json = lab.json(&bench(&work, &more));
    assert_valid(&json);
    let measurement = &json["measurements"][0];
    let transactions = &measurement["meta"];
    assert!(transactions["ios"].as_u64() > Some(10), "{measurement:#}");
    assert!(transactions["bytes"].as_u64() > Some(0), "{measurement:#}");
    assert!(transactions["latency_ns"]["p50"].as_f64() > Some(0.0), "{measurement:#}");
    assert!(measurement["read"].is_null() && measurement["write"].is_null(), "{measurement:#}");
    assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement:#}");
    assert_eq!(within(&lab.work()), Vec::<String>::new());
    lab.assert_nothing_left();
}

/// Tests that times count from the scheduled start, and that a server that falls behind is reported.
#[test]
fn a_rate_is_kept_or_said_to_be_too_much() {
    require!(file postgres::PROGRAM);
    let lab = Lab::new();
    let work = lab.work().display().to_string();
    let of = |rate: &str| {
        let schedule = ["--rate-iops", rate, "--rate-process", "poisson", "--builtin", "select-only"];
        let window = ["--runtime", "2s", "--ramp-time", "500ms", "--json", "-"];
        let json = lab.json(&bench(&work, &[&schedule[..], &window].concat()));
        (json["measurements"][0].clone(), json["warnings"].clone())
    };
    let (slow, _) = of("50");
    let due = slow["pacing"]["due"].as_u64().expect("a schedule");
    // 100 are expected, with a standard deviation of 10.
    assert!((50..150).contains(&due), "{slow:#}");
    assert!(slow["meta"]["ios"].as_u64().expect("known").abs_diff(due) <= 2, "{slow:#}");
    let (mad, warnings) = of("10000000");
    let (done, backlog) = (mad["meta"]["ios"].as_u64(), mad["pacing"]["backlog"].as_u64());
    assert!(backlog > done && backlog > Some(1_000_000), "{mad:#}");
    let mean = |times: &str| mad["meta"][times]["mean"].as_f64().expect("known");
    assert!(mean("response_ns") > 10.0 * mean("latency_ns"), "{mad:#}");
    assert!(warnings.to_string().contains("cannot_sustain"), "{warnings}");
    lab.assert_nothing_left();
}

/// Tests that each measurement compares pgbench's log with its summary, and fails if they differ.
#[test]
fn transactions_beyond_a_limit_are_late_or_skipped() {
    require!(file postgres::PROGRAM);
    let lab = Lab::new();
    let work = lab.work().display().to_string();
    let of = |rate: &str, limit: &str| {
        let schedule = ["--rate-iops", rate, "--rate-process", "poisson", "--builtin", "select-only"];
        let window = ["--latency-limit", limit, "--runtime", "1s", "--ramp-time", "500ms", "--json", "-"];
        let json = lab.json(&bench(&work, &[&schedule[..], &window].concat()));
        assert_valid(&json);
        let measurement = &json["measurements"][0];
        let figure = |name: &str| measurement["metrics"][name].as_f64().expect("known");
        let pacing = |name: &str| measurement["pacing"][name].as_f64().expect("known");
        assert!((pacing("late") - figure("late")).abs() < 0.5, "{measurement:#}");
        let done = measurement["meta"]["ios"].as_f64().expect("known");
        (done, figure("late"), figure("skipped"), pacing("due"))
    };
    let (_, late, skipped, _) = of("50", "9s");
    assert_eq!((late, skipped), (0.0, 0.0));
    let (done, late, skipped, due) = of("200000", "2ms");
    assert!(late > 0.0 && late <= done && skipped > done, "{late} of {done} late, {skipped} skipped");
    // Those of the last 2 ms may be due or not.
    assert!((done + skipped - due).abs() < 0.05 * due, "{done} and {skipped} of {due}");
    let said = text(&lab.run(&["report", "--detail"]).stdout);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("200,000 a second within 2ms"), "{said}");
    assert!(said.contains("were skipped, because they were later than latency_limit"), "{said}");
    lab.assert_nothing_left();
}

#[test]
fn commits_wait_for_a_flush_unless_they_need_not() {
    require!(file postgres::PROGRAM);
    require!(root);
    require!(program "losetup", "mkfs.ext4", "mount", "umount");
    let lab = Lab::new();
    let slow = SlowDisk::mount(&lab, "slow", 2 << 30, Duration::from_millis(100));
    let path = slow.path().display().to_string();
    let mean_ms = |more: &[&str]| {
        let window = ["--builtin", "simple-update", "--runtime", "1s", "--ramp-time", "5s", "--json", "-"];
        let json = lab.json(&bench(&path, &[&window[..], more].concat()));
        json["measurements"][0]["meta"]["latency_ns"]["mean"].as_f64().expect("known") / 1e6
    };
    let (durable, loose) = (mean_ms(&[]), mean_ms(&["--synchronous-commit", "off"]));
    assert!(durable >= 100.0 && loose < 50.0, "{durable} ms and {loose} ms");
}

#[test]
fn a_killed_run_leaves_no_server() {
    require!(file postgres::PROGRAM);
    let lab = Lab::new();
    let work = lab.work().display().to_string();
    let mut command = lab.iotax();
    command.args(bench(&work, &["--runtime", "60s", "--ramp-time", "500ms"]));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
    let until = |what: &str, is_so: &dyn Fn(&[String]) -> bool| {
        let deadline = Instant::now() + Duration::from_mins(1);
        while !is_so(&within(&lab.work())) {
            assert!(Instant::now() < deadline, "{what}: {:?}", within(&lab.work()));
            thread::sleep(Duration::from_millis(20));
        }
    };
    // pgbench's client has a process of the server.
    until("at work", &|all| all.iter().any(|name| name.trim() == "pgbench") && all.len() > 4);
    lab.kill_and_clean(child, "in the window");
    until("killed", &<[String]>::is_empty);
}

#[test]
fn a_missing_program_is_refused_with_its_package_before_anything_is_made() {
    require!(file postgres::PROGRAM);
    require!(root);
    let lab = Lab::new();
    let work = lab.work().display().to_string();
    let mut command = lab.iotax();
    command.args(bench(&work, &[])).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let mounts = "mount -t tmpfs none /usr/lib/postgresql";
    let output = with_mounts(&command, mounts, &lab.work()).output().expect("started");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("workload \"pgbench\": pgbench was not found in PATH"), "{said}");
    assert!(said.contains("apt-get install postgresql"), "{said}");
    let mut suite = lab.iotax();
    suite.args(["suite", "applications", &work, "--print-plan"]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let output = with_mounts(&suite, mounts, &lab.work()).output().expect("started");
    let (plan, said) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("pgbench is left out: pgbench was not found"), "{said}");
    assert!(plan.contains("sqlite-wal") && !plan.contains("pgbench"), "{plan}");
    lab.assert_nothing_left();
}

#[test]
fn a_guest_has_no_server_and_a_suite_leaves_it_out_there() {
    let lab = Lab::new();
    let guest = format!("vm-raw:{}", lab.work().display());
    let output = lab.run(&["suite", "applications", &guest, "--tests", "pgbench", "--yes"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("(test = pgbench): a guest of iotax has no PostgreSQL"), "{said}");
    let output = lab.run(&["suite", "applications", &guest, "--print-plan"]);
    assert!(text(&output.stderr).contains("pgbench is left out: vm-raw is a guest"), "{output:?}");
    assert!(!text(&output.stdout).contains("pgbench"), "{output:?}");
}

/// Parses the milliseconds of a target's transaction and the flushes of the topmost layer per transaction from the report's sentence:
/// `slow, a transaction of 101 ms: 1.00 flushes of 1.20 ms in vdb`.
pub(crate) fn transaction(said: &str, target: &str) -> (f64, f64) {
    let start = format!("{target}, a transaction of ");
    let text = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = text.split(&start).nth(1).unwrap_or_else(|| panic!("{start}: {said}"));
    let words: Vec<&str> = line.split(' ').collect();
    (milliseconds(words[0], words[1]), words[2].parse().unwrap_or_else(|_| panic!("{line}")))
}

/// Parses the flushes per transaction in each layer from the top down, and the milliseconds that the layer adds to those below, from the
/// report's sentence: `1.00 flushes of 3.00 ms in loop1, which adds 2.00 ms to 1.00 flushes of 1.00 ms in loop0`.
pub(crate) fn layers_of_transaction(said: &str) -> Vec<(f64, Option<f64>)> {
    let text = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let pieces: Vec<&str> = text.split(" flushes of ").collect();
    let layer = |pair: &[&str]| {
        let flushes = pair[0].rsplit(' ').next().and_then(|number| number.parse().ok());
        let adds = pair[1].split_once(" which adds ").map(|(_, adds)| {
            let words: Vec<&str> = adds.split(' ').collect();
            milliseconds(words[0], words[1])
        });
        (flushes.unwrap_or_else(|| panic!("{pair:?}")), adds)
    };
    pieces.windows(2).map(layer).collect()
}

fn milliseconds(number: &str, unit: &str) -> f64 {
    let unit = match unit.trim_end_matches([':', ',']) {
        "s" => 1e3,
        "ms" => 1.0,
        "us" => 1e-3,
        other => panic!("{number} {other}"),
    };
    number.parse::<f64>().unwrap_or_else(|_| panic!("{number}")) * unit
}

mod alone {
    use super::*;

    /// Tests that a flush delayed by 2 ms adds 2 ms per flush to a transaction. Both disks sleep, so that the wake-up cost is the same.
    #[test]
    fn a_planted_delay_of_flushes_is_in_the_time_of_a_transaction() {
        const DELAY: Duration = Duration::from_millis(2);
        require!(file postgres::PROGRAM);
        require!(root);
        require!(program "losetup", "mkfs.ext4", "mount", "umount");
        let lab = Lab::alone();
        let plain = SlowDisk::mount(&lab, "plain", 2 << 30, DELAY);
        let slow = SlowDisk::mount(&lab, "slow", 2 << 30, 2 * DELAY);
        let paths = [&plain, &slow].map(|disk| disk.path().display().to_string());
        let suite =
            ["suite", "applications", &paths[0], &paths[1], "--tests", "pgbench", "--yes", "--json", "-"];
        let json =
            lab.json(&[&suite[..], &["--repeat", "3", "--ramp-time", "1s", "--runtime", "3s"]].concat());
        // The median, which other programs on this machine hardly change.
        let p50_ms = |target: &str| {
            let of = json["measurements"].as_array().expect("measurements").iter();
            let of = of.filter(|measurement| measurement["target"] == target);
            let mut rounds: Vec<f64> =
                of.map(|one| one["meta"]["latency_ns"]["p50"].as_f64().expect("known") / 1e6).collect();
            rounds.sort_by(f64::total_cmp);
            rounds[rounds.len() / 2]
        };
        let said = text(&lab.run(&["report"]).stdout);
        let (_, flushes) = transaction(&said, "slow");
        assert!((0.9..1.5).contains(&flushes), "{flushes} flushes a transaction: {said}");
        let predicted_ms = p50_ms("plain") + flushes * (slow.flush_ms() - plain.flush_ms());
        let error = p50_ms("slow") / predicted_ms - 1.0;
        assert!(
            error.abs() < 0.1,
            "{} ms and {} ms, {predicted_ms} ms predicted from {} ms: {said}",
            p50_ms("plain"),
            p50_ms("slow"),
            slow.flush_ms()
        );
    }

    /// Tests that the delay is attributed to the lower of two loop devices, and the rest of the flush to the upper one.
    #[test]
    fn what_a_layer_adds_is_apart_from_what_the_disk_takes() {
        require!(root);
        require!(program "losetup", "mkfs.ext4", "mount", "umount");
        let lab = Lab::alone();
        let slow = SlowDisk::mount(&lab, "slow", 2 << 30, Duration::from_millis(100));
        let target = format!("{} > raw file > loop direct_io=true > ext4 > raw file", slow.path().display());
        let suite = ["suite", "applications", &target, "--tests", "sqlite-wal", "--yes"];
        let length = ["--size", "1m", "--repeat", "2", "--runtime", "5s"];
        let said = text(&lab.run(&[&suite[..], &length].concat()).stdout);
        let layers = layers_of_transaction(&said);
        let [(upper, Some(adds_ms)), (lower, None)] = layers.as_slice() else { panic!("{layers:?}: {said}") };
        // A commit of ext4's journal flushes before its last record and after it.
        assert!((0.99..2.5).contains(upper) && lower >= upper, "{layers:?}: {said}");
        let disk_ms = lower * slow.flush_ms();
        assert!(*adds_ms < 0.5 * disk_ms, "{layers:?} of {} ms: {said}", slow.flush_ms());
        let (whole_ms, _) = transaction(&said, "raw_file-loop_direct_io_true-ext4-raw_fi");
        let predicted_ms = adds_ms + disk_ms;
        assert!((predicted_ms / whole_ms - 1.0).abs() < 0.1, "{predicted_ms} of {whole_ms} ms: {said}");
    }
}
