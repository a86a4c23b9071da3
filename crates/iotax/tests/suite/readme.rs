//! Runs each command of README.md as documented, with paths of this machine and additional options that make it short.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Stdio};

use iotax_testkit::require;

use crate::lab::{start_until, text};
use crate::sshd::{PORT, Sshd};

const README: &str = include_str!("../../../../README.md");

/// An example result of fio.
const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../interop/tests/data/import/fio-3.33.json");

/// The commands in an order that satisfies their dependencies, with the options that make them short.
const COMMANDS: [(&str, &str); 26] = [
    ("iotax", ""),
    ("iotax COMMAND -h", ""),
    ("iotax run PLAN.toml", "--repeat 3 --runtime 0.2 --ramp-time 0 --yes"),
    (
        "iotax ladder /srv/images",
        "--rungs host-file,vm-raw --workloads seqread-1m --size 16m --repeat 2 --runtime 0.3 --yes",
    ),
    ("iotax ladder DIR", "--rungs host-file --size 16m --time 10s --yes"),
    ("iotax bench FILE-OR-DEVICE", "--size 16m --runtime 0.3"),
    ("iotax bench ssh://user@host/path", "--size 16m --runtime 0.3"),
    ("iotax ask DIR --slo 'p99 <= 0.5ms'", "--size 16m --runtime 0.1 --ramp-time 0 --time 5s --yes"),
    ("iotax watch DIR --event 'sync = sync'", "--size 16m --runtime 3 --ramp-time 0 --yes"),
    ("iotax flush DIR", "--size 16m --runtime 0.2 --ramp-time 0 --repeat 2 --yes"),
    ("iotax audit DIR", "--size 16m --runtime 0.3 --repeat 1 --yes"),
    ("iotax crash DIR", "--cuts 1"),
    ("iotax tune DIR", "--try rq_affinity=2 --size 16m --runtime 0.1 --ramp-time 0 --time 5s --yes"),
    ("iotax doctor", ""),
    ("iotax top", "--interval 0.2"),
    ("iotax top --once", "--interval 0.2"),
    ("iotax curve DIR", "--size 16m --time 10s --points 4 --yes"),
    ("iotax compare A B --fail-if 'slower > 5%'", ""),
    ("iotax trend", ""),
    ("iotax fleet run PLAN.toml --hosts ssh://a,ssh://b", "--yes"),
    ("iotax run job.fio --target DIR --target vm-qcow2:DIR", "--repeat 1 --yes"),
    (
        "iotax suite bonnie DIR vm-raw:DIR",
        "--tests put_block,seq_create --size 8m --nrfiles 64 --runtime 0.5 --repeat 1 --yes",
    ),
    ("iotax import RESULTS", ""),
    ("iotax net ladder", "--rungs loopback,veth --workloads tcp-rtt --repeat 2 --runtime 0.3 --yes"),
    ("iotax net run HOST", "--time 1"),
    ("iotax net ping HOST", "--time 1"),
];

/// The command that changes kernel settings, which requires root.
const TUNED: &str = "iotax tune DIR";

/// The server for the last two commands, which runs until it is stopped.
const SERVER: &str = "iotax net serve";
/// Another command that does not end by itself.
const BROWSER: &str = "iotax serve";

#[test]
fn every_command_of_the_readme_is_carried_out_here() {
    let known: BTreeSet<&str> =
        COMMANDS.iter().map(|(command, _)| *command).chain([SERVER, BROWSER, "iotax clean"]).collect();
    assert_eq!(commands(README), known);
}

/// Builds a command of the README with paths of this machine and additional options.
fn carried_out(sshd: &Sshd, command: &str, more: &str) -> Command {
    let lab = &sshd.lab;
    let work = lab.work().display().to_string();
    let substituted = |word: &str| match word {
        "/srv/images" | "DIR" => work.clone(),
        "vm-raw:DIR" | "vm-qcow2:DIR" => word.replace("DIR", &work),
        "PLAN.toml" => lab.path("plan.toml").display().to_string(),
        "FILE-OR-DEVICE" => format!("{work}/new.dat"),
        "ssh://user@host/path" => sshd.url("work/far.dat"),
        // There is one.
        "ssh://a,ssh://b" => format!("ssh://root@127.0.0.1:{PORT}"),
        "RESULTS" => RESULTS.to_owned(),
        "HOST" => "127.0.0.1".to_owned(),
        "COMMAND" => "ladder".to_owned(),
        "A" => "1".to_owned(),
        "B" => "2".to_owned(),
        word => word.to_owned(),
    };
    let mut carried_out = sshd.iotax();
    // A gate in quotes is one word.
    let (plain, quoted) = command.split_once('\'').unwrap_or((command, ""));
    carried_out.args(plain.split_whitespace().skip(1).map(substituted));
    carried_out.args([quoted.trim_end_matches('\'')].into_iter().filter(|word| !word.is_empty()));
    carried_out.args(more.split_whitespace());
    carried_out
}

/// Returns the commands in backticks and those after the prompts of examples.
fn commands(text: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for (index, part) in text.split("```").enumerate() {
        if index % 2 == 1 {
            found.extend(part.lines().filter_map(|line| line.strip_prefix("$ ")));
        } else {
            found.extend(part.split('`').skip(1).step_by(2));
        }
    }
    found.retain(|command| command.split(' ').next() == Some("iotax"));
    found
}

/// A process; killed on drop.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

mod guests {
    use super::*;

    #[test]
    fn the_readme_holds() {
        require!(guests);
        let Some(sshd) = Sshd::start("") else { return };
        let plan = sshd.lab.short_plan("repeat = 2", "8m", "[[workload]]\nrw = \"randread\"\n");
        let job = "[global]\nsize=8m\nruntime=1\ntime_based\n[a]\nrw=randread\n";
        fs::write(sshd.lab.path("job.fio"), job).expect("written");
        // The other side of A and B.
        let first =
            sshd.run(&["run", plan.to_str().expect("utf-8"), "--repeat", "3", "--ramp-time", "0", "--yes"]);
        assert!(first.status.success(), "{}", text(&first.stderr));
        let _server = Ends(start_until(&mut carried_out(&sshd, SERVER, ""), "listening on"));
        let _browser = Ends(start_until(&mut carried_out(&sshd, BROWSER, "--listen 127.0.0.1:0"), "Serving"));
        for (command, more) in COMMANDS {
            if command == TUNED && !rustix::process::geteuid().is_root() {
                continue;
            }
            let output = carried_out(&sshd, command, more).stdin(Stdio::null()).output().expect("it starts");
            let (code, said) = (output.status.code(), text(&output.stderr));
            // Two runs of 0.2 s may differ by more than 5%, or tell too little to be judged.
            let may_trip = command.contains("--fail-if") && matches!(code, Some(1 | 5));
            assert!(code == Some(0) || may_trip, "{command} {more}: {code:?}: {said}");
            assert!(!output.stdout.is_empty(), "{command}: nothing was shown");
        }
        let cleaned = carried_out(&sshd, "iotax clean", "").output().expect("it starts");
        assert!(text(&cleaned.stdout).contains("nothing was left behind"), "{}", text(&cleaned.stdout));
    }
}
