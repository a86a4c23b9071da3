//! Tests of latency against offered load: on a device that queueing theory describes, and as a command.

use std::path::Path;

use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{RateProcess, Rw, WorkloadKeys};

use serde_json::Value;

use crate::lab::{Lab, assert_valid, text};
use crate::lab_guest::LabGuest;

const MS: f64 = 1e6;

/// JSON documents of two runs with known knees.
fn compared_with_a_later_knee(lab: &Lab, json: &Value) {
    for (name, seed, knee) in [("a.json", 1, 1000.0), ("b.json", 2, 1500.0)] {
        let mut changed = json.clone();
        changed["run"]["seed"] = seed.into();
        let power = serde_json::json!({ "estimate": knee, "low": knee - 10.0, "high": knee + 10.0 });
        changed["curves"][0]["knee"] = serde_json::json!({ "power": power });
        std::fs::write(lab.path(name), changed.to_string()).expect("written");
    }
    let compared = lab.json(&["compare", "a.json", "b.json", "--json"]);
    let rate = &compared["rates"][0];
    assert_eq!((&rate["what"], &rate["ratio"]), (&"knee".into(), &1.5.into()), "{compared}");
    assert_eq!(rate["verdict"], "faster", "{rate}");
}

#[test]
fn a_curve_goes_from_idle_to_beyond_what_a_file_can_do() {
    let lab = Lab::new();
    let work = lab.work();
    let dir = work.to_str().expect("text");
    let arguments = ["curve", dir, "--size", "16m", "--time", "8s", "--points", "5", "--yes", "--json", "-"];
    let json = lab.json(&arguments);
    assert_valid(&json);
    let curve = &json["curves"][0];
    let points = curve["points"].as_array().expect("points");
    assert!((4..=5).contains(&points.len()), "{points:?}");
    let offered: Vec<f64> = points.iter().map(|point| point["offered"].as_f64().expect("a rate")).collect();
    assert!(offered.is_sorted() && offered[offered.len() - 1] > 10.0 * offered[0], "{offered:?}");
    let first = &points[0];
    for point in points {
        let count = |key: &str| point[key].as_f64().expect("a count");
        let kept = count("completed") / count("due");
        assert!(kept >= 0.98 || point["sustained"] == false || count("due") < 1000.0, "{point}");
    }
    let (service, response) = (&first["service_ns"], &first["response_ns"]["mean"]);
    assert!(response.as_f64().expect("known") >= service.as_f64().expect("known"), "{first}");
    assert!(curve["capacity"]["estimate"].as_f64().expect("a closed loop") > 100.0, "{curve}");
    lab.assert_nothing_left();
    let again = lab.run(&["report", "1"]);
    assert!(text(&again.stdout).contains("latency against load"), "{}", text(&again.stdout));
    // A busy machine keeps few rates, and one point is no line.
    let sustained = points.iter().filter(|point| point["sustained"] == true).count();
    let drawn = text(&again.stdout).contains("Mean response time by IOPS due:");
    assert_eq!(drawn, sustained > 1, "{}", text(&again.stdout));
    let tables = lab.path("sheets");
    assert!(lab.run(&["report", "1", "--csv", tables.to_str().expect("text")]).status.success());
    let curves = std::fs::read_to_string(tables.join("curves.csv")).expect("written");
    let rates: Vec<f64> =
        curves.lines().skip(1).filter_map(|line| line.split(',').nth(3)?.parse().ok()).collect();
    assert_eq!(rates, offered, "{curves}");
    let exported = text(&lab.run(&["export", "1", "--format", "prometheus"]).stdout);
    let capacity =
        format!("iotax_capacity_iops{{run=\"1\",target=\"{}\"", curve["target"].as_str().expect("a name"));
    assert!(exported.lines().any(|line| line.starts_with(&capacity)), "{exported}");
    compared_with_a_later_knee(&lab, &json);

    for (more, words) in [
        (["--rate-iops", "100"], "a curve has many rates"),
        (["--points", "3"], "accepted: 4 to 40"),
        (["--rw", "getc"], "getc"),
    ] {
        let refused = lab.run(&["curve", dir, more[0], more[1], "--yes"]);
        let said = text(&refused.stderr);
        assert_eq!((refused.status.code(), said.contains(words)), (Some(2), true), "{more:?}: {said}");
    }
}

