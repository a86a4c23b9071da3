//! Tests that the layer of `examples/layer` can be added by two files and a line or two in each of five others. It is built in a copy of
//! the sources.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use iotax_testkit::{require, thorough};
use serde_json::Value;

use crate::fuse::{MIXED, layers, plan};
use crate::lab::{Lab, start_until, text};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

const SIGKILL: i32 = 9;

/// The five other files: an existing line, and the lines to insert after it.
const EDITS: [(&str, &str, &str); 5] = [
    ("model/src/target/layers/mod.rs", "\nmod cache;\n", "mod bottle;\npub use bottle::BottleSpec;\n"),
    ("model/src/target/layers/mod.rs", "\nlayers! {\n", "/// A bottle.\nbottle: Bottle(BottleSpec),\n"),
    ("model/src/target/mod.rs", "\nmod layers;\n", "pub use layers::BottleSpec;\n"),
    ("testbed/src/target/mod.rs", "\nmod builder;\n", "mod bottle;\n"),
    ("testbed/src/target/layer.rs", "    match layer {\n", "PlannedLayer::Bottle(spec) => Some(spec),\n"),
];

/// Copies a directory without build results and temporary files of other tests.
fn copy(from: &Path, to: &Path) {
    if from.join("CACHEDIR.TAG").exists() {
        return;
    }
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("sources") {
        let entry = entry.expect("readable");
        let name = entry.file_name();
        let kind = entry.file_type().expect("known");
        if name.as_encoded_bytes().starts_with(b".") && name != ".cargo" {
            continue;
        }
        if kind.is_dir() {
            copy(&entry.path(), &to.join(name));
        } else if kind.is_file() {
            fs::copy(entry.path(), to.join(name)).expect("copied");
        }
    }
}

