//! Tests of result files: only files that iotax wrote in the same format are replaced, and always atomically.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use iotax_testkit::require;

use crate::lab::{Lab, text};

const HTML_MARK: &str = "<meta name=\"generator\" content=\"iotax\">";

/// A lab with a store of one synthetic run.
fn with_a_run() -> Lab {
    let lab = Lab::new();
    let log = "1073741824 bytes (1.1 GB, 1.0 GiB) copied, 2.5 s, 429 MB/s\n";
    fs::write(lab.path("dd.txt"), log).expect("written");
    let imported = lab.run(&["import", "dd.txt"]);
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    lab
}

/// Returns every file at the top of the lab except the store, by name.
fn files(lab: &Lab) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(lab.path("")).expect("a directory").map(|entry| entry.expect("an entry"));
    let files = entries.filter(|entry| entry.path().is_file());
    files.map(|e| (text(e.file_name().as_encoded_bytes()), fs::read(e.path()).expect("read"))).collect()
}

fn refused(lab: &Lab, arguments: &[&str], words: &str) {
    let before = files(lab);
    let output = lab.run(arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(said.contains(words), "{arguments:?}: {words:?} is not in: {said}");
    assert!(files(lab) == before, "{arguments:?} changed a file: {:?}", files(lab).keys());
}

fn written(lab: &Lab, arguments: &[&str]) {
    let output = lab.run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
}

#[test]
fn what_merely_contains_a_mark_is_not_replaced() {
    let lab = with_a_run();
    let json = |schema: &str| format!("{{ \"kept\": {{ \"schema\": \"{schema}\" }}, \"iotax\": {{}} }}");
    for (contents, arguments) in [
        ("id,iotax-0.1,precious\n", &["report", "1", "--json"][..]),
        ("all: # HELP iotax_\n# HELP iotax_iops x\n", &["export", "1", "--format", "prometheus", "--output"]),
        ("# HELP iotax_iops x\nnode_load1 0.5\n", &["export", "1", "--format", "prometheus", "--output"]),
        (&format!("note to self: {HTML_MARK}\n"), &["report", "1", "--html"]),
        (&format!("<!DOCTYPE html>\n<html><head>{HTML_MARK}</head></html>"), &["report", "1", "--html"]),
        (&json("iotax/1"), &["report", "1", "--json"]),
        ("[\"iotax/1\"]", &["report", "1", "--json"]),
        ("{ \"schema\": \"iotax/1\" } and notes of mine", &["report", "1", "--json"]),
        ("{ \"schema\": \"iotax/10\" }", &["report", "1", "--json"]),
        ("PAR1 iotax, a row for each measurement PAR1", &["export", "1", "--format", "parquet", "--output"]),
        ("", &["report", "1", "--json"]),
    ] {
        fs::write(lab.path("mine"), contents).expect("written");
        refused(&lab, &[arguments, &["mine"]].concat(), "mine: it exists and iotax did not write it");
    }
}

#[test]
fn a_format_replaces_its_own_files_and_no_other_formats() {
    let lab = with_a_run();
    let target = lab.work().join("new");
    let target = target.to_str().expect("utf-8");
    written(&lab, &["bench", target, "--size=8m", "--runtime=500ms", "--ramp-time=0s"]);
    let formats: [(&str, &[&str]); 8] = [
        ("json", &["report", "2", "--json"]),
        ("html", &["report", "2", "--html"]),
        ("history", &["report", "1", "2", "--json"]),
        ("fio-json", &["export", "2", "--format", "fio-json", "--output"]),
        ("fio-terse", &["export", "2", "--format", "fio-terse", "--output"]),
        ("vdbench", &["export", "2", "--format", "vdbench", "--output"]),
        ("prometheus", &["export", "2", "--format", "prometheus", "--output"]),
        ("parquet", &["export", "2", "--format", "parquet", "--output"]),
    ];
    for (name, arguments) in formats {
        let arguments = [arguments, &[name]].concat();
        written(&lab, &arguments);
        let first = fs::metadata(lab.path(name)).expect("written").ino();
        written(&lab, &arguments);
        assert_ne!(fs::metadata(lab.path(name)).expect("there").ino(), first, "{name}: a new file");
    }
    for (name, arguments) in formats {
        for (other, _) in formats.iter().filter(|(other, _)| *other != name) {
            refused(&lab, &[arguments, &[other]].concat(), "did not write it");
        }
    }
    // The format has no room for a mark.
    let normal = ["export", "2", "--format", "fio-normal", "--output", "normal"];
    written(&lab, &normal);
    refused(&lab, &normal, "fio-normal has no place for a mark");
}

/// Tests a directory like /tmp in which another user plants a link at a path where root writes.
#[test]
fn no_output_follows_a_link_of_somebody_else() {
    require!(root);
    let lab = with_a_run();
    let (open, theirs) = (lab.path("open"), lab.path("theirs"));
    for dir in [&open, &theirs] {
        fs::create_dir(dir).expect("made");
    }
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).expect("as /tmp");
    for (name, to) in [("file", theirs.join("made")), ("dir", theirs.clone())] {
        symlink(to, open.join(name)).expect("linked");
        lchown(open.join(name), Some(4711), Some(4711)).expect("given away");
    }
    for arguments in [
        &["report", "1", "--html", "open/file"][..],
        &["report", "1", "--json", "open/dir/made"],
        &["export", "1", "--format", "csv", "--output", "open/dir/new"],
        &["export", "1", "--format", "parquet", "--output", "open/file"],
        &["export", "1", "--parquet", "open/dir/new"],
        &["top", "--once", "--json", "open/dir/made"],
        &["top", "--record", "open/dir/made", "--once"],
        &[
            "bench",
            "work/new",
            "--size=1m",
            "--runtime=1s",
            "--rw=write",
            "--verify=crc32c",
            "--write-journal=open/dir/made",
        ],
    ] {
        let output = lab.run(arguments);
        let said = text(&output.stderr);
        assert!(said.contains("is a link of user 4711"), "{arguments:?}: {said}");
        assert_eq!(output.status.code(), Some(4), "{arguments:?}: {said}");
        assert_eq!(fs::read_dir(&theirs).expect("there").count(), 0, "{arguments:?}: {said}");
    }
    symlink(theirs.join("made"), open.join("own")).expect("linked");
    written(&lab, &["report", "1", "--html", "open/own"]);
    assert!(theirs.join("made").exists(), "one's own links are followed");
}

