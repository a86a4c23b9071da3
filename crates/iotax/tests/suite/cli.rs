//! Tests of the command line: first steps, invalid input, and the destinations of output.

use iotax_testkit::require;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{Lab, start_until, text};

#[test]
fn a_path_that_does_not_exist_is_created_measured_and_removed() {
    let lab = Lab::new();
    let target = lab.work().join("new.dat");
    let target = target.to_str().expect("utf-8");
    let bench = [
        "bench",
        target,
        "--size",
        "16m",
        "--rw",
        "randrw",
        "--runtime",
        "300ms",
        "--ramp-time",
        "0s",
        "--json",
        "-",
    ];
    let json = lab.json(&bench);
    let measurement = &json["measurements"][0];
    for direction in ["read", "write"] {
        let iops = measurement[direction]["iops"].as_f64().expect("a number");
        let ios = measurement[direction]["ios"].as_f64().expect("a number");
        let seconds = measurement["duration_s"].as_f64().expect("a number");
        assert!(ios > 0.0 && (iops - ios / seconds).abs() / iops < 0.01, "{measurement}");
    }
    assert_eq!(json["targets"][0]["emulated"], false);
    lab.assert_nothing_left();
}

#[test]
fn keep_leaves_the_file_and_it_has_no_holes() {
    use std::os::unix::fs::MetadataExt;
    let lab = Lab::new();
    let target = lab.work().join("kept.dat");
    let output =
        lab.run(&["bench", target.to_str().expect("utf-8"), "--size", "4m", "--runtime", "200ms", "--keep"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let metadata = fs::metadata(&target).expect("kept");
    assert_eq!(metadata.len(), 4 << 20);
    assert!(metadata.blocks() * 512 >= 4 << 20, "filled");
    assert!(text(&output.stdout).contains("IOPS"), "{}", text(&output.stdout));
}

#[test]
fn what_exists_is_read_and_never_written() {
    let lab = Lab::new();
    let target = lab.work().join("mine");
    let before: Vec<u8> = (0..1_u32 << 20).flat_map(u32::to_le_bytes).collect();
    fs::write(&target, &before).expect("written");
    let target_text = target.to_str().expect("utf-8");
    let read = lab.run(&["bench", target_text, "--rw", "read", "--bs", "64k", "--runtime", "200ms"]);
    assert!(read.status.success(), "{}", text(&read.stderr));
    for rw in ["write", "randwrite", "rw", "randrw"] {
        let refused = lab.run(&["bench", target_text, "--rw", rw, "--runtime", "200ms"]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains("only read"), "{}", text(&refused.stderr));
    }
    assert!(fs::read(&target).expect("there") == before, "unchanged");
}

#[test]
fn bad_input_is_quoted_with_the_accepted_form_before_anything_is_made() {
    let lab = Lab::new();
    let work = lab.work();
    let work = work.to_str().expect("utf-8");
    let file = format!("{work}/x");
    let (long, dangling) = (format!("{work}/{}", "x".repeat(256)), lab.path("dangling"));
    std::os::unix::fs::symlink("nowhere", &dangling).expect("a link");
    let dangling = dangling.to_str().expect("utf-8");
    let rung = format!("virtio-qcow2: {work}");
    for (arguments, code, words) in [
        (vec!["bench", &long], 2, vec!["File name too long", "give another name"]),
        (vec!["bench", dangling], 2, vec!["a link to nowhere, which is not there"]),
        (vec!["bench", "/dev/shm/iotax-none"], 2, vec!["it keeps files in memory", "--direct=false"]),
        // A layer alone is no file's name.
        (vec!["bench", "raid1 raid_devices=2"], 2, vec!["md needs dir", "filesystem"]),
        (vec!["bench", "tmpfs"], 2, vec!["ends with tmpfs", "> raw file"]),
        (vec!["bench", "d>raw file>virtio"], 2, vec!["a > between two layers has a blank on either side"]),
        (vec!["bench", &rung], 2, vec!["is no directory; accepted: virtio-qcow2:DIR"]),
        (vec!["ladder", "/does/not/exist", "--yes"], 2, vec!["/does/not/exist", "no such directory"]),
        (vec!["ladder", "/proc", "--yes"], 4, vec!["/proc"]),
        (vec!["ladder", work, "--yes", "--size", "900TiB"], 4, vec!["are needed", "are free", "--size"]),
        (vec!["ladder", work, "--yes", "--size", "12x"], 2, vec!["12x", "8GiB"]),
        (vec!["ladder", work, "--yes", "--time", "5"], 2, vec!["\"5\"", "30s"]),
        (vec!["ladder", work, "--yes", "--rungs", "vm-row"], 2, vec!["vm-row", "vm-raw", "did you mean"]),
        (vec!["ladder", work, "--yes", "--workloads", "randread"], 2, vec!["randread-4k-qd1"]),
        (vec!["ladder", work, "--yes", "--accel", "hvf"], 2, vec!["hvf", "kvm"]),
        (vec!["ladder", work], 2, vec!["--yes"]),
        (vec!["bench", work, "--keep"], 2, vec!["a directory", "test.dat"]),
        (vec!["bench", "/dev/iotax-none"], 2, vec!["no such device", "lsblk"]),
        (
            vec!["bench", &file, "--overwrite", "/dev/iotax-none"],
            2,
            vec!["/dev/iotax-none", "no such device"],
        ),
        (vec!["bench", &file, "--overwrite", "/dev/null"], 2, vec!["/dev/null", "not a block device"]),
        (vec!["bench", &file, "--bs", "100"], 2, vec!["bs = 100", "multiple of 512"]),
        (vec!["bench", &file, "--ioengine", "psync", "--iodepth", "4"], 2, vec!["psync", "iodepth = 1"]),
        (vec!["bench", &file, "--rw", "reed"], 2, vec!["reed", "did you mean"]),
        (vec!["bench", &file, "--rwmixread", "150"], 2, vec!["\"150\"", "accepted: 0 to 100"]),
        (vec!["bench", &file, "--iodepth", "x"], 2, vec!["\"x\"", "accepted: 1 to 4096"]),
        (vec!["bench", &file, "--rate-iops", "0"], 2, vec!["accepted: 1 and more", "10k"]),
        (vec!["bench", &file, "--size", "256"], 2, vec!["size = 256 bytes", "one block of 4k"]),
        (vec!["curve", &file, "--points", "3"], 2, vec!["\"3\"", "accepted: 4 to 40"]),
        (vec!["ask", &file, "--slo", "p9o <= 1ms"], 2, vec!["\"p9o\"", "did you mean"]),
        (vec!["ladder", work, "--repeat", "1e3"], 2, vec!["\"1e3\"", "accepted: 1 to 1000"]),
        (vec!["net", "run", "h", "--parallel", "0"], 2, vec!["\"0\"", "accepted: 1 to 128"]),
        (vec!["net", "run", "h", "--port", "99999"], 2, vec!["\"99999\"", "accepted: 1 to 65535"]),
        (vec!["compare", "1", "2", "--metric", "latency_p9"], 2, vec!["did you mean \"latency_p99\""]),
        (vec!["report", "first"], 2, vec!["\"first\" is not the number of a run", "iotax list"]),
        (vec!["bench", "/dev/null"], 2, vec!["/dev/null", "neither"]),
        (vec!["run", "/none.toml", "--yes"], 2, vec!["/none.toml"]),
        (vec!["show", "99"], 2, vec!["no run is stored"]),
        (vec!["resume", "99", "--yes"], 2, vec!["no run is stored"]),
        (
            vec!["ladder", work, "--yes", "--rungs", "host-file", "--html", "/none/x.html"],
            4,
            vec!["/none/x.html"],
        ),
        (vec!["bench", "/etc/passwd", "--bs", "512", "--json", "/etc/passwd"], 2, vec!["did not write it"]),
        (vec!["bench", &file, "--json", "/proc"], 2, vec!["not a regular file"]),
        (vec!["bench", &file, "--json", "/none/out.json"], 4, vec!["/none/out.json"]),
        (vec!["lader"], 2, vec!["ladder"]),
    ] {
        let output = lab.run(&arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        for word in words {
            assert!(stderr.contains(word), "{arguments:?}: {word:?} is not in: {stderr}");
        }
        lab.assert_nothing_left();
    }
}

#[test]
fn the_store_keeps_runs_and_shows_them_again() {
    let lab = Lab::new();
    let target = lab.work().join("a.dat");
    let bench =
        ["bench", target.to_str().expect("utf-8"), "--size", "4m", "--runtime", "200ms", "--json", "-"];
    let first = lab.json(&bench);
    lab.json(&bench);
    let list = lab.json(&["list", "--json"]);
    assert_eq!(list.as_array().map(Vec::len), Some(2));
    let listed = text(&lab.run(&["list"]).stdout);
    assert!(listed.contains("bench"));
    let outcome = list[0]["outcome"].as_str().expect("it did something");
    assert!(outcome.ends_with(" IOPS") && listed.contains(outcome), "{outcome} in {listed}");
    assert!(listed.contains(list[0]["user"].as_str().expect("somebody")), "{list}");
    let user = &list[0]["user"];
    let mut running = lab.iotax();
    running.args(["bench", target.to_str().expect("utf-8"), "--size", "4m", "--runtime", "1m"]);
    let mut running = start_until(&mut running, "cell 1/1");
    let line = &lab.json(&["list", "--json"])[2];
    kill_process(Pid::from_child(&running), Signal::INT).expect("it runs");
    running.wait().expect("ended");
    assert_eq!((&line["state"], &line["user"]), (&"running".into(), user), "{line}");
    let id = first["run"]["id"].to_string();
    assert_eq!(lab.json(&["show", &id, "--json"]), first);
    for command in ["show", "resume"] {
        let unknown = lab.run(&[command, "99"]);
        assert_eq!(unknown.status.code(), Some(2));
        assert!(text(&unknown.stderr).contains("no run 99"), "{}", text(&unknown.stderr));
    }
    let elsewhere = lab.run(&["list", "--db", "no such.db"]);
    let said = text(&elsewhere.stderr);
    assert!(said.contains("the first: iotax ladder DIR --db 'no such.db'"), "{said}");
    let again = lab.run(&["resume", &id, "--yes"]);
    assert!(again.status.success() && text(&again.stderr).contains("has all its measurements"));
}

#[test]
fn results_replace_only_what_iotax_wrote() {
    let lab = Lab::new();
    let target = lab.work().join("a.dat");
    let bench = |json: &str| {
        lab.run(&[
            "bench",
            target.to_str().expect("utf-8"),
            "--size",
            "4m",
            "--runtime",
            "200ms",
            "--json",
            json,
        ])
    };
    assert!(bench("out.json").status.success());
    let first = fs::read_to_string(lab.path("out.json")).expect("written");
    assert!(bench("out.json").status.success());
    assert_ne!(fs::read_to_string(lab.path("out.json")).expect("written"), first);
    fs::write(lab.path("mine.json"), "{}").expect("written");
    assert_eq!(bench("mine.json").status.code(), Some(2));
    assert_eq!(fs::read_to_string(lab.path("mine.json")).expect("there"), "{}");
    lab.assert_nothing_left();
}

#[test]
fn a_reader_that_goes_away_stops_nothing() {
    let lab = Lab::new();
    let mut child = lab
        .iotax()
        .arg("bench")
        .arg(lab.work().join("a.dat"))
        .args(["--size", "4m", "--runtime", "200ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("iotax starts");
    drop((child.stdout.take(), child.stderr.take()));
    assert!(child.wait().expect("ended").success());
    lab.assert_nothing_left();
}

#[test]
fn the_binary_is_static_and_documents_itself() {
    let lab = Lab::new();
    for (arguments, word) in [
        (&["man"][..], ".TH"),
        (&["completions", "bash"], "complete -F"),
        (&["--help"], "ladder"),
        (&["--help"], "  5  a gate could judge nothing"),
        (&["man"], "a gate could judge nothing"),
        (&["compare", "--help"], "code 5"),
        (&["--version"], "0."),
    ] {
        let output = lab.run(arguments);
        assert!(output.status.success() && text(&output.stdout).contains(word), "{arguments:?}");
    }
    require!(program "file");
    let output =
        std::process::Command::new("file").arg(env!("CARGO_BIN_EXE_iotax")).output().expect("file runs");
    assert!(text(&output.stdout).contains("statically linked"), "{}", text(&output.stdout));
}

#[test]
fn alone_it_shows_five_examples() {
    let lab = Lab::new();
    let output = lab.run(&[]);
    let said = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert_eq!(said.lines().filter(|line| line.starts_with("    iotax ")).count(), 5, "{said}");
}

#[test]
fn help_is_as_wide_as_columns_says() {
    let lab = Lab::new();
    for columns in [60, 80, 100] {
        let output = lab.iotax().args(["bench", "--help"]).env("COLUMNS", columns.to_string()).output();
        let said = text(&output.expect("iotax starts").stdout);
        // Examples are lines to copy.
        let options = said.split("Examples:").next().expect("options");
        let longest = options.lines().map(|line| line.chars().count()).max();
        assert!(
            longest.is_some_and(|longest| longest <= columns && longest + 15 > columns),
            "{longest:?}: {said}"
        );
    }
}

#[test]
fn quiet_leaves_results_and_errors() {
    let lab = Lab::new();
    let target = lab.work().join("a.dat");
    let target = target.to_str().expect("utf-8");
    let bench = ["bench", target, "--size", "4m", "--runtime", "0.2", "--html", "a.html"];
    let loud = lab.run(&bench);
    assert!(text(&loud.stderr).contains("Report: a.html"), "{}", text(&loud.stderr));
    let quiet = lab.run(&[&bench[..], &["--quiet"]].concat());
    assert!(quiet.status.success() && quiet.stderr.is_empty(), "{}", text(&quiet.stderr));
    assert!(text(&quiet.stdout).contains("IOPS"), "{}", text(&quiet.stdout));
    let work = lab.work();
    let ladder =
        ["ladder", work.to_str().expect("utf-8"), "--rungs", "host-file", "--size", "4m", "--repeat", "2"];
    let quiet = lab.run(&[&ladder[..], &["--runtime", "0.1", "--yes", "-q"]].concat());
    assert!(quiet.status.success() && quiet.stderr.is_empty(), "{}", text(&quiet.stderr));
    let refused = lab.run(&["bench", target, "--rw", "reed", "--quiet"]);
    assert!(text(&refused.stderr).contains("reed"), "{}", text(&refused.stderr));
    lab.assert_nothing_left();
}

#[test]
fn a_dumb_terminal_gets_lines_without_escapes() {
    require!(program "script");
    let lab = Lab::new();
    let iotax = env!("CARGO_BIN_EXE_iotax");
    let line = format!("{iotax} bench {} --size 4m --runtime 0.3", lab.work().join("a.dat").display());
    for (terminal, has_escapes) in [("xterm", true), ("dumb", false)] {
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(lab.path(""));
        script.env("HOME", lab.path("home")).env("TMPDIR", lab.scratch()).env("TERM", terminal);
        script.env_remove("NO_COLOR").stdin(Stdio::null());
        let said = text(&script.output().expect("script runs").stdout);
        assert!(said.contains("IOPS") && said.contains('\u{1b}') == has_escapes, "{terminal}: {said:?}");
    }
}

#[test]
fn every_command_has_a_man_page_and_completions_have_values() {
    let lab = Lab::new();
    assert!(lab.run(&["man", "--dir", "pages"]).status.success());
    for command in ["", "-bench", "-ladder", "-net", "-net-run", "-plan-check", "-verify", "-man"] {
        let page = fs::read_to_string(lab.path(&format!("pages/iotax{command}.1"))).expect("a page");
        assert!(page.contains(".TH iotax") && page.contains("Examples:"), "{command}: {page}");
    }
    let again = lab.run(&["man", "--dir", "pages"]);
    assert_eq!(again.status.code(), Some(4));
    assert!(text(&again.stderr).contains("pages"), "{}", text(&again.stderr));
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&lab.run(&["completions", shell]).stdout);
        for word in
            ["io_uring", "fio-json", "terse", "vm-qcow2-snapshot", "bonnie", "randread-4k-qd1", "vm-e1000"]
        {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn a_path_that_is_not_in_utf_8_is_refused_by_its_name() {
    let lab = Lab::new();
    let name = OsStr::from_bytes(b"b\xffd.raw");
    fs::write(lab.work().join(name), [1; 8192]).expect("written");
    let bench = |name: &OsStr| {
        let mut command = lab.iotax();
        command.current_dir(lab.work()).arg("bench").arg(name).args(["--runtime=100ms", "--ramp-time=0s"]);
        command.output().expect("iotax starts")
    };
    // A link is resolved to the same file before it is passed to the agent.
    std::os::unix::fs::symlink(name, lab.work().join("link")).expect("linked");
    for name in [name, OsStr::new("link")] {
        let refused = bench(name);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("b\\xffd.raw: the path is not in UTF-8") && !said.contains("store"), "{said}");
    }
}

#[test]
fn a_plain_number_has_the_unit_that_fio_gives_it() {
    let lab = Lab::new();
    let target = lab.work().join("a.dat");
    let target = target.to_str().expect("utf-8");
    for (runtime, expected) in [("1", 1.0), ("0.25", 0.25), ("250ms", 0.25)] {
        let bench = ["bench", target, "--size", "4m", "--runtime", runtime, "--ramp-time", "0", "--json"];
        let seconds = lab.json(&bench)["measurements"][0]["duration_s"].as_f64().expect("a number");
        assert!((seconds / expected - 1.0).abs() < 0.2, "{runtime}: {seconds}");
    }
}

#[test]
fn documents_go_to_files_while_the_page_stays_on_stdout() {
    let lab = Lab::new();
    let target = lab.work().join("a.dat").display().to_string();
    for _ in 0..2 {
        let bench = ["bench", &target, "--size", "4m", "--runtime", "200ms", "--ramp-time", "0s"];
        assert!(lab.run(&bench).status.success());
    }
    let plan =
        lab.plan("[[target]]\nname = \"a\"\nfile = { dir = \"WORK\" }\n[[workload]]\n").display().to_string();
    let name = format!("bench {target}");
    for (arguments, can_replace) in [
        (&["list", "--json", "a.json"][..], false),
        (&["compare", "1", "2", "--json", "b.json"], true),
        (&["trend", &name, "--json", "c.json"], true),
        (&["plan", "show", &plan, "--json", "d.json"], false),
    ] {
        let output = lab.run(arguments);
        let said = text(&output.stderr);
        assert!(output.status.success() && !output.stdout.is_empty(), "{arguments:?}: {said}");
        let file = lab.path(arguments.last().expect("a file"));
        let read = |path| serde_json::from_slice::<serde_json::Value>(&fs::read(path).expect("written"));
        assert!(read(&file).is_ok(), "{arguments:?}");
        let again = lab.run(arguments);
        assert_eq!(again.status.success(), can_replace, "{arguments:?}: {}", text(&again.stderr));
        assert!(read(&file).is_ok(), "{arguments:?}");
    }
}
