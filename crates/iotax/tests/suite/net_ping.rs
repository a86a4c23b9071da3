//! Round trips from the command line: the host's own kernel, and a far end of ours.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use iotax_results::exchange::json::trips::SCHEMA;
use iotax_testkit::{require, skip};
use serde_json::Value;

use crate::lab::{Lab, text};

/// `iotax net serve` on a free port of the loopback, until it is dropped.
struct FarEnd {
    child: Child,
    port: String,
}

impl FarEnd {
    fn start(lab: &Lab) -> Self {
        let mut child = lab
            .iotax()
            .args(["net", "serve", "--port", "0"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("iotax starts");
        let mut line = String::new();
        let stderr = child.stderr.take().expect("piped");
        let mut lines = BufReader::new(stderr);
        lines.read_line(&mut line).expect("a line");
        // What it says later must find a reader.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let port = line.trim().rsplit(':').next().expect("a port").to_owned();
        assert!(port.parse::<u16>().is_ok(), "{line}");
        Self { child, port }
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

/// The document of a ping, which holds to its schema.
fn ping(lab: &Lab, arguments: &[&str]) -> Value {
    let output =
        lab.iotax().args(["net", "ping", "--json"]).arg("-").args(arguments).output().expect("iotax starts");
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    // Figures for people go to stderr then, after a line for each interval.
    assert!(stderr.contains("round trip ") && stderr.contains("ETA"), "{stderr}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let schema = include_str!("../../../results/schema/iotax-ping-1.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("JSON");
    let schema = jsonschema::validator_for(&schema).expect("a JSON Schema");
    let errors: Vec<String> = schema.iter_errors(&document).map(|e| e.to_string()).collect();
    assert_eq!((errors, &document["schema"]), (Vec::new(), &SCHEMA.into()));
    document
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} in {value}"))
}

#[test]
fn a_far_end_answers_over_udp_and_tcp_idle_and_under_load() {
    let lab = Lab::alone();
    let far = FarEnd::start(&lab);
    let here = ["--port", &far.port, "-t", "0.5", "-i", "0.2", "127.0.0.1"];
    for protocol in ["--udp", "--tcp"] {
        let document = ping(&lab, &[&[protocol, "--rate", "200", "--length", "100"], &here[..]].concat());
        let of = &document["measurements"][0];
        assert_eq!((number(of, "sent"), number(of, "received")), (100.0, 100.0), "{protocol}");
        let times = &of["round_trip_ns"];
        let order = ["min", "p50", "p90", "p99", "p99_9", "max"].map(|key| number(times, key));
        assert!(order.is_sorted() && order[0] > 0.0, "{times}");
        assert!(number(&of["response_ns"], "mean") >= number(times, "mean"));
        assert_eq!(document["length_bytes"], 100);
    }
    let document = ping(&lab, &[&["--under-load", "-O", "0.2", "--rate", "100"], &here[..]].concat());
    let measurements = document["measurements"].as_array().expect("three");
    let names: Vec<&str> = measurements.iter().filter_map(|of| of["name"].as_str()).collect();
    assert_eq!(names, ["idle", "download", "upload"]);
    assert!(measurements[0].get("load").is_none());
    for (of, way) in [(&measurements[1], "down_bits_per_s"), (&measurements[2], "up_bits_per_s")] {
        // A loopback carries a thousand times as much.
        assert!(number(&of["load"], way) > 1e7, "{of}");
        assert_eq!(of["load"].as_object().map(serde_json::Map::len), Some(1));
        assert!(number(of, "received") > 10.0, "{of}");
    }
}

#[test]
fn a_host_where_nobody_answers_is_refused_with_the_remedy() {
    let lab = Lab::alone();
    let port = FarEnd::start(&lab).port.clone();
    let output =
        lab.iotax().args(["net", "ping", "--port", &port, "127.0.0.1"]).output().expect("iotax starts");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("iotax net serve") && stderr.contains("--icmp"), "{stderr}");
    for (arguments, words) in [
        (&["--length", "9", "127.0.0.1"][..], "16 to 65507"),
        (&["--rate", "0", "127.0.0.1"], "1 or more"),
        (&["--icmp", "no.such.host.invalid"], "no.such.host.invalid"),
    ] {
        let output = lab.iotax().args(["net", "ping"]).args(arguments).output().expect("iotax starts");
        assert!(!output.status.success() && text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}

#[test]
fn the_kernels_answers_take_what_ping_says_they_take() {
    let lab = Lab::alone();
    let arguments = ["net", "ping", "--icmp", "--rate", "50", "-t", "1", "--length", "56", "127.0.0.1"];
    let output = lab.iotax().args(arguments).output().expect("iotax starts");
    if text(&output.stderr).contains("ping_group_range") {
        skip!("no socket for ICMP here");
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = ping(&lab, &arguments[2..]);
    let of = &document["measurements"][0];
    assert_eq!((number(of, "sent"), number(of, "lost")), (50.0, 0.0));
    require!(program "ping");
    let theirs =
        Command::new("ping").args(["-q", "-i", "0.02", "-c", "50", "127.0.0.1"]).output().expect("ping runs");
    let theirs = text(&theirs.stdout);
    // rtt min/avg/max/mdev = 0.012/0.034/0.056/0.007 ms
    let figures = theirs.rsplit(" = ").next().expect("figures");
    let mean: f64 = figures.split('/').nth(1).and_then(|mean| mean.parse().ok()).expect("a mean");
    let ratio = number(&of["round_trip_ns"], "mean") / (mean * 1e6);
    assert!((0.1..10.0).contains(&ratio), "{ratio} of {theirs}");
}
