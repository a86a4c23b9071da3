//! Tests of killed runs: no result is lost, and nothing is left behind.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use iotax_model::RunState;
use iotax_store::Store;
use iotax_testkit::{require, thorough};

use crate::lab::{Lab, start_until, text};

/// Starts a small ladder and waits until it says `moment` on stderr.
fn start_ladder(lab: &Lab, moment: &str) -> Child {
    let mut command = lab.iotax();
    command.arg("ladder").arg(lab.work()).args(["--rungs", "host-file,vm-qcow2-snapshot"]);
    command.args(["--workloads", "randread-4k-qd32,randwrite-4k-qd32", "--size", "64m", "--repeat", "3"]);
    command.args(["--runtime", "400ms", "--ramp-time", "100ms", "--seed", "5", "--yes"]);
    start_until(&mut command, moment)
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).expect("signal sent");
}

/// Returns the number of cells measured so far, from the store.
fn measured(lab: &Lab) -> u64 {
    lab.json(&["list", "--json"])[0]["measured"].as_u64().expect("a count")
}

/// Asserts that the store is intact and the run can be completed.
fn resume(lab: &Lab, moment: &str) {
    let resume = lab.run(&["resume", "1", "--yes", "--json", "out.json"]);
    assert!(resume.status.success(), "{moment}: {}", text(&resume.stderr));
    assert_eq!(measured(lab), 12, "{moment}");
    lab.assert_nothing_left();
}

#[test]
fn killed_at_any_moment_it_can_be_cleaned() {
    require!(guests);
    for moment in ["measuring the engine", "creating files", "booting guests", "filled vm-qcow2", "cell 2/"] {
        let lab = Lab::new();
        let child = start_ladder(&lab, moment);
        lab.kill_and_clean(child, moment);
    }
}

#[test]
fn killed_at_any_moment_it_can_be_resumed() {
    require!(guests);
    let moments = [("cell 8/", 6), ("filled host-file", 0)];
    for (moment, at_least) in moments.into_iter().take(if thorough() { 2 } else { 1 }) {
        let lab = Lab::new();
        let child = start_ladder(&lab, moment);
        lab.kill_and_clean(child, moment);
        assert!(measured(&lab) >= at_least, "what was measured is kept");
        resume(&lab, moment);
    }
    for _ in 0..if thorough() { 2 } else { 1 } {
        let nanos = std::time::UNIX_EPOCH.elapsed().expect("after 1970").subsec_nanos();
        let delay = Duration::from_micros((nanos % 14_000_000).into());
        eprintln!("killed {delay:?} after the start");
        let lab = Lab::new();
        let child = start_ladder(&lab, "measuring the engine");
        std::thread::sleep(delay);
        lab.kill_and_clean(child, &format!("{delay:?}"));
        resume(&lab, &format!("{delay:?}"));
    }
}

/// Delays a program by a second if its arguments match a shell pattern. Creates the file `begun` before and `over` after the delay.
fn slow_down(lab: &Lab, program: &str, pattern: &str) -> Command {
    let real = Command::new("which").arg(program).output().expect("which starts").stdout;
    let dir = lab.path("").display().to_string();
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in {pattern}) : > {dir}begun; sleep 1; : > {dir}over ;; esac\nexec {} \"$@\"\n",
        text(&real).trim()
    );
    lab.iotax_with(program, &script)
}

#[test]
fn what_outlives_a_killed_run_has_ended_before_anything_is_undone() {
    require!(guests);
    // The run waits for tools. It ends guests, and shells that are about to become one, and waits for their other child processes.
    for (program, pattern, is_waited_for) in
        [("qemu-img", "create*", true), ("qemu-system-x86_64", "*-kernel*", false)]
    {
        let lab = Lab::new();
        let plan = lab.plan(
            "repeat = 1\n[defaults]\nsize = '8m'\nruntime = '100ms'\n[[workload]]\nrw = 'randread'\n\
             [[target]]\nname = 't'\nfile = { dir = 'WORK', format = 'qcow2' }\nguest = {}\n",
        );
        let mut iotax = slow_down(&lab, program, pattern);
        iotax.arg("run").arg(plan).args(["--yes", "--accel", "tcg"]);
        let mut child = iotax.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("iotax starts");
        while !lab.path("begun").exists() {
            assert_eq!(child.try_wait().expect("waited for"), None, "{program} was never started");
            std::thread::sleep(Duration::from_millis(5));
        }
        lab.kill_and_clean(child, program);
        assert_eq!(lab.path("over").exists(), is_waited_for, "{program}");
    }
}

#[test]
fn interrupted_it_undoes_everything_and_keeps_what_was_measured() {
    require!(guests);
    for moment in ["booting guests", "cell 4/"] {
        let lab = Lab::new();
        let mut child = start_ladder(&lab, moment);
        signal(&child, rustix::process::Signal::INT);
        assert_eq!(child.wait().expect("it ended").code(), Some(130), "{moment}");
        lab.assert_nothing_left();
        assert_eq!(lab.json(&["list", "--json"])[0]["state"], "interrupted");
        if moment == "cell 4/" {
            assert!(measured(&lab) >= 3);
        }
    }
}

#[test]
fn a_guest_that_dies_costs_its_measurement_and_not_the_run() {
    require!(guests);
    let lab = Lab::new();
    let mut child = start_ladder(&lab, "cell 3/");
    for process in std::fs::read_dir("/proc").expect("proc").flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = text(&line);
        if line.contains("qemu-system") && line.contains(&lab.work().display().to_string()) {
            let pid = process.file_name().to_string_lossy().parse().expect("a pid");
            let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
        }
    }
    assert_eq!(child.wait().expect("it ended").code(), Some(3));
    assert_eq!(measured(&lab), 11, "one of twelve is missing");
    lab.assert_nothing_left();
    let resume = lab.run(&["resume", "1", "--yes"]);
    assert!(resume.status.success(), "{}", text(&resume.stderr));
    assert_eq!(measured(&lab), 12);
}

#[test]
fn a_run_that_was_killed_after_its_last_measurement_is_complete_once_it_is_resumed() {
    let lab = Lab::new();
    let target = lab.work().join("new.dat");
    let bench =
        ["bench", target.to_str().expect("UTF-8"), "--size", "1m", "--runtime", "100ms", "--ramp-time", "0s"];
    assert!(lab.run(&bench).status.success());
    let mut store = Store::open(&lab.path("home/.local/share/iotax/iotax.db")).expect("a store");
    store.set_state(1, RunState::Running).expect("as the kill left it");
    drop(store);
    assert!(lab.run(&["resume", "1", "--yes"]).status.success());
    assert_eq!(lab.json(&["list", "--json"])[0]["state"], "complete");
}
