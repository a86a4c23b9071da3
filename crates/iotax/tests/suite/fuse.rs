//! Tests of images measured through QEMU's block layer, without a guest.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use iotax_testkit::require;
use serde_json::Value;

use crate::lab::{Lab, OtherUser, assert_valid, start_until, text};

/// A plan of targets by their lines.
pub(crate) fn plan(lab: &Lab, stacks: &[(&str, &str)], workloads: &str) -> String {
    let targets =
        stacks.iter().map(|(name, line)| format!("[[target]]\nname = '{name}'\nstack = '{line}'\n"));
    let head = "repeat = 2\n[defaults]\nsize = '16m'\nruntime = '200ms'\nramp_time = '0s'\n";
    let text = format!("{head}{}{workloads}", targets.collect::<String>());
    lab.plan(&text).display().to_string()
}

/// Reads and writes of a fixed number of bytes, because a busy machine may complete none in a short time.
pub(crate) const MIXED: &str =
    "[[workload]]\nname = 'mixed'\nrw = 'randrw'\niodepth = 8\nio_size = '1m'\nruntime = '60s'\n";

/// The names of a target's layers, from the bottom up.
pub(crate) fn layers<'a>(json: &'a Value, name: &str) -> Vec<&'a str> {
    let targets = json["targets"].as_array().expect("targets");
    let target = targets.iter().find(|target| target["name"] == name).expect(name);
    target["layers"].as_array().expect("layers").iter().filter_map(|layer| layer["name"].as_str()).collect()
}

