//! Tests of `iotax top`: on devices with known delay, on a terminal, as a recording, and for Prometheus.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use iotax_testkit::{program, require};
use serde_json::Value;

use crate::lab::{Lab, spawn_until, text};
use crate::lab_guest::LabGuest;

const MS: f64 = 1e6;

/// A recording of a few readings.
fn record(lab: &Lab, name: &str, readings: usize) {
    let file = lab.path(name);
    let mut child = lab
        .iotax()
        .args(["top", "--interval", "100ms", "--record"])
        .arg(&file)
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let end = Instant::now() + Duration::from_mins(1);
    // Each reading has its own mark.
    let is_enough = || {
        let bytes = std::fs::read(&file).unwrap_or_default();
        bytes.windows(4).filter(|word| *word == [0x50, 0x2a, 0x4d, 0x18]).count() > readings
    };
    while !is_enough() {
        assert!(Instant::now() < end, "no readings");
        thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_recording_is_replayed_as_lines_of_json_and_up_to_where_it_is_cut() {
    let lab = Lab::new();
    record(&lab, "r", 4);
    let replay = |name: &str| {
        let output = lab.run(&["top", "--replay", name, "--json", "-"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let frames: Vec<Value> =
            text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        (frames, text(&output.stderr))
    };
    let (frames, said) = replay("r");
    assert!(frames.len() >= 3 && said.is_empty(), "{said}");
    assert!(frames.iter().all(|frame| frame["interval_ns"].as_u64() >= Some(90_000_000)), "{frames:?}");
    let whole = std::fs::read(lab.path("r")).expect("read");
    std::fs::write(lab.path("cut"), &whole[..whole.len() - 7]).expect("written");
    let (cut, said) = replay("cut");
    assert_eq!(cut[..], frames[..frames.len() - 1]);
    assert!(said.contains("incomplete and left out"), "{said}");
    let tables = lab.run(&["top", "--replay", "r", "--once"]);
    assert!(text(&tables.stdout).matches("\nLAYER ").count() >= 3, "{}", text(&tables.stdout));

    let refused = lab.run(&["top", "--record", "r", "--once"]);
    assert_eq!(refused.status.code(), Some(4));
    assert!(text(&refused.stderr).contains("r exists"), "{}", text(&refused.stderr));
    let refused = lab.run(&["top", "--interval", "1ms"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("at least 100ms"), "{}", text(&refused.stderr));
}

#[test]
fn prometheus_gets_the_last_interval() {
    require!(program "promtool");
    let lab = Lab::new();
    let mut command = lab.iotax();
    command.args(["top", "--interval", "100ms", "--prometheus", "127.0.0.1:0"]);
    let (mut child, said, _) = spawn_until(&mut command, |said| said.contains("/metrics"));
    let address = said.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
    let get = |path: &str| {
        let mut stream = TcpStream::connect(address).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    };
    let end = Instant::now() + Duration::from_mins(1);
    let metrics = loop {
        let answer = get("/metrics");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        if !body.is_empty() {
            break body.to_owned();
        }
        assert!(Instant::now() < end, "nothing was measured");
    };
    assert!(get("/other").starts_with("HTTP/1.1 404"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .expect("it runs");
    assert!(child.wait().expect("it ends").success());
    assert!(metrics.contains("\niotax_top_layer_busy_ratio{device="), "{metrics}");
    let mut promtool = Command::new(program("promtool"))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    promtool.stdin.take().expect("piped").write_all(metrics.as_bytes()).expect("sent");
    let checked = promtool.wait_with_output().expect("promtool ends");
    assert!(checked.status.success(), "{}\n{metrics}", text(&checked.stderr));
}

/// A terminal in tmux.
struct Terminal {
    socket: String,
}

impl Terminal {
    fn open(lab: &Lab, size: (&str, &str)) -> Self {
        // A server that ends with its last session takes no new one.
        let socket = lab.scratch().join(format!("tmux-{}", size.0)).display().to_string();
        let terminal = Self { socket };
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", size.0, "-y", size.1, "sh"]);
        terminal.tmux(&["send-keys", "PS1='ready: '; cd ", &lab.path("").display().to_string(), "Enter"]);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = Command::new(program("tmux"))
            .env_remove("TMUX")
            .args(["-S", &self.socket])
            .args(arguments)
            .output()
            .expect("tmux runs");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn keys(&self, keys: &str) {
        self.tmux(&["send-keys", keys]);
    }

    /// Starts iotax.
    fn iotax(&self, arguments: &str) {
        self.tmux(&["send-keys", &format!("clear; {} {arguments}", env!("CARGO_BIN_EXE_iotax")), "Enter"]);
    }

    /// Waits until the screen shows a text.
    fn until(&self, is_shown: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + Duration::from_mins(1);
        loop {
            let screen = self.tmux(&["capture-pane", "-p"]);
            if is_shown(&screen) {
                return screen;
            }
            assert!(Instant::now() < end, "{screen}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new(program("tmux")).args(["-S", &self.socket, "kill-server"]).output();
    }
}

#[test]
fn a_screen_is_live_obeys_keys_and_gives_the_terminal_back() {
    require!(program "tmux", "sh");
    let lab = Lab::new();
    for (columns, lines) in [("80", "24"), ("200", "60")] {
        let terminal = Terminal::open(&lab, (columns, lines));
        terminal.iotax("top --interval 200ms");
        let screen = terminal.until(|screen| screen.contains("LAYER") && screen.contains("NETWORK"));
        assert!(screen.starts_with("iotax top  "), "{screen}");
        // Long names of devices push the last columns out.
        assert!(screen.contains(" r/s") && screen.contains("every 0.2 s"), "{screen}");
        let width: usize = columns.parse().expect("a number");
        assert!(screen.lines().all(|line| line.chars().count() <= width), "{screen}");
        terminal.keys("?");
        terminal.until(|screen| screen.contains("why it is slow") && !screen.contains("LAYER"));
        terminal.keys("?");
        terminal.until(|screen| screen.contains("LAYER"));
        terminal.keys("n");
        terminal.until(|screen| screen.contains("NETWORK") && !screen.contains("LAYER"));
        terminal.keys("+");
        terminal.until(|screen| screen.contains("every 0.5 s"));
        terminal.keys("Space");
        terminal.until(|screen| screen.contains("paused"));
        terminal.tmux(&["resize-window", "-x", "100", "-y", "30"]);
        terminal.keys("d");
        terminal.until(|screen| screen.contains("LAYER") && screen.lines().count() <= 30);
        terminal.keys("q");
        let left = terminal.until(|screen| screen.contains("ready:") && !screen.contains("LAYER"));
        assert!(!left.contains("panicked"), "{left}");
        // An echo shows that the terminal has its mode again.
        terminal.tmux(&["send-keys", "echo a$((1+1))b", "Enter"]);
        terminal.until(|screen| screen.contains("echo a$((1+1))b") && screen.contains("\na2b"));
    }
}

#[test]
fn a_recording_is_walked_on_the_screen_and_a_signal_gives_the_terminal_back() {
    require!(program "tmux", "sh", "pkill");
    let lab = Lab::new();
    record(&lab, "r", 4);
    let terminal = Terminal::open(&lab, ("80", "24"));
    terminal.iotax("top --replay r");
    terminal.until(|screen| screen.contains("reading 1 of "));
    terminal.keys("t");
    terminal.keys("Right");
    let third = terminal.until(|screen| screen.contains("reading 3 of "));
    terminal.keys("T");
    terminal.until(|screen| screen.contains("reading 2 of "));
    terminal.keys("t");
    assert_eq!(terminal.until(|screen| screen.contains("reading 3 of ")), third, "the same reading again");
    terminal.keys("b");
    terminal.until(|screen| screen.contains("reading 1 of "));
    let shell = terminal.tmux(&["display-message", "-p", "#{pane_pid}"]);
    let ended = Command::new(program("pkill")).args(["-TERM", "-P", shell.trim(), "iotax"]).status();
    assert!(ended.expect("pkill runs").success());
    terminal.until(|screen| screen.contains("ready:") && !screen.contains("LAYER"));
    terminal.tmux(&["send-keys", "echo a$((1+1))b", "Enter"]);
    terminal.until(|screen| screen.contains("\na2b"));
}

/// Tests the loss of the terminal, by killing tmux.
#[test]
fn a_pipe_that_nobody_writes_to_is_waited_for_until_a_signal() {
    let lab = Lab::new();
    let made = Command::new("mkfifo").arg(lab.path("pipe")).status().expect("mkfifo");
    assert!(made.success());
    let mut top = lab.iotax().args(["top", "--replay", "pipe"]).spawn().expect("it starts");
    thread::sleep(Duration::from_millis(300));
    assert_eq!(top.try_wait().expect("asked"), None, "it waits");
    let pid = rustix::process::Pid::from_child(&top);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("sent");
    let end = Instant::now() + Duration::from_secs(10);
    while top.try_wait().expect("asked").is_none() {
        if Instant::now() > end {
            top.kill().expect("killed");
            panic!("it goes on after SIGTERM");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_screen_ends_with_its_terminal() {
    require!(program "tmux", "sh");
    let lab = Lab::new();
    let terminal = Terminal::open(&lab, ("80", "24"));
    let number = lab.path("number");
    // It has its own process group, as a job of a shell, and does not learn of the end by a signal.
    let line = format!("trap '' HUP; echo $$ > {}; exec", number.display());
    terminal.tmux(&["send-keys", &line, " ", env!("CARGO_BIN_EXE_iotax"), " top", "Enter"]);
    terminal.until(|screen| screen.contains("NETWORK"));
    let process = Path::new("/proc").join(std::fs::read_to_string(&number).expect("written").trim());
    drop(terminal);
    let end = Instant::now() + Duration::from_mins(1);
    while process.exists() {
        assert!(Instant::now() < end, "it goes on without a terminal");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Tests that the included BPF object matches its source; requires clang.
#[test]
fn the_bpf_object_is_what_its_source_compiles_to() {
    require!(program "clang", "sh");
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let version = Command::new(program("clang")).arg("--version").output().expect("clang runs");
    if !text(&version.stdout).contains("version 14.") {
        iotax_testkit::skip!("the object was compiled by clang 14, and another clang writes other bytes");
    }
    let lab = Lab::new();
    let built = lab.path("latency.bpf.o");
    let compiled = Command::new(top.join("scripts/bpf")).arg(&built).output().expect("sh runs");
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    let read = |path: &Path| std::fs::read(path).expect("an object");
    assert!(
        read(&built) == read(&top.join("crates/top/bpf/latency.bpf.o")),
        "run scripts/bpf and commit crates/top/bpf/latency.bpf.o"
    );
}

mod guests {
    use super::*;

    /// Tests a device with 5 ms per I/O, by a timer, and a device-mapper device on it. Half a bucket is 3%; a timer may be late.
    #[test]
    fn a_delay_of_a_device_is_its_mean_and_its_p99_and_layers_add_up() {
        const TRUTH: f64 = 5.0 * MS;
        let Some(mut guest) = LabGuest::boot_in_exact_time() else { return };
        guest.sh("insmod /lab/null_blk.ko nr_devices=0");
        guest.sh(
            "cd /sys/kernel/config/nullb && mkdir slow && cd slow && echo 64 > size && echo 2 > irqmode && \
             echo 5000000 > completion_nsec && echo 1 > power",
        );
        guest.map("above", &["0 131072 linear /dev/slow 0".to_owned()]);
        guest.sh("dd if=/dev/mapper/above of=/dev/null bs=4k iflag=direct count=1 2>/dev/null");
        guest.sh("(while dd if=/dev/mapper/above of=/dev/null bs=4k iflag=direct count=2000 2>/dev/null; do :; done) &");
        let printed = guest.sh("iotax top --once --json - --interval 500ms");
        let frame: Value =
            serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
        assert_eq!(frame["percentiles"]["source"], "bpf", "{frame}");
        let layer = |name: &str| {
            let layers = frame["layers"].as_array().expect("layers");
            layers
                .iter()
                .find(|layer| layer["name"] == name)
                .unwrap_or_else(|| panic!("{name}: {frame}"))
                .clone()
        };
        let (slow, above) = (layer("slow"), layer("dm-0"));
        let figure =
            |layer: &Value, key: &str| layer[key].as_f64().unwrap_or_else(|| panic!("{key}: {layer}"));
        for key in ["read_latency_ns", "read_p99_ns", "device_latency_ns"] {
            let ns = figure(&slow, key);
            assert!((0.97 * TRUTH..1.1 * TRUTH).contains(&ns), "{key}: {ns} ns instead of {TRUTH}: {slow}");
        }
        assert!(above.get("read_p99_ns").is_none(), "it has no requests: {above}");
        assert_eq!(
            (&above["title"], &above["on"][0], &above["depth"]),
            (&"above".into(), &"slow".into(), &1.into())
        );
        for key in ["read_iops", "read_bytes_per_s", "queue", "busy"] {
            let (below, above) = (figure(&slow, key), figure(&above, key));
            assert!((above / below - 1.0).abs() < 0.02, "{key}: {above} above, {below} below");
        }
        let busy = figure(&slow, "busy");
        assert!(busy > 0.9, "one I/O is always in flight: {slow}");
    }
}
