//! Tests of Ctrl-C, SIGTERM and a lost terminal at any time of a run: it ends soon with exit code 130 and leaves nothing.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{Lab, text};

/// A plan with external tools, fills, boots and snapshots.
const GUESTS: &str = r#"
[[target]]
name = "allocated"
file = { dir = "WORK", format = "qcow2", preallocation = "full", snapshot = "external" }
guest = { memory = "384m", cache = "writeback", aio = "threads" }
[[target]]
name = "within"
file = { dir = "WORK" }
guest = { memory = "384m", cache = "writeback", aio = "threads", filesystem = "ext4" }
[[workload]]
rw = "randwrite"
"#;

/// The time in which everything must be undone, on a busy machine with emulated guests.
const SOON: Duration = Duration::from_secs(30);
/// Time after which the guests have been measured a few times.
const LIFE: Duration = Duration::from_secs(40);

/// Generates pseudo-random numbers from 0 to 1 from a seed, by Knuth's linear congruential generator.
fn share(seed: &mut u64) -> f64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 40) as f64 / (1_u64 << 24) as f64
}

fn ended(child: &mut Child, within: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + within;
    loop {
        let status = child.try_wait().expect("a child");
        if status.is_some() || Instant::now() > end {
            return status;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Interrupts a run after a delay. Asserts that it ends soon and leaves nothing.
fn interrupt(lab: &Lab, after: Duration, signal: Signal) {
    let mut command = lab.iotax();
    command.args(["run", "plan.toml", "--yes"]).stdin(Stdio::null()).stdout(Stdio::null());
    let log = lab.path("stderr");
    command.stderr(std::fs::File::create(&log).expect("a file"));
    let mut child = command.spawn().expect("iotax starts");
    thread::sleep(after);
    let pid = Pid::from_child(&child);
    kill_process(pid, signal).expect("it runs");
    let began = Instant::now();
    let status = ended(&mut child, SOON);
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    let Some(status) = status else {
        let _ = child.kill();
        let _ = child.wait();
        panic!("{signal:?} after {after:?}: it still runs {SOON:?} later: {said}");
    };
    println!("{signal:?} after {after:?}: {status} in {:?}", began.elapsed());
    // Before it handles signals it has changed nothing, and the shell reports 130 or similar.
    let at_once = after < Duration::from_millis(500) && status.signal() == Some(signal.as_raw());
    assert!(status.code() == Some(130) || at_once, "{signal:?} after {after:?}: {status}: {said}");
    lab.assert_nothing_left();
}

#[test]
fn q_ends_a_run_on_a_terminal_which_gets_its_mode_back() {
    let lab = Lab::new();
    let iotax = lab.iotax();
    let program = iotax.get_program().to_string_lossy();
    let run = format!(
        "{program} bench work/new --size 1m --runtime 60s --ramp-time 0s; code=$?; stty -a; exit $code"
    );
    let mut command = Command::new("script");
    command.args(["--quiet", "--flush", "--return", "--command", &run, "typed"]);
    command.current_dir(iotax.get_current_dir().expect("the lab's"));
    command.env("HOME", lab.path("home")).env("TERM", "xterm");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script runs");
    let mut keys = child.stdin.take().expect("a pipe");
    let deadline = Instant::now() + SOON;
    while !lab.work().join("new").exists() {
        assert!(Instant::now() < deadline, "it is never measured");
        thread::sleep(Duration::from_millis(50));
    }
    thread::sleep(Duration::from_secs(2));
    // Another key changes nothing.
    keys.write_all(b"x").expect("typed");
    thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().expect("a child").is_none(), "it ended at another key");
    keys.write_all(b"q").expect("typed");
    let status = ended(&mut child, SOON);
    let _ = child.kill();
    let shown = text(&child.wait_with_output().expect("read").stdout);
    assert_eq!(status.and_then(|status| status.code()), Some(130), "{shown}");
    assert!(shown.contains("q ends the run") && shown.contains("Interrupted"), "{shown}");
    let modes: Vec<&str> = shown.split([' ', ';', '\r', '\n']).collect();
    assert!(modes.contains(&"icanon") && modes.contains(&"echo"), "{shown}");
    lab.assert_nothing_left();
}

/// Interrupts a measurement whose results are not read, as soon as `is_time` returns true.
fn interrupt_unread(lab: &Lab, runtime: &str, results: &str, is_time: impl Fn() -> bool) {
    let mut command = lab.iotax();
    command.args(["bench", "work/new", "--size", "1m", "--ramp-time", "0s", "--runtime", runtime]);
    command.args(results.split(' ')).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("iotax starts");
    let deadline = Instant::now() + SOON;
    while !is_time() {
        assert!(Instant::now() < deadline, "{results}: it is never time");
        thread::sleep(Duration::from_millis(50));
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let status = ended(&mut child, Duration::from_secs(10));
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(status.map(|status| status.code()), Some(Some(130)), "{results}: {status:?}");
    lab.assert_nothing_left();
}

#[test]
fn results_that_nobody_reads_hold_up_no_interrupt() {
    // Stdout is a pipe that such a page does not fit in.
    for results in ["--json fifo", "--html -"] {
        let lab = Lab::new();
        let made = Command::new("mkfifo").arg(lab.path("fifo")).status().expect("mkfifo runs");
        assert!(made.success());
        interrupt_unread(&lab, "60s", results, || lab.work().join("new").exists());
        let is_measured = || text(&lab.run(&["list"]).stdout).contains("1/1");
        interrupt_unread(&lab, "200ms", results, is_measured);
    }
}

#[test]
fn what_was_made_is_undone_before_results_are_written() {
    let lab = Lab::new();
    assert!(Command::new("mkfifo").arg(lab.path("fifo")).status().expect("mkfifo runs").success());
    let mut command = lab.iotax();
    command.args(["bench", "work/new", "--size=1m", "--ramp-time=0s", "--runtime=200ms", "--json=fifo"]);
    let mut child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("iotax starts");
    let deadline = Instant::now() + SOON;
    while !text(&lab.run(&["list"]).stdout).contains("1/1") {
        assert!(Instant::now() < deadline, "it is never measured");
        thread::sleep(Duration::from_millis(50));
    }
    thread::sleep(Duration::from_secs(2));
    assert!(child.try_wait().expect("a child").is_none(), "it waits for a reader");
    let left: Vec<_> = std::fs::read_dir(lab.work()).expect("listed").collect();
    let read = Command::new("cat").arg(lab.path("fifo")).output().expect("cat runs").stdout;
    assert!(text(&read).starts_with('{'), "{}", text(&read));
    assert!(child.wait().expect("it ends").success());
    assert!(left.is_empty(), "while it waited: {left:?}");
    lab.assert_nothing_left();
}

mod guests {
    use super::*;

    #[test]
    fn a_run_can_be_interrupted_at_any_moment() {
        iotax_testkit::require!(guests);
        iotax_testkit::require!(program "mkfs.ext4");
        let lab = Lab::new();
        lab.short_plan("name = \"interrupted\"\nrepeat = 1000", "32m", GUESTS);
        let times = if iotax_testkit::thorough() { 100 } else { 6 };
        let mut seed = 13;
        for turn in 0..times {
            // As many in the first seconds, when the most different things are done, as in all the rest.
            let whole = if turn % 2 == 0 { LIFE / 5 } else { LIFE };
            let after = whole.mul_f64(share(&mut seed));
            interrupt(&lab, after, [Signal::INT, Signal::TERM, Signal::HUP][turn % 3]);
        }
    }
}
