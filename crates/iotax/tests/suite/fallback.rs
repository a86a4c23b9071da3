//! Tests that without io_uring, as in many containers, another ioengine is used and reported.

use std::process::{Command, Output};

use iotax_testkit::skip;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use serde_json::Value;

use crate::lab::{Lab, text};

/// Runs iotax with a seccomp filter that makes these system calls fail with an errno. A filter applies to a thread and its child processes.
fn without(calls: &[i64], errno: i32, lab: &Lab, arguments: &[&str]) -> Output {
    let filter = SeccompFilter::new(
        calls.iter().map(|call| (*call, vec![])).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.unsigned_abs()),
        std::env::consts::ARCH.try_into().expect("a machine that seccomp knows"),
    )
    .expect("a filter");
    let program = BpfProgram::try_from(filter).expect("a program");
    std::thread::scope(|scope| {
        let filtered = scope.spawn(|| {
            apply_filter(&program).expect("filtered");
            lab.run(arguments)
        });
        filtered.join().expect("ran")
    })
}

fn bench<'a>(path: &'a str, ioengine: &'a str, iodepth: &'a str) -> Vec<&'a str> {
    let job = ["--rw=randread", "--size=1m", "--direct=0", "--runtime=200ms", "--ramp-time=0s"];
    let mut arguments = vec!["bench", path, "--ioengine", ioengine, "--iodepth", iodepth, "--json", "-"];
    arguments.extend(job);
    arguments
}

#[test]
fn without_io_uring_another_engine_does_the_work_and_a_note_says_so() {
    for (errno, words) in [(libc::EPERM, "not permitted"), (libc::ENOSYS, "not implemented")] {
        for (asked, iodepth, taken) in [("auto", "1", "psync"), ("io_uring", "4", "libaio")] {
            let lab = Lab::new();
            let path = lab.path("file");
            let arguments = bench(path.to_str().expect("utf-8"), asked, iodepth);
            let output = without(&[libc::SYS_io_uring_setup], errno, &lab, &arguments);
            assert!(output.status.success(), "{}", text(&output.stderr));
            let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let measurement = &document["measurements"][0];
            assert_eq!(document["workloads"][0]["ioengine"], asked);
            assert_eq!(measurement["ioengine"], taken);
            assert!(measurement["read"]["ios"].as_u64().is_some_and(|ios| ios > 0));
            assert_eq!(measurement["errors"], Value::Array(vec![]));
            let notes = measurement["notes"].to_string();
            assert!(notes.contains(words) && notes.contains(&format!("{taken} did the I/O")), "{notes}");
        }
    }
}

#[test]
fn what_only_io_uring_can_do_is_refused_without_it() {
    let lab = Lab::new();
    let path = lab.path("file");
    let path = path.to_str().expect("utf-8");
    let mut polled = bench(path, "auto", "4");
    polled.push("--sqthread_poll=1");
    let both = [libc::SYS_io_uring_setup, libc::SYS_io_setup];
    for (calls, arguments, words) in
        [(&both[..1], polled, "sqthread_poll need it"), (&both, bench(path, "auto", "4"), "use iodepth = 1")]
    {
        let output = without(calls, libc::EPERM, &lab, &arguments);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{said}");
    }
}

#[test]
fn with_io_uring_the_engine_that_auto_took_is_in_the_json() {
    let lab = Lab::new();
    let path = lab.path("file");
    let document = lab.json(&bench(path.to_str().expect("utf-8"), "auto", "4"));
    let measurement = &document["measurements"][0];
    if measurement["ioengine"] != "io_uring" {
        skip!("{}", measurement["notes"]);
    }
    assert_eq!(
        (&document["workloads"][0]["ioengine"], &measurement["notes"]),
        (&"auto".into(), &Value::Array(vec![]))
    );
}

#[test]
fn a_sandbox_that_forbids_pauses_and_files_in_memory_ends_nothing() {
    let lab = Lab::new();
    let work = lab.work();
    let calls = [libc::SYS_clock_nanosleep, libc::SYS_nanosleep, libc::SYS_memfd_create];
    let event = "event = echo no such path >&2; exit 3";
    let keys = ["--size=1m", "--direct=0", "--runtime=1s", "--ramp-time=0s", "--rate-iops=200", "--yes"];
    let watch = ["watch", work.to_str().expect("utf-8"), "--event", event, "--json", "-"];
    let output = without(&calls, libc::EPERM, &lab, &[&watch[..], &keys].concat());
    let said = text(&output.stderr);
    // The event failed as elsewhere; only its message is unknown.
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let episode = &document["watch"][0];
    assert_eq!(episode["events"][0]["failure"], "exit status: 3", "{episode}");
    assert_eq!((&episode["failed"], &episode["lost"]), (&0.into(), &0.into()), "{episode}");
    assert!(document["measurements"][0]["read"]["ios"].as_u64() >= Some(50), "{document}");
    lab.assert_nothing_left();
}

#[test]
fn a_small_stack_ends_nothing() {
    let lab = Lab::new();
    let iotax = lab.iotax();
    let new = lab.work().join("new").display().to_string();
    for arguments in [
        &["--help"][..],
        &["ladder", "--help"],
        &["bench", &new, "--size=1m", "--runtime=200ms", "--ramp-time=0s", "--yes"],
        &["report", "1"],
        &["top", "--once"],
        &["doctor", "--json"],
    ] {
        let mut shell = Command::new("sh");
        // Both limits, so that none can be raised again without rights.
        shell
            .current_dir(lab.path(""))
            .args(["-c", "ulimit -s 64; exec \"$0\" \"$@\""])
            .arg(iotax.get_program());
        for (name, value) in iotax.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        let output = shell.args(arguments).output().expect("a shell");
        let said = text(&output.stderr);
        assert!(
            output.status.code().is_some_and(|code| code <= 1),
            "{arguments:?}: {}: {said}",
            output.status
        );
    }
    lab.assert_nothing_left();
}
