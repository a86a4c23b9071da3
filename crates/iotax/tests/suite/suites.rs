//! End-to-end tests of suites.

use std::fs;

use iotax_model::suite::{SUITES, SuiteOptions};
use serde_json::Value;

use crate::lab::{Lab, assert_valid, text};

#[test]
fn every_suite_is_listed_with_what_it_does_and_an_unknown_one_names_the_nearest() {
    let lab = Lab::new();
    for arguments in [&["suite"][..], &["suite", "--list"]] {
        let output = lab.run(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let listed = text(&output.stdout);
        assert_eq!(listed.lines().count(), SUITES.len(), "{listed}");
        for suite in SUITES {
            assert!(listed.lines().any(|line| line.starts_with(suite.name) && line.ends_with(suite.help)));
        }
    }
    for (arguments, words) in [
        (&["suite", "sizez", "."][..], "\"sizez\" is not a known suite"),
        (&["suite", "sizes"], "no target: name a directory"),
        (&["suite", "sizes", ".", "--tests", "randraed"], "\"randraed\" is not a known test"),
        (&["suite", "records", ".", "--size", "4k"], "--size 4k: too small"),
        (&["suite", "sizes", ".", "--excel", "x"], "iozone's layout is for suite records"),
    ] {
        let output = lab.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}

#[test]
fn a_suite_printed_as_a_plan_is_one_that_knows_its_suite() {
    let lab = Lab::new();
    let output = lab.run(&["suite", "records", ".", "--size", "128k", "--tests", "reread", "--print-plan"]);
    let plan = iotax_model::Plan::from_toml(&text(&output.stdout)).expect("a plan");
    assert_eq!((plan.suite.as_deref(), plan.workloads.len()), (Some("records"), 5 + 6));
    let wrong = text(&output.stdout).replace("suite = \"records\"", "suite = \"record\"");
    let error = iotax_model::Plan::from_toml(&wrong).expect_err("unknown").to_string();
    assert!(error.contains("did you mean \"records\""), "{error}");
}

#[test]
fn round_sizes_are_measured_and_their_course_is_told() {
    let lab = Lab::new();
    let work = lab.work();
    let length = ["--size=16m", "--runtime=100ms", "--ramp-time=20ms", "--repeat=1", "--tests=randread"];
    let suite = ["suite", "sizes", work.to_str().expect("utf-8"), "--yes", "--json=-", "--html=report.html"];
    let json = lab.json(&[&suite[..], &length].concat());
    assert_valid(&json);
    assert_eq!(json["suite"]["name"], "sizes");
    let course = &json["suite"]["tests"][0];
    let points = course["points"].as_array().expect("points");
    assert_eq!(points.len(), 12);
    let rate = |point: &Value| point["bytes_per_s"].as_f64().expect("measured");
    assert!(rate(&points[11]) > rate(&points[1]), "4m blocks move more than 4k blocks: {course}");
    assert!(course["transition"]["misfit"].as_f64().is_some_and(|misfit| misfit >= 0.0), "{course}");
    let report = fs::read_to_string(lab.path("report.html")).expect("written");
    assert!(report.contains("by block size") && report.contains("IOPS, bandwidth and latency by block size"));
}

#[test]
fn files_by_records_begin_warm_and_are_laid_out_as_iozone_does() {
    let lab = Lab::new();
    let work = lab.work();
    let work = work.to_str().expect("utf-8");
    let suite = ["suite", "records", work, "--size=4m", "--tests=read,reread"];
    let json = lab.json(&[&suite[..], &["--yes", "--json=-", "--excel=iozone.txt"]].concat());
    assert_valid(&json);
    let excel = fs::read_to_string(lab.path("iozone.txt")).expect("written");
    assert!(excel.contains("\nExcel output is below:\n\n\"Reader report\"\n"), "{excel}");
    assert!(excel.contains("\n\"4096\"  "), "{excel}");
    let of = |name: &str| {
        let all = json["measurements"].as_array().expect("measurements");
        let m = all.iter().find(|m| m["workload"] == name).expect(name);
        (m["metrics"]["bytes_per_s"].as_f64().expect("a rate"), m["read"]["bytes"].as_u64().expect("bytes"))
    };
    let ((cold, _), (warm, bytes)) = (of("read-4m-64k"), of("reread-4m-64k"));
    assert_eq!(bytes, 4 << 20, "the whole file, once");
    eprintln!("cold {cold:.0}, warm {warm:.0} bytes/s");
    assert!(warm > 0.0 && cold > 0.0);
}

#[test]
fn what_every_suite_writes_holds_to_the_schema() {
    let lab = Lab::new();
    let work = lab.work();
    let work = work.to_str().expect("utf-8");
    for suite in SUITES {
        let workloads = (suite.workloads)(&SuiteOptions { files: Some(100), ..SuiteOptions::default() });
        let tests = suite.tests(&workloads);
        let some = [tests[0].0, tests[tests.len() - 1].0].join(",");
        let files = workloads.iter().any(|workload| workload.files().is_some());
        let mut command =
            vec!["suite", suite.name, work, "--tests", &some, "--size=16m", "--repeat=1", "--yes"];
        command.extend(["--runtime=100ms", "--ramp-time=0s", "--json=-"]);
        command.extend(files.then_some("--nrfiles=100"));
        // On a busy machine no I/O may complete in 100 ms; the run then fails, and its document is valid all the same.
        let output = lab.run(&command);
        let json: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{command:?}: {error}: {}", text(&output.stderr)));
        assert_valid(&json);
        assert_eq!(json["suite"]["name"], suite.name);
    }
    lab.assert_nothing_left();
}

#[test]
fn bonnies_csv_is_all_that_stdout_carries_and_only_of_its_suite() {
    let lab = Lab::new();
    let work = lab.work();
    let work = work.to_str().expect("utf-8");
    let bonnie = |more: &[&str]| {
        let tests = ["suite", "bonnie", work, "--size=1m", "--tests=put_block,seeks", "--repeat=1", "--yes"];
        lab.run(&[&tests[..], more].concat())
    };
    let output = bonnie(&["--csv"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let line = text(&output.stdout);
    assert_eq!((line.lines().count(), line.trim_end().split(',').count()), (1, 50), "{line}");
    assert!(line.starts_with("1.98,iotax-"), "{line}");
    for _ in 0..2 {
        let exported = lab.run(&["export", "1", "--format", "bonnie-csv", "--output", "line.csv"]);
        assert!(exported.status.success(), "one of ours is written over: {}", text(&exported.stderr));
    }
    assert_eq!(fs::read_to_string(lab.path("line.csv")).expect("written"), line);
    for (refused, words) in [
        (lab.run(&["suite", "sizes", work, "--csv"]), "--csv: bonnie++'s CSV is for suite bonnie"),
        (bonnie(&["--csv", "--json"]), "--json and bonnie-csv both go to stdout"),
        (lab.run(&["export", "1", "--format", "iozone-excel"]), "iotax suite records"),
    ] {
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains(words), "{}", text(&refused.stderr));
    }
    lab.assert_nothing_left();
}
