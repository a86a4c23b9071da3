//! Tests of real paths between network namespaces: packets pass, and nothing is left after a failure at any step.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iotax_model::target::{GuestSpec, LocalPath, NetPath, NetworkSpec};
use iotax_testbed::netns;
use iotax_testbed::network::{self, BuiltNetwork};
use iotax_testbed::program::Program;
use iotax_testbed::undo::{self, UndoLog};
use iotax_testkit::{require, skip};

const VIA: &str = "IOTAX_TEST_VIA";
const STATE: &str = "IOTAX_TEST_STATE";
const TAG: &str = "IOTAX_TEST_TAG";

/// Returns whether such a path can be built here; prints the reason if not.
fn possible(via: NetPath) -> bool {
    require!(program "ip");
    match network::check(&NetworkSpec::new(via)) {
        Ok(()) => true,
        Err(refusal) => skip!("{refusal}"),
    }
}

fn build(spec: &NetworkSpec, tag: &str, undo_log: &mut UndoLog) -> BuiltNetwork {
    let guest = GuestSpec::default();
    let path = match spec.via {
        NetPath::Bridge => LocalPath::Bridge(&guest),
        _ => LocalPath::Veth,
    };
    network::build(spec, path, tag, undo_log).expect("built")
}

/// Returns the output of ip(8).
fn ip(arguments: &[&str]) -> String {
    let ip = Program { name: "ip", package: "iproute2" };
    String::from_utf8(ip.run(arguments).expect("it works")).expect("UTF-8")
}

#[test]
fn packets_pass_between_two_namespaces() {
    require!(program "busybox");
    if !possible(NetPath::Veth) {
        return;
    }
    let busybox = iotax_testkit::program("busybox");
    let state = tempfile::tempdir().expect("a directory");
    let tag = format!("test-{}-ping", std::process::id());
    let mut undo_log = UndoLog::create(state.path(), &tag).expect("an undo log");
    let spec = NetworkSpec { mtu: Some(4000), ..NetworkSpec::new(NetPath::Veth) };
    let built = build(&spec, &tag, &mut undo_log);
    for (from, to) in [(&built.client, &built.server), (&built.server, &built.client)] {
        let mut ping = netns::command_in(from.namespace.as_deref(), &busybox);
        // In one packet of the maximum size, including IP and ICMP headers.
        let ping = ping.args(["ping", "-c", "1", "-W", "10", "-s", "3972", &to.address.to_string()]);
        let output = ping.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let client = built.client.namespace.expect("one of its own");
    assert!(ip(&["-n", &client, "link", "show", "veth0"]).contains("mtu 4000"));
    let (undone, failed) = undo_log.undo_all();
    assert!(failed.is_empty(), "{failed:?}");
    let undone: Vec<String> = undone.iter().map(ToString::to_string).collect();
    let namespace = |end: &str| format!("network namespace iotax-{tag}-{end}");
    assert_eq!(undone, [format!("veth veth0 in {client}"), namespace("server"), namespace("client")]);
    assert!(!ip(&["netns", "list"]).contains(&tag));
}

#[test]
fn a_bridge_has_its_tap_and_the_far_ends_address() {
    if !possible(NetPath::Bridge) {
        return;
    }
    let state = tempfile::tempdir().expect("a directory");
    // In no other test's tag: those of the kills contain "bridge-".
    let tag = format!("test-{}-tap", std::process::id());
    let mut undo_log = UndoLog::create(state.path(), &tag).expect("an undo log");
    let spec = NetworkSpec { queues: Some(2), ..NetworkSpec::new(NetPath::Bridge) };
    let built = build(&spec, &tag, &mut undo_log);
    let namespace = built.server.namespace.as_deref().expect("one of its own");
    assert_eq!(built.nic.as_ref().and_then(|nic| nic.namespace.as_deref()), Some(namespace));
    let tap = ip(&["-n", namespace, "-d", "link", "show", "tap0"]);
    assert!(
        tap.contains("master br0") && tap.contains(" multi_queue ") && tap.contains("vnet_hdr on"),
        "{tap}"
    );
    let bridge = ip(&["-n", namespace, "address", "show", "br0"]);
    assert!(bridge.contains(&format!("inet {}/30", built.server.address)), "{bridge}");
    // Removing a missing interface is not an error.
    ip(&["-n", namespace, "link", "delete", "tap0"]);
    assert!(undo_log.undo_all().1.is_empty());
    assert!(!ip(&["netns", "list"]).contains(&tag));
}

#[test]
fn a_name_that_is_taken_is_neither_used_nor_removed() {
    if !possible(NetPath::User) {
        return;
    }
    let state = tempfile::tempdir().expect("a directory");
    let tag = format!("test-{}-taken", std::process::id());
    let taken = format!("iotax-{tag}");
    ip(&["netns", "add", &taken]);
    let mut undo_log = UndoLog::create(state.path(), &tag).expect("an undo log");
    let (spec, guest) = (NetworkSpec::new(NetPath::User), GuestSpec::default());
    let error = network::build(&spec, LocalPath::User(&guest), &tag, &mut undo_log);
    let undone = undo_log.undo_all().0;
    let there = ip(&["netns", "list"]).contains(&taken);
    ip(&["netns", "delete", &taken]);
    assert!(error.expect_err("taken").to_string().contains(&taken));
    assert!(undone.is_empty() && there, "{undone:?}");
}

#[test]
#[ignore = "started by the test below, which has it killed"]
fn build_and_undo() {
    let value = |name: &str| std::env::var(name).expect("the test below sets it");
    let (via, tag) = (value(VIA).parse().expect("a way"), value(TAG));
    let mut undo_log = UndoLog::create(&PathBuf::from(value(STATE)), &tag).expect("an undo log");
    build(&NetworkSpec::new(via), &tag, &mut undo_log);
    assert!(undo_log.undo_all().1.is_empty());
}

/// Runs the test above in a child process with an injected fault; returns whether it succeeded.
fn built_with(via: NetPath, state: &Path, tag: &str, fault: Option<&str>) -> bool {
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["--ignored", "--exact", "network::build_and_undo"]);
    child.env(VIA, via.word()).env(STATE, state).env(TAG, tag).env_remove("IOTAX_FAULT");
    child.envs(fault.map(|fault| ("IOTAX_FAULT", fault))).stdout(Stdio::null()).stderr(Stdio::null());
    child.status().expect("it runs").success()
}

