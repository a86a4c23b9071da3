//! Tests of round trips from the command line: the host's kernel (ICMP), and an iotax server.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use iotax_testkit::{require, skip};
use serde_json::Value;

use crate::lab::{Lab, text};

/// `iotax net serve` on a free port of the loopback; killed on drop.
struct Server {
    child: Child,
    port: String,
}

impl Server {
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
        // Keeps reading, so that the server never blocks.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let port = line.trim().rsplit(':').next().expect("a port").to_owned();
        assert!(port.parse::<u16>().is_ok(), "{line}");
        Self { child, port }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

/// The cells of a ping's run.
fn ping(lab: &Lab, arguments: &[&str]) -> Vec<Value> {
    let output =
        lab.iotax().args(["net", "ping", "--json"]).arg("-").args(arguments).output().expect("iotax starts");
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    // A line for each interval, and the figures for people, go to stderr then.
    assert!(stderr.contains("round trips/s") && stderr.contains("mean"), "{stderr}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    document["cells"].as_array().expect("cells").clone()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} in {value}"))
}

/// Tests that run while no other test does.
mod alone {
    use super::*;

    #[test]
    fn a_server_answers_over_udp_and_tcp_idle_and_under_load() {
        let lab = Lab::alone();
        let server = Server::start(&lab);
        let host = format!("127.0.0.1:{}", server.port);
        let here = ["-t", "0.5", "-i", "0.2", &host];
        for protocol in ["--udp", "--tcp"] {
            let cells = ping(&lab, &[&[protocol, "--rate", "200", "--length", "100"], &here[..]].concat());
            let of = &cells[0];
            let probes = &of["network"]["probes"];
            assert_eq!((number(probes, "sent"), number(probes, "received")), (100.0, 100.0), "{protocol}");
            let times = &of["latency_ns"];
            let order = ["min", "p50", "p90", "max"].map(|key| number(times, key));
            assert!(order.is_sorted() && order[0] > 0.0, "{times}");
            assert!(of["workload"].as_str().is_some_and(|name| name.ends_with("-rtt-100")), "{of}");
        }
        let cells = ping(&lab, &[&["--under-load", "-O", "0.2", "--rate", "100"], &here[..]].concat());
        let of = |name: &str| cells.iter().find(|cell| cell["workload"] == name).expect(name);
        assert!(of("idle")["network"].get("directions").is_none());
        for name in ["download", "upload"] {
            let network = &of(name)["network"];
            let [direction] = network["directions"].as_array().expect("directions").as_slice() else {
                panic!("{network:#}")
            };
            assert_eq!(direction["direction"], name);
            // A loopback carries a thousand times as much.
            assert!(number(direction, "bytes_per_s") > 1e6, "{direction}");
            assert!(number(&network["probes"], "received") > 10.0, "{network}");
        }
    }

    #[test]
    fn a_host_where_nobody_answers_is_refused_with_the_remedy() {
        let lab = Lab::alone();
        let port = Server::start(&lab).port.clone();
        let output =
            lab.iotax().args(["net", "ping", "--port", &port, "127.0.0.1"]).output().expect("iotax starts");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(stderr.contains("iotax net serve") && stderr.contains("--icmp"), "{stderr}");
        assert!(stderr.contains("no run is kept"), "{stderr}");
        assert_eq!(lab.json(&["list", "--json"]), serde_json::json!([]), "a run that was refused is none");
        for (arguments, words) in [
            (&["--length", "9", "127.0.0.1"][..], "16 to 65507"),
            (&["--rate", "0", "127.0.0.1"], "1 and more"),
            (&["--icmp", "no.such.host.invalid"], "no.such.host.invalid"),
        ] {
            let output = lab.iotax().args(["net", "ping"]).args(arguments).output().expect("iotax starts");
            assert!(
                !output.status.success() && text(&output.stderr).contains(words),
                "{}",
                text(&output.stderr)
            );
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
        let cells = ping(&lab, &arguments[2..]);
        let of = &cells[0];
        let probes = &of["network"]["probes"];
        assert_eq!((number(probes, "sent"), number(probes, "received")), (50.0, 50.0));
        require!(program "ping");
        let theirs = Command::new("ping")
            .args(["-q", "-i", "0.02", "-c", "50", "127.0.0.1"])
            .output()
            .expect("ping runs");
        let theirs = text(&theirs.stdout);
        // rtt min/avg/max/mdev = 0.012/0.034/0.056/0.007 ms
        let figures = theirs.rsplit(" = ").next().expect("figures");
        let mean: f64 = figures.split('/').nth(1).and_then(|mean| mean.parse().ok()).expect("a mean");
        let ratio = number(&of["latency_ns"], "mean") / (mean * 1e6);
        assert!((0.1..10.0).contains(&ratio), "{ratio} of {theirs}");
    }
}
