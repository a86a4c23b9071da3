//! Tests of files on overlayfs and tmpfs, as in containers.

use iotax_testkit::skip;

use crate::fuse::{MIXED, layers, plan};
use crate::lab::{Lab, assert_valid, start_until, text};

#[test]
fn a_file_in_an_overlay_is_measured_with_what_lies_beneath() {
    if !rustix::process::geteuid().is_root() {
        skip!("only root mounts an overlay");
    }
    let lab = Lab::new();
    let stacks = [("plain", "WORK > raw file"), ("overlay", "WORK > overlay > raw file")];
    let json = lab.json(&["run", &plan(&lab, &stacks, MIXED), "--yes", "--json", "-"]);
    assert_valid(&json);
    let (beneath, found) = (layers(&json, "plain"), layers(&json, "overlay"));
    // All layers below the directory, then the overlay, then the file.
    let [below @ .., overlay, file] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((below, *overlay, *file), (&beneath[..beneath.len() - 1], "overlay", "overlay.raw"));
    for measurement in json["measurements"].as_array().expect("measurements") {
        assert!(measurement["write"]["iops"].as_f64() > Some(0.0), "{measurement}");
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    lab.assert_nothing_left();
}

#[test]
fn a_rung_of_a_ladder_is_one_by_name_and_a_killed_one_is_cleaned_and_resumed() {
    if !rustix::process::geteuid().is_root() {
        skip!("only root mounts an overlay");
    }
    let lab = Lab::new();
    let work = lab.work().display().to_string();
    let ladder = ["ladder", &work, "--rungs", "host-file,host-overlay", "--size", "16m", "--repeat", "2"];
    let short = ["--runtime", "250ms", "--ramp-time", "0s", "--workloads", "randread-4k-qd1", "--yes"];
    let arguments = [&ladder[..], &short].concat();
    let json = lab.json(&[&arguments[..], &["--json", "-"]].concat());
    assert!(layers(&json, "host-overlay").contains(&"overlay"), "{}", json["targets"]);
    lab.assert_nothing_left();
    let mut killed = start_until(lab.iotax().args(&arguments), "cell 2/");
    killed.kill().expect("killed");
    killed.wait().expect("it ended");
    let clean = lab.run(&["clean"]);
    assert!(clean.status.success(), "{}{}", text(&clean.stdout), text(&clean.stderr));
    assert!(text(&clean.stdout).contains("overlay"), "{}", text(&clean.stdout));
    lab.assert_nothing_left();
    let resumed = lab.json(&["resume", "2", "--yes", "--json", "-"]);
    assert_eq!(resumed["run"]["state"], "complete", "{}", resumed["run"]);
    lab.assert_nothing_left();
}

#[test]
fn a_file_in_memory_is_measured_and_a_killed_one_is_cleaned() {
    if !rustix::process::geteuid().is_root() {
        skip!("only root mounts a tmpfs");
    }
    let lab = Lab::new();
    let stacks = [("memory", "tmpfs > raw file"), ("overlay", "tmpfs > overlay > raw file")];
    let path = plan(&lab, &stacks, &format!("{MIXED}direct = false\n"));
    let json = lab.json(&["run", &path, "--yes", "--json", "-"]);
    assert_valid(&json);
    assert!(layers(&json, "memory").ends_with(&["tmpfs", "memory.raw"]), "{}", json["targets"]);
    for measurement in json["measurements"].as_array().expect("measurements") {
        assert!(measurement["write"]["iops"].as_f64() > Some(0.0), "{measurement}");
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    lab.assert_nothing_left();
    let child = start_until(lab.iotax().args(["run", &path, "--yes"]), "cell 2/");
    lab.kill_and_clean(child, "cell 2/");
    for (more, words) in [
        (&["--size=16m"][..], "use direct = false"),
        (&["--size=100t", "--direct=false"], "more than half of the"),
    ] {
        let refused = lab.run(&[&["bench", "tmpfs > raw file", "--yes"], more].concat());
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(words), "{said}");
    }
    lab.assert_nothing_left();
}
