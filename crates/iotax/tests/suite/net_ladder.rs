//! Tests of the network ladder: every path is built, measured, judged and removed.

use std::collections::BTreeSet;
use std::process::Command;

use iotax_model::Run;
use iotax_model::record::Measurement;
use iotax_store::Store;
use iotax_testkit::require;
use serde_json::Value;

use crate::lab::{Lab, assert_valid, start_until, text};
use crate::sshd::{PORT, Sshd};

/// Short, and without a prompt.
const SHORT: [&str; 10] =
    ["--db", "runs.db", "--repeat", "2", "--runtime", "500ms", "--ramp-time", "200ms", "--yes", "--json"];

/// Returns whether network namespaces can be created, which requires root.
fn can_make_namespaces() -> bool {
    require!(root);
    require!(program "ip");
    true
}

/// Returns the network namespaces and interfaces that iotax created.
fn left() -> Vec<String> {
    let list = |arguments: &[&str]| {
        let output = Command::new("ip").args(arguments).output().expect("ip runs");
        text(&output.stdout)
            .lines()
            .filter(|line| line.contains("iotax"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    [list(&["netns", "list"]), list(&["-o", "link"])].concat()
}

fn stored(lab: &Lab) -> Run {
    let store = Store::open(&lab.path("runs.db")).expect("a store");
    store.load(store.latest().expect("read").expect("a run")).expect("loaded")
}

fn ladder(lab: &Lab, more: &[&str]) -> Value {
    let json = lab.json(&[&["net", "ladder"], more, &SHORT, &["-"]].concat());
    assert_valid(&json);
    json
}

/// Tests that the directory of namespaces is restored: ip(8) mounts it on itself for the first namespace and leaves it mounted.
#[test]
fn the_directory_of_namespaces_is_as_it_was() {
    if !can_make_namespaces() {
        return;
    }
    require!(program "unshare", "mount", "sh");
    let lab = Lab::new();
    let iotax = lab.iotax();
    // The machine's own directory, which the mount covers, may be mounted.
    let script = "mount -t tmpfs none /run || exit 2
        count() { grep -c netns /proc/self/mountinfo; }
        before=$(count)
        \"$0\" \"$@\" >/dev/null && ls /run && [ \"$(count)\" = \"$before\" ]";
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "sh", "-c", script]).arg(iotax.get_program());
    inside.args(["net", "ladder", "--rungs", "loopback,veth", "--workloads", "udp-rtt"]).args(SHORT).arg("-");
    for (name, value) in iotax.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    let output = inside.current_dir(lab.path("")).output().expect("unshare starts");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn another_machine_is_a_far_end_that_asks_for_a_secret() {
    let Some(sshd) = Sshd::start("") else { return };
    let peer = format!("ssh://root@127.0.0.1:{PORT}");
    let ladder = ["net", "ladder", "--rungs", "loopback", "--peer", &peer, "--workloads", "tcp-both,udp-rtt"];
    let output = sshd.run(&[&ladder[..], &SHORT, &["-"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_valid(&json);
    let run = stored(&sshd.lab);
    assert_eq!(run.measurements.len(), 2 * 2 * 2);
    let remote = || run.measurements.iter().filter(|m| m.target == "remote");
    assert!(remote().all(|m| m.outcome.tallies.ios() > 0), "{json}");
    let has_server_cpu =
        |m: &Measurement| m.outcome.carried.as_ref().is_some_and(|carried| carried.server_cpu.is_some());
    assert!(
        remote().filter(|m| m.workload == "tcp-both").all(has_server_cpu),
        "the server tells its CPU time"
    );
    sshd.assert_nothing_left();
}

#[test]
fn what_cannot_be_is_refused_with_the_remedy() {
    let lab = Lab::new();
    for (arguments, words) in [
        (&["--rungs", "vm-virtoi"][..], "did you mean \"vm-virtio\"?"),
        (&["--workloads", "tcp"], "accepted: tcp-upload, tcp-download"),
        (&["--peer", "box"], "accepted: ssh://[user@]host[:port]"),
    ] {
        let output = lab.run(&[&["net", "ladder", "--yes"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {}", text(&output.stderr));
    }
    lab.assert_nothing_left();
}

/// Tests that run while no other test does.
mod alone {
    use super::*;

    #[test]
    fn ways_on_the_host_are_measured_and_gone_afterwards() {
        if !can_make_namespaces() {
            return;
        }
        let lab = Lab::alone();
        let before = left();
        ladder(
            &lab,
            &["--rungs", "loopback,veth", "--workloads", "tcp-upload,tcp-both,udp-download,udp-rtt,icmp-rtt"],
        );
        let run = stored(&lab);
        assert_eq!((run.measurements.len(), run.plan.baseline.as_str()), (2 * 5 * 2, "veth"));
        for m in &run.measurements {
            let (tallies, carried) =
                (&m.outcome.tallies, m.outcome.carried.as_ref().expect("a network's part"));
            let what = format!("{} {}", m.target, m.workload);
            match m.workload.as_str() {
                "tcp-upload" => {
                    let write = tallies.write.as_ref().expect("sent");
                    assert!(write.bytes > 1_000_000 && tallies.read.is_none(), "{what}: {tallies:?}");
                    assert_eq!(carried.flows.len(), 1, "{what}");
                    assert!(carried.flows[0].upload && carried.server_cpu.is_some(), "{what}: {carried:?}");
                }
                "tcp-both" => {
                    assert!(tallies.write.is_some() && tallies.read.is_some(), "{what}: {tallies:?}");
                }
                "udp-download" => {
                    let read = tallies.read.as_ref().expect("received");
                    let flow = &carried.flows[0];
                    assert!(
                        !flow.upload && flow.lost.is_some() && flow.jitter_ns.is_some(),
                        "{what}: {flow:?}"
                    );
                    assert_eq!(flow.received_packets, Some(read.ios), "{what}");
                }
                _ => {
                    let (read, probes) =
                        (tallies.read.as_ref().expect("replies"), carried.probes.expect("counted"));
                    assert_eq!(
                        (read.ios, read.latency.count()),
                        (probes.received, probes.received),
                        "{what}"
                    );
                    assert!(probes.received > 100 && probes.received <= probes.sent, "{what}: {probes:?}");
                }
            }
        }
        let veth = run.targets.iter().find(|target| target.name == "veth").expect("recorded");
        let positions: BTreeSet<&str> =
            veth.interfaces.iter().map(|interface| interface.position.as_str()).collect();
        assert_eq!(positions, BTreeSet::from(["client", "server"]), "{:?}", veth.interfaces);
        assert!(veth.interfaces.iter().all(|interface| interface.driver.as_deref() == Some("veth")));
        assert_eq!(left(), before);
        lab.assert_nothing_left();
    }

    #[test]
    fn killed_at_a_measurement_it_can_be_cleaned() {
        if !can_make_namespaces() {
            return;
        }
        let lab = Lab::alone();
        let before = left();
        let mut command = lab.iotax();
        command.args(["net", "ladder", "--rungs", "veth", "--workloads", "tcp-upload", "--yes"]);
        command.args(["--repeat", "2", "--runtime", "5s"]);
        let mut child = start_until(&mut command, "round 1/2");
        child.kill().expect("killed");
        child.wait().expect("it ended");
        assert_ne!(left(), before, "there is something to clean");
        let clean = lab.run(&["clean"]);
        assert!(clean.status.success(), "{}", text(&clean.stderr));
        assert_eq!(left(), before);
    }
}

mod guests {
    use super::*;

    /// Tests that run while no other test does.
    mod alone {
        use super::*;

        #[test]
        fn guests_are_reached_by_every_card_and_way() {
            require!(guests);
            if !can_make_namespaces() {
                return;
            }
            let lab = Lab::alone();
            let before = left();
            let rungs = ["--rungs", "veth,vm-virtio,vm-e1000,vm-user", "--workloads", "tcp-upload,udp-rtt"];
            let json = ladder(&lab, &[&rungs[..], &["--together"]].concat());
            let run = stored(&lab);
            let targets: BTreeSet<&str> = run.measurements.iter().map(|m| m.target.as_str()).collect();
            let beside = ["vm-e1000-and-host", "vm-user-and-host", "vm-virtio-and-host"];
            assert_eq!(
                targets,
                beside.into_iter().chain(["veth", "vm-e1000", "vm-user", "vm-virtio"]).collect()
            );
            for m in &run.measurements {
                let guest = m.target.starts_with("vm-");
                assert!(m.outcome.tallies.ios() > 0, "{} {}", m.target, m.workload);
                assert_eq!(m.outcome.inside.is_some(), guest, "{}: a guest sees its own CPUs", m.target);
                assert_eq!(
                    m.neighbour.as_ref().map(|share| share.tallies.bytes() > 0),
                    m.target.ends_with("-and-host").then_some(true)
                );
            }
            let slower = json["comparisons"].as_array().expect("comparisons").iter().any(|comparison| {
                comparison["target"] == "vm-e1000"
                    && comparison["metric"] == "bytes_per_s"
                    && comparison["ratio"].as_f64() < Some(1.0)
            });
            assert!(slower, "an emulated card carries less than a pair of virtual ones: {json}");
            assert_eq!(left(), before);
            lab.assert_nothing_left();
        }
    }
}
