//! Tests of every page in a real browser.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iotax_model::RunState;
use iotax_store::NewRun;
use iotax_testkit::{require, thorough};
use serde_json::json;

use crate::fleets;
use crate::server::{Server, ladder};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A directory with the script and its dependencies, as in the lock file.
fn installed() -> PathBuf {
    let (from, to) = (
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser"),
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser"),
    );
    let lock = std::fs::read(from.join("package-lock.json")).expect("read");
    let is_old = std::fs::read(to.join("installed.json")).ok().as_ref() != Some(&lock);
    std::fs::create_dir_all(&to).expect("a directory");
    for name in ["package.json", "package-lock.json", "run.mjs"] {
        std::fs::copy(from.join(name), to.join(name)).expect("copied");
    }
    if is_old {
        let npm = Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund"])
            .current_dir(&to)
            .output()
            .expect("npm starts");
        assert!(npm.status.success(), "npm ci: {}", String::from_utf8_lossy(&npm.stderr));
        std::fs::write(to.join("installed.json"), lock).expect("written");
    }
    to
}

#[test]
fn every_page_holds_in_a_browser() {
    require!(program "node", "npm", "chromium");
    let dir = installed();
    let pictures = dir.join("pictures");
    std::fs::create_dir_all(&pictures).expect("a directory");
    let server = Server::start();
    let locked = Server::with(|config| config.token = Some(TOKEN.into()));
    let mut store = server.store();
    fleets::put(&mut store, "f-1");
    let run = ladder("6.18.5");
    let new = NewRun { plan: &run.plan, seed: 1, started_at_ms: run.started_at_ms, fleet: None };
    let id = store.create_run(&new).expect("created");
    let mut claim = Some(store.claim(id).expect("claimed"));
    run.targets.iter().for_each(|target| store.put_target(id, target).expect("kept"));
    store.put_live(id, &json!({ "phase": "building vm-raw" })).expect("told");

    let mut node = Command::new("node")
        .arg("run.mjs")
        .current_dir(&dir)
        .env("SITE", format!("http://{}", server.address))
        .env("LOCKED", format!("http://{}", locked.address))
        .env("TOKEN", TOKEN)
        .env("LIVE", id.to_string())
        .env("PICTURES", &pictures)
        .env("ALL", thorough().to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("node starts");
    let lines = BufReader::new(node.stdout.take().expect("piped")).lines();
    let mut said = Vec::new();
    for line in lines.map_while(Result::ok) {
        if line == "following" {
            // The rest of the run, in two parts.
            store.put_measurements(id, &run.measurements[..24]).expect("kept");
            let now = json!({ "round": 2, "rounds": 5, "cell": 24, "cells": 60, "eta_s": 90.0, "iops": 18_234.0, "target": "vm-raw", "workload": "randread-4k-qd1" });
            store.put_live(id, &now).expect("told");
        } else if line == "followed" {
            store.put_measurements(id, &run.measurements[24..]).expect("kept");
            store.set_state(id, RunState::Complete).expect("kept");
            drop(claim.take());
        }
        said.push(line);
    }
    let mut errors = String::new();
    node.stderr.take().expect("piped").read_to_string(&mut errors).expect("read");
    let status = node.wait().expect("it ends");
    assert!(
        status.success() && said.last().is_some_and(|line| line == "done"),
        "{}\n{errors}",
        said.join("\n")
    );
}
