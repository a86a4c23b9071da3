//! Tests of faults on real stacks: loop devices, mounts, images, a running QEMU.

mod images;
mod loops;
mod machine;

use std::path::Path;
use std::process::Command;

use iotax_doctor::{Finding, examine};
use iotax_testbed::survey;

/// Runs a program that the test requires, and returns its stdout.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(iotax_testkit::program(program)).args(arguments).output().expect("it starts");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn found(path: &Path) -> Vec<Finding> {
    examine(&survey::path(Path::new("/"), path).expect("a path"))
}

/// Returns the rules that fire for components whose names contain `component`; other devices belong to other tests.
fn ids(path: &Path, component: &str) -> Vec<&'static str> {
    let found = found(path);
    found
        .iter()
        .filter(|finding| finding.violation.component.contains(component))
        .map(|finding| finding.rule.id)
        .collect()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
