//! Tests of guests that do not boot: each target fails with its reason, and the run continues without it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;

use crate::lab::{Lab, assert_valid, text};

const GUESTS: &str = r#"
[[target]]
name = "killed"
file = { dir = "WORK" }
guest = { memory = "384m", cache = "writeback", aio = "threads" }
[[target]]
name = "stopped"
file = { dir = "WORK" }
guest = { memory = "384m", cache = "writeback", aio = "threads" }
[[target]]
name = "broken"
file = { dir = "WORK" }
guest = { memory = "384m", cache = "writeback", aio = "threads", kernel = "KERNEL" }
[[target]]
name = "sound"
file = { dir = "WORK" }
guest = { memory = "384m", cache = "writeback", aio = "threads" }
[[workload]]
rw = "randread"
"#;

/// Kills the guest of one target a second after its start, and stops that of another.
const WRAPPER: &str = r#"#!/bin/sh
real=/usr/bin/qemu-system-x86_64
case "$*" in
*-killed,*|*-killed\ *) (sleep 1; kill -9 $$) & ;;
*-stopped,*|*-stopped\ *) (sleep 1; kill -STOP $$) & ;;
esac
exec "$real" "$@"
"#;

/// A copy of this machine's kernel with an intact header and zeros in the middle.
fn broken_kernel(lab: &Lab) -> Option<PathBuf> {
    let has_modules = |path: &PathBuf| {
        let release = path.file_name().and_then(|name| name.to_str()?.strip_prefix("vmlinuz-"));
        release.is_some_and(|release| Path::new("/lib/modules").join(release).is_dir())
    };
    let found = fs::read_dir("/boot").ok()?.flatten().map(|entry| entry.path()).find(has_modules);
    let found = found?;
    let mut bytes = fs::read(&found).ok()?;
    let middle = bytes.len() / 2;
    bytes[middle..middle + (1 << 20)].fill(0);
    // Its name determines its modules.
    let path = lab.path(found.file_name()?.to_str()?);
    fs::write(&path, bytes).expect("written");
    Some(path)
}

#[test]
fn guests_that_do_not_come_up_are_lost_and_the_others_are_measured() {
    iotax_testkit::require!(guests);
    let lab = Lab::new();
    let kernel = broken_kernel(&lab).expect("a kernel for guests, which was asked for");
    let guests = GUESTS.replace("KERNEL", kernel.to_str().expect("UTF-8"));
    // The guest whose QEMU is killed is the baseline.
    let plan = lab.short_plan("name = \"lost\"\nrepeat = 2\nbaseline = \"killed\"", "16m", &guests);
    let began = Instant::now();
    let mut command = lab.iotax_with("qemu-system-x86_64", WRAPPER);
    command.arg("run").arg(plan).args(["--accel", "tcg", "--yes", "--json", "-"]);
    let output = command.output().expect("iotax starts");
    let (took, said) = (began.elapsed(), text(&output.stderr));
    println!("{took:?}\n{said}");
    assert_eq!(output.status.code(), Some(3), "{said}");

    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_valid(&json);
    let lost = |name: &str| {
        let targets = json["targets"].as_array().expect("targets");
        targets.iter().find(|target| target["name"] == name).expect("recorded")["lost"].as_str()
    };
    assert!(lost("killed").is_some_and(|reason| reason.contains("signal: 9")), "{:?}", lost("killed"));
    // Detected on its console or its monitor, depending on the phase.
    let hangs = |reason: &str| {
        ["no sign of life for 15 s", "was stopped for 15 s"].iter().any(|w| reason.contains(w))
    };
    assert!(lost("stopped").is_some_and(hangs), "{:?}", lost("stopped"));
    assert!(lost("broken").is_some(), "{:?}", lost("broken"));
    assert_eq!((lost("host"), lost("sound")), (None, None));
    let measured: Vec<&str> = json["measurements"]
        .as_array()
        .expect("measurements")
        .iter()
        .filter_map(|m| m["target"].as_str())
        .collect();
    assert_eq!(measured.iter().filter(|name| **name == "host").count(), 2);
    assert_eq!(measured.iter().filter(|name| **name == "sound").count(), 2);
    assert_eq!((measured.len(), json["comparisons"].as_array().map(Vec::len)), (4, Some(0)));
    for name in ["killed", "stopped", "broken"] {
        let row = said
            .lines()
            .find(|line| line.trim_start().starts_with(&format!("{name} ")) && line.ends_with("lost"));
        assert!(row.is_some(), "{name}: {said}");
    }
    assert!(said.contains("the baseline: nothing is compared with it"), "{said}");
    lab.assert_nothing_left();
}
