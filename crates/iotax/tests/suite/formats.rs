//! Tests that programs that read other tools' formats read iotax's exports.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use iotax_testkit::require;
use serde_json::Value;

use crate::lab::{Lab, text};

const SIZE: usize = 32 << 20;
/// Accepted differences: fio prints `desc` only if a job has one, and counts queue depths at each submission, which iotax does not.
const ACCEPTED: [&str; 2] = ["ours: /jobs/desc", "theirs: /jobs/iodepth_"];
/// The largest accepted ratio between two measurements on a noisy machine.
const FACTOR: f64 = 8.0;

/// Reads and writes of a file that fio may write to.
const JOB: [&str; 9] = [
    "--rw=randrw",
    "--bs=4k",
    "--iodepth=4",
    "--ioengine=libaio",
    "--direct=1",
    "--fdatasync=64",
    "--runtime=1s",
    "--ramp_time=200ms",
    "--size=32m",
];

fn data(path: &Path) {
    let mut file = File::create(path).expect("created");
    let chunk: Vec<u8> = (0..1_u32 << 16).flat_map(|n| n.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
    (0..SIZE / chunk.len()).for_each(|_| file.write_all(&chunk).expect("written"));
    file.sync_all().expect("synced");
}

fn fio(file: &Path, format: &str) -> String {
    let output = Command::new("fio")
        // Options before a job's name are global, as in iotax's files.
        .args(["--time_based", "--name=job", &format!("--output-format={format}")])
        .arg(format!("--filename={}", file.display()))
        .args(JOB)
        .output()
        .expect("fio runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn iotax(lab: &Lab, format: &str) -> String {
    let target = lab.work().join("ours");
    let output = lab
        .iotax()
        .args(["bench", target.to_str().expect("utf-8"), &format!("--output-format={format}")])
        .args(JOB)
        .output()
        .expect("iotax runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("IOPS"), "the page is on stderr then");
    text(&output.stdout)
}

/// Collects every key by its path and type; list items count as one, and objects with free names are left out.
fn keys(value: &Value, key_path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(_) if key_path.ends_with("options") || key_path.ends_with("/bins") => {}
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            let key_path = format!("{key_path}/{key}");
            found.insert(key_path.clone());
            keys(value, &key_path, found);
        }),
        Value::Array(values) => values.iter().for_each(|value| keys(value, key_path, found)),
        scalar => {
            let kind = match scalar {
                Value::String(_) => "a text",
                Value::Number(number) if number.is_f64() => "a fraction",
                Value::Number(_) => "whole",
                _ => "nothing that fio prints",
            };
            found.insert(format!("{key_path} is {kind}"));
        }
    }
}

/// Asserts that two figures are close, as far as a shared machine allows.
fn near(ours: &Value, theirs: &Value, pointer: &str) {
    let figure = |value: &Value| value.pointer(pointer).and_then(Value::as_f64).expect("a figure");
    let (ours, theirs) = (figure(ours), figure(theirs));
    assert!(theirs / FACTOR < ours && ours < theirs * FACTOR, "{pointer}: ours {ours}, theirs {theirs}");
}

#[test]
fn fios_lines_have_the_same_shape() {
    require!(program "fio");
    let lab = Lab::new();
    let file = lab.path("data");
    data(&file);
    let (theirs, ours) = (fio(&file, "terse,normal"), iotax(&lab, "normal,terse"));
    let fields =
        |text: &str| text.lines().find(|line| line.starts_with("3;")).map(|line| line.split(';').count());
    assert!(ours.starts_with("3;"), "terse comes first, as in fio: {ours}");
    // A description comes last.
    assert_eq!(fields(&ours), fields(&theirs).map(|count| count + 1), "{ours}\n{theirs}");
    // The beginnings of lines, without figures, units and names.
    let shape = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().filter(|line| !line.starts_with("3;") && !line.starts_with("     |"));
        let begins = lines.map(|line| line.split([':', '=']).next().unwrap_or_default());
        begins.map(|begin| begin.split(" (").next().unwrap_or_default().to_owned()).collect()
    };
    let (ours, theirs) = (shape(&ours), shape(&theirs));
    let missing: Vec<&String> = theirs
        .difference(&ours)
        // iotax does not measure submission and counts no depths at it; fio starts processes, iotax threads; names differ.
        .filter(|line| !line.ends_with("slat") && !line.starts_with("Starting") && !line.starts_with("job"))
        .filter(|line| {
            !["IO depths", "submit", "complete"].iter().any(|known| line.trim().starts_with(known))
        })
        .filter(|line| !line.starts_with("fio-") && !line.starts_with("  lat"))
        .collect();
    assert_eq!(missing, Vec::<&String>::new(), "{ours:?}");
}

