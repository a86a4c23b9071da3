//! Tests of power cuts: data kept by stacks that honour flushes, data lost by those that do not, and clean-up after an interrupted cut.

use std::os::unix::process::ExitStatusExt;

use iotax_testkit::{postgres, require, thorough};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::lab::{Lab, processes, start_until, text};

/// A seed for which cuts happen after 0.8 s on average instead of 1.5 s; the range is 0.5 s to 2 s.
const EARLY: &str = "284196";

/// Cuts the power of stacks in the lab's directory, early unless tests are thorough. Returns the exit code and the JSON document.
fn crash(lab: &Lab, stacks: &[&str], more: &[&str]) -> (Option<i32>, Value) {
    let work = lab.work().display().to_string();
    let stacks: Vec<String> = stacks.iter().map(|stack| format!("{work} > {stack}")).collect();
    let mut command = lab.iotax();
    let early = if thorough() { &[][..] } else { &["--seed", EARLY] };
    let command = command.arg("crash").args(&stacks).args(more).args(early).arg("--json");
    let output = command.output().expect("iotax starts");
    let said = text(&output.stderr);
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let schema: Value =
        serde_json::from_str(include_str!("../../../model/schema/crash.schema.json")).expect("JSON");
    assert!(jsonschema::is_valid(&schema, &document), "{document}");
    lab.assert_nothing_left();
    assert_eq!(lab.volatile(), Vec::<String>::new(), "processes left");
    (output.status.code(), document)
}

/// The cuts of each target.
fn cuts(document: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let targets = document["targets"].as_array().expect("targets");
    targets.iter().flat_map(|target| {
        let cuts = target["cuts"].as_array().expect("cuts");
        cuts.iter().map(|cut| (target["stack"].as_str().expect("a stack"), cut))
    })
}

fn number(cut: &Value, pointer: &str) -> u64 {
    cut.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer}: {cut}"))
}

/// Number of blocks without a flushed write; 0 if nothing was read back.
fn lost_flushed(cut: &Value) -> u64 {
    let counters = ["/flushed/stale", "/flushed/torn", "/flushed/damaged"];
    cut.get("flushed").map_or(0, |_| counters.iter().map(|counter| number(cut, counter)).sum())
}

/// QEMU's cache modes that keep flushed data.
const KEEP: [&str; 4] = ["none", "writeback", "writethrough", "directsync"];

fn modes(format: &str, modes: &[&str]) -> Vec<String> {
    let aio = |mode: &&str| if ["none", "directsync"].contains(mode) { "io_uring" } else { "threads" };
    modes.iter().map(|mode| format!("{format} file > virtio cache={mode} aio={}", aio(mode))).collect()
}

#[test]
fn what_is_flushed_outlives_a_cut_in_every_cache_mode_but_unsafe() {
    require!(program "qemu-storage-daemon", "qemu-img", "fusermount3");
    let lab = Lab::in_memory();
    let kept = ["raw", "qcow2"].map(|format| modes(format, &KEEP)).concat();
    let stacks: Vec<&str> = ["raw file"].into_iter().chain(kept.iter().map(String::as_str)).collect();
    let repeat = if thorough() { "5" } else { "1" };
    let (code, document) = crash(&lab, &stacks, &["--cuts", repeat]);
    assert_eq!(code, Some(0), "{document:#}");
    let mut seen = 0;
    for (stack, cut) in cuts(&document) {
        assert_eq!((lost_flushed(cut), cut.get("unusable")), (0, None), "{stack}: {cut:#}");
        assert!(number(cut, "/flushed/checked") > 0, "{stack}: {cut:#}");
        assert!(
            !cut["image"].as_object().is_some_and(|image| image.contains_key("damaged")),
            "{stack}: {cut:#}"
        );
        // With these each write is flushed before it is acknowledged.
        if stack.contains("writethrough") || stack.contains("directsync") {
            let lost = number(cut, "/acknowledged/stale") + number(cut, "/acknowledged/torn");
            assert_eq!(lost, 0, "{stack}: {cut:#}");
        }
        seen += 1;
    }
    assert!(seen >= 9, "{document:#}");
    let (code, document) = crash(
        &lab,
        &["raw file > virtio cache=unsafe aio=threads", "qcow2 file > virtio cache=unsafe aio=threads"],
        &["--cuts", repeat],
    );
    assert_eq!(code, Some(1), "{document:#}");
    for (stack, cut) in cuts(&document) {
        assert!(lost_flushed(cut) > 0 || cut.get("unusable").is_some(), "{stack}: {cut:#}");
    }
}

