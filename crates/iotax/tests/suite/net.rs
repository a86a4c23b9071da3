//! Tests of `iotax net serve` and `iotax net run` with iperf3 at either end, and of JSON in iperf3's format.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use iotax_testkit::require;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::lab::{Lab, text};

const LOOPBACK: &str = "127.0.0.1";

/// Arguments for both tools, and whether the client sends and receives.
const TESTS: [(&[&str], bool, bool); 9] = [
    (&["-t", "1"], true, false),
    (&["-t", "1", "-R"], false, true),
    (&["-t", "1", "--bidir"], true, true),
    (&["-t", "1", "-u", "-b", "20M", "-l", "1000"], true, false),
    (&["-t", "1", "-u", "-b", "20M", "-l", "1000", "-R"], false, true),
    (&["-t", "1", "-u", "-b", "20M", "-l", "1000", "--bidir"], true, true),
    (&["-t", "1", "-P", "2"], true, false),
    (&["-t", "1", "-O", "1", "-u", "-b", "20M", "-l", "1000"], true, false),
    (&["-n", "100M"], true, false),
];

/// A server process; killed on drop.
struct Server {
    child: Child,
    port: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn ours(lab: &Lab, arguments: &[&str]) -> Self {
        let mut command = lab.iotax();
        command.args(["net", "serve", "--port", "0"]).args(arguments).env("IOTAX_TOKEN", "open sesame");
        let mut child = command.stderr(Stdio::piped()).spawn().expect("started");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let line = lines.next().expect("a line").expect("text");
        let address = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}"));
        let port =
            address.strip_prefix("127.0.0.1:").expect("loopback, as nothing else was asked").to_owned();
        // It must not wait for a reader.
        thread::spawn(move || lines.for_each(drop));
        Self { child, port }
    }

    fn iperf3() -> Self {
        let port = free_port();
        let mut command = Command::new("iperf3");
        command.args(["-s", "-B", LOOPBACK, "-p", &port]).stdout(Stdio::null());
        Self { child: command.spawn().expect("started"), port }
    }
}

/// Returns an unused port.
fn free_port() -> String {
    let free = TcpListener::bind((LOOPBACK, 0)).expect("a port");
    free.local_addr().expect("bound").port().to_string()
}

