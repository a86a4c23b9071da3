//! Tests of concurrent runs, and of reports of unfinished runs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use iotax_testkit::require;

use crate::lab::{Lab, OtherUser, start_until, text};

const QUICK: [&str; 4] = ["--size", "4m", "--ramp-time", "0s"];

/// The arguments of a measurement of a new file in the lab.
fn bench<'a>(file: &'a str, runtime: &'a str) -> Vec<&'a str> {
    [&["bench", file, "--runtime", runtime][..], &QUICK].concat()
}

#[test]
fn two_runs_on_one_disk_are_told_of_one_another() {
    let lab = Lab::new();
    let stack = iotax_testbed::stack::of_path(Path::new("/"), &lab.work()).expect("a directory");
    if stack.disks.is_empty() {
        iotax_testkit::skip!("{} is on no block device", lab.work().display());
    }
    let mut first = lab.iotax();
    let log = lab.path("first");
    first.args(bench("work/first", "4s")).stdout(Stdio::null());
    first.stderr(fs::File::create(&log).expect("a file"));
    let mut first = first.spawn().expect("iotax starts");
    let goes = || fs::read_to_string(&log).unwrap_or_default();
    while !goes().contains("round 1/1") {
        assert!(first.try_wait().expect("a child").is_none(), "{}", goes());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }

    let unfinished = text(&lab.run(&["report", "1"]).stdout);
    assert!(unfinished.starts_with("Run 1 is still measuring: 0 of 1 measurement so far."), "{unfinished}");
    let second = lab.run(&bench("work/second", "1s"));
    let (second, ended) = (text(&second.stderr), first.wait().expect("it ends"));
    assert!(ended.success(), "{}", goes());
    let mentions =
        |said: &str, other: &str| said.contains(&format!("{other} measures on ")) && said.contains(" too");
    assert!(mentions(&second, "run 1"), "{second}");
    let before = second.find("run 1 measures").zip(second.find("round 1/1"));
    assert!(before.is_some_and(|(mentions, begun)| mentions < begun), "{second}");
    assert!(mentions(&goes(), "run 2"), "{}", goes());
    for (run, other) in [("1", "run 2"), ("2", "run 1")] {
        let report = lab.json(&["report", run, "--json"]);
        let warnings = report["warnings"].as_array().expect("a list");
        let evidence = warnings.iter().filter_map(|warning| warning["evidence"].as_str());
        let met: Vec<&str> = evidence.filter(|evidence| evidence.starts_with(other)).collect();
        assert!(met.len() == 1 && met[0].contains(" of this run"), "{warnings:?}");
    }
    lab.assert_nothing_left();
}

#[test]
fn runs_of_two_users_on_one_disk_are_told_of_one_another() {
    require!(root);
    require!(program "setpriv");
    let lab = Lab::new();
    let stack = iotax_testbed::stack::of_path(Path::new("/"), &lab.work()).expect("a directory");
    if stack.disks.is_empty() {
        iotax_testkit::skip!("{} is on no block device", lab.work().display());
    }
    let user = OtherUser::beside(&lab);
    let mut first = user.iotax();
    first.args(bench("first", "6s"));
    first.stdout(Stdio::null()).stderr(fs::File::create(lab.path("first")).expect("a file"));
    let mut first = first.spawn().expect("setpriv starts");
    let said = || fs::read_to_string(lab.path("first")).unwrap_or_default();
    while !said().contains("round 1/1") {
        assert!(first.try_wait().expect("a child").is_none(), "{}", said());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let second = text(&lab.run(&bench("work/second", "1s")).stderr);
    assert!(first.wait().expect("it ends").success(), "{}", said());
    let met = format!("process {} of user 65534 (iotax) measures on ", first.id());
    let before = second.find(&met).zip(second.find("round 1/1"));
    assert!(before.is_some_and(|(notice, begun)| notice < begun), "{second}");
    assert!(said().contains(" of user 0 (iotax) measures on "), "{}", said());
    lab.assert_nothing_left();
}

#[test]
fn a_report_of_an_interrupted_run_says_how_far_it_came() {
    let lab = Lab::new();
    let plan = lab.short_plan(
        "name = \"three\"\nrepeat = 3",
        "4m",
        "[[workload]]\nrw = \"randread\"\nruntime = \"2s\"",
    );
    let arguments = ["run", plan.to_str().expect("utf-8"), "--yes"];
    let mut child = start_until(lab.iotax().args(arguments), "round 2/3");
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    child.wait().expect("it ends");
    for arguments in [&["report", "1"][..], &["report", "1", "--detail"], &["report", "1", "--markdown"]] {
        let said = text(&lab.run(arguments).stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("Run 1 was interrupted after 1 of 3 measurements. Go on: iotax resume 1"),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn reports_go_where_asked_or_next_to_the_store() {
    let lab = Lab::new();
    let work = lab.work().display().to_string();
    let entries = || -> Vec<String> {
        let all =
            fs::read_dir(lab.path("")).expect("there").map(|entry| entry.expect("an entry").file_name());
        let mut all: Vec<String> = all.map(|name| name.to_string_lossy().into_owned()).collect();
        all.sort();
        all
    };
    let before = entries();
    let ladder =
        ["ladder", &work, "--rungs", "host-file", "--size", "4m", "--repeat", "1", "--runtime", "0.2"];
    let ladder = lab.run(&[&ladder[..], &["--workloads", "randread-4k-qd1", "--yes"]].concat());
    assert!(ladder.status.success(), "{}", text(&ladder.stderr));
    assert_eq!(entries(), before, "the working directory is as it was");
    assert!(text(&ladder.stderr).contains("as a page: iotax report 1 --html"), "{}", text(&ladder.stderr));

    let shown = lab.run(&["report", "1", "--html"]);
    let page = lab.path("home/.local/share/iotax/iotax-1.html");
    assert!(text(&shown.stderr).contains(&format!("Report: {}", page.display())), "{}", text(&shown.stderr));
    assert!(fs::read_to_string(&page).expect("written").starts_with("<!DOCTYPE html>"));
    assert_eq!(entries(), before, "the working directory is as it was");
}

#[test]
fn the_timing_of_a_run_has_all_of_it() {
    let lab = Lab::new();
    let done = lab.run(&bench("work/new", "0.3"));
    assert!(done.status.success(), "{}", text(&done.stderr));
    let said = text(&lab.run(&["report", "--timing"]).stdout);
    for phase in ["check", "provision", "measure", "finish", "undo"] {
        assert!(said.lines().any(|line| line.trim_start().starts_with(phase)), "{phase}: {said}");
    }
}

#[test]
fn the_demo_looks_at_its_directory_before_it_builds() {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/demo");
    for (target, expected) in [
        ("/no/such/place", "/no/such/place: neither it nor /no/such exists"),
        ("/proc/version", "/proc/version is not a directory"),
    ] {
        let refused = Command::new(demo).arg(target).output().expect("it starts");
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains(expected), "{refused:?}");
    }
}