#[test]
fn a_disk_that_drops_flushes_is_found() {
    require!(program "qemu-storage-daemon", "fusermount3");
    let lab = Lab::in_memory();
    let (code, document) = crash(
        &lab,
        &["volatile drop_flush=1 > raw file", "volatile drop_flush=1 > raw file > virtio"],
        &["--cuts", "1"],
    );
    assert_eq!(code, Some(1), "{document:#}");
    for (stack, cut) in cuts(&document) {
        assert!(lost_flushed(cut) > 0, "{stack}: {cut:#}");
    }
    // The next flush that is done makes up for a dropped one, so a cut finds a third of them: 24 cuts find
    // none once in 17,000 times (2/3 to the power of 24).
    let (batches, each) = if thorough() { (1, "30") } else { (6, "4") };
    let is_found = (0..batches).any(|_| {
        let (code, document) = crash(&lab, &["volatile drop_flush=3 > raw file"], &["--cuts", each]);
        for (_, cut) in cuts(&document) {
            let (dropped, flushes) =
                (number(cut, "/volatile/dropped_flushes"), number(cut, "/volatile/flushes"));
            assert_eq!(dropped, flushes / 3, "{cut:#}");
        }
        code == Some(1)
    });
    assert!(is_found, "no cut found a dropped flush");
}

#[test]
fn tears_are_found_where_writes_are_torn_and_flushes_are_counted() {
    require!(program "fusermount3");
    let lab = Lab::in_memory();
    let (code, document) = crash(
        &lab,
        &[
            "volatile > raw file",
            "volatile tear=false > raw file",
            "volatile tear=false reorder=false > raw file",
        ],
        &["--cuts", "2", "--fdatasync", "2000"],
    );
    // On a slow machine a cut may come before the first flush, which decides nothing.
    let unflushed = |stack: &str| {
        cuts(&document).filter(|(of, _)| *of == stack).all(|(_, cut)| number(cut, "/flushed/checked") == 0)
    };
    let is_open = cuts(&document).any(|(stack, _)| unflushed(stack));
    assert_eq!(code, Some(if is_open { 5 } else { 0 }), "{document:#}");
    let mut torn = 0;
    for (stack, cut) in cuts(&document) {
        let found = |fault: &str| number(cut, &format!("/acknowledged/{fault}"));
        // At most the number that the disk lost or tore, because the fate of a write in flight is unknown.
        assert!(found("torn") <= number(cut, "/volatile/torn"), "{stack}: {cut:#}");
        assert!(found("stale") <= number(cut, "/volatile/lost"), "{stack}: {cut:#}");
        assert_eq!(found("damaged"), 0, "{stack}: {cut:#}");
        if stack.contains("tear=false") {
            assert_eq!(found("torn"), 0, "{stack}: {cut:#}");
        }
        let is_lost = found("torn") + found("stale") > 0;
        assert_eq!(cut["lost_seconds"].as_f64().is_some_and(|lost| lost > 0.0), is_lost, "{stack}: {cut:#}");
        let asked = number(cut, "/writes") / 2000;
        assert!(number(cut, "/volatile/flushes").abs_diff(asked) <= 1, "{stack}: {cut:#}");
        torn += found("torn");
    }
    assert!(torn > 0, "{document:#}");
    let (_, document) = crash(&lab, &["raw file"], &["--cuts", "1", "--fdatasync", "1"]);
    for (_, cut) in cuts(&document) {
        // Those of writes in flight are not on record.
        assert!(number(cut, "/volatile/flushes").abs_diff(number(cut, "/writes")) <= 16, "{cut:#}");
    }
}

