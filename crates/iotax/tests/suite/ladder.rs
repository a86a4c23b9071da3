//! Tests of the ladder on real guests.

use iotax_testkit::{postgres, require};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::lab::{Lab, assert_valid, text};
use serde_json::Value;

/// Returns the cells of all measurements in the order of execution.
fn order(json: &Value) -> Vec<String> {
    let mut cells: Vec<(u64, String)> = json["measurements"]
        .as_array()
        .expect("measurements")
        .iter()
        .map(|m| {
            (
                m["order"].as_u64().expect("a place"),
                format!("{} {} {}", m["target"], m["workload"], m["round"]),
            )
        })
        .collect();
    cells.sort();
    cells.into_iter().map(|(_, cell)| cell).collect()
}

#[test]
fn one_seed_is_one_order() {
    let lab = Lab::new();
    let work = lab.work();
    let run = |seed: &str| {
        order(&lab.json(&[
            "ladder",
            work.to_str().expect("utf-8"),
            "--rungs",
            "host-file",
            "--size",
            "16m",
            "--repeat",
            "2",
            // A busy disk may do nothing for a tenth of a second.
            "--runtime",
            "400ms",
            "--ramp-time",
            "0s",
            "--seed",
            seed,
            "--yes",
            "--json",
            "-",
        ]))
    };
    let first = run("11");
    assert_eq!(first.len(), 10);
    assert_eq!(first, run("11"));
    assert_ne!(first, run("12"));
}

#[test]
fn without_qemu_the_host_rungs_are_measured_and_the_missing_is_named() {
    let lab = Lab::new();
    let work = lab.work();
    let output = lab
        .iotax()
        .env("PATH", lab.path("nothing"))
        .args([
            "ladder",
            work.to_str().expect("utf-8"),
            "--size",
            "16m",
            "--repeat",
            "1",
            "--runtime",
            "100ms",
        ])
        .args(["--ramp-time", "0s", "--yes", "--json", "-"])
        .output()
        .expect("iotax starts");
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("Without guests: ") && stderr.contains("qemu-system-x86"), "{stderr}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["targets"].as_array().map(Vec::len), Some(1));
    // Asked for by name it is not left out silently.
    let output = lab
        .iotax()
        .env("PATH", lab.path("nothing"))
        .args(["ladder", work.to_str().expect("utf-8"), "--rungs", "host-file,vm-raw", "--yes"])
        .output()
        .expect("iotax starts");
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
}

#[test]
fn three_applications_have_a_verdict_on_each_rung() {
    require!(file postgres::PROGRAM);
    require!(root);
    require!(program "losetup", "mkfs.ext4");
    let lab = Lab::new();
    let work = lab.work().display().to_string();
    let ladder =
        ["ladder", &work, "--rungs", "host-file,host-ext4", "--workloads", "sqlite-wal,pgbench,unpack"];
    let length = ["--repeat", "2", "--runtime", "1s", "--ramp-time", "500ms", "--yes", "--json", "-"];
    let json = lab.json(&[&ladder[..], &length].concat());
    assert_valid(&json);
    assert_eq!(order(&json).len(), 2 * 3 * 2);
    let comparisons = json["comparisons"].as_array().expect("comparisons").iter();
    let of_rate: Vec<&str> = comparisons
        .filter(|c| c["metric"] == "iops" && c["verdict"].is_string())
        .filter_map(|c| c["workload"].as_str())
        .collect();
    assert_eq!(of_rate, ["sqlite-wal", "pgbench", "unpack"]);
    lab.assert_nothing_left();
}

