//! Tests of file workloads: they perform exactly the requested number of operations, on the host and in a guest, and leave no files.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use iotax_testkit::{require, skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::lab::{Lab, start_until, text};

const DEFAULTS: &str = "[defaults]\nramp_time = \"0s\"\nruntime = \"20s\"\ndirect = false\n";
const HOST: &str = "[[target]]\nname = \"host\"\nfile = { dir = \"WORK\" }\n";
const GUEST: &str = "[[target]]\nname = \"vm\"\nfile = { dir = \"WORK\", format = \"qcow2\" }\n\
     guest = { filesystem = \"ext4\", memory = \"384m\", cache = \"writeback\", aio = \"threads\" }\n";

/// Operations on files, by target and workload.
fn operations(json: &Value) -> Vec<(String, u64)> {
    let measurements = json["measurements"].as_array().expect("measurements");
    let mut all: Vec<(String, u64)> = measurements
        .iter()
        .map(|measurement| {
            let name = |key: &str| measurement[key].as_str().unwrap_or("").to_owned();
            let count = measurement["meta"]["ios"].as_u64().unwrap_or(0);
            (format!("{} {}", name("target"), name("workload")), count)
        })
        .collect();
    all.sort();
    all
}

#[test]
fn killed_amid_its_files_a_test_can_be_cleaned() {
    let lab = Lab::new();
    let plan = lab.plan(&format!(
        "repeat = 1\n{DEFAULTS}{HOST}[[workload]]\nname = \"create\"\ntest = \"create\"\nnrfiles = 1000000\nnrdirs = 3\n"
    ));
    let mut child = lab
        .iotax()
        .args(["run", plan.to_str().expect("utf-8"), "--yes"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("iotax starts");
    // The run's folder, in it the test's, in that the worker's with its three.
    let made = || {
        let below = |dirs: Vec<std::path::PathBuf>| -> Vec<std::path::PathBuf> {
            let entries = dirs.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten();
            entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
        };
        (0..5).fold(vec![lab.work()], |dirs, _| below(dirs)).len()
    };
    let deadline = Instant::now() + Duration::from_mins(1);
    while made() < 100 {
        assert!(Instant::now() < deadline, "no files were made");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("killed");
    child.wait().expect("it ended");
    let clean = lab.run(&["clean"]);
    assert!(clean.status.success(), "{}", text(&clean.stdout));
    lab.assert_nothing_left();
}

/// Returns the lowest and the highest physical byte of a file's extents.
fn span(path: &Path) -> Option<(u64, u64)> {
    let extents: Vec<_> = fiemap::fiemap(path).ok()?.collect::<Result<_, _>>().ok()?;
    let begin = extents.iter().map(|extent| extent.fe_physical).min()?;
    Some((begin, extents.iter().map(|extent| extent.fe_physical + extent.fe_length).max()?))
}

/// Tests that run alone, because files of other writers would lie between the extents.
mod alone {
    use super::*;

    #[test]
    fn files_of_one_run_lie_side_by_side() {
        let lab = Lab::new();
        let targets = ["a", "b", "c"]
            .map(|name| format!("[[target]]\nname = \"{name}\"\nfile = {{ dir = \"WORK\" }}\n"));
        let plan = lab.plan(&format!(
            "{}[[workload]]\nrw = \"randread\"\nsize = \"256m\"\nruntime = \"60s\"\n",
            targets.concat()
        ));
        let mut command = lab.iotax();
        let mut child =
            start_until(command.args(["run", plan.to_str().expect("utf-8"), "--yes"]), "round 1/");
        let folders =
            std::fs::read_dir(lab.work()).expect("a list").map(|entry| entry.expect("an entry").path());
        let files = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
        let files: Vec<PathBuf> = files.map(|entry| entry.expect("an entry").path()).collect();
        let spans: Vec<Option<(u64, u64)>> = files.iter().map(|path| span(path)).collect();
        kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
        child.wait().expect("it ends");
        lab.assert_nothing_left();
        assert_eq!(files.len(), 3, "{files:?}");
        let Some(spans) = spans.into_iter().collect::<Option<Vec<_>>>() else {
            skip!("a filesystem that tells where files lie");
        };
        // If created one after the other, none would overlap. Blocks not yet freed by the filesystem may separate one.
        let overlap = |(one, other): &(usize, usize)| {
            spans[*one].0 < spans[*other].1 && spans[*other].0 < spans[*one].1
        };
        assert!([(0, 1), (1, 2), (0, 2)].iter().any(overlap), "{spans:?}");
    }
}

#[test]
fn beside_what_was_there_no_files_are_made() {
    let lab = Lab::new();
    std::fs::write(lab.work().join("theirs"), vec![1; 65536]).expect("written");
    let plan = lab.plan(&format!(
        "{DEFAULTS}[[target]]\nname = \"t\"\npath = \"WORK/theirs\"\n[[workload]]\nname = \"w\"\ntest = \"stat\"\n"
    ));
    let output = lab.run(&["run", plan.to_str().expect("utf-8"), "--yes"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("does not create files next to an existing target")
            && said.contains("Give a directory"),
        "{said}"
    );
    assert_eq!(std::fs::read_dir(lab.work()).expect("read").count(), 1);
}

mod guests {
    use super::*;

    #[test]
    fn host_and_guest_do_the_same_to_as_many_files() {
        require!(guests);
        require!(program "mkfs.ext4");
        let lab = Lab::new();
        let plan = lab.plan(&format!(
            "repeat = 1\n{DEFAULTS}{HOST}{GUEST}\
             [[workload]]\nname = \"create\"\ntest = \"create\"\nnrfiles = 400\n\
             [[workload]]\nname = \"unpack\"\ntest = \"unpack\"\nnrfiles = 140\nbs = \"64k\"\n"
        ));
        let plan = plan.to_str().expect("utf-8");
        let json = lab.json(&["run", plan, "--accel", "tcg", "--yes", "--json", "-"]);
        let expected = [("host create", 400), ("host unpack", 149), ("vm create", 400), ("vm unpack", 149)];
        assert_eq!(operations(&json), expected.map(|(cell, count)| (cell.to_owned(), count)), "{json:#}");
        lab.assert_nothing_left();
    }
}