/// Runs a client repeatedly until its server listens.
fn until_it_listens(mut client: impl FnMut() -> Command) -> Value {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let output = client().output().expect("started");
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        // iperf3 exits with 0 and reports the failure in its JSON.
        let document = serde_json::from_str(&out).unwrap_or(Value::Null);
        if output.status.success() && document.is_object() && document["error"].is_null() {
            return document;
        }
        let waits = ["refused", "busy"].iter().any(|word| out.contains(word) || err.contains(word));
        assert!(waits && Instant::now() < deadline, "{out}{err}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn iperf3(port: &str, arguments: &[&str]) -> Value {
    until_it_listens(|| {
        let mut command = Command::new("iperf3");
        command.args(["-c", LOOPBACK, "-p", port, "-J"]).args(arguments);
        command
    })
}

fn ours(lab: &Lab, port: &str, arguments: &[&str]) -> Value {
    until_it_listens(|| {
        let mut command = lab.iotax();
        command.args(["net", "run", LOOPBACK, "-p", port, "--json=-"]).args(arguments);
        command
    })
}

/// Returns the only cell of a run.
fn cell(document: &Value) -> &Value {
    let cells = document["cells"].as_array().unwrap_or_else(|| panic!("{document:#}"));
    assert_eq!(cells.len(), 1, "{document:#}");
    &cells[0]
}

/// Asserts that the measurement matches the request in each direction.
fn assert_measured(document: &Value, arguments: &[&str], sends: bool, receives: bool) {
    assert_eq!(
        document["warnings"].as_array().map(|all| all.iter().any(|w| w["kind"] == "bypassed")),
        Some(false)
    );
    let per_direction = cell(document)["network"]["directions"].as_array().expect("directions");
    let directions: Vec<&str> =
        per_direction.iter().filter_map(|totals| totals["direction"].as_str()).collect();
    let asked = [(sends, "upload"), (receives, "download")];
    let asked: Vec<&str> = asked.into_iter().filter(|(goes, _)| *goes).map(|(_, name)| name).collect();
    assert_eq!(directions, asked, "{arguments:?}");
    for totals in per_direction {
        let number = |key: &str| totals[key].as_f64();
        let rate = number("bytes_per_s").unwrap_or_else(|| panic!("{arguments:?}: {totals}")) * 8.0;
        if arguments.contains(&"-u") {
            // 20 Mbit/s, which loopback carries.
            assert!((10e6..24e6).contains(&rate), "{arguments:?}: {totals}");
            let lost = number("lost").zip(number("received_packets"));
            // Before 3.13 an iperf3 does not tell it after a warm-up.
            assert!(lost.is_some() || arguments.contains(&"-O"), "{arguments:?}: {totals}");
            assert!(lost.is_none_or(|(lost, received)| lost <= received / 10.0), "{arguments:?}: {totals}");
        } else {
            assert!(rate > 32e6, "{arguments:?}: {totals}");
        }
    }
}

/// Asserts that the traffic matches the request, by the figures of both ends.
fn assert_carried(document: &Value, arguments: &[&str], per_direction: [bool; 2]) {
    assert!(document["error"].is_null(), "{arguments:?}: {document:#}");
    let end = &document["end"];
    // A single direction has the plain names.
    let names: &[&str] = if per_direction == [true, true] { &["", "_bidir_reverse"] } else { &[""] };
    for name in names {
        let [sent, received] = ["sent", "received"].map(|word| &end[format!("sum_{word}{name}")]);
        let [sent_bytes, received_bytes] = [sent, received].map(|sum| sum["bytes"].as_f64().unwrap_or(0.0));
        let around = format!("{arguments:?}: {sent} and {received}");
        if arguments.contains(&"-u") {
            for (sum, bytes) in [(sent, sent_bytes), (received, received_bytes)] {
                // 20 Mbit/s, which loopback carries.
                let rate = bytes * 8.0 / sum["seconds"].as_f64().expect("a number");
                assert!((10e6..24e6).contains(&rate), "{rate}: {around}");
            }
            let lost = received["lost_packets"].as_f64().expect("a number");
            assert!(lost <= received["packets"].as_f64().expect("a number") / 10.0, "{around}");
        } else {
            assert!(sent_bytes > 4e6, "{around}");
            // Bytes in socket buffers at the end are sent but not received.
            let share = received_bytes / sent_bytes;
            assert!((0.3..1.1).contains(&share), "{share}: {around}");
        }
    }
    assert!(document["intervals"].as_array().is_some_and(|all| !all.is_empty()), "{arguments:?}");
}

#[test]
fn iperf3_is_served() {
    require!(program "iperf3");
    let lab = Lab::new();
    let server = Server::ours(&lab, &[]);
    for (arguments, sends, receives) in TESTS {
        assert_carried(&iperf3(&server.port, arguments), arguments, [sends, receives]);
    }
}

#[test]
fn iperf3_serves() {
    require!(program "iperf3");
    let lab = Lab::new();
    let server = Server::iperf3();
    for (arguments, sends, receives) in TESTS {
        assert_measured(&ours(&lab, &server.port, arguments), arguments, sends, receives);
    }
}

#[test]
fn two_ends_of_ours_tell_more() {
    let lab = Lab::new();
    let server = Server::ours(&lab, &[]);
    let arguments = ["-t", "500ms", "-u", "-b", "20M", "-l", "1000", "--bidir"];
    let document = ours(&lab, &server.port, &arguments);
    assert_measured(&document, &arguments, true, true);
    let network = &cell(&document)["network"];
    assert!(network["server_cpu_ns_per_gib"].is_f64(), "{network:#}");
    assert!(network["directions"][0]["duplicates"].is_u64(), "{network:#}");
    // It is a run like any other.
    let shown = lab.run(&["report", "1"]);
    assert!(text(&shown.stdout).contains("Gbit/s"), "{}", text(&shown.stdout));
}

#[test]
fn a_plan_has_a_server_as_a_target() {
    let lab = Lab::new();
    let server = Server::ours(&lab, &["--auth"]);
    std::fs::write(lab.path("token"), "open sesame\n").expect("written");
    let plan = format!(
        "repeat = 2\nbaseline = \"lo\"\n[[target]]\nname = \"lo\"\nnetwork = {{ via = \"loopback\" }}\n\
         [[target]]\nname = \"box\"\nnetwork = {{ via = \"server\", peer = \"{LOOPBACK}:{}\", auth = \"token\" }}\n\
         [[workload]]\nname = \"trips\"\nnet = {{ test = \"udp-rtt\", rate = 200 }}\nruntime = \"300ms\"\n",
        server.port
    );
    std::fs::write(lab.path("plan.toml"), plan).expect("written");
    let document = lab.json(&["run", "--yes", "--json", "-", "plan.toml"]);
    assert_eq!(document["measurements"].as_array().map(Vec::len), Some(4), "{document:#}");
    assert_eq!(document["comparisons"][0]["target"], "box");
    assert!(!document.to_string().contains("open sesame"), "the token is nowhere");
}

/// Returns the type of each value by path; for arrays, that of the first element.
fn shape(value: &Value, path: &str, found: &mut Vec<String>) {
    let kind = match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| shape(value, &format!("{path}.{key}"), found));
            "object"
        }
        Value::Array(all) => {
            all.iter().take(1).for_each(|value| shape(value, &format!("{path}[]"), found));
            "array"
        }
        Value::String(_) => "text",
        Value::Number(_) => "number",
        Value::Bool(_) => "truth",
        Value::Null => "null",
    };
    found.push(format!("{path}: {kind}"));
}

