//! Tests of comparing and showing runs: from the store, from JSON, with gates, as CSV and Markdown.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::lab::{Lab, text};

/// Two targets that differ only in name, and a fixed number of I/Os, enough for every percentile. Tests assert nothing about their speed.
const PLAN: &str = r#"
name = "two files"
repeat = 3
[defaults]
size = "4m"
bs = "4k"
runtime = "1m"
io_size = "80m"
ramp_time = "0s"
direct = false
ioengine = "psync"
[[target]]
name = "a"
file = { dir = "WORK" }
[[target]]
name = "b"
file = { dir = "WORK", preallocation = "full" }
[[workload]]
name = "reads"
rw = "randread"
"#;

/// Runs the plan and writes the JSON to the file.
fn measured(lab: &Lab, json: &str) {
    let plan = lab.plan(PLAN);
    let json = lab.path(json);
    let done = lab.run(&["run", &plan.display().to_string(), "--yes", "--json", &json.display().to_string()]);
    assert!(done.status.success(), "{}", text(&done.stderr));
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn assert_holds_to(document: &Value, schema: &str) {
    let schema: Value = serde_json::from_str(schema).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> = validator.iter_errors(document).map(|error| error.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());
}

/// A document of another run (by its seed) with this latency and 1,000 IOPS.
fn invented(lab: &Lab, name: &str, seed: u64, latency_ns: f64) {
    let text = fs::read_to_string(lab.path("one.json")).expect("written");
    let mut document: Value = serde_json::from_str(&text).expect("JSON");
    document["run"]["seed"] = seed.into();
    for measurement in document["measurements"].as_array_mut().expect("a list") {
        let stray = 1.0 + 0.001 * measurement["round"].as_f64().expect("a number");
        measurement["grade"] = "clean".into();
        measurement["metrics"]["latency_mean"] = (latency_ns * stray).into();
        measurement["metrics"]["iops"] = (1000.0 * stray).into();
    }
    fs::write(lab.path(name), document.to_string()).expect("written");
}

#[test]
fn runs_are_compared_gated_and_told_again() {
    let lab = Lab::new();
    measured(&lab, "one.json");
    measured(&lab, "two.json");

    // Store and documents give the same result; only the names differ.
    let schema = include_str!("../../../report/schema/iotax-compare-1.schema.json");
    let store = lab.json(&["compare", "1", "2", "--json"]);
    let files = lab.json(&["compare", "one.json", "two.json", "--json"]);
    assert_holds_to(&store, schema);
    assert_eq!(store["cells"], files["cells"]);
    assert_eq!(store["machines"], files["machines"]);
    assert_eq!((&store["a"]["label"], &files["a"]["label"]), (&"run 1".into(), &"one.json".into()));
    assert!(store["cells"].as_array().is_some_and(|cells| cells.len() >= 12), "{store}");
    assert_eq!(
        lab.json(&["compare", "1:a", "two.json:a", "--json", "--metric", "iops"])["cells"][0]["rounds_b"],
        3
    );

    // Two targets of one run are paired; a run is not compared with itself.
    assert_eq!(lab.json(&["compare", "1:a", "1:b", "--json"])["paired"], true);
    let itself = lab.run(&["compare", "1", "one.json"]);
    assert_eq!(itself.status.code(), Some(2));
    assert!(text(&itself.stderr).contains("1:TARGET with 1:OTHER"), "{}", text(&itself.stderr));
    let unknown = lab.run(&["compare", "1:x", "2"]);
    assert!(text(&unknown.stderr).contains("no target \"x\"; accepted: a, b"), "{}", text(&unknown.stderr));

    // Twice the latency trips exactly the expected gates.
    invented(&lab, "fast.json", 1, 1e5);
    invented(&lab, "slow.json", 2, 2e5);
    let gated = |gate: &str| lab.run(&["compare", "fast.json", "slow.json", "--fail-if", gate]);
    let tripped = gated("slower > 5%, iops slower > 5%");
    assert_eq!(tripped.status.code(), Some(1), "{}", text(&tripped.stderr));
    let said = text(&tripped.stderr);
    assert!(
        said.contains("gate latency_mean slower > 5%: tripped by a on reads") && said.contains("b on reads"),
        "{said}"
    );
    assert!(said.contains("gate iops slower > 5%: passed by 2 cells"), "{said}");
    assert_eq!(gated("faster > 5%").status.code(), Some(0));
    // An interval that holds the limit judges nothing, and neither does a figure that no side has; a gate that trips comes first.
    for (gate, code) in [
        ("slower > 100%", 5),
        ("slower > 100%, iops slower > 5%", 5),
        ("cpu_per_gib slower > 5%", 5),
        ("cpu_per_gib slower > 5%, slower > 5%", 1),
    ] {
        let ended = gated(gate);
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{gate}: {said}");
        assert!(said.contains("could not be judged") || said.contains("nothing to judge"), "{gate}: {said}");
    }
    let turned =
        lab.run(&["compare", "fast.json", "slow.json", "--baseline", "B", "--fail-if", "slower > 5%"]);
    assert_eq!(turned.status.code(), Some(0), "{}", text(&turned.stderr));

    // Tables of 80 columns without colour; Markdown.
    let tables = succeeded(&lab.run(&["compare", "fast.json", "slow.json"]));
    assert!(tables.lines().all(|line| line.chars().count() <= 80) && !tables.contains('\u{1b}'), "{tables}");
    assert!(tables.contains("B against A") && tables.contains("slower"), "{tables}");
    let markdown = succeeded(&lab.run(&["compare", "1", "2", "--markdown"]));
    assert!(markdown.contains("| ---: |") && markdown.contains("### What it means"), "{markdown}");

    // The runs again: one, several, under the older name, as CSV.
    let report = succeeded(&lab.run(&["report", "1"]));
    assert_eq!(report, succeeded(&lab.run(&["show", "1"])));
    let newest = succeeded(&lab.run(&["report", "--markdown", "--detail"]));
    assert!(newest.contains("| IOPS | MB/s |"), "{newest}");
    let history = lab.json(&["report", "1", "2", "--json"]);
    assert_holds_to(&history, include_str!("../../../report/schema/iotax-history-1.schema.json"));
    assert_eq!(history["tracks"][0]["points"].as_array().map(Vec::len), Some(2));
    assert!(history["tracks"][0]["points"][1]["against_first"]["verdict"].is_string());
    let both = lab.run(&["report", "1", "2", "--csv", "sheets"]);
    assert!(succeeded(&both).contains("vs first"));
    for name in ["measurements", "comparisons", "cells", "samples", "disks", "history"] {
        assert!(lab.path(&format!("sheets/{name}.csv")).is_file(), "{name}");
    }
    let measurements = fs::read_to_string(lab.path("sheets/measurements.csv")).expect("written");
    assert_eq!(measurements.lines().count(), 1 + 2 * 6, "{measurements}");
    fs::write(lab.path("sheets/cells.csv"), "mine\n").expect("written");
    let refused = lab.run(&["report", "1", "--csv", "sheets"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("cells.csv: it exists"), "{}", text(&refused.stderr));
    assert_eq!(lab.run(&["report", "1", "1"]).status.code(), Some(2));
    assert_eq!(lab.run(&["report", "1", "9"]).status.code(), Some(2));
    lab.assert_nothing_left();
}

#[test]
fn what_is_no_side_or_gate_is_refused_with_the_accepted_form() {
    let lab = Lab::new();
    for (arguments, words) in [
        (vec!["compare", "1", "2"], vec!["no run is stored"]),
        (vec!["compare", "none.json", "2"], vec!["\"none.json\" is neither", "RUN:TARGET"]),
        (vec!["compare", "1", "2", "--fail-if", "slowr > 5%"], vec!["slowr", "accepted: [METRIC]"]),
        (vec!["compare", "1", "2", "--fail-if", "slower > 5"], vec!["\"5\"", "5%"]),
        (vec!["compare", "1", "2", "--metric", "latency"], vec!["latency", "latency_mean"]),
        (vec!["compare", "1", "2", "--margin", "2"], vec!["2", "2%"]),
        (vec!["compare", "1", "2", "--baseline", "C"], vec!["A or B"]),
        (vec!["report", "1", "--csv", "x"], vec!["no run is stored"]),
    ] {
        let output = lab.run(&arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(words.iter().all(|word| stderr.contains(word)), "{arguments:?}: {stderr}");
    }
}
