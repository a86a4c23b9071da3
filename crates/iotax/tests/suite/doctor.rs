//! `iotax doctor` as a user calls it, and on real stacks in a guest.

use std::collections::BTreeMap;

use iotax_testkit::require;
use serde_json::Value;

use crate::lab::{Lab, text};
use crate::lab_guest::{Extras, LabGuest};
use crate::sshd::Sshd;

const UNSAFE: &str = "<domain type='kvm'><name>web1</name><devices><disk type='file' device='disk'>\
    <driver name='qemu' type='raw' cache='unsafe'/><source file='/nowhere/a.img'/><target dev='vda' bus='virtio'/></disk></devices></domain>";

#[test]
fn a_domain_is_judged_by_its_file() {
    let lab = Lab::new();
    let file = lab.path("web1.xml");
    std::fs::write(&file, UNSAFE).expect("written");
    let file = file.to_str().expect("UTF-8");

    let output = lab.run(&["doctor", file]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains(": 1 known fault") && said.contains("cache=unsafe") && said.contains("remedy: "), "{said}");
    assert!(said.contains("Not known: ") && said.contains("/nowhere/a.img"), "{said}");
    for (limit, code) in [("fault", 1), ("cost", 1), ("depends", 1)] {
        let status = lab.run(&["doctor", file, "--fail-if", limit]).status;
        assert_eq!(status.code(), Some(code), "{limit}");
    }
    let document = lab.json(&["doctor", file, "--json"]);
    assert_eq!(document["schema"], "iotax-doctor/1");
    assert_eq!(document["findings"][0]["rule"], "cache-unsafe");
    assert_eq!(document["findings"][0]["evidence"], file);
    assert_eq!(document["survey"]["guests"][0]["disks"][0]["cache"]["value"], "unsafe");

    std::fs::write(lab.path("web1.xml"), "<pool/>").expect("written");
    let refused = lab.run(&["doctor", file]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("accepted: <domain>"), "{}", text(&refused.stderr));
}

#[test]
fn what_cannot_be_looked_at_is_refused_with_what_is_accepted() {
    let lab = Lab::new();
    for (arguments, code, words) in [
        (&["doctor", "/no/such/file"][..], 2, "name an existing file"),
        (&["doctor", "x", "--fail-if", "costs"], 2, "accepted: fault, cost, depends"),
        (&["doctor", "ssh://", "--json"], 2, "ssh://[user@]host[:port]/path"),
        (&["doctor", "--rules", "--json"], 2, "cannot be used with"),
    ] {
        let output = lab.run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    let rules = text(&lab.run(&["doctor", "--rules"]).stdout);
    assert!(rules.lines().count() > 45 && rules.contains("raid-degraded (layer, known fault)"), "{rules}");
}

/// The place and rule of each finding.
fn findings(document: &Value) -> Vec<(String, String)> {
    let all = document["findings"].as_array().expect("findings");
    let word = |value: &Value| value.as_str().expect("a word").to_owned();
    all.iter().map(|finding| (word(&finding["place"]), word(&finding["rule"]))).collect()
}

#[test]
fn links_whose_ends_differ_are_found() {
    require!(root);
    require!(program "ip");
    let lab = Lab::new();
    let namespace = format!("iotax-doctor-{}", std::process::id());
    let ip = |line: &str| {
        let words = line.replace("NS", &namespace);
        let output = std::process::Command::new(iotax_testkit::program("ip")).args(words.split(' ')).output();
        assert!(output.expect("ip starts").status.success(), "ip {words}");
    };
    ip("netns add NS");
    let looked = std::panic::catch_unwind(|| {
        for line in [
            "-n NS link add a type veth peer name b",
            "-n NS link set a mtu 9000",
            "-n NS link add low type veth peer name far",
            "-n NS link add tunnel type vxlan id 7 dev low dstport 4789",
            "-n NS link set tunnel mtu 1500",
        ] {
            ip(line);
        }
        let mut command = lab.iotax();
        let program = command.get_program().to_owned();
        command = std::process::Command::new(iotax_testkit::program("ip"));
        command.args(["netns", "exec", &namespace]).arg(program).args(["doctor", "--json"]);
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let mut found = findings(&document);
        found.retain(|(_, rule)| rule.contains("mtu"));
        found
    });
    ip("netns del NS");
    let found = looked.expect("looked");
    let expected = [("a", "mtu-mismatch"), ("tunnel", "tunnel-mtu")];
    assert_eq!(found, expected.map(|(place, rule)| (place.to_owned(), rule.to_owned())));
}

#[test]
fn another_machine_is_looked_at_and_nothing_is_left() {
    let Some(sshd) = Sshd::start() else { return };
    let target = format!("ssh://{}", sshd.destination());
    let lab = &sshd.lab;
    let output = sshd.iotax(lab).args(["doctor", &format!("{target}/"), "--json"]).output().expect("it starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(document["survey"]["machine"]["swappiness"]["value"].is_u64());
    sshd.assert_nothing_left();
}
