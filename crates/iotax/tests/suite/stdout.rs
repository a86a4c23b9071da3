//! Tests of errors on stdout: a closed pipe is ignored, every other error is reported.

use std::fs::{self, OpenOptions};
use std::process::Stdio;

use crate::lab::{Lab, text};

/// Commands that print to stdout without measuring.
const COMMANDS: &[&str] = &[
    "report 1",
    "report 1 --json",
    "report 1 --markdown",
    "report 1 --timing",
    "list",
    "list --json",
    "export 1 --format prometheus",
    "compare 1 2",
    "compare 1 2 --json",
    "import dd.txt",
    "plan schema",
    "plan show plan.toml",
    "plan show plan.toml --json",
    "plan show plan.toml --toml",
    "plan check plan.toml",
    "suite --list",
    "net ladder --print-plan --rungs veth",
    "clean --dry-run",
    "clean",
    "man",
    "completions bash",
    "help",
    "help net",
    "net run --help",
    "--version",
];

fn lab() -> Lab {
    let lab = Lab::new();
    fs::write(lab.path("dd.txt"), "1073741824 bytes (1.1 GB, 1.0 GiB) copied, 2.5 s, 429 MB/s\n")
        .expect("written");
    lab.plan(
        "name = \"p\"\nbaseline = \"a\"\n[[target]]\nname = \"a\"\nfile = { dir = \"WORK\" }\n\
         [[workload]]\nrw = \"read\"\nsize = \"1m\"\n",
    );
    for _ in 0..2 {
        let imported = lab.run(&["import", "dd.txt"]);
        assert!(imported.status.success(), "{}", text(&imported.stderr));
    }
    lab
}

#[test]
fn a_full_stdout_is_an_error_of_every_command() {
    let lab = lab();
    for command in COMMANDS {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("opened");
        let arguments = command.split_whitespace();
        let output = lab.iotax().args(arguments).stdout(full).output().expect("iotax starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{command}: {said}");
        assert!(said.contains("cannot write to stdout: No space left"), "{command}: {said}");
    }
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let lab = lab();
    for command in COMMANDS {
        let mut child = lab
            .iotax()
            .args(command.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("iotax starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let said = text(&output.stderr);
        assert!(output.status.success() && !said.contains("stdout"), "{command}: {said}");
    }
}

#[test]
fn a_measured_run_whose_words_are_lost_is_kept() {
    let lab = lab();
    let full = OpenOptions::new().write(true).open("/dev/full").expect("opened");
    let target = lab.work().join("new");
    let bench = ["bench", target.to_str().expect("utf-8"), "--size=1m", "--runtime=200ms", "--ramp-time=0s"];
    let output = lab.iotax().args(bench).stdout(full).output().expect("iotax starts");
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert!(text(&lab.run(&["list"]).stdout).contains("1/1"), "the measurement is in the store");
    lab.assert_nothing_left();
}