#[test]
fn a_grid_finds_the_rates_of_reads_and_writes_of_equal_latency() {
    let lab = Lab::new();
    let work = lab.work();
    let dir = work.to_str().expect("text");
    let grid = ["curve", dir, "--grid", "--size", "16m", "--yes"];
    let measured = ["--points", "4", "--time", "32s", "--json", "-"];
    let json = lab.json(&[&grid[..], &measured].concat());
    assert_valid(&json);
    let grid_of = &json["grids"][0];
    let shares = |points: &Value| -> Vec<u64> {
        let points = points.as_array().expect("points");
        points.iter().map(|point| point["rwmixread"].as_u64().expect("a share")).collect()
    };
    // After a stall the capacity of a share may be unknown; the known ones are listed in order.
    let known = shares(&grid_of["capacity"]);
    assert!(known.len() >= 3 && known.is_sorted_by(|a, b| a > b), "{grid_of}");
    for line in grid_of["lines"].as_array().expect("lines") {
        let shares = shares(&line["points"]);
        assert!(shares.len() >= 3 && shares.is_sorted_by(|a, b| a > b), "{line}");
    }
    assert_eq!(json["curves"].as_array().expect("curves").len(), 5);
    lab.assert_nothing_left();
    let printed = lab.run(&["report", "1"]);
    let printed = text(&printed.stdout);
    assert!(printed.contains("reads against writes"), "{printed}");
    for share in known {
        assert!(printed.contains(&format!("{share}/{}", 100 - share)), "{printed}");
    }
    for (more, words) in [
        (["--rwmixread", "70"], "a grid measures five shares"),
        (["--rw", "randread"], "--grid and --rw randread: accepted: randrw or readwrite"),
    ] {
        let refused = lab.run(&[&grid[..], &more].concat());
        let said = text(&refused.stderr);
        assert_eq!((refused.status.code(), said.contains(words)), (Some(2), true), "{more:?}: {said}");
    }
}

mod guests {
    use super::*;

    /// One server of 5 ms with random arrivals is M/D/1: by Pollaczek and Khinchine a request takes S + S rho / (2 (1 - rho)) on average, 7.5 ms
    /// at half load and 15 ms at 0.8 of it.
    #[test]
    fn the_response_time_of_a_queue_is_that_of_theory() {
        const SERVICE_MS: f64 = 5.0;
        let Some(mut guest) = LabGuest::boot_in_exact_time() else { return };
        guest.sh("insmod /lab/null_blk.ko nr_devices=0");
        guest.sh(
            "cd /sys/kernel/config/nullb && mkdir queue && cd queue && echo 64 > size && echo 2 > irqmode && echo 5000000 > completion_nsec && \
             echo 1 > submit_queues && echo 1 > hw_queue_depth && echo 1 > power",
        );
        let mut measure = |rate: Option<u64>, seconds: u64| {
            let keys = WorkloadKeys {
                rw: Some(Rw::RandRead),
                iodepth: Some(64),
                rate_iops: rate,
                rate_process: rate.map(|_| RateProcess::Poisson),
                runtime: Some(Nanos::from_secs(seconds)),
                ramp_time: Some(Nanos::from_secs(1)),
                ..WorkloadKeys::default()
            };
            guest.measure(Path::new("/dev/queue"), Bytes(64 << 20), &keys).expect("measured")
        };
        let full = measure(None, 5);
        let capacity = full.tallies.ios() as f64 / (full.duration_ns as f64 / 1e9);
        // An emulated timer is a little late.
        let service_ms = 1e3 / capacity;
        eprintln!("capacity {capacity:.1} IOPS: {service_ms:.3} ms each");
        assert!((SERVICE_MS..SERVICE_MS * 1.06).contains(&service_ms), "{service_ms}");
        for (rate, seconds) in [(100, 120), (160, 300)] {
            let outcome = measure(Some(rate), seconds);
            let load = rate as f64 / capacity;
            let theory = service_ms * (1.0 + load / (2.0 * (1.0 - load)));
            let mean = outcome.tallies.response().and_then(|all| all.mean()).expect("an open loop") / MS;
            eprintln!("{rate} IOPS, {load:.3} of it: {mean:.2} ms, by theory {theory:.2}");
            assert!((mean / theory - 1.0).abs() < 0.05, "{rate} IOPS: {mean:.2} ms, by theory {theory:.2}");
        }
    }
}