#[test]
fn without_a_flush_all_work_is_lost_and_nothing_is_decided() {
    require!(program "fusermount3");
    let lab = Lab::in_memory();
    let stack = format!("{} > volatile drop_flush=1 tear=false > raw file", lab.work().display());
    for (flush, code, words) in [
        ("16", 1, "1 of 1 cut lost flushed writes"),
        ("1000000", 5, "undecided: nothing was flushed before a cut"),
    ] {
        let arguments = ["crash", &stack, "--cuts", "1", "--seed", EARLY, "--fdatasync", flush];
        let output = lab.run(&[&arguments[..], &["--json", "cut.json"]].concat());
        let said = text(&output.stdout) + &text(&output.stderr);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
        assert!(!said.contains("fewer than") && !said.contains("nothing lost"), "{said}");
        assert_eq!(said.contains("Remedy: let the load run longer before the cut"), code == 5, "{said}");
        let document = std::fs::read_to_string(lab.path("cut.json")).expect("written");
        let document: Value = serde_json::from_str(&document).expect("JSON");
        for (_, cut) in cuts(&document) {
            // Of the writes that are in memory the draw takes half, some of the first among them. There is room for 65,536.
            let (lost, seconds) = (cut["lost_seconds"].as_f64(), cut["seconds"].as_f64().expect("a time"));
            let in_memory = (65_536.0 / number(cut, "/writes") as f64).min(1.0);
            assert!(lost > Some(seconds * in_memory * 0.9), "{lost:?} of {seconds}: {cut:#}");
        }
        std::fs::remove_file(lab.path("cut.json")).expect("removed");
    }
    lab.assert_nothing_left();
}

#[test]
fn each_fault_is_found_in_every_cut_and_none_on_an_honest_disk() {
    require!(program "fusermount3");
    let lab = Lab::in_memory();
    let [some, half, many] = if thorough() { ["40", "80", "100"] } else { ["2", "4", "4"] };
    // Losses in each cut: flushed, reordered and torn blocks.
    let run = |stack: &str, repeat: &str, flush: &str| {
        let (code, document) = crash(&lab, &[stack], &["--cuts", repeat, "--fdatasync", flush]);
        let losses = |cut| [lost_flushed(cut), number(cut, "/reordered"), number(cut, "/acknowledged/torn")];
        let found: Vec<[u64; 3]> = cuts(&document).map(|(_, cut)| losses(cut)).collect();
        let after = |fault: usize| found.iter().filter(|losses| losses[fault] > 0).count();
        let all = [after(0), after(1), after(2)];
        eprintln!("{stack}, a flush after {flush}: flushed lost, reordered, torn {all:?} of {repeat}");
        (code, all, document)
    };
    let made: usize = some.parse().expect("a number");
    let never = "1000000";
    let (code, [lost, ..], _) = run("volatile drop_flush=1 > raw file", some, "16");
    assert_eq!((code, lost), (Some(1), made), "a disk that keeps all in its cache");
    let (code, found, _) = run("volatile tear=false > raw file", some, never);
    assert_eq!((code, found), (Some(5), [0, made, 0]), "a disk that reorders");
    let (code, found, _) = run("volatile > raw file", some, never);
    assert_eq!((code, found), (Some(5), [0, made, made]), "a disk that reorders and tears");
    let (code, found, _) = run("volatile tear=false reorder=false > raw file", many, "16");
    assert_eq!((code, found), (Some(0), [0, 0, 0]), "an honest disk");
    // A dropped flush is made up for by the next one, so only a cut between the two can find it. It finds nothing where the flush before was
    // late and took its writes along.
    let (_, _, document) = run("volatile drop_flush=2 tear=false > raw file", half, "64");
    let (mut dropped, mut found) = (0, 0);
    for (stack, cut) in cuts(&document) {
        let is_last_dropped = number(cut, "/volatile/flushes").is_multiple_of(2);
        let is_found = lost_flushed(cut) > 0;
        assert!(is_last_dropped || !is_found, "{stack}: {cut:#}");
        dropped += u64::from(is_last_dropped);
        found += u64::from(is_found);
    }
    eprintln!("the last flush was dropped before {dropped} cuts, and found by {found} of them");
    assert!(!thorough() || found > 0 && found * 10 >= dropped * 9, "{document:#}");
}