#[test]
fn a_misspelt_workload_is_told_the_nearest() {
    let lab = Lab::new();
    let work = lab.work().display().to_string();
    let output = lab.run(&["ladder", &work, "--workloads", "sqlite-wla"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("did you mean \"sqlite-wal\""), "{said}");
}

#[test]
fn a_storage_daemon_without_the_export_is_named_with_its_version() {
    let lab = Lab::new();
    let old = lab.path("old");
    fs::create_dir(&old).expect("made");
    let daemon = old.join("qemu-storage-daemon");
    let script = "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'qemu-storage-daemon version 5.1.0'; else\n\
                  echo \"Invalid parameter 'vhost-user-blk'\" >&2; exit 1; fi\n";
    fs::write(&daemon, script).expect("written");
    fs::set_permissions(&daemon, fs::Permissions::from_mode(0o755)).expect("executable");
    let path = format!("{}:{}", old.display(), std::env::var("PATH").unwrap_or_default());
    let output = lab
        .iotax()
        .env("PATH", path)
        .args(["ladder", lab.work().to_str().expect("utf-8"), "--rungs", "host-file,virtio-raw", "--yes"])
        .output()
        .expect("iotax starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("version 5.1.0 has no exports of type vhost-user-blk"), "{said}");
    assert!(said.contains("came with QEMU 5.2"), "{said}");
    lab.assert_nothing_left();
}

mod guests {
    use super::*;

    /// Prints the plan of a ladder of applications on rungs with and without guests; boots none.
    fn printed(lab: &Lab, workloads: &str, more: &[&str]) -> (Option<i32>, String, String) {
        let work = lab.work().display().to_string();
        let ladder = ["ladder", &work, "--workloads", workloads, "--print-plan"];
        let output = lab.run(&[&ladder[..], more].concat());
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    #[test]
    fn applications_leave_out_raw_disks_and_get_a_filesystem_in_guests() {
        require!(guests);
        require!(root);
        require!(program "losetup", "mkfs.ext4");
        let lab = Lab::new();
        let (code, plan, said) = printed(&lab, "sqlite-wal,unpack", &["--emulated"]);
        assert_eq!(code, Some(0), "{said}");
        let plan = iotax_model::Plan::from_toml(&plan).expect("a plan");
        let names: Vec<&str> = plan.targets.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(names, ["host-file", "host-ext4", "vm-raw", "vm-qcow2"], "{said}");
        for words in [
            "Without virtio-raw, virtio-qcow2, virtio-qcow2-snapshot: workload \"sqlite-wal\" (test = sqlite) makes files",
            "Without vm-qcow2-snapshot: snapshot = \"external\"",
        ] {
            assert!(said.split_whitespace().collect::<Vec<_>>().join(" ").contains(words), "{words}: {said}");
        }
        // Lengths and sizes are the suite's.
        let [sqlite, unpack] = plan.workloads.as_slice() else { panic!("{:?}", plan.workloads) };
        assert_eq!((sqlite.size, sqlite.runtime), (None, iotax_model::units::Nanos::from_secs(2)));
        assert_eq!((unpack.nrfiles, unpack.ramp_time), (Some(2000), iotax_model::units::Nanos(0)));
    }

    #[test]
    fn pgbench_leaves_out_guests_and_is_refused_for_one_that_is_named() {
        require!(guests);
        require!(file postgres::PROGRAM);
        let lab = Lab::new();
        let (code, plan, said) = printed(&lab, "pgbench", &["--emulated"]);
        assert_eq!(code, Some(0), "{said}");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("Without vm-raw, vm-qcow2") && said.contains("has no PostgreSQL"), "{said}");
        assert!(plan.contains("host-file") && !plan.contains("vm-"), "{plan}");
        let work = lab.work().display().to_string();
        let named = ["ladder", &work, "--workloads", "pgbench", "--rungs", "host-file,vm-raw", "--yes"];
        let output = lab.run(&named);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("a guest of iotax has no PostgreSQL; use a target of this host"), "{said}");
        lab.assert_nothing_left();
    }

    #[test]
    fn four_rungs_give_three_rounds_each_and_every_comparison_has_a_verdict() {
        require!(guests);
        let lab = Lab::new();
        let work = lab.work();
        let length = ["--size=64m", "--repeat=3", "--runtime=300ms", "--ramp-time=100ms", "--seed=7"];
        let rungs = "--rungs=host-file,vm-raw,vm-qcow2,vm-qcow2-snapshot";
        let ladder =
            ["ladder", work.to_str().expect("utf-8"), rungs, "--yes", "--json=-", "--html=report.html"];
        let json = lab.json(&[&ladder[..], &length].concat());
        assert_valid(&json);
        let cells: BTreeSet<String> = order(&json).into_iter().collect();
        assert_eq!(cells.len(), 4 * 5 * 3);
        // Three rungs over the lowest, five workloads. A median needs 20 I/Os, which 300 ms of 1 MiB in an emulated guest need not have; so
        // those are left out, and latency_p99 altogether.
        let random = |c: &Value| c["workload"].as_str().is_some_and(|name| name.starts_with("rand"));
        for (metric, count) in [("iops", 15), ("latency_mean", 15), ("latency_p50", 9), ("cpu_per_io", 15)] {
            let of_metric: Vec<&Value> = json["comparisons"]
                .as_array()
                .expect("comparisons")
                .iter()
                .filter(|c| c["metric"] == metric && (count == 15 || random(c)))
                .collect();
            assert_eq!(of_metric.len(), count, "{metric}");
            for comparison in of_metric {
                let verdict = comparison["verdict"].as_str().expect("a verdict");
                assert!(["slower", "faster", "same", "undecided"].contains(&verdict), "{comparison}");
                // So short a window may pass without a tick of the host's CPU clock, which is 10 ms.
                assert!(metric == "cpu_per_io" || comparison["rounds"] == 3, "{comparison}");
            }
        }
        for target in json["targets"].as_array().expect("targets") {
            let guest = target["name"] != "host-file";
            let layers: Vec<&str> = target["layers"]
                .as_array()
                .expect("layers")
                .iter()
                .filter_map(|l| l["name"].as_str())
                .collect();
            assert_eq!(layers.contains(&"guest"), guest, "{layers:?}");
            assert!(layers.len() >= 2, "{layers:?}");
            assert_eq!(target["emulated"], guest && json["run"]["environment"]["accel"] == "tcg");
        }
        for measurement in json["measurements"].as_array().expect("measurements") {
            // Absent where so short a window saw no tick.
            assert!(measurement["metrics"].get("cpu_per_io").is_none_or(|ns| ns.as_f64() > Some(0.0)));
            assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
        }
        let report = fs::read_to_string(lab.path("report.html")).expect("a report");
        for word in ["host-file", "vm-raw", "vm-qcow2", "vm-qcow2-snapshot", "randread-4k-qd1", "qemu-system"]
        {
            assert!(report.contains(word), "{word}");
        }
        lab.assert_nothing_left();
    }

    #[test]
    fn a_plan_is_carried_out() {
        require!(guests);
        let lab = Lab::new();
        let plan = lab.plan(
            r#"
            name = "cache modes"
            repeat = 2
            [defaults]
            size = "32m"
            runtime = "300ms"
            ramp_time = "100ms"
            [[target]]
            name = "host"
            file = { dir = "WORK", preallocation = "falloc" }
            [[target]]
            name = "writeback"
            file = { dir = "WORK", format = "qcow2" }
            guest = { cache = "writeback", aio = "threads", iothread = false }
            [[target]]
            name = "directsync"
            file = { dir = "WORK" }
            guest = { cache = "directsync", aio = "native", vcpus = 2 }
            [[workload]]
            rw = "randrw"
            rwmixread = 70
            iodepth = 8
            "#,
        );
        let json = lab.json(&["run", plan.to_str().expect("utf-8"), "--yes", "--json", "-"]);
        assert_eq!(order(&json).len(), 6);
        assert_eq!(json["workloads"][0]["name"], "randrw-4k-qd8");
        lab.assert_nothing_left();
    }
}
