//! Tests of trends over the runs of a store, and of data sets read by other tools.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use iotax_testkit::require;
use serde_json::Value;

use crate::lab::{Lab, text};

const PAGE: &str = include_str!("../../../../docs/parquet.md");

/// Python with the packages of scripts/python.txt, installed by scripts/setup.
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/python/bin/python");

const PLAN: &str = r#"
name = "nightly"
repeat = 2
control = "host"
[defaults]
size = "4m"
bs = "4k"
runtime = "1m"
io_size = "16m"
ramp_time = "0s"
direct = false
ioengine = "psync"
[[target]]
name = "host"
file = { dir = "WORK" }
[[target]]
name = "full"
file = { dir = "WORK", preallocation = "full" }
[[workload]]
name = "reads"
rw = "randread"
"#;

fn make_runs(lab: &Lab, count: u32) {
    let plan = lab.plan(PLAN).display().to_string();
    for _ in 0..count {
        let done = lab.run(&["run", &plan, "--yes"]);
        assert!(done.status.success(), "{}", text(&done.stderr));
    }
}

#[test]
fn a_short_history_is_said_to_be_short_and_judges_no_gate() {
    let lab = Lab::new();
    make_runs(&lab, 1);
    let said = text(&lab.run(&["trend"]).stdout);
    assert!(
        said.contains("One run shows no change: 14 are needed (1 run, 2") && !said.contains(" to 2"),
        "{said}"
    );
    make_runs(&lab, 1);
    let output = lab.run(&["trend"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(
        said.contains("2 runs") && said.contains("Too few runs to tell a change: 14 are needed"),
        "{said}"
    );
    assert!(said.contains("ratio of each target to host in the same rounds"), "{said}");

    let gated = lab.run(&["trend", "nightly", "--json", "--fail-if", "slower > 3%"]);
    assert_eq!(gated.status.code(), Some(5), "{}", text(&gated.stderr));
    let document: Value = serde_json::from_slice(&gated.stdout).expect("JSON");
    let series = document["series"].as_array().expect("a list");
    let full = series.iter().find(|one| one["target"] == "full").expect("followed");
    assert_eq!((&full["control"], &full["enough_runs"]), (&"host".into(), &false.into()));
    assert_eq!(full["points"].as_array().map(Vec::len), Some(2));

    for (arguments, expected) in [
        (vec!["trend", "weekly"], "no run is named \"weekly\"; accepted: \"nightly\""),
        (vec!["trend", "--control", "hots"], "--control \"hots\": no run has it; accepted: full, host"),
        (vec!["trend", "--since", "yesterday"], "--since \"yesterday\": accepted: a run's number, or a day"),
        (vec!["export", "1", "2", "--format", "csv"], "--format takes one run; --parquet DIR takes several"),
    ] {
        let refused = lab.run(&arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(text(&refused.stderr).contains(expected), "{}", text(&refused.stderr));
    }
}

#[test]
fn a_data_set_is_replaced_by_the_same_one_and_replaces_nothing_else() {
    let lab = Lab::new();
    make_runs(&lab, 2);
    let dir = lab.path("dataset");
    let export = |runs: &[&str]| {
        let dir = dir.display().to_string();
        lab.run(&[&["export", "--parquet", &dir], runs].concat())
    };
    assert!(export(&[]).status.success());
    let first = files(&dir);
    assert_eq!(first.len(), 12, "six tables of two runs: {:?}", first.keys());
    assert!(export(&["1"]).status.success());
    assert_eq!(files(&dir), first, "the same");
    let victim = first.keys().find(|path| path.contains("/runs/") && path.contains("run-1-")).expect("there");
    fs::write(victim, "precious").expect("written");
    let refused = export(&[]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("iotax did not write it as parquet"), "{}", text(&refused.stderr));
    assert_eq!(fs::read(victim).expect("there"), b"precious");
}

/// Returns every file below a directory with its content.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.display().to_string(), fs::read(&path).expect("a file"));
        }
    }
    found
}

/// Runs the code blocks of the page in one process and compares p99 with the report.
#[test]
fn the_analysis_of_the_page_is_carried_out() {
    // What brings it.
    require!(file "/usr/share/doc/python3-venv/copyright");
    assert!(Path::new(PYTHON).exists(), "{PYTHON} is missing: scripts/setup --tests makes it");
    let lab = Lab::new();
    make_runs(&lab, 2);
    let [command] = blocks("sh")[..] else { panic!("one command") };
    let exported = lab.run(&command.split_whitespace().skip(1).collect::<Vec<_>>());
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    let script = blocks("python").concat() + "print(\"\\f\" + p99.to_json(orient=\"records\"))\n";
    fs::write(lab.path("page.py"), script).expect("written");
    let home = lab.path("home");
    let output = Command::new(PYTHON).arg("page.py").current_dir(home.parent().expect("the lab")).output();
    let output = output.expect("Python starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let rows: Value = serde_json::from_str(said.rsplit('\u{c}').next().expect("the last")).expect("JSON");
    let rows = rows.as_array().expect("rows");
    assert_eq!(rows.len(), 4, "two targets in two runs: {said}");
    for row in rows {
        let report = lab.json(&["report", &row["run"].to_string(), "--json"]);
        let cells = report["cells"].as_array().expect("cells");
        let cell = cells.iter().find(|cell| cell["target"] == row["target"]).expect("the cell");
        assert_eq!(cell["latency_ns"]["p99"].as_f64(), row["p99_ns"].as_f64(), "{row}");
    }
}

/// Returns the page's code blocks in a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    let after = PAGE.split(begin.as_str()).skip(1);
    after.map(|rest| rest.split("```").next().expect("the block")).collect()
}
