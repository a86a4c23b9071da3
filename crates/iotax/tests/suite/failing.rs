//! Tests of a device that fails most I/Os: the measurement is unusable, the table says so, and the exit code is 3.

use iotax_testkit::require;
use serde_json::Value;

use crate::disk::Disk;
use crate::fuse::{MIXED, plan};
use crate::lab::{Lab, assert_valid, text};

/// A 16 MiB device on which only reads of the first MiB succeed.
fn failing() -> Option<Disk> {
    let disk = Disk::new(16 << 20)?;
    disk.cut(1 << 20);
    Some(disk)
}

#[test]
fn a_device_that_fails_most_reads_is_marked_and_ends_in_exit_code_3() {
    let Some(disk) = failing() else { return };
    let lab = Lab::new();
    let db = lab.path("runs.db");
    let arguments = ["bench", disk.name(), "--rw", "randread", "--runtime", "2s", "--ramp_time", "0s"];
    let mut command = lab.iotax();
    let output = command.args(arguments).arg("--db").arg(&db).args(["--json", "-"]).output().expect("iotax");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_valid(&json);
    assert_eq!(json["measurements"][0]["grade"], "unusable");
    let (failed, of) = (&json["cells"][0]["failed"]["ios"], &json["cells"][0]["failed"]["of"]);
    let (failed, of) = (failed.as_u64().expect("a count"), of.as_u64().expect("a count"));
    // 15 of 16 blocks are gone.
    assert!(failed * 100 > of * 85 && failed < of, "{failed} of {of}");
    for kind in ["throttled", "unsteady", "saturated_generator"] {
        assert!(json["warnings"].as_array().expect("warnings").iter().all(|w| w["kind"] != kind), "{json}");
    }
    assert!(said.contains("unusable") && said.contains("I/Os failed") && said.contains("EIO"), "{said}");

    let report = lab.run(&["report", "1", "--db", db.to_str().expect("UTF-8")]);
    let said = text(&report.stdout);
    let row = said.lines().find(|line| line.trim_start().starts_with("read ")).expect("a row");
    assert!(row.ends_with("unusable"), "{said}");

    // Two of them have no verdict between them.
    let side = format!("1:{}", json["targets"][0]["name"].as_str().expect("a name"));
    let again = lab.iotax().args(arguments).arg("--db").arg(&db).output().expect("iotax starts");
    assert_eq!(again.status.code(), Some(3));
    let compared =
        lab.run(&["compare", "--db", db.to_str().expect("UTF-8"), &side, "2", "--fail-if", "slower>5%"]);
    let said = text(&compared.stdout);
    assert!(said.contains("withheld") && said.contains("cannot be used"), "{said}{}", text(&compared.stderr));
    lab.assert_nothing_left();
}

#[test]
fn a_report_tells_why_a_run_ended_before_its_first_measurement_until_it_is_resumed() {
    require!(program "qemu-img", "qemu-storage-daemon");
    let lab = Lab::new();
    let db = lab.path("runs.db").display().to_string();
    let script = "#!/bin/sh\ncase $1 in create) echo 'no room today' >&2; exit 1;; esac\nPATH=${PATH#*:} exec qemu-img \"$@\"\n";
    let stacks = [("plain", "WORK > raw file > virtio"), ("image", "WORK > qcow2 file > virtio")];
    let plan = plan(&lab, &stacks, MIXED);
    let failed = lab.iotax_with("qemu-img", script).args(["run", &plan, "--db", &db, "--yes"]).output();
    assert_eq!(failed.expect("iotax starts").status.code(), Some(4));
    let report = || text(&lab.run(&["report", "1", "--detail", "--db", &db]).stdout);
    let said = report().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("incomplete: the run ended early: target \"image\": "), "{said}");
    assert!(said.contains("no room today. Remedy: remove the cause, then go on with iotax resume"), "{said}");
    let resumed = lab.run(&["resume", "1", "--db", &db, "--yes"]);
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    assert!(!report().contains("ended early"), "{}", report());
    lab.assert_nothing_left();
}

#[test]
fn a_device_that_works_is_not_marked() {
    let Some(disk) = Disk::new(16 << 20) else { return };
    let lab = Lab::new();
    let output = lab.run(&["bench", disk.name(), "--rw", "randread", "--runtime", "1s", "--ramp_time", "0s"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // On a busy machine other remarks may be due.
    assert!(!text(&output.stdout).contains("I/Os failed"), "{}", text(&output.stdout));
}