/// Builds iotax with the layer, next to the build of the tests.
fn build() -> PathBuf {
    let here = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let tree = here.join("new-layer");
    // A time that changes makes everything be built again.
    drop(fs::remove_dir_all(&tree));
    copy(Path::new(SOURCES), &tree);
    for (of, to) in [("model", "model/src/target/layers"), ("testbed", "testbed/src/target")] {
        let layer = tree.join("examples/layer").join(of).with_extension("rs");
        fs::copy(layer, tree.join("crates").join(to).join("bottle.rs")).expect("copied");
    }
    for (file, line, more) in EDITS {
        let path = tree.join("crates").join(file);
        let source = fs::read_to_string(&path).expect("a source");
        let (before, after) = source.split_once(line).unwrap_or_else(|| panic!("{file}: no {line:?}"));
        fs::write(path, [before, line, more, after].concat()).expect("written");
    }
    // Of another version, so that nothing takes the place of what the tests were built of.
    let manifest = tree.join("Cargo.toml");
    let source = fs::read_to_string(&manifest).expect("a manifest");
    let version = |number| format!("version = \"{number}\"\nedition");
    let other = source.replace(&version(env!("CARGO_PKG_VERSION")), &version("0.0.1"));
    assert_ne!(source, other);
    fs::write(manifest, other).expect("written");
    // Building only the program would build some dependencies with other features.
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--workspace", "--offline", "--bin", "iotax", "--test", "tidy"]);
    for slow in ["analysis", "engine", "interop", "netperf"] {
        cargo.args(["--config", &format!("profile.dev.package.iotax-{slow}.opt-level = 0")]);
    }
    // Below it are the directories of the target and of these tests.
    let built = here.ancestors().nth(2).expect("the build's directory");
    cargo.current_dir(&tree).env("CARGO_BUILD_BUILD_DIR", built).env("CARGO_TARGET_DIR", tree.join("target"));
    let output = cargo.output().expect("cargo starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    tree.join("target/x86_64-unknown-linux-gnu/debug/iotax")
}

/// A lab with another binary as iotax.
struct OtherLab {
    lab: Lab,
    program: PathBuf,
}

impl OtherLab {
    fn iotax(&self) -> Command {
        let known = self.lab.iotax();
        let mut command = Command::new(&self.program);
        command.current_dir(known.get_current_dir().expect("set"));
        for (name, value) in known.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.iotax().args(arguments).output().expect("iotax starts")
    }

    fn said(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn refused(&self, arguments: &[&str], words: &str) {
        let output = self.run(arguments);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn a_layer_of_an_example_is_wherever_layers_are() {
    require!(root);
    let new = OtherLab { lab: Lab::new(), program: build() };
    let lab = &new.lab;
    let write = |volume: &str| {
        let deep = format!("WORK > bottle volume={volume} > raw file");
        plan(lab, &[("plain", "WORK > raw file"), ("deep", &deep)], MIXED)
    };

    // A plan's line, table and schema.
    let table =
        format!("[[target]]\nname = 't'\nbottle = {{ dir = 'WORK', volume = 3 }}\nfile = {{}}\n{MIXED}");
    let shown = new.said(&["plan", "show", &lab.plan(&table).display().to_string()]);
    assert!(shown.contains("/work > bottle volume=3 > raw file; baseline"), "{shown}");
    let schema = new.said(&["plan", "schema"]);
    assert!(schema.contains("\"A bottle.\"") && schema.contains("\"Volume in litres.\""), "{schema}");

    // Help, and errors before anything is changed.
    new.refused(&["bench", "/srv > barrel", "--yes"], "accepted: bottle, ");
    for (volume, words) in
        [("0", "volume = 0: a bottle holds at least 1"), ("3 colour=1", "accepted: dir, volume")]
    {
        new.refused(&["run", &write(volume), "--yes"], words);
    }
    let path = write("3");
    fs::write(lab.work().join("corkscrew"), "").expect("written");
    new.refused(&["plan", "check", &path], "there is a corkscrew here");
    new.refused(&["run", &path, "--yes"], "there is a corkscrew here");
    fs::remove_file(lab.work().join("corkscrew")).expect("removed");
    lab.assert_nothing_left();

    // A run: its record, its counters, its reports.
    let json: Value = serde_json::from_str(&new.said(&["run", &path, "--yes", "--json", "-"])).expect("JSON");
    assert!(layers(&json, "deep").ends_with(&["overlay", "deep.raw"]), "{}", json["targets"]);
    let measurements = json["measurements"].as_array().expect("measurements");
    for one in measurements.iter().filter(|one| one["target"] == "deep") {
        assert_eq!(one["counters"][0]["layer"], "bottle", "{one}");
        assert_eq!(one["counters"][0]["counts"]["readings"], 1, "{one}");
    }
    lab.assert_nothing_left();
    let report = new.said(&["report", "1", "--detail"]);
    assert!(report.contains("deep, bottle counted: 2 readings"), "{report}");
    new.said(&["report", "1", "--html", "report.html"]);
    let html = fs::read_to_string(lab.path("report.html")).expect("a report");
    assert!(html.contains("bottle volume=3 &gt; raw file") && html.contains("bottle counted"), "{html}");

    // Two runs differ by its settings.
    let path = write("5");
    new.said(&["run", &path, "--yes"]);
    let both = new.said(&["compare", "1", "2"]);
    assert!(both.contains("deep, bottle.volume: 3 in A, 5 in B"), "{both}");

    // Killed at a line of the undo log, it is undone; beyond the last one nothing happens.
    let mut kills = 0;
    for line in (1..).step_by(if thorough() { 1 } else { 4 }) {
        let fault = format!("kill@{line}");
        let mut command = new.iotax();
        command.args(["run", &path, "--yes"]).env("IOTAX_FAULT", &fault);
        let status = command.output().expect("iotax starts").status;
        if status.success() {
            break;
        }
        assert_eq!(status.signal(), Some(SIGKILL), "{fault}");
        new.said(&["clean"]);
        lab.assert_nothing_left();
        kills += 1;
    }
    assert!(kills > 4, "{kills}");

    // While it exists, doctor sees its filesystem and the one below.
    let mut killed = start_until(new.iotax().args(["run", &path, "--yes"]), "cell 2/");
    killed.kill().expect("killed");
    killed.wait().expect("it ended");
    let mut mounts = fs::read_dir(lab.scratch()).expect("there").map(|entry| entry.expect("readable").path());
    let bottle = mounts.find(|path| path.to_string_lossy().ends_with("-deep-bottle")).expect("it is mounted");
    let walked = new.said(&["doctor", &bottle.join("deep.raw").display().to_string()]);
    assert!(walked.contains("2 filesystems"), "{walked}");
    let cleaned = new.said(&["clean"]);
    assert!(cleaned.contains("-deep-bottle"), "{cleaned}");
    lab.assert_nothing_left();
}
