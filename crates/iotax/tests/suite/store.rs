//! Tests of the store from the command line: read-only, after a killed run, and with flipped bits.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use iotax_testkit::require;

use crate::lab::{Lab, text, with_mounts};

/// A store of two runs, in a separate directory.
fn two_runs(lab: &Lab) -> String {
    let (dir, work) = (lab.path("runs"), lab.work());
    fs::create_dir(&dir).expect("made");
    let db = dir.join("runs.db").display().to_string();
    for _ in 0..2 {
        let file = work.join("x.dat").display().to_string();
        let bench =
            ["bench", &file, "--size", "1m", "--runtime", "100ms", "--ramp-time", "0s", "--rw", "read"];
        let output = lab.run(&[&bench[..], &["--db", &db]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    db
}

/// Runs a command while a directory is read-only: by a mount for root, by its mode for others.
fn read_only(command: &mut Command, dir: &Path) -> Output {
    if !rustix::process::geteuid().is_root() {
        let mode = |mode| fs::set_permissions(dir, PermissionsExt::from_mode(mode)).expect("set");
        mode(0o555);
        let output = command.output().expect("starts");
        mode(0o755);
        return output;
    }
    let read_only = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\"";
    with_mounts(command, read_only, dir).output().expect("unshare starts")
}

#[test]
fn a_store_that_cannot_be_written_is_read() {
    let lab = Lab::new();
    let db = two_runs(&lab);
    let dir = lab.path("runs");
    assert_eq!(fs::read_dir(&dir).expect("listed").count(), 1, "the store is one file");
    fs::set_permissions(&db, PermissionsExt::from_mode(0o444)).expect("set");
    let run = |arguments: &[&str]| read_only(lab.iotax().args(arguments).args(["--db", &db]), &dir);
    let json = lab.path("one.json").display().to_string();
    for (arguments, said) in [
        (&["list"][..], "x.dat"),
        (&["report", "1", "--json", &json], "x.dat"),
        (&["export", "2", "--format", "fio-json"], "\"jobs\""),
        (&["compare", "1", "2"], "latency"),
    ] {
        let output = run(arguments);
        let all = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && all.contains(said), "{arguments:?}: {all}");
    }
    let file = lab.work().join("y.dat").display().to_string();
    let refused = run(&["bench", &file, "--size", "1m", "--runtime", "100ms"]);
    let said = text(&refused.stderr);
    assert!(
        refused.status.code() == Some(4) && said.contains("cannot be written") && said.contains("--db"),
        "{said}"
    );
    assert!(!Path::new(&file).exists(), "nothing was measured for a store that cannot keep it");
    // The journal of a process that was killed while it wrote.
    let journal = lab.path("runs/runs.db-journal");
    fs::write(&journal, [1; 4096]).expect("written");
    let half = run(&["list"]);
    let said = text(&half.stderr);
    assert!(
        half.status.code() == Some(4) && said.contains("middle of a write") && said.contains("copy"),
        "{said}"
    );
    let taken_back = lab.run(&["list", "--db", &db]);
    assert!(taken_back.status.success() && !journal.exists(), "{}", text(&taken_back.stderr));
}

#[test]
fn a_run_whose_process_was_killed_is_interrupted() {
    let lab = Lab::new();
    let db = lab.path("runs.db").display().to_string();
    let file = lab.work().join("x.dat").display().to_string();
    let state = || {
        let output = lab.run(&["list", "--json", "--db", &db]);
        let runs: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        runs[0]["state"].as_str().map(str::to_owned)
    };
    let mut bench = lab
        .iotax()
        .args(["bench", &file, "--size", "1m", "--rw", "read", "--runtime", "60s", "--db", &db])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("iotax starts");
    let patience = Instant::now() + Duration::from_mins(1);
    while state().as_deref() != Some("running") {
        assert!(Instant::now() < patience && bench.try_wait().expect("asked").is_none(), "{:?}", state());
        std::thread::sleep(Duration::from_millis(100));
    }
    bench.kill().expect("killed");
    bench.wait().expect("ended");
    assert_eq!(state().as_deref(), Some("interrupted"));
    lab.run(&["clean"]);
}

#[test]
fn a_damaged_run_is_listed_as_that_and_the_others_are_shown() {
    let lab = Lab::new();
    let db = two_runs(&lab);
    let bytes = fs::read(&db).expect("read");
    // A content under zstd begins with its magic. SQLite may leave a copy behind where it moved a row: damage there is none.
    let magic = [0x28, 0xB5, 0x2F, 0xFD];
    let contents = (0..bytes.len() - 4).filter(|at| bytes[*at..].starts_with(&magic));
    let file = File::options().write(true).open(&db).expect("opened");
    let mut damaged = 0;
    for first in contents {
        file.write_all_at(&[!bytes[first + 40]], first as u64 + 40).expect("damaged");
        let list = lab.run(&["list", "--check", "--db", &db]);
        if !list.status.success() {
            let (lines, said) = (text(&list.stdout), text(&list.stderr));
            assert_eq!(list.status.code(), Some(4), "{said}");
            assert_eq!(
                (lines.matches("damaged").count(), lines.matches("complete").count()),
                (1, 1),
                "{lines}"
            );
            assert!(said.contains("cannot be shown"), "{said}");
            assert!(said.contains("checksum") || said.contains("0 of 1 measurements are sound"), "{said}");
            let codes: Vec<Option<i32>> =
                ["1", "2"].iter().map(|run| lab.run(&["report", run, "--db", &db]).status.code()).collect();
            assert!(codes.contains(&Some(0)) && codes.contains(&Some(4)), "{codes:?}");
            damaged += 1;
        }
        file.write_all_at(&[bytes[first + 40]], first as u64 + 40).expect("mended");
    }
    // Two runs, and a measurement of each.
    assert_eq!(damaged, 4);
    assert!(lab.run(&["list", "--check", "--db", &db]).status.success());
}

/// Tests that a full disk leaves no empty store, on which every later command would fail.
#[test]
fn a_full_disk_leaves_no_empty_store() {
    require!(root);
    require!(program "unshare", "mount");
    let lab = Lab::new();
    let (full, db) = (lab.path("full"), lab.path("full/a.db").display().to_string());
    fs::create_dir(&full).expect("made");
    // Lists what the command leaves there.
    let mount = "mount -t tmpfs -o size=8k,mode=700 none \"$0\"; cat /dev/zero 2> /dev/null > \"$0/fill\"; \"$@\"; ls \"$0\"; false";
    let output = with_mounts(lab.iotax().args(["store", "init", &db]), mount, &full).output();
    let output = output.expect("unshare starts");
    let said = text(&output.stderr);
    assert!(said.contains("full/a.db: database or disk is full; make room, or name another store"), "{said}");
    assert_eq!(text(&output.stdout).split_whitespace().collect::<Vec<_>>(), ["fill"], "{said}");
}

#[test]
fn an_empty_file_is_told_with_the_remedy() {
    let lab = Lab::new();
    fs::write(lab.path("empty.db"), "").expect("written");
    for (arguments, words) in [
        (
            &["list", "--db", "empty.db"][..],
            "empty.db: an empty file, so no run is stored there yet; the first: iotax ladder",
        ),
        (&["pull", "--all", "--from", "empty.db"], "empty.db is an empty file"),
    ] {
        let output = lab.run(arguments);
        assert!(!output.status.success() && text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}