#[test]
fn csv_files_are_known_by_their_whole_first_line() {
    let lab = with_a_run();
    let export = ["export", "1", "--format", "csv", "--output", "sheets"];
    written(&lab, &export);
    written(&lab, &export);
    let cells = fs::read_to_string(lab.path("sheets/cells.csv")).expect("written");
    fs::write(lab.path("sheets/streams.csv"), cells).expect("written");
    fs::remove_file(lab.path("sheets/cells.csv")).expect("removed");
    refused(&lab, &export, "streams.csv: it exists and iotax did not write it");
    assert!(!lab.path("sheets/cells.csv").exists(), "all or none");
}

/// Runs iotax with a file size limit of 256 KiB, less than an HTML report; `before` is a shell command.
fn cut_short(lab: &Lab, before: &str, arguments: &str) -> Output {
    let iotax = lab.iotax();
    let mut shell = Command::new("sh");
    shell.current_dir(lab.path("")).args(["-c", &format!("{before} ulimit -f 512; exec \"$0\" {arguments}")]);
    shell.arg(iotax.get_program());
    for (name, value) in iotax.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.output().expect("a shell")
}

#[test]
fn a_report_that_is_cut_short_leaves_the_old_one_and_no_stump() {
    let lab = with_a_run();
    written(&lab, &["report", "1", "--html", "old.html"]);
    let before = files(&lab);
    for name in ["old.html", "new.html"] {
        let arguments = format!("report 1 --html {name}");
        for signal in ["", "trap '' XFSZ;"] {
            let full = cut_short(&lab, signal, &arguments);
            assert_eq!(full.status.code(), Some(4), "{}", text(&full.stderr));
            assert!(text(&full.stderr).contains(name), "{}", text(&full.stderr));
            assert!(files(&lab) == before, "full: {:?}", files(&lab).keys());
        }
    }
}

