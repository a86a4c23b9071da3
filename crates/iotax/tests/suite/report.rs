//! The HTML report in a real browser.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::lab::{Lab, needs, text};

#[test]
fn it_renders_offline_without_a_console_error() {
    if !needs(&["chromium"]) {
        return;
    }
    let lab = Lab::new();
    let plan = lab.plan(
        r#"
        name = "two files"
        repeat = 3
        [defaults]
        size = "16m"
        runtime = "300ms"
        ramp_time = "0s"
        [[target]]
        name = "one"
        file = { dir = "WORK" }
        [[target]]
        name = "two"
        file = { dir = "WORK", preallocation = "falloc" }
        [[workload]]
        rw = "randrw"
        [[workload]]
        rw = "read"
        bs = "64k"
        "#,
    );
    let output = lab.run(&["run", plan.to_str().expect("utf-8"), "--yes", "--html", "report.html"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = lab.path("report.html");
    let size = fs::metadata(&report).expect("written").len();
    assert!((10_000..6 << 20).contains(&size), "{size} bytes");

    let profile = TempDir::new().expect("a directory for the browser");
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", report.display()))
        .output()
        .expect("chromium runs");
    let (page, log) = (text(&output.stdout), text(&output.stderr));
    let complaints: Vec<&str> = log.lines().filter(|line| line.contains(":CONSOLE")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    for word in ["one", "two", "randrw-4k-qd1", "read-64k-qd1", "<svg"] {
        assert!(page.contains(word), "{word:?} is not on the page");
    }
}
