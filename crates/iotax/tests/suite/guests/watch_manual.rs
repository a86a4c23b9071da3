//! Runs the acceptance test of docs/watch.md exactly as documented.

use crate::lab_guest::Extras;
use crate::watch_lab::boot;

/// Returns the command in the section on acceptance tests.
fn command() -> String {
    let manual = include_str!("../../../../../docs/watch.md");
    let section = manual.split("\n## ").find(|section| section.starts_with("An acceptance test\n"));
    let lines = section.expect("the section").lines().skip_while(|line| !line.starts_with("    iotax watch"));
    let lines: Vec<&str> = lines.take_while(|line| line.starts_with("    ")).collect();
    // The guest's shell takes one line.
    lines.iter().map(|line| line.trim().trim_end_matches('\\')).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_acceptance_test_of_the_manual_accepts_what_keeps_its_promise() {
    let modules = ["dm_multipath", "dm_round_robin"];
    let extras = Extras { programs: &["wipefs"], modules: &modules, ..Extras::default() };
    let Some(mut guest) = boot(&extras) else { return };
    // Two hosts with one store are two paths to it.
    guest.sh("insmod /lab/scsi_debug.ko dev_size_mb=64 add_host=2");
    guest
        .sh("for wait in $(seq 50); do [ -b /dev/sdb ] && break; usleep 100000; done; cmp /dev/sda /dev/sdb");
    let paths = "round-robin 0 2 1 /dev/sda 1 /dev/sdb 1";
    guest.map("lun", &[format!("0 131072 multipath 1 queue_if_no_path 0 1 1 {paths}")]);
    let command = command();
    let size = "--size 8m --yes";
    let (code, printed) = guest.try_sh(&format!("{command} {size} 2>&1"));
    for words in ["gap < 10s: passed", "errors = 0: passed", "lost = 0: passed"] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    assert_eq!(code, "0", "{printed}");
    eprintln!("{printed}");

    // A promise that is not kept.
    guest.sh("dmsetup message lun 0 fail_if_no_path");
    let (code, printed) = guest.try_sh(&format!("{command} {size} 2>&1"));
    assert!(printed.contains("errors = 0: FAILED") && printed.contains("lost = 0: passed"), "{printed}");
    assert_eq!(code, "1", "{printed}");
}