#[test]
fn a_link_stays_one_and_the_file_keeps_its_permissions() {
    let lab = with_a_run();
    fs::create_dir(lab.path("elsewhere")).expect("made");
    written(&lab, &["report", "1", "--json", "elsewhere/real.json"]);
    let real = lab.path("elsewhere/real.json");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o604)).expect("set");
    symlink("elsewhere/real.json", lab.path("link")).expect("made");
    symlink("elsewhere/later.json", lab.path("dangling")).expect("made");
    let first = fs::metadata(&real).expect("there").ino();
    for link in ["link", "dangling"] {
        written(&lab, &["report", "1", "--json", link]);
        assert!(fs::symlink_metadata(lab.path(link)).expect("there").is_symlink(), "{link}");
    }
    let after = fs::metadata(&real).expect("there");
    assert!(after.ino() != first && after.mode() & 0o7777 == 0o604, "{:o}", after.mode());
    assert!(lab.path("elsewhere/later.json").is_file());
    let left: Vec<_> = fs::read_dir(lab.path("elsewhere")).expect("listed").collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn two_results_do_not_go_to_one_file() {
    let lab = with_a_run();
    symlink("x", lab.path("link")).expect("made");
    for other in ["x", "./x", "link", "home/../x"] {
        refused(&lab, &["report", "1", "--json", "x", "--html", other], "--json and --html");
        refused(&lab, &["report", "1", "--output", other, "--json", "x"], "--json and --output");
    }
    symlink("/dev/stdout", lab.path("out")).expect("made");
    for out in ["/dev/stdout", "//dev/stdout", "/dev/./stdout", "/proc/thread-self/fd/1", "out"] {
        refused(&lab, &["report", "1", "--json", "-", "--html", out], "both go to stdout");
        refused(&lab, &["report", "1", "--json", out, "--html", "-"], "both go to stdout");
    }
    written(&lab, &["report", "1", "--html", "log"]);
    for (redirection, outputs) in [
        (">> log", "--json - --html log"),
        ("3>> log", "--json /dev/fd/3 --html log"),
        ("2>&1 | cat >&2; exit ${PIPESTATUS[0]}", "--json - --html /dev/stderr"),
    ] {
        let output = in_shell(&lab, &format!("report 1 {outputs} {redirection}"));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{outputs} {redirection}: {said}");
        assert!(said.contains("--json and --html both go to"), "{outputs} {redirection}: {said}");
    }
    let target = lab.work().join("new");
    let bench = ["bench", target.to_str().expect("utf-8"), "--db", "x", "--json", "link"];
    refused(&lab, &bench, "--db and --json");
}

/// Runs a command line of iotax in a shell.
fn in_shell(lab: &Lab, line: &str) -> Output {
    let iotax = lab.iotax();
    let mut shell = Command::new("bash");
    shell.current_dir(lab.path("")).env("HOME", lab.path("home")).env_remove("XDG_DATA_HOME");
    shell.args(["-c", &format!("\"$0\" {line}")]).arg(iotax.get_program());
    shell.output().expect("a shell")
}

#[test]
fn two_results_do_not_go_to_one_terminal() {
    iotax_testkit::require!(program "script");
    let lab = with_a_run();
    for other in ["/dev/tty", "/dev/stderr", "$(tty)"] {
        let line = format!("report 1 --json - --html {other}");
        let iotax = lab.iotax().get_program().display().to_string();
        let mut script = Command::new("script");
        script.args(["-qec", &format!("{iotax} {line}"), "/dev/null"]).stdin(Stdio::null());
        script.current_dir(lab.path("")).env("HOME", lab.path("home")).env_remove("XDG_DATA_HOME");
        let output = script.output().expect("script runs");
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains("--json and --html both go to stdout"), "{line}: {said}");
    }
}

#[test]
fn another_name_of_stdout_is_stdout() {
    let lab = with_a_run();
    let piped = lab.run(&["report", "1", "--json", "//dev/stdout"]);
    assert!(serde_json::from_slice::<Value>(&piped.stdout).is_ok(), "{}", text(&piped.stdout));
    let redirected = in_shell(&lab, "report 1 --json one.json > one.json");
    assert!(redirected.status.success(), "{}", text(&redirected.stderr));
    let written = fs::read(lab.path("one.json")).expect("there");
    assert!(serde_json::from_slice::<Value>(&written).is_ok(), "{}", text(&written));
}