#[test]
fn the_plan_of_the_documentation_is_carried_out() {
    require!(program "qemu-storage-daemon", "fusermount3");
    let lab = Lab::in_memory();
    let plan = include_str!("../../../../examples/power-cuts.toml");
    let dir = format!("dir = \"{}\"", lab.work().display());
    let mut plan = plan.replace("dir = \".\"", &dir);
    let mut targets = 18;
    if !thorough() {
        // The other tests cut the other modes.
        for (all, few) in [
            (
                "[\"none\", \"writeback\", \"writethrough\", \"directsync\", \"unsafe\"]",
                "[\"none\", \"unsafe\"]",
            ),
            ("[\"none\", \"writeback\", \"writethrough\"]", "\"none\""),
        ] {
            assert!(plan.contains(all), "{plan}");
            plan = plan.replace(all, few);
        }
        targets = 8;
    }
    std::fs::write(lab.path("cuts.toml"), plan).expect("written");
    let output = lab.run(&["crash", "cuts.toml", "--cuts", "1", "--seed", EARLY, "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let mut seen = 0;
    for (stack, cut) in cuts(&document) {
        let keeps = !stack.contains("drop_flush") && !stack.contains("unsafe");
        let lost = lost_flushed(cut) > 0 || cut["unusable"].is_string();
        assert_eq!(lost, !keeps, "{stack}: {cut:#}");
        seen += 1;
    }
    assert_eq!((seen, output.status.code()), (targets, Some(1)));
    lab.assert_nothing_left();
}

#[test]
fn a_database_keeps_what_its_settings_promise_unless_the_disk_lies() {
    require!(program "fusermount3");
    let lab = Lab::in_memory();
    let repeat = if thorough() { "10" } else { "1" };
    let page = lab.path("page.html");
    let more = ["--application", "sqlite", "--cuts", repeat, "--html", page.to_str().expect("utf-8")];
    let (code, document) = crash(&lab, &["raw file"], &more);
    assert_eq!(code, Some(0), "{document:#}");
    assert_eq!(document["targets"].as_array().expect("targets").len(), 9);
    for (mode, cut) in database_cuts(&document) {
        let mode = &mode["sqlite"];
        assert!(number(cut, "/writes") > 0, "{mode}: {cut:#}");
        if mode["synchronous"] == "full" {
            assert_eq!(number(cut, "/acknowledged/stale"), 0, "{mode}: {cut:#}");
            // A flush for each commit at least.
            assert!(number(cut, "/volatile/flushes") >= number(cut, "/writes"), "{mode}: {cut:#}");
        }
        if mode["synchronous"] == "off" {
            assert!(number(cut, "/volatile/flushes") < number(cut, "/writes"), "{mode}: {cut:#}");
        }
    }
    let page = std::fs::read_to_string(&page).expect("written");
    assert!(page.contains("raw_file wal/normal") && page.contains("commits_per_s"), "{page}");
    let (code, document) =
        crash(&lab, &["volatile drop_flush=1 > raw file"], &["--application", "sqlite", "--cuts", repeat]);
    assert_eq!(code, Some(1), "{document:#}");
    for (mode, cut) in database_cuts(&document) {
        let lost = lost_flushed(cut) > 0 || cut["unusable"].is_string() || cut["image"].is_object();
        assert!(lost || mode["sqlite"]["synchronous"] != "full", "{mode}: {cut:#}");
    }
    let above = format!("{} > raw file > virtio", lab.work().display());
    let output = lab.run(&["crash", &above, "--application", "sqlite"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("a database needs a directory"), "{}", text(&output.stderr));
}

/// The cuts of databases, each with the database's mode.
fn database_cuts(document: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    let targets = document["targets"].as_array().expect("targets");
    targets.iter().flat_map(|target| {
        target["cuts"].as_array().expect("cuts").iter().map(|cut| (&target["database"], cut))
    })
}

#[test]
fn a_cluster_keeps_its_commits_unless_a_setting_or_the_disk_gives_them_up() {
    require!(program "fusermount3", "unshare");
    require!(file postgres::PROGRAM);
    let lab = Lab::in_memory();
    let repeat = if thorough() { "10" } else { "1" };
    let more = ["--application", "postgresql", "--cuts", repeat];
    let (code, document) = crash(&lab, &["raw file"], &more);
    assert_eq!(code, Some(0), "{document:#}");
    let mut seen = 0;
    for (mode, cut) in database_cuts(&document) {
        assert!(number(cut, "/writes") > 0, "{mode}: {cut:#}");
        let keeps = ["fdatasync", "open_datasync"].iter().any(|word| mode["postgresql"] == *word);
        if keeps {
            assert_eq!(number(cut, "/acknowledged/stale"), 0, "{mode}: {cut:#}");
            assert!(number(cut, "/volatile/flushes") >= number(cut, "/writes"), "{mode}: {cut:#}");
        }
        if mode["postgresql"] == "fsync=off" {
            let lost = number(cut, "/acknowledged/stale") > 0 || cut["unusable"].is_string();
            assert!(lost, "{mode}: {cut:#}");
        } else {
            assert_eq!(
                (cut.get("unusable"), &cut["image"]),
                (None, &Value::from("sound")),
                "{mode}: {cut:#}"
            );
        }
        seen += 1;
    }
    assert!(seen >= 4, "{document:#}");
    let (code, document) = crash(&lab, &["volatile drop_flush=1 > raw file"], &more);
    assert_eq!(code, Some(1), "{document:#}");
    for (mode, cut) in database_cuts(&document) {
        assert!(lost_flushed(cut) > 0 || cut["unusable"].is_string(), "{mode}: {cut:#}");
    }
}

#[test]
fn a_cluster_whose_cut_is_cut_off_is_cleaned_away() {
    require!(program "fusermount3", "unshare");
    require!(file postgres::PROGRAM);
    let lab = Lab::new();
    let target = lab.work().display().to_string();
    let mut command = lab.iotax();
    let mut child = start_until(command.args(["crash", &target, "--application", "postgresql"]), "cut 1/5");
    // All of a server's processes have the name of their cluster, which is this one's alone.
    let name = || {
        let servers = lab.processes("/postgres ");
        let [_, rest] = servers.first()?.split("cluster_name=").collect::<Vec<_>>()[..] else { return None };
        rest.split(' ').next().map(str::to_owned)
    };
    let begins = |name: &str| processes(name).iter().any(|line| line.contains("walwriter"));
    let name = loop {
        assert_eq!(child.try_wait().expect("asked"), None, "it ended");
        match name() {
            Some(name) if begins(&name) => break name,
            _ => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    };
    lab.kill_and_clean(child, "its server runs");
    assert_eq!((processes(&name), lab.volatile()), (Vec::<String>::new(), Vec::<String>::new()));
}

#[test]
fn what_is_not_iotaxs_to_cut_is_refused() {
    let lab = Lab::new();
    let work = lab.work().display().to_string();
    let file = lab.path("mine");
    std::fs::write(&file, [7; 8192]).expect("written");
    for (target, words) in [
        (file.display().to_string(), "only what iotax creates here is cut; accepted: a directory, RUNG:DIR"),
        ("/etc/passwd".into(), "/etc/passwd: only what iotax creates here is cut"),
        ("ssh://host/srv".into(), "ssh://host/srv: only what iotax creates here is cut"),
        (format!("{work} > raw file > fuse"), "loses writes that arrive at the same time"),
        (format!("vm-raw:{work}"), "use the virtio rung"),
        (format!("{work} > raw file > loop > integrity"), "recreated each time"),
        (format!("{work} > qcow2 file + external snapshot > virtio"), "new for each use"),
        (format!("{work} > overlay > raw file"), "only what iotax creates here is cut"),
        (format!("{work} > volatile drop_flush=0 > raw file"), "accepted: 1"),
    ] {
        let output = lab.run(&["crash", &target]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{target}: {said}");
        assert!(said.contains(words), "{target}: {said}");
    }
    assert_eq!(std::fs::read(&file).expect("there"), [7; 8192]);
    lab.assert_nothing_left();
}

#[test]
fn interrupted_before_and_after_the_cut_it_leaves_nothing() {
    require!(program "qemu-storage-daemon", "fusermount3");
    let lab = Lab::new();
    let target = format!("{} > qcow2 file > virtio", lab.work().display());
    // The power goes after half a second to two and a half.
    for after_ms in [100, 800, 1600, 2400, 3200] {
        let mut child =
            start_until(lab.iotax().args(["crash", &target, "--cuts", "9", "--seed", "4"]), "cut 1/9");
        std::thread::sleep(std::time::Duration::from_millis(after_ms));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signal sent");
        assert_eq!(child.wait().expect("it ended").code(), Some(130), "{after_ms} ms");
        lab.assert_nothing_left();
        assert_eq!(lab.volatile(), Vec::<String>::new(), "{after_ms} ms");
    }
}

#[test]
fn a_cut_that_is_cut_off_itself_leaves_nothing_once_it_is_cleaned() {
    require!(program "qemu-storage-daemon", "fusermount3");
    let lab = Lab::new();
    let target = format!("{} > qcow2 file > virtio", lab.work().display());
    let arguments = ["crash", &target, "--cuts", "1"];
    let clean = |after: &str| {
        let clean = lab.run(&["clean"]);
        assert!(clean.status.success(), "{after}: {}{}", text(&clean.stdout), text(&clean.stderr));
        lab.assert_nothing_left();
        assert_eq!(lab.volatile(), Vec::<String>::new(), "{after}");
    };
    for line in (1..).step_by(if thorough() { 1 } else { 5 }) {
        let fault = format!("kill-after@{line}");
        let output = lab.iotax().args(arguments).env("IOTAX_FAULT", &fault).output().expect("iotax starts");
        if output.status.success() {
            assert!(line > 20, "{fault}: {}", text(&output.stderr));
            break;
        }
        assert_eq!(output.status.signal(), Some(9), "{fault}: {}", text(&output.stderr));
        clean(&fault);
    }
    let mut child = start_until(lab.iotax().args(arguments), "cut 1/1");
    std::thread::sleep(std::time::Duration::from_millis(600));
    child.kill().expect("killed");
    child.wait().expect("it ended");
    clean("killed under load");
}

#[test]
fn an_interrupt_keeps_the_cuts_that_were_finished() {
    require!(program "fusermount3");
    let lab = Lab::in_memory();
    let stack = format!("{} > raw file", lab.work().display());
    let mut command = lab.iotax();
    command.args([
        "crash",
        &stack,
        "--cuts",
        "60",
        "--seed",
        EARLY,
        "--html",
        "cuts.html",
        "--json",
        "cuts.json",
    ]);
    let mut child = start_until(&mut command, "cut 3/60");
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    assert_eq!(child.wait().expect("ended").code(), Some(130));
    let read = |name: &str| std::fs::read_to_string(lab.path(name)).expect("written");
    let document: Value = serde_json::from_str(&read("cuts.json")).expect("JSON");
    let made = document["targets"][0]["cuts"].as_array().expect("cuts").len();
    assert!((2..60).contains(&made) && document["planned_cuts"] == 60, "{document:#}");
    assert!(read("cuts.html").contains(&format!("ENDED EARLY: {made} of 60 power cuts")));
    lab.assert_nothing_left();
}

/// Tests that have the machine to themselves: mkfs.btrfs looks at every mounted loop device, and cannot while one of them is cut.
mod alone {
    use std::collections::HashSet;

    use super::*;
    use crate::disk::uses_of;

    /// Filesystems with and without barriers, and an image on one.
    #[test]
    fn a_filesystem_keeps_what_it_flushed_unless_its_barriers_are_off() {
        const FEW: [&str; 5] = ["ext4", "ext4-nobarrier", "xfs", "btrfs", "ext4-qcow2"];
        require!(program "fusermount3", "losetup", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "qemu-storage-daemon", "qemu-img");
        require!(root);
        let lab = Lab::in_memory();
        let plan = include_str!("../../../../examples/filesystem-cuts.toml");
        let is_named = |table: &str, name: &str| table.contains(&format!("name = \"{name}\"\n"));
        let is_meant = |table: &&str| {
            thorough() || !table.contains("stack = ") || FEW.iter().any(|name| is_named(table, name))
        };
        let tables: Vec<&str> = plan.split("[[target]]").filter(is_meant).collect();
        let targets = tables.len() - 1;
        assert_eq!(targets, if thorough() { 9 } else { FEW.len() });
        let start = format!("stack = \"{} > ", lab.work().display());
        let plan = tables.join("[[target]]").replace("stack = \". > ", &start);
        std::fs::write(lab.path("cuts.toml"), plan).expect("written");
        let repeat = if thorough() { "40" } else { "1" };
        let output = lab.run(&["crash", "cuts.toml", "--cuts", repeat, "--seed", EARLY, "--json"]);
        let document: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
        for (stack, cut) in cuts(&document) {
            let lost = lost_flushed(cut) > 0 || cut["unusable"].is_string();
            assert_eq!(lost, stack.contains("nobarrier"), "{stack}: {cut:#}");
            assert!(lost || number(cut, "/flushed/checked") > 0, "{stack}: {cut:#}");
        }
        let seen: HashSet<&str> = cuts(&document).map(|(stack, _)| stack).collect();
        assert_eq!((seen.len(), output.status.code()), (targets, Some(1)), "{}", text(&output.stderr));
        lab.assert_nothing_left();
        assert_eq!(lab.volatile(), Vec::<String>::new(), "processes left");
        assert_eq!(uses_of(&lab.work()), Vec::<String>::new(), "mounts and loop devices left");
    }
}