/// Injects a fault at every line of the undo log, in every mode, and cleans up.
fn leaves_nothing(via: NetPath, least: u32) {
    if !possible(via) {
        return;
    }
    let state = tempfile::tempdir().expect("a directory");
    assert!(built_with(via, state.path(), &format!("test-{}-{via}-whole", std::process::id()), None));
    for kind in ["kill", "kill-after", "error"] {
        for line in 1.. {
            let tag = format!("test-{}-{via}-{kind}{line}", std::process::id());
            if built_with(via, state.path(), &tag, Some(&format!("{kind}@{line}"))) {
                // An error while recording that everything was undone is harmless.
                assert!(line > least, "{via} has more lines than {line}");
                break;
            }
            // Waits for a tool of the killed process that may still be working.
            let cleaned = undo::clean(state.path(), false).expect("readable");
            assert!(
                cleaned.in_use == 0 && cleaned.failed.is_empty() && cleaned.unreadable.is_empty(),
                "{tag}: {cleaned:?}"
            );
            assert!(!ip(&["netns", "list"]).contains(&tag), "{tag}");
        }
    }
    assert_eq!(std::fs::read_dir(state.path()).expect("readable").count(), 0, "no undo log is left");
}

#[test]
fn wherever_the_building_of_a_pair_ends_nothing_is_left() {
    leaves_nothing(NetPath::Veth, 3);
}

#[test]
fn wherever_the_building_of_a_bridge_ends_nothing_is_left() {
    leaves_nothing(NetPath::Bridge, 3);
}