#[test]
fn a_file_that_iotax_makes_or_measures_is_no_place_for_results() {
    let lab = with_a_run();
    fs::write(lab.path("mine"), "mine\n").expect("written");
    symlink("new", lab.path("link")).expect("made");
    let bench = |more: &str| {
        let line = format!("bench new --size 1m --runtime 100ms --ramp-time 0s {more}");
        line.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    let journal = "--rw randwrite --verify crc32c --write-journal";
    for (more, words) in [
        ("--json new", "the target and --json are both"),
        ("--html link", "the target and --html are both"),
        ("--output ./new", "the target and --output are both"),
        ("--db work/../new", "the target and --db are both"),
        (&format!("{journal} new"), "--write-journal and the target are both"),
        (&format!("{journal} j --json j"), "--write-journal and --json are both"),
        (&format!("{journal} j --db j"), "--write-journal and --db are both"),
        (&format!("{journal} mine"), "--write-journal mine: it exists"),
    ] {
        let arguments = bench(more);
        refused(&lab, &arguments.iter().map(String::as_str).collect::<Vec<_>>(), words);
    }
    assert!(!text(&lab.run(&["list"]).stdout).contains("bench"), "nothing was started");
    fs::create_dir(lab.path("csv")).expect("made");
    let csv = ["report", "1", "--csv", "csv", "--json", "csv/measurements.csv"];
    refused(&lab, &csv, "--json: csv/measurements.csv is among");
    assert_eq!(fs::read_dir(lab.path("csv")).expect("listed").count(), 0);
}

#[test]
fn what_a_kill_left_beside_a_result_goes_with_the_next() {
    let lab = with_a_run();
    written(&lab, &["report", "1", "--json", "one.json"]);
    written(&lab, &["report", "1", "--html", "one.html"]);
    fs::copy(lab.path("one.json"), lab.path(".iotax-4194305-0")).expect("copied");
    fs::copy(lab.path("one.json"), lab.path(".iotax-1-12")).expect("copied");
    // Files that must stay: other names, another format, the user's own, a link, and one locked by a living process.
    fs::copy(lab.path("one.json"), lab.path(".iotax-1-x")).expect("copied");
    fs::copy(lab.path("one.html"), lab.path(".iotax-2-0")).expect("copied");
    fs::write(lab.path(".iotax-3-0"), "{ \"schema\": \"mine\" }").expect("written");
    symlink("one.json", lab.path(".iotax-4-0")).expect("made");
    fs::copy(lab.path("one.json"), lab.path(".iotax-5-0")).expect("copied");
    let held = fs::File::open(lab.path(".iotax-5-0")).expect("opened");
    held.lock().expect("locked");
    written(&lab, &["report", "1", "--json", "one.json"]);
    let left = files(&lab).into_keys().filter(|name| name.starts_with(".iotax-"));
    let kept = [".iotax-1-x", ".iotax-2-0", ".iotax-3-0", ".iotax-4-0", ".iotax-5-0"];
    assert_eq!(left.collect::<Vec<_>>(), kept);
}

#[test]
fn what_is_no_file_is_written_straight() {
    let lab = with_a_run();
    let on_stdout = lab.run(&["report", "1", "--json", "/dev/stdout"]);
    let document: Value = serde_json::from_slice(&on_stdout.stdout).expect("JSON and nothing else");
    assert_eq!(document["schema"], "iotax/1");
    let full = lab.run(&["report", "1", "--json", "/dev/full"]);
    assert_eq!(full.status.code(), Some(4), "{}", text(&full.stderr));
    assert!(text(&full.stderr).contains("/dev/full"), "{}", text(&full.stderr));
    written(&lab, &["report", "1", "--json", "/dev/null"]);
    assert!(Command::new("mkfifo").arg(lab.path("fifo")).status().expect("mkfifo runs").success());
    let reader = Command::new("cat").arg(lab.path("fifo")).stdout(Stdio::piped()).spawn().expect("cat runs");
    written(&lab, &["report", "1", "--json", "fifo"]);
    let read = reader.wait_with_output().expect("read").stdout;
    assert!(serde_json::from_slice::<Value>(&read).is_ok(), "{}", text(&read));
    // The shell opened a log for appending: nothing is overwritten.
    fs::write(lab.path("log"), "mine\n").expect("written");
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" report 1 --db \"$1\" --json /dev/fd/3 3>> log"]).current_dir(lab.path(""));
    shell.arg(lab.iotax().get_program()).arg(lab.path("home/.local/share/iotax/iotax.db"));
    let logged = shell.output().expect("a shell");
    assert!(logged.status.success(), "{}", text(&logged.stderr));
    assert!(fs::read_to_string(lab.path("log")).expect("there").starts_with("mine\n{"));
    for output_path in ["work", "/dev/rtc", "/dev/loop0"] {
        if lab.path("").join(output_path).exists() {
            refused(&lab, &["report", "1", "--json", output_path], "results are written to files");
        }
    }
}