#[test]
fn every_format_is_read_and_written_and_leaves_nothing() {
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let formats = ["raw", "qcow2", "vmdk", "vhdx", "vpc", "vdi", "parallels", "luks"];
    let stacks =
        formats.map(|format| (format, format!("WORK > {format} file > fuse cache=none aio=threads")));
    let stacks: Vec<(&str, &str)> = stacks.iter().map(|(name, line)| (*name, line.as_str())).collect();
    let json = lab.json(&["run", &plan(&lab, &stacks, MIXED), "--yes", "--json", "-"]);
    assert_valid(&json);
    let measurements = json["measurements"].as_array().expect("measurements");
    assert_eq!(measurements.len(), formats.len() * 2);
    for measurement in measurements {
        assert!(measurement["read"]["iops"].as_f64() > Some(0.0), "{measurement}");
        assert!(measurement["write"]["iops"].as_f64() > Some(0.0), "{measurement}");
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    for format in formats {
        assert!(layers(&json, format).ends_with(&[format, "FUSE export"]), "{:?}", layers(&json, format));
    }
    lab.assert_nothing_left();
}

#[test]
fn a_user_without_privileges_measures_through_qemu() {
    require!(root);
    require!(program "qemu-storage-daemon", "fusermount3", "setpriv");
    let lab = Lab::new();
    let user = OtherUser::beside(&lab);
    let work = user.path("work");
    let stacks = ["raw file", "qcow2 file > virtio", "qcow2 file > fuse", "raw file > nbd > virtio"];
    let lines = stacks.map(|stack| format!("{} > {stack}", work.display()));
    let stacks: Vec<(&str, &str)> =
        ["a", "b", "c", "d"].into_iter().zip(lines.iter().map(String::as_str)).collect();
    let plan = plan(&lab, &stacks, MIXED);
    fs::copy(plan, user.path("plan.toml")).expect("copied");
    fs::create_dir(&work).expect("made");
    std::os::unix::fs::chown(&work, Some(65534), Some(65534)).expect("root may");
    let output =
        user.iotax().args(["run", "plan.toml", "--yes", "--json", "-"]).output().expect("setpriv starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_valid(&json);
    let measurements = json["measurements"].as_array().expect("measurements");
    assert_eq!(measurements.len(), 2 * stacks.len());
    for measurement in measurements {
        assert!(measurement["write"]["iops"].as_f64() > Some(0.0), "{measurement}");
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    for left in [&work, &user.path(".local/state/iotax/undo")] {
        let entries: Vec<_> =
            fs::read_dir(left).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        assert_eq!(entries, Vec::<std::path::PathBuf>::new());
    }
}

/// Tests layers in an unusual order: a filesystem in a file, an image on it, and its export as a disk.
#[test]
fn layers_stand_on_one_another_in_any_order_that_fits() {
    require!(program "qemu-storage-daemon", "losetup", "mkfs.ext4");
    if !rustix::process::geteuid().is_root() {
        iotax_testkit::skip!("only root attaches loop devices");
    }
    let lab = Lab::new();
    let line = "WORK > raw file > loop direct_io=true > ext4 > qcow2 file > fuse > loop direct_io=true";
    let json = lab.json(&["run", &plan(&lab, &[("deep", line)], MIXED), "--yes", "--json", "-"]);
    let found = layers(&json, "deep");
    let position = |name: &str| found.iter().rposition(|layer| layer.contains(name));
    let order = ["loop", "ext4", "qcow2", "FUSE export"]
        .map(|name| position(name).unwrap_or_else(|| panic!("{name}: {found:?}")));
    assert!(order.is_sorted(), "{found:?}");
    lab.assert_nothing_left();
}

/// Returns the existing overlays of a snapshot.
fn overlays(dir: &Path) -> BTreeSet<String> {
    let entries =
        |dir: &Path| fs::read_dir(dir).map(|all| all.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let folders = entries(dir).into_iter().flat_map(|folder| entries(&folder.path()));
    let names = folders.map(|file| file.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(".overlay-")).collect()
}

/// Tests that each measurement begins with an empty overlay, which replaces the previous one.
#[test]
fn a_snapshot_is_new_before_each_measurement() {
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let line = "WORK > qcow2 file + 3 external snapshots > fuse";
    let workloads = "[[workload]]\nname = 'w'\nrw = 'randwrite'\n[[workload]]\nname = 'r'\nrw = 'randread'\n";
    let path = plan(&lab, &[("snapshot", line)], workloads);
    let mut run = start_until(lab.iotax().args(["run", &path, "--yes", "--json", "out.json"]), "filled");
    let mut seen = BTreeSet::new();
    while run.try_wait().expect("asked").is_none() {
        let now = overlays(&lab.work());
        assert!(now.len() <= 1, "{now:?}");
        seen.extend(now);
        thread::sleep(Duration::from_millis(2));
    }
    let expected = (1..=4).map(|number| format!("snapshot.overlay-{number}.qcow2"));
    assert_eq!(seen, expected.collect(), "one for each measurement");
    let json = fs::read(lab.path("out.json")).expect("results");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(json["measurements"].as_array().map(Vec::len), Some(4));
    assert!(layers(&json, "snapshot").contains(&"external snapshot"));
    lab.assert_nothing_left();
}

#[test]
fn killed_at_any_moment_it_can_be_cleaned() {
    require!(program "qemu-storage-daemon");
    for (moment, also_the_daemon) in
        [("creating files", false), ("filled fuse", false), ("cell 2/", false), ("cell 2/", true)]
    {
        let lab = Lab::new();
        let stacks =
            [("fuse", "WORK > qcow2 file + external snapshot > fuse"), ("plain", "WORK > raw file > fuse")];
        let path = plan(&lab, &stacks, "[[workload]]\nrw = 'randrw'\n");
        let mut child = start_until(lab.iotax().args(["run", &path, "--yes"]), moment);
        child.kill().expect("killed");
        child.wait().expect("it ended");
        if also_the_daemon {
            let killed = Command::new("pkill").args(["-9", "-f", &lab.work().display().to_string()]).status();
            assert!(killed.expect("pkill").success());
        }
        let clean = lab.run(&["clean"]);
        assert!(clean.status.success(), "{moment}: {}{}", text(&clean.stdout), text(&clean.stderr));
        lab.assert_nothing_left();
    }
}

#[test]
fn a_daemon_that_dies_costs_its_own_target_alone() {
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let stacks = [("dying", "WORK > qcow2 file > fuse"), ("plain", "WORK > raw file")];
    let path = plan(&lab, &stacks, "[[workload]]\nrw = 'randread'\n");
    let mut child = start_until(lab.iotax().args(["run", &path, "--yes", "--json", "out.json"]), "cell 1/");
    let killed =
        Command::new("pkill").args(["-9", "-f", &format!("{}.*dying.qcow2", lab.work().display())]).status();
    assert!(killed.expect("pkill").success());
    child.wait().expect("it ends");
    let json: Value =
        serde_json::from_slice(&fs::read(lab.path("out.json")).expect("results")).expect("JSON");
    let plain =
        json["measurements"].as_array().expect("measurements").iter().filter(|m| m["target"] == "plain");
    assert_eq!(plain.count(), 2, "{json}");
    lab.assert_nothing_left();
}

#[test]
fn what_cannot_be_shown_is_refused_with_the_remedy() {
    let lab = Lab::new();
    for (line, words) in [
        ("WORK > qcow2 file + internal snapshot > fuse > loop direct_io=true", "nothing can stand on it"),
        ("WORK > qcow2 file + external snapshot > fuse > loop direct_io=true", "nothing can stand on it"),
        ("WORK > raw file > fuse > loop direct_io=true > ext4 > raw file", "corrupts concurrent writes"),
        ("WORK > qcow2 file", "nothing can be measured; add virtio = {} or fuse = {}"),
        ("WORK > vmdk file preallocation=full > fuse", "is for raw and qcow2, not vmdk"),
    ] {
        let refused =
            lab.run(&["run", &plan(&lab, &[("t", line)], "[[workload]]\nrw = 'randread'\n"), "--yes"]);
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains(words), "{line}: {said}");
    }
    let gone = lab
        .iotax()
        .env("PATH", "/none")
        .args([
            "run",
            &plan(&lab, &[("t", "WORK > qcow2 file > fuse")], "[[workload]]\nrw = 'randread'\n"),
            "--yes",
        ])
        .output()
        .expect("it starts");
    let said = text(&gone.stderr);
    assert!(said.contains("qemu-storage-daemon was not found in PATH; install it"), "{said}");
    lab.assert_nothing_left();
}

mod guests {
    use super::*;

    /// Without native guests, the default ladder contains none and says so.
    #[test]
    fn the_default_ladder_has_no_emulated_guests() {
        require!(guests);
        let lab = Lab::new();
        let work = lab.work().display().to_string();
        let ladder = [
            "ladder",
            &work,
            "--yes",
            "--json=-",
            "--size=16m",
            "--repeat=2",
            "--runtime=250ms",
            "--ramp-time=0s",
            "--workloads=randread-4k-qd1",
        ];
        let output = lab.run(&ladder);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let targets = json["targets"].as_array().expect("targets");
        let emulated = targets.iter().filter(|target| target["emulated"] == true).count();
        let names: Vec<&str> = targets.iter().filter_map(|target| target["name"].as_str()).collect();
        assert_eq!(emulated, 0, "{names:?}");
        assert_eq!(names[..4], ["host-file", "virtio-raw", "virtio-qcow2", "virtio-qcow2-snapshot"]);
        let says_why = text(&output.stderr).contains("(--emulated)");
        assert_eq!(says_why, names.len() == 4, "{names:?}: {}", text(&output.stderr));
        lab.assert_nothing_left();
    }
}
