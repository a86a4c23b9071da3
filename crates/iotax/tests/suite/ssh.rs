//! Tests of targets on remote machines, with a real sshd.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Child;
use std::time::{Duration, Instant};

use iotax_model::units::Bytes;
use iotax_testkit::{postgres, require};
use serde_json::Value;

use crate::lab::{spawn_until, text};
use crate::lab_guest::{Extras, LabGuest};
use crate::sshd::{self, PORT, Sshd};

const SHORT: &[&str] = &["--runtime", "300ms", "--ramp-time", "0s", "--size", "8m"];

fn bench(sshd: &Sshd, target: &str, more: &[&str]) -> std::process::Output {
    sshd.run(&[&["bench", target], SHORT, more].concat())
}

fn measured(sshd: &Sshd) -> u64 {
    let listed = sshd.run(&["list", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    listed[0]["measured"].as_u64().expect("a count")
}

#[test]
fn a_new_file_and_an_existing_one_are_measured_and_nothing_is_left() {
    let Some(sshd) = Sshd::start("") else { return };
    let new = bench(&sshd, &sshd.url("work/new"), &["--rw", "randwrite", "--json", "-"]);
    assert!(new.status.success(), "{}", text(&new.stderr));
    sshd.assert_nothing_left();
    let run: Value = serde_json::from_slice(&new.stdout).expect("JSON");
    crate::lab::assert_valid(&run);
    let layers = run["targets"][0]["layers"].as_array().expect("layers");
    let kinds: Vec<&str> = layers.iter().map(|layer| layer["kind"].as_str().expect("a word")).collect();
    assert!(kinds.ends_with(&["filesystem", "file", "machine"]), "{kinds:?}");
    let machine = layers.last().expect("one")["detail"].as_str().expect("text");
    assert!(machine.contains("CPUs") && machine.contains("over ssh, round trip"), "{machine}");
    assert_eq!(layers.last().expect("one")["name"], "root@127.0.0.1");

    let existing = sshd.lab.work().join("existing");
    fs::write(&existing, vec![7; 1 << 20]).expect("written");
    let before = fs::metadata(&existing).expect("there");
    let url = sshd.url("work/existing");
    let read = sshd.run(&["bench", &url, "--runtime", "300ms", "--ramp-time", "0s"]);
    assert!(read.status.success(), "{}", text(&read.stderr));
    let refused = sshd.run(&["bench", &url, "--rw", "write", "--runtime", "300ms"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("only read"), "{}", text(&refused.stderr));
    let after = fs::metadata(&existing).expect("there");
    assert_eq!((before.mtime_nsec(), before.ino()), (after.mtime_nsec(), after.ino()));
    fs::remove_file(&existing).expect("removed");

    let kept = bench(&sshd, &sshd.url("work/kept"), &["--keep"]);
    assert!(kept.status.success(), "{}", text(&kept.stderr));
    assert_eq!(fs::metadata(sshd.lab.work().join("kept")).expect("kept").len(), 8 << 20);
    fs::remove_file(sshd.lab.work().join("kept")).expect("removed");
    sshd.assert_nothing_left();
}

#[test]
fn the_program_is_copied_once_if_it_may_stay() {
    let Some(sshd) = Sshd::start("") else { return };
    let log = sshd.lab.path("ssh/log");
    let sent = || {
        let mut command = sshd.iotax();
        command.env("SSH_OPTIONS", format!("-v -E {}", log.display()));
        let url = sshd.url("work/new");
        let output =
            command.args(["bench", &url, "--leave-agent"]).args(SHORT).output().expect("iotax starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let said = fs::read_to_string(&log).expect("a log");
        fs::remove_file(&log).expect("removed");
        let words = said.split("Transferred: sent ").nth(1).expect("what was sent");
        words.split(',').next().expect("a number").parse::<u64>().expect("a number")
    };
    let length = fs::metadata(env!("CARGO_BIN_EXE_iotax")).expect("there").len();
    assert!(sent() > length / 2, "the program was not copied");
    assert!(sent() < 100_000, "the program was copied again");
    let left: Vec<_> = fs::read_dir(sshd.lab.path("cache/iotax")).expect("left").flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0].metadata().expect("there").mode() & 0o777, 0o700);
    fs::remove_dir_all(sshd.lab.path("cache/iotax")).expect("removed");
    sshd.assert_nothing_left();
}

/// Starts a plan with a local and a remote target, and waits for the first measurement of the latter.
pub(crate) fn start_plan(sshd: &Sshd) -> Child {
    let plan = sshd.lab.plan(&format!(
        "repeat = 2\nseed = 3\n[[target]]\nname = 'here'\npath = 'WORK/here'\n[[target]]\nname = 'there'\n\
         path = 'ssh://root@127.0.0.1:{PORT}WORK/there'\n[[workload]]\nname = 'w'\nrw = 'randread'\nsize = '8m'\n\
         runtime = '2s'\nramp_time = '0s'\n"
    ));
    let is_time = |said: &str| said.contains("cell 1/") && said.ends_with("there  w\n");
    let (child, _, rest) = spawn_until(sshd.iotax().arg("run").arg(plan).arg("--yes"), is_time);
    std::thread::spawn(move || rest.for_each(drop));
    std::thread::sleep(Duration::from_millis(500));
    child
}

#[test]
fn a_lost_connection_costs_its_measurement_and_not_the_run() {
    let Some(sshd) = Sshd::start("") else { return };
    let mut child = start_plan(&sshd);
    sshd.cut_connections();
    assert_eq!(child.wait().expect("ended").code(), Some(3));
    assert_eq!(measured(&sshd), 3, "one of four is missing");
    sshd.assert_nothing_left();
    let resumed = sshd.run(&["resume", "1", "--yes"]);
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    assert_eq!(measured(&sshd), 4);
    sshd.assert_nothing_left();
}

#[test]
fn interrupted_it_leaves_nothing_on_either_side() {
    let Some(sshd) = Sshd::start("") else { return };
    let mut child = start_plan(&sshd);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signal sent");
    assert_eq!(child.wait().expect("ended").code(), Some(130));
    sshd.assert_nothing_left();
}

#[test]
fn killed_on_one_side_or_both_it_can_be_cleaned() {
    let Some(sshd) = Sshd::start("") else { return };
    for both in [false, true] {
        let mut child = start_plan(&sshd);
        if both {
            // Nobody there is left to remove anything, and the runner must not see it.
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
            sshd.kill_sessions();
        }
        child.kill().expect("killed");
        child.wait().expect("ended");
        if both {
            assert!(sshd.lab.work().join("there").exists(), "who removed it?");
        } else {
            await_end(|| !sshd.lab.work().join("there").exists());
        }
        let clean = sshd.run(&["clean"]);
        assert!(clean.status.success(), "{}", text(&clean.stdout));
        assert!(text(&clean.stdout).contains("undone: agent iotax-"), "{}", text(&clean.stdout));
        sshd.assert_nothing_left();
    }
}

/// Waits until the processes of a killed runner have ended by themselves.
pub(crate) fn await_end(ended: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !ended() {
        assert!(Instant::now() < deadline, "the agent does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_stands_in_the_way_is_quoted_with_a_remedy() {
    let Some(sshd) = Sshd::start("") else { return };
    let here = format!("ssh://root@127.0.0.1:{PORT}");
    let tools = sshd.lab.path("tools");
    fs::create_dir(&tools).expect("made");
    let tool = |name: &str, text: &str| {
        fs::write(tools.join(name), format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(tools.join(name), fs::Permissions::from_mode(0o755)).expect("a program");
    };
    let with_tools = format!("command=\"PATH={}:$PATH exec sh\"", tools.display());
    let refused = |target: &str, options: &str, more: &[&str], words: &[&str]| {
        let output = sshd
            .iotax()
            .args([&["bench", target], SHORT, more].concat())
            .env("SSH_OPTIONS", options)
            .output()
            .expect("iotax starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{said}");
        words.iter().for_each(|word| assert!(said.contains(word), "{word:?} is not in: {said}"));
        sshd.assert_nothing_left();
    };
    refused("ssh://no-such-host.invalid/x", "", &[], &["Could not resolve hostname", "check the name"]);
    refused("ssh://root@127.0.0.1:1/x", "", &[], &["Connection refused", "does sshd run there"]);
    let url = sshd.url("work/new");
    refused(&url, "-o UserKnownHostsFile=none", &[], &["Host key verification failed", "connect to it once"]);
    refused(&url, "-o PubkeyAuthentication=no", &[], &["Permission denied (publickey", "give ssh a key"]);

    sshd.let_in("command=\"echo This account is currently not available.\"");
    refused(&url, "", &[], &["This account is currently not available", "needs a POSIX shell"]);
    sshd.let_in(&with_tools);
    tool("uname", "echo Linux aarch64");
    refused(&url, "", &[], &["it is \"Linux aarch64\""]);
    fs::remove_file(tools.join("uname")).expect("removed");
    tool("sudo", "echo sudo: a password is required >&2; exit 1");
    refused(&url, "", &["--sudo"], &["sudo: a password is required", "run sudo without a password"]);
    // One that asks nothing is taken.
    tool("sudo", "shift; exec \"$@\"");
    let output = bench(&sshd, &url, &["--sudo"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    sshd.assert_nothing_left();
    sshd.let_in("");

    refused(&format!("{here}/no/such/x"), "", &[], &["/no/such: no such directory"]);
    refused(&format!("{here}/proc/x"), "", &[], &["/proc: ", "are needed and 0"]);
    refused(&format!("{here}/dev/null"), "", &[], &["neither a regular file nor a block device"]);
}

#[test]
fn the_program_finds_a_place_where_it_can_be_executed() {
    let noexec = "mount -t tmpfs -o noexec none";
    let Some(sshd) = Sshd::start(&format!("{noexec} LAB/cache && mount -t tmpfs -o ro none /dev/shm")) else {
        return;
    };
    let output = bench(&sshd, &sshd.url("work/new"), &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    sshd.assert_nothing_left();
    drop(sshd);

    let everywhere = ["LAB/cache", "LAB/tmp", "/var/tmp", "/dev/shm"];
    let mounts: Vec<String> = everywhere.iter().map(|dir| format!("{noexec} {dir}")).collect();
    let Some(sshd) = Sshd::start(&mounts.join(" && ")) else { return };
    let output = bench(&sshd, &sshd.url("work/new"), &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("no place for the agent's program") && said.contains("ermission denied"), "{said}");
    assert!(said.contains("mounted noexec"), "{said}");
    sshd.assert_nothing_left();
}

mod guests {
    use super::*;

    /// Tests a guest over ssh, which works with any hypervisor.
    #[test]
    fn the_disk_of_a_guest_is_measured_over_ssh() {
        require!(program "ssh", "ssh-keygen");
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
        let extras = Extras {
            programs: &["sshd"],
            modules: &["virtio_net"],
            disks: &[Bytes(64 << 20)],
            ssh: Some(port),
            ..Extras::default()
        };
        let Some(mut guest) = LabGuest::boot_with(&extras) else { return };
        sshd::make_client(&guest.lab, port);
        guest.sh("mkdir -p /etc /root/.ssh /run/sshd /tmp && ip link set lo up && ip link set eth0 up");
        guest.sh("ip addr add 10.0.2.15/24 dev eth0");
        let users = "root:x:0:0::/root:/bin/sh\nsshd:x:100:100::/run/sshd:/bin/false\n";
        let key = |name: &str| fs::read_to_string(guest.lab.path("ssh").join(name)).expect("made");
        for (path, content) in [
            ("/etc/passwd", users.to_owned()),
            ("/etc/host_key", key("host")),
            ("/root/.ssh/authorized_keys", key("user.pub")),
            ("/etc/sshd_config", sshd::sshd_config("/etc/host_key")),
        ] {
            guest.sh(&format!("printf '{}' > {path} && chmod 600 {path}", content.replace('\n', "\\n")));
        }
        guest.sh(
            "/lab/sshd -f /etc/sshd_config > /tmp/sshd.log 2>&1 || cat /tmp/sshd.log; [ ! -s /tmp/sshd.log ]",
        );

        let url = format!("ssh://root@127.0.0.1:{port}/dev/vda");
        let before = guest.sh("ls /tmp");
        let bench = sshd::client(&guest.lab)
            .args(["bench", &url, "--runtime", "1s", "--ramp-time", "0s", "--json", "-"])
            .output()
            .expect("iotax starts");
        assert!(bench.status.success(), "{}", text(&bench.stderr));
        let run: Value = serde_json::from_slice(&bench.stdout).expect("JSON");
        let layers = run["targets"][0]["layers"].as_array().expect("layers");
        let names: Vec<&str> = layers.iter().map(|layer| layer["name"].as_str().expect("a name")).collect();
        assert_eq!(names, ["vda", "root@127.0.0.1"], "{layers:?}");
        let machine = layers[1]["detail"].as_str().expect("text");
        assert!(machine.contains("1 CPU") && machine.contains("a guest of "), "{machine}");
        eprintln!("{machine}\n{}", run["targets"][0]);
        assert_eq!(guest.sh("ls /tmp"), before, "left in the guest");
        guest.lab.assert_nothing_left();
    }
}

/// The arguments of a measurement by pgbench.
const PGBENCH: &[&str] = &["--test", "pgbench", "--direct=false", "--runtime", "1s", "--ramp-time", "500ms"];

#[test]
fn a_database_is_that_of_the_other_machine() {
    require!(file postgres::PROGRAM);
    let Some(sshd) = Sshd::start("") else { return };
    let url = sshd.url("work/new");
    let output = sshd.run(&[&["bench", &url], PGBENCH, &["--json", "-"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(run["measurements"][0]["meta"]["ios"].as_u64() > Some(0), "{run:#}");
    sshd.assert_nothing_left();
}

#[test]
fn a_database_that_the_other_machine_lacks_is_refused_before_the_run() {
    require!(file postgres::PROGRAM);
    let Some(sshd) = Sshd::start("mount -t tmpfs none /usr/lib/postgresql") else { return };
    let output = sshd.run(&[&["bench", &sshd.url("work/new")], PGBENCH].concat());
    let said = text(&output.stderr);
    assert!(said.contains("pgbench was not found on that machine"), "{said}");
    assert!(said.contains("apt-get install postgresql") && !output.status.success(), "{said}");
    sshd.assert_nothing_left();
}