/// Returns the JSON document of a server after its only test.
fn served(mut command: Command, port: &str, arguments: &[&str]) -> Value {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
    iperf3(port, arguments);
    let output = child.wait_with_output().expect("ended");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_servers_json_has_all_that_iperf3s_has() {
    require!(program "iperf3");
    let lab = Lab::new();
    for (arguments, _, _) in &TESTS[..7] {
        let port = free_port();
        let mut theirs = Command::new("iperf3");
        theirs.args(["-s", "-1", "-J", "-B", LOOPBACK, "-p", &port]);
        let mut ours = lab.iotax();
        ours.args(["net", "serve", "--one-off", "--json", "--port", &port]);
        let [theirs, ours] = [theirs, ours].map(|command| {
            let mut document = served(command, &port, arguments);
            document.as_object_mut().expect("an object").remove("iotax");
            let mut found = Vec::new();
            shape(&document, "", &mut found);
            found.sort();
            found
        });
        let missing: Vec<&String> = theirs.iter().filter(|path| !ours.contains(path)).collect();
        assert!(missing.is_empty(), "{arguments:?}: {missing:?}");
    }
}

#[test]
fn a_servers_json_is_imported() {
    require!(program "iperf3");
    let lab = Lab::new();
    let port = free_port();
    let mut server = lab.iotax();
    server.args(["net", "serve", "--one-off", "--json", "--port", &port]);
    let document = served(server, &port, &["-t", "1", "-R"]);
    let file = lab.path("net.json");
    std::fs::write(&file, document.to_string()).expect("written");
    let imported = lab.run(&["import", file.to_str().expect("utf-8")]);
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    assert!(text(&imported.stdout).contains("tcp-reverse"), "{}", text(&imported.stdout));
}

#[test]
fn a_token_is_needed_where_it_is_asked() {
    let lab = Lab::new();
    let server = Server::ours(&lab, &["--auth"]);
    let run = |token: Option<&str>| {
        let mut command = lab.iotax();
        command.args(["net", "run", LOOPBACK, "-p", &server.port, "-t", "200ms"]);
        if let Some(token) = token {
            let file = lab.path("token");
            std::fs::write(&file, format!("{token}\n")).expect("written");
            command.arg(format!("--auth={}", file.display()));
        }
        command.output().expect("started")
    };
    for token in [None, Some("guess")] {
        let output = run(token);
        assert_eq!(output.status.code(), Some(3), "{token:?}");
        assert!(text(&output.stderr).contains("token"), "{}", text(&output.stderr));
    }
    let output = run(Some("open sesame"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("bit/s"), "{}", text(&output.stdout));
}

#[test]
fn several_servers_start_together_and_share() {
    let lab = Lab::new();
    let servers = [Server::ours(&lab, &[]), Server::ours(&lab, &[])];
    let [one, other] = servers.each_ref().map(|server| format!("{LOOPBACK}:{}", server.port));
    let asked = ["net", "run", &one, &other, "-t", "1", "-i", "200ms", "-u", "-b", "10M", "-l", "1000"];
    let document = lab.json(&[&asked[..], &["--json"]].concat());
    let cell = cell(&document);
    let together = &cell["guests"];
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{cell:#}"));
    assert!(number(&together["fairness"]["mean"]) > 0.9, "{together:#}");
    let members = together["members"].as_array().expect("members");
    let names: Vec<&str> = members.iter().filter_map(|member| member["name"].as_str()).collect();
    assert_eq!(names, [one.as_str(), other.as_str()]);
    for member in members {
        assert!((5e6..12e6).contains(&(number(&member["bytes_per_s"]) * 8.0)), "{together:#}");
    }
    assert!((10e6..24e6).contains(&(number(&cell["metrics"]["bytes_per_s"]) * 8.0)), "{cell:#}");
}

#[test]
fn an_interrupted_test_says_what_it_measured() {
    let lab = Lab::new();
    let server = Server::ours(&lab, &[]);
    let mut command = lab.iotax();
    command.args(["net", "run", LOOPBACK, "--port", &server.port, "-t", "60", "-i", "100ms"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started");
    let mut lines =
        BufReader::new(child.stderr.take().expect("piped")).lines().map(|line| line.expect("text"));
    let intervals = lines.by_ref().filter(|line| line.contains("  upload ")).take(3).count();
    assert_eq!(intervals, 3);
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().expect("ended").code(), Some(130), "{rest:?}");
    let [summary] =
        rest.iter().filter(|line| line.starts_with("cut short; until then: ")).collect::<Vec<_>>()[..]
    else {
        panic!("{rest:?}")
    };
    let seconds = summary.split_whitespace().nth(4).and_then(|word| word.parse::<f64>().ok());
    assert!(seconds.is_some_and(|seconds| (0.29..30.0).contains(&seconds)), "{summary}");
    assert!(summary.contains("bit/s") && !summary.contains("  0 bit/s"), "{summary}");
    lab.assert_nothing_left();
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    let lab = Lab::new();
    for (arguments, words) in [
        (&["-P", "0"][..], "accepted: 1 to 128"),
        (&["-u", "-l", "8"], "16 to 65507"),
        (&["-t", "soon"], "accepted: seconds, or 500ms"),
        (&["-t", "0"], "--bytes"),
        (&["-i", "1ms"], "10ms and more"),
        (&["-b", "fast"], "accepted: bits a second"),
        (&["--auth"], "IOTAX_TOKEN"),
    ] {
        let output = lab.run(&[&["net", "run", LOOPBACK, "-p", "1"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {}", text(&output.stderr));
    }
    let nobody = lab.run(&["net", "run", LOOPBACK, "-p", "1", "-t", "1"]);
    assert_eq!(nobody.status.code(), Some(3));
    assert!(text(&nobody.stderr).contains("iperf3 -s"), "{}", text(&nobody.stderr));
}
