//! Tests that the terminal never interprets control characters in text from outside.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use iotax_testkit::require;

use crate::lab::{Lab, text};

/// A reset of the terminal, colours by C1, right-to-left overrides and isolates, marks, zero width, a line separator.
const EVIL: &str =
    "a\u{1b}cowned\u{7}\u{9b}31m\u{7f}b\u{202e}\u{2066}\u{200f}\u{61c}\u{200b}\u{feff}\u{2028}c";
const SHOWN: &str = "\\u{1b}cowned\\u{7}\\u{9b}31m\\u{7f}b\\u{202e}";

/// True if a terminal would not simply show the character.
fn is_evil(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t') || EVIL.chars().any(|evil| evil == c && !c.is_ascii())
}

fn harmless(output: &Output, what: &str) -> String {
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(!said.contains(is_evil), "{what}: {said:?}");
    said
}

fn shows(output: &Output, what: &str) {
    let said = harmless(output, what);
    assert!(said.contains(SHOWN), "{what}: {said}");
}

/// Quotes a text for TOML.
fn quoted(text: &str) -> String {
    text.chars().map(|c| if is_evil(c) { format!("\\U{:08X}", c as u32) } else { c.to_string() }).collect()
}

fn plan(lab: &Lab) {
    let evil = quoted(EVIL);
    lab.plan(&format!(
        "name = \"{evil}\"\nbaseline = \"a\"\nrepeat = 1\n[[target]]\nname = \"a\"\nfile = {{ dir = \"WORK\" }}\n\
         [[workload]]\nname = \"{evil}\"\nrw = \"read\"\nsize = \"1m\"\nruntime = \"200ms\"\nramp_time = \"0s\"\n"
    ));
}

#[test]
fn names_of_a_plan_are_shown_and_not_obeyed() {
    let lab = Lab::new();
    plan(&lab);
    shows(&lab.run(&["plan", "show", "plan.toml"]), "plan show");
    shows(&lab.run(&["run", "plan.toml", "--yes"]), "run");
    shows(&lab.run(&["list"]), "list");
    shows(&lab.run(&["report", "1"]), "report");
    let markdown = lab.run(&["report", "1", "--markdown"]);
    assert!(harmless(&markdown, "markdown").contains("\\\\u{202e}"), "{}", text(&markdown.stdout));
    for json in
        [&["report", "1", "--json"][..], &["list", "--json"], &["plan", "show", "plan.toml", "--json"]]
    {
        let output = lab.run(json);
        harmless(&output, "JSON");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let name = document["run"]["name"].as_str().or(document[0]["name"].as_str());
        assert_eq!(name.or(document["name"].as_str()), Some(EVIL), "it is kept as it is: {document:#}");
    }
    let html = lab.path("report.html");
    assert!(lab.run(&["report", "1", "--html", html.to_str().expect("utf-8")]).status.success());
    let page = fs::read_to_string(html).expect("written");
    let words = page.split("<script").next().expect("the page");
    assert!(!words.contains(is_evil) && words.contains(SHOWN), "the page");
    assert!(
        words.contains("unicode-bidi:isolate"),
        "names in scripts from right to left turn nothing around"
    );
}

#[test]
fn files_of_others_are_shown_and_not_obeyed() {
    let lab = Lab::new();
    let log = format!("{EVIL}\n1073741824 bytes (1.1 GB, 1.0 GiB) copied, 2.5 s, 429 MB/s\ndd: {EVIL}\n");
    fs::write(lab.path(EVIL), &log).expect("written");
    let imported = lab.run(&["import", EVIL]);
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    shows(&imported, "import");
    shows(&lab.run(&["list"]), "list");
    fs::write(lab.path("nothing"), EVIL).expect("written");
    harmless(&lab.run(&["import", "nothing"]), "import of nothing");
    fs::write(lab.path("job.fio"), format!("[j]\nrw={EVIL}\n{EVIL}=1\n")).expect("written");
    shows(&lab.run(&["run", "job.fio", "--yes"]), "job file");
    fs::write(lab.path("plan.toml"), format!("name = \"{EVIL}\"\n{EVIL}\n")).expect("written");
    shows(&lab.run(&["plan", "check", "plan.toml"]), "a plan that is none");
    shows(&lab.run(&["bench", &format!("no{EVIL}/x")]), "a path");
    shows(&lab.run(&["compare", EVIL, "1"]), "an argument");
    harmless(&lab.run(&[EVIL]), "a command");
    harmless(&lab.run(&["report", "--json", "1", &format!("--{EVIL}")]), "a flag");
}

#[test]
fn a_remote_machines_words_are_shown_and_not_obeyed() {
    let lab = Lab::new();
    let ssh = lab.path("ssh");
    fs::write(&ssh, format!("#!/bin/sh\necho '{EVIL}'\necho '{EVIL}' >&2\nexit 255\n")).expect("written");
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("set");
    let path = format!("{}:{}", lab.path("").display(), std::env::var("PATH").expect("set"));
    let output = lab
        .iotax()
        .args(["bench", "ssh://nobody@192.0.2.1/x", "--yes"])
        .env("PATH", path)
        .output()
        .expect("iotax starts");
    assert!(!output.status.success());
    shows(&output, "ssh");
    lab.assert_nothing_left();
}

#[test]
fn a_terminal_gets_iotaxs_own_sequences_and_no_others() {
    require!(program "script");
    let lab = Lab::new();
    plan(&lab);
    let iotax = lab.iotax().get_program().to_string_lossy().into_owned();
    let terse = "export 1 --format fio-terse";
    let lines = [
        "run plan.toml --yes",
        "report 1",
        "export 1 --format fio-normal",
        terse,
        &format!("{terse} --output /dev/tty"),
        &format!("{terse} --output /dev/tty >/dev/null"),
        &format!("{terse} --output /dev/fd/2 >/dev/null"),
        &format!("{terse} --output /dev/stderr >/dev/null"),
    ];
    for line in lines {
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &format!("{iotax} {line}"), "/dev/null"]).current_dir(lab.path(""));
        script.env("HOME", lab.path("home")).env("TMPDIR", lab.scratch()).env("TERM", "xterm");
        let output = script.stdin(std::process::Stdio::null()).output().expect("script runs");
        let said = text(&output.stdout);
        assert!(output.status.success(), "{line}: {said:?}");
        let own = said.replace("\u{1b}[", "").replace('\r', "");
        assert!(!own.contains(is_evil) && said.contains("\\u{1b}cowned"), "{line}: {said:?}");
    }
}
