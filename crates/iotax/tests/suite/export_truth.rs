//! Exports of QEMU's storage daemon whose speed is known.

use std::collections::HashMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use iotax_testkit::require;
use serde_json::Value;

use crate::exports::Server;
use crate::fuse::plan;
use crate::lab::Lab;

/// The delay of each read of an nbdkit that delays.
const DELAY_MS: f64 = 5.0;

/// An nbdkit that serves memory and logs its requests.
struct Nbdkit {
    _server: Server,
    socket: PathBuf,
    log: PathBuf,
}

impl Nbdkit {
    /// Starts it with `name` in its files' names.
    fn start(lab: &Lab, name: &str, delay_ms: f64) -> Self {
        let [socket, log] = ["socket", "log"].map(|kind| lab.path(&format!("{name}.{kind}")));
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--filter=log", "--filter=delay", "--unix"]).arg(&socket);
        command.args(["memory", "64M"]);
        command.args([format!("rdelay={delay_ms}ms"), format!("logfile={}", log.display())]);
        let server = Server::start(&mut command, || UnixStream::connect(&socket).is_ok());
        Self { _server: server, socket, log }
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// The median time that it took for a block, in milliseconds, by the filter above the one that delays.
    fn took_ms(&self) -> f64 {
        let log = fs::read_to_string(&self.log).expect("a log");
        let (mut begun, mut took) = (HashMap::new(), Vec::new());
        // 2026-11-30 15:42:32.545789 connection=1 Read id=300 offset=0x12b000 count=0x1000 ...
        // 2026-11-30 15:42:32.550872 connection=1 ...Read id=300 return=0
        for line in log.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, time, connection, what, id, ..] = words.as_slice() else { continue };
            match *what {
                "Read" if line.contains(" count=0x1000 ") => {
                    begun.insert((*connection, *id), ms_of_day(time));
                }
                "...Read" => {
                    let begun = begun.remove(&(*connection, *id));
                    took.extend(begun.map(|begun| (ms_of_day(time) - begun).rem_euclid(86_400_000.0)));
                }
                _ => {}
            }
        }
        assert!(took.len() > 100, "{log}");
        took.sort_by(f64::total_cmp);
        took[took.len() / 2]
    }
}

fn ms_of_day(time: &str) -> f64 {
    time.split(':')
        .map(|part| part.parse::<f64>().expect("a number"))
        .fold(0.0, |all, part| all * 60.0 + part)
        * 1e3
}

/// A figure of each measurement of a target.
fn figures(json: &Value, target: &str, pointer: &str) -> Vec<f64> {
    let measurements = json["measurements"].as_array().expect("measurements").iter();
    let own = measurements.filter(|measurement| measurement["target"] == target);
    own.filter_map(|measurement| measurement.pointer(pointer)?.as_f64()).collect()
}

/// The mean of a figure over the measurements of a target.
fn mean(json: &Value, target: &str, pointer: &str) -> f64 {
    let all = figures(json, target, pointer);
    assert!(!all.is_empty(), "{target} {pointer}: {json}");
    all.iter().sum::<f64>() / all.len() as f64
}

#[test]
fn a_limit_comes_out_as_it_is() {
    require!(root);
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    // In memory: a disk that others keep busy is slower than the limit now and then.
    let stacks = [("limited", "tmpfs > raw file > throttle iops=500 > virtio cache=writeback aio=threads")];
    let workloads = "[[workload]]\nrw = 'randread'\nruntime = '2s'\nramp_time = '500ms'\n";
    let json = lab.json(&["run", &plan(&lab, &stacks, workloads), "--yes", "--json", "-"]);
    // A CPU that others have takes from this rate; nothing adds to it.
    let found = figures(&json, "limited", "/read/iops");
    assert!(found.len() == 2 && found.iter().all(|rate| *rate <= 510.0), "{found:?}");
    assert!(found.iter().any(|rate| *rate >= 490.0), "{found:?}");
    lab.assert_nothing_left();
}

/// nbdkit counts bits and iotax bytes.
#[test]
fn a_rate_of_nbdkit_comes_out_as_it_is() {
    require!(root);
    require!(program "qemu-storage-daemon", "nbdkit");
    let lab = Lab::new();
    // The two seconds' worth that pass at once are over before the warm-up is.
    let stacks = [("limited", "tmpfs > raw file > nbd server=nbdkit rate=4m > virtio")];
    let workload =
        "[[workload]]\nrw = 'randread'\nbs = '16k'\niodepth = 4\nruntime = '3s'\nramp_time = '1s'\n";
    let json = lab.json(&["run", &plan(&lab, &stacks, workload), "--yes", "--json", "-"]);
    let iops = figures(&json, "limited", "/read/iops");
    let shares: Vec<f64> = iops.into_iter().map(|iops| iops / 256.0).collect();
    // A busy machine takes from this rate; nothing adds to it.
    assert!(shares.len() == 2 && shares.iter().all(|share| *share <= 1.02), "{shares:?}");
    assert!(shares.iter().any(|share| *share >= 0.98), "{shares:?}");
    lab.assert_nothing_left();
}

/// Tests that run while no other test does.
mod alone {
    use super::*;

    /// nbdkit's own timer is late, and so is each wake-up of a busy machine: the truth is the time in nbdkit's log, and the time of the
    /// same path without a delay.
    #[test]
    fn a_delay_is_what_the_server_took() {
        require!(program "qemu-storage-daemon", "nbdkit");
        let lab = Lab::new();
        let delayed = ["virtio", "fuse"].map(|export| (export, Nbdkit::start(&lab, export, DELAY_MS)));
        let plain = Nbdkit::start(&lab, "plain", 0.0);
        let stacks: Vec<(String, String)> = delayed
            .iter()
            .flat_map(|(export, nbdkit)| {
                [(*export, nbdkit), (if *export == "fuse" { "fuse-plain" } else { "virtio-plain" }, &plain)]
                    .map(|(name, nbdkit)| (name.to_owned(), format!("{} > {export}", nbdkit.uri())))
            })
            .collect();
        let stacks: Vec<(&str, &str)> =
            stacks.iter().map(|(name, line)| (name.as_str(), line.as_str())).collect();
        // With a pause before each I/O, so that all programs on the path sleep without a delay too.
        let workloads =
            "[[workload]]\nrw = 'randread'\nthinktime = '5ms'\nruntime = '1500ms'\nramp_time = '300ms'\n";
        let json = lab.json(&["run", &plan(&lab, &stacks, workloads), "--yes", "--json", "-"]);
        for (export, nbdkit) in &delayed {
            let p50 = |target: &str| mean(&json, target, "/read/latency_ns/p50") / 1e6;
            let (found, path, truth) = (p50(export), p50(&format!("{export}-plain")), nbdkit.took_ms());
            let shown =
                format!("{export}: {found:.3} ms, {path:.3} of them without a delay; nbdkit took {truth:.3}");
            eprintln!("{shown}");
            assert!(truth >= DELAY_MS && ((found - path) / truth - 1.0).abs() <= 0.03, "{shown}");
        }
        lab.assert_nothing_left();
    }
}
