//! Tests that a limit set by QEMU's block layer is found with its rate and compared with the promised one.

use std::fs;

use iotax_testkit::require;
use serde_json::Value;

use crate::lab::{Lab, assert_valid, text};

const RATE: f64 = 500.0;

#[test]
fn a_limit_on_ios_is_found_with_its_rate() {
    require!(root);
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    // In memory: a disk that others keep busy would be slower than the limit now and then.
    let stack = format!("tmpfs > raw file > throttle iops={RATE} > virtio cache=writeback aio=threads");
    let promised = ["--promise", "iops=400", "--promise", "iops=500", "--promise", "iops=750"];
    // Two rounds that strayed by 1.5% left an interval of 3% to each side.
    let short = ["--size", "16m", "--runtime", "1", "--repeat", "3", "--yes"];
    let results = ["--json", "out.json", "--html", "out.html"];
    let output = lab.run(&[&["audit", &stack][..], &promised, &short, &results].concat());
    let said = text(&output.stdout);
    // The last promise is not kept.
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
    let json: Value =
        serde_json::from_slice(&fs::read(lab.path("out.json")).expect("written")).expect("JSON");
    assert_valid(&json);
    let limits = json["limits"][0]["limits"].as_array().expect("limits");
    let ios = limits.iter().find(|limit| limit["unit"] == "ios").unwrap_or_else(|| panic!("{json}"));
    assert_eq!(ios["scope"], "together", "{ios}");
    let rate = ios["rate"].as_f64().expect("a rate");
    assert!((rate / RATE - 1.0).abs() < 0.03, "{ios}");
    // Bytes are not limited: they grow with the size.
    let free = json["limits"][0]["without_limit"].as_array().expect("directions");
    let of_bytes = free.iter().filter(|one| one["unit"] == "bytes").map(|one| one["direction"].as_str());
    assert_eq!(of_bytes.collect::<Vec<_>>(), [Some("reads"), Some("writes")], "{json}");
    let kept: Vec<(&str, &str)> = json["demands"]
        .as_array()
        .expect("demands")
        .iter()
        .filter_map(|demand| Some((demand["keep"].as_str()?, demand["kept"].as_str()?)))
        .collect();
    let both = |keep, kept| [(keep, kept); 2];
    // A rate within the measured spread of the limit may be undecided, but not violated.
    let (near, kept): (Vec<_>, Vec<_>) =
        kept.into_iter().partition(|(keep, _)| *keep == "sustained iops >= 495");
    assert!(near.len() == 2 && near.iter().all(|(_, kept)| *kept != "no"), "{said}");
    assert_eq!(
        kept,
        [both("sustained iops >= 396", "yes"), both("sustained iops >= 742", "no")].concat(),
        "{said}"
    );
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("limited to 500 I/Os a second, reads and writes together"), "{said}");
    let html = fs::read_to_string(lab.path("out.html")).expect("written");
    for part in ["id=\"limits\"", "sustained"] {
        assert!(html.contains(part), "no {part}");
    }
    lab.assert_nothing_left();
}

/// After three idle seconds, the limiter allows 3,000 IOPS for six seconds, and 2,000 IOPS afterwards.
#[test]
fn a_promised_burst_is_held_against_what_comes_after_a_pause() {
    require!(root);
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let stack = "tmpfs > raw file > throttle iops=2000 iops_max=3000 iops_max_length=2 > virtio cache=writeback aio=threads";
    let promise = "iops=2000,burst=2800/2s,burst=4000/2s";
    let printed = lab.run(&["audit", stack, "--promise", promise, "--size", "16m", "--print-plan"]);
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    // The bursts alone: the other workloads are measured in the test above.
    let mut plan: toml::Table = text(&printed.stdout).parse().expect("a plan file");
    for (table, key) in [("workload", "name"), ("require", "workload")] {
        let rows = plan[table].as_array_mut().expect("a list");
        rows.retain(|row| row[key].as_str().is_some_and(|name| name.starts_with("burst-")));
        assert_eq!(rows.len(), 4, "{printed:?}");
    }
    let path = lab.path("bursts.toml");
    fs::write(&path, plan.to_string()).expect("written");
    let output = lab.run(&["run", path.to_str().expect("utf-8"), "--yes", "--json", "out.json"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
    let json: Value =
        serde_json::from_slice(&fs::read(lab.path("out.json")).expect("written")).expect("JSON");
    let demands = json["demands"].as_array().expect("demands").iter();
    let kept = demands.filter_map(|demand| Some((demand["keep"].as_str()?, demand["kept"].as_str()?)));
    assert_eq!(
        kept.collect::<Vec<_>>(),
        [[("iops >= 2772", "yes"); 2], [("iops >= 3960", "no"); 2]].concat(),
        "{said}"
    );
    lab.assert_nothing_left();
}
