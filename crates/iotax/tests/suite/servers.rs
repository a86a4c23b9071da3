//! Shared tests of layers with a server: a server that dies or hangs, and rejected stacks.

use std::fs;
use std::process::Command;
use std::thread;

use serde_json::Value;

use crate::fuse::plan;
use crate::lab::{Lab, start_until, text};

/// Kills the server of the first target and stops that of the second, each in a run with a plain target. Asserts that only the affected
/// target loses measurements. `process` is a pattern for the command line of a target's server; no other test has targets of these names.
pub(crate) fn assert_signals_cost_one_target(
    names: [&str; 2],
    line: &str,
    process: impl Fn(&str) -> String + Sync,
    assert_nothing_left: impl Fn(&Lab, &str) + Sync,
) {
    // They wait for the server most of the time.
    thread::scope(|scope| {
        for (signal, name) in ["-9", "-STOP"].into_iter().zip(names) {
            let (process, assert_nothing_left) = (&process, &assert_nothing_left);
            scope.spawn(move || {
                let lab = Lab::new();
                let path = plan(
                    &lab,
                    &[(name, line), ("plain", "WORK > raw file")],
                    "[[workload]]\nrw = 'randread'\n",
                );
                let run = ["run", &path, "--yes", "--json", "out.json"];
                let mut child = start_until(lab.iotax().args(run), "cell 1/");
                let found = Command::new("pkill").args([signal, "-f", &process(name)]).status();
                assert!(found.expect("pkill").success());
                child.wait().expect("it ends");
                let json = fs::read(lab.path("out.json")).expect("results");
                let json: Value = serde_json::from_slice(&json).expect("JSON");
                let measurements = json["measurements"].as_array().expect("measurements");
                let of_plain = measurements.iter().filter(|m| m["target"] == "plain").count();
                assert_eq!(of_plain, 2, "{signal}: {json}");
                let is_usable = |m: &&Value| m["target"] == name && m["grade"] != "unusable";
                assert_eq!(measurements.iter().find(is_usable), None, "{signal}");
                assert_nothing_left(&lab, name);
            });
        }
    });
}

/// Asserts that stacks of a target with this name are rejected with these words, and that nothing is left.
pub(crate) fn assert_stacks_are_refused(
    name: &str,
    stacks: &[(&str, &str)],
    assert_nothing_left: impl Fn(&Lab, &str),
) -> Lab {
    let lab = Lab::new();
    for (line, words) in stacks {
        let path = plan(&lab, &[(name, line)], "[[workload]]\nrw = 'randread'\n");
        let refused = lab.run(&["run", &path, "--yes"]);
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(words), "{line}: {said}");
        assert_nothing_left(&lab, name);
    }
    lab
}
