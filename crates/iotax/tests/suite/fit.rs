//! Tests of `iotax fit`: yes, no or undecided by published limits.

use std::fs;

use iotax_testkit::require;
use serde_json::Value;

use crate::lab::{Lab, assert_valid, text};

#[test]
fn applications_are_listed_with_sources_and_what_is_none_is_refused() {
    let lab = Lab::new();
    let output = lab.run(&["fit", "--list"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let listed = text(&output.stdout);
    assert!(listed.contains("etcd       sync p99 <= 10ms  (https://etcd.io/"), "{listed}");
    assert!(listed.lines().all(|line| !line.contains("no source")), "{listed}");

    fs::write(lab.path("none.toml"), "[[workload]]\nrw = 'read'\n").expect("written");
    fs::write(lab.path("own.toml"), "[[target]]\nname = 'a'\npath = '/a'\n[[workload]]\nrw = 'read'\n")
        .expect("written");
    fs::write(lab.path("wrong.toml"), "[[workload]]\nrw = 'read'\n[[require]]\nkeep = 'sync p99 <= 1ms'\n")
        .expect("written");
    for (arguments, words) in [
        (&["fit", "etdc", "."][..], "(did you mean \"etcd\"?)"),
        (&["fit", "etcd"], "no target: name a directory"),
        (&["fit", "none.toml", "."], "it demands nothing; add a [[require]] table"),
        (&["fit", "own.toml", "."], "leave [[target]] out"),
        (&["fit", "wrong.toml", "."], "has no sync"),
    ] {
        let output = lab.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_profile_prints_as_a_plan_that_keeps_its_demands() {
    let lab = Lab::new();
    let output = lab.run(&["fit", "openshift", ".", "--print-plan"]);
    let plan = iotax_model::Plan::from_toml(&text(&output.stdout)).expect("a plan");
    assert_eq!((plan.require.len(), plan.workloads.len()), (2, 2));
    assert_eq!(plan.require[1].keep.to_string(), "iops >= 500");
}

#[test]
fn a_device_without_a_page_cache_gets_whole_pages() {
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let stack = format!("{} > raw file > virtio", lab.work().display());
    let output = lab.run(&[
        "fit",
        "etcd",
        &stack,
        "--repeat",
        "2",
        "--runtime",
        "300ms",
        "--yes",
        "--json",
        "out.json",
    ]);
    let said = text(&output.stderr);
    assert!(said.contains("no page cache; the work uses direct I/O in whole pages"), "{said}");
    let json: Value = serde_json::from_slice(&fs::read(lab.path("out.json")).expect(&said)).expect("JSON");
    let work = &json["workloads"][0];
    assert_eq!((work["bs"].as_str(), work["direct"].as_bool()), (Some("4k"), Some(true)), "{work}");
    assert!(json["measurements"][0]["sync"]["ios"].as_u64() > Some(0), "{json}");
}

/// A known rate lies on either side of a limit.
#[test]
fn a_known_rate_decides() {
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let work = lab.work();
    let profile = "name = 'log'\nrepeat = 3\n[[workload]]\nname = 'log'\nrw = 'randwrite'\nsize = '16m'\nruntime = '400ms'\n\
                   ramp_time = '50ms'\n[[require]]\nkeep = 'iops >= 300'\nsource = 'promised'\n";
    fs::write(lab.path("log.toml"), profile).expect("written");
    let stack = |iops: u32| format!("{} > raw file > throttle iops={iops} > virtio", work.display());
    let (quick, slow) = (stack(900), stack(100));
    let output =
        lab.run(&["fit", "log.toml", &quick, &slow, "--yes", "--json", "out.json", "--html", "out.html"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
    let json: Value =
        serde_json::from_slice(&fs::read(lab.path("out.json")).expect("written")).expect("JSON");
    assert_valid(&json);
    let kept: Vec<&str> = json["demands"]
        .as_array()
        .expect("demands")
        .iter()
        .filter_map(|demand| demand["kept"].as_str())
        .collect();
    assert_eq!(kept, ["yes", "no"], "{}", json["demands"]);
    assert!(said.contains("Are the demands met? (log)") && said.contains(" no; IOPS is "), "{said}");
    let html = fs::read_to_string(lab.path("out.html")).expect("written");
    assert!(html.contains("id=\"demands\"") && html.contains("promised"), "no section");
    lab.assert_nothing_left();
}