#[test]
fn a_run_is_exported_in_every_format() {
    let lab = Lab::new();
    let target = lab.work().join("new");
    let target = target.to_str().expect("utf-8");
    let text_file = "out.txt";
    let bench = ["bench", target, "--size=8m", "--runtime=500ms", "--ramp-time=0s", "--output", text_file];
    let measured = lab.run(&bench);
    assert!(measured.status.success(), "{}", text(&measured.stderr));
    assert!(text(&measured.stdout).contains("IOPS"), "the page is on stdout as ever");
    assert!(
        fs::read_to_string(lab.path(text_file)).expect("written").contains("Run status group 0"),
        "fio's normal form"
    );
    for (format, words) in [
        ("fio-json", "\"jobs\""),
        ("fio-json+", "\"bins\""),
        ("fio-terse", "3;fio-3."),
        ("fio-normal", "READ: bw="),
        ("vdbench", "avg_2-"),
        ("prometheus", "# TYPE iotax_iops gauge"),
    ] {
        let shown = lab.run(&["export", "1", "--format", format]);
        assert!(
            text(&shown.stdout).contains(words),
            "{format}: {}{}",
            text(&shown.stdout),
            text(&shown.stderr)
        );
        let written = lab.run(&["export", "1", "--format", format, "--output", format]);
        assert!(written.status.success(), "{}", text(&written.stderr));
    }
    let table = lab.path("table.parquet");
    let table = table.to_str().expect("utf-8");
    for _ in 0..2 {
        let written = lab.run(&["export", "1", "--format", "parquet", "--output", table]);
        assert!(written.status.success(), "one of ours is written over: {}", text(&written.stderr));
        assert!(fs::read(table).expect("written").starts_with(b"PAR1"));
    }
    let tables = lab.path("sheets");
    let tables = tables.to_str().expect("utf-8");
    assert!(lab.run(&["export", "1", "--format", "csv", "--output", tables]).status.success());
    assert!(lab.path("sheets/samples.csv").is_file());
    let mine = lab.path("mine");
    fs::write(&mine, "precious").expect("written");
    let mine = mine.to_str().expect("utf-8");
    for (arguments, words) in [
        (&["export", "1", "--format", "csv"][..], "name a directory for them with --output DIR"),
        (&["export", "1", "--format", "parquet"], "name a file for it with --output FILE"),
        (&["export", "1", "--format", "fio-jsn"], "did you mean \"fio-json\""),
        (&["export", "1", "--format", "fio-json", "--output", mine], "iotax did not write it"),
        (&["export", "9", "--format", "fio-json"], "there is no run 9"),
        (&["bench", target, "--output-format=xml"], "\"xml\" is not a known output format"),
        (
            &["bench", target, "--output-format=json", "--json"],
            "--json and --output-format both go to stdout",
        ),
        (&["bench", target, "--output-format=json", "--output", mine], "iotax did not write it"),
    ] {
        let refused = lab.run(arguments);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    assert_eq!(fs::read_to_string(mine).expect("there"), "precious");
    lab.assert_nothing_left();
}

#[test]
fn more_jobs_than_a_report_can_show_are_refused() {
    let lab = Lab::new();
    let import = |jobs: usize| {
        let job = |number| format!(r#"{{"jobname":"job{number}","read":{{"iops":1,"total_ios":5}}}}"#);
        let jobs: Vec<String> = (0..jobs).map(job).collect();
        let json = format!(r#"{{"fio version":"fio-3.33","jobs":[{}]}}"#, jobs.join(","));
        std::fs::write(lab.path("jobs.json"), json).expect("written");
        lab.run(&["import", "jobs.json"])
    };
    let fits = import(1000);
    assert!(fits.status.success() && text(&fits.stdout).contains("job999"), "{}", text(&fits.stderr));
    let refused = import(1001);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("1001 workloads of fio in jobs.json; accepted: up to 1000"), "{said}");
}

#[test]
fn an_import_says_when_it_was_and_what_it_did_not_find() {
    let lab = Lab::new();
    let dd = "1073741824 bytes (1.1 GB, 1.0 GiB) copied, 2.5 s, 429 MB/s\n";
    std::fs::write(lab.path("dd.txt"), dd).expect("written");
    std::fs::write(lab.path("notes.txt"), "nothing of a tool\n").expect("written");
    let imported = lab.run(&["import", "dd.txt", "notes.txt"]);
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let page = text(&imported.stdout);
    assert!(page.contains("dd does not tell when: the run has the import's time."), "{page}");
    let said = text(&imported.stderr);
    assert!(said.contains("No result of a tool that iotax knows in notes.txt"), "{said}");
    // A row of bonnie++ -f whose blanks are gone is refused with the reason.
    let bonnie = "Version 2.00a ------Sequential Output------ --Sequential Input- --Random-\n\
                  -Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--\n\
                  Name:Size etc /sec %CP /sec %CP /sec %CP /sec %CP /sec %CP /sec %CP\n\
                  box 48M 557k 39 1.0g 80 864k 38 980k 77\n";
    std::fs::write(lab.path("bonnie.txt"), bonnie).expect("written");
    let refused = lab.run(&["import", "bonnie.txt"]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("bonnie.txt:4: ") && said.contains("which of the twelve figures are missing"),
        "{said}"
    );
    let json = r#"{"fio version":"fio-3.33","timestamp":1795321567,"jobs":[{"jobname":"a","read":{"iops":1,"total_ios":5}}]}"#;
    std::fs::write(lab.path("jobs.json"), json).expect("written");
    assert!(lab.run(&["import", "jobs.json"]).status.success());
    let document = text(&lab.run(&["report", "2", "--json", "-"]).stdout);
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    assert_eq!(document["run"]["started_at"], "2026-11-22T04:26:07Z");
    assert_eq!(document["run"]["source"]["dated"], "source");
}

/// Tests that run while no other test does.
mod alone {
    use super::*;

    #[test]
    fn fios_json_has_the_same_keys_types_and_sizes() {
        require!(program "fio", "fio_jsonplus_clat2csv", "python3");
        let lab = Lab::alone();
        let file = lab.path("data");
        data(&file);
        let read = |text: &str| -> Value {
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
        };
        let (theirs, printed) = (read(&fio(&file, "json+")), iotax(&lab, "json+"));
        let ours = read(&printed);
        let (mut our_keys, mut their_keys) = (BTreeSet::new(), BTreeSet::new());
        keys(&ours, "", &mut our_keys);
        keys(&theirs, "", &mut their_keys);
        let only_ours = our_keys.difference(&their_keys).map(|key| format!("ours: {key}"));
        let only_theirs = their_keys.difference(&our_keys).map(|key| format!("theirs: {key}"));
        let differences: Vec<String> = only_ours
            .chain(only_theirs)
            .filter(|line| !ACCEPTED.iter().any(|accepted| line.starts_with(accepted)))
            .collect();
        assert_eq!(differences, Vec::<String>::new());
        for direction in ["read", "write"] {
            for key in
                ["iops", "bw", "bw_bytes", "total_ios", "runtime", "lat_ns/mean", "iops_mean", "bw_mean"]
            {
                near(&ours, &theirs, &format!("/jobs/0/{direction}/{key}"));
            }
        }
        // fio 3.33 leaves total_ios of flushes at 0, and one job's flushes last longer than its run: 245 of 4.95 ms in 1 s. Only their
        // number is left.
        near(&ours, &theirs, "/jobs/0/sync/lat_ns/N");
        near(&ours, &theirs, "/jobs/0/ctx");
        let (source, csv_file) = (lab.path("ours.json"), lab.path("ours.csv"));
        fs::write(&source, &printed).expect("written");
        for more in [&[][..], &["--validate"]] {
            let output = Command::new("fio_jsonplus_clat2csv")
                .args([&source, &csv_file])
                .args(more)
                .output()
                .expect("runs");
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert!(!text(&output.stdout).contains("mismatch"), "{}", text(&output.stdout));
        }
        let rows = fs::read_to_string(lab.path("ours_job0.csv")).expect("converted");
        assert!(rows.lines().count() > 10, "{rows}");
        lab.assert_nothing_left();
    }
}
