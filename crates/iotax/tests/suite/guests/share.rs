//! A directory over the kernel's NFS within a guest: server and client are set up, measured and gone afterwards, and a server that ends costs
//! its target alone.

use std::time::Instant;

use iotax_model::units::Bytes;
use iotax_testkit::thorough;

use super::on_disks::{Before, json, layers, put_plan, refused_words, start_until};
use crate::lab_guest::{Extras, LabGuest};

/// The disk with the user's files.
const DISKS: [Bytes; 1] = [Bytes(1 << 30)];

/// Prints the state that must not change: mounts, namespaces, the server's threads, and the user's files.
const STATE: &str = "cat /proc/mounts; ls /run/netns; ps -o comm | grep -c '^nfsd'; find /srv; ls -a /tmp; ls /tmp/home/.local/state/iotax/undo";

const PLAN: &str = r#"
repeat = 1
defaults = { size = "8m", runtime = "400ms", ramp_time = "0s", bs = "16k" }
workload = [{ name = "read", rw = "randread" }, { name = "write", rw = "randwrite", verify = "crc32c" }]
[[target]]
name = "one"
stack = "/srv > nfs share > raw file"
[[target]]
name = "four"
stack = "/srv > nfs share nconnect=4 sync=false > raw file"
"#;

/// Each server lets nobody open a file in its first 10 s.
const ONE: &str = r#"
repeat = 1
defaults = { size = "8m", runtime = "400ms", ramp_time = "0s", bs = "16k" }
workload = [{ name = "read", rw = "randread" }]
[[target]]
name = "one"
stack = "/srv > nfs share > raw file"
"#;

const RUN: &str = "run /tmp/plan.toml";

/// A guest with the user's files in /srv.
fn boot() -> Option<LabGuest> {
    let mut lab = LabGuest::boot_with(&Extras {
        programs: &["ip", "mkfs.ext4", "mount", "umount"],
        modules: &["nfsd", "nfsv4", "ext4"],
        disks: &DISKS,
        ..Extras::default()
    })?;
    lab.sh(
        "mkdir -p /tmp /etc /srv && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home",
    );
    lab.sh("mkfs.ext4 -q /dev/vda && mount /dev/vda /srv && echo mine > /srv/note");
    lab.sh("touch /tmp/said /tmp/out /tmp/cleaned /tmp/killed /tmp/plan.toml");
    Some(lab)
}

/// One guest for all: a boot takes longer than any of them.
#[test]
fn a_share_is_measured_and_gone_afterwards_whatever_ends_it() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    let began = Instant::now();
    for (name, part, is_long) in [
        // Every request that the server does not answer is waited for.
        ("server lost", server_lost as fn(&mut LabGuest, &Before), true),
        ("measured", measured, false),
        ("killed", killed, false),
    ] {
        if is_long && !thorough() {
            continue;
        }
        part(&mut lab, &before);
        eprintln!("{name}: {:.1?}", began.elapsed());
    }
    lab.sh("rmmod nfsd");
    refused_words(&mut lab, RUN, "4", &["share: there is no nfsd in /proc/filesystems: modprobe nfsd nfsv4"]);
    before.assert_nothing_changed(&mut lab, "a refusal");
}

fn measured(lab: &mut LabGuest, before: &Before) {
    put_plan(lab, PLAN);
    let json = json(lab, RUN);
    before.assert_nothing_changed(lab, "a run");
    assert_eq!(json["measurements"].as_array().map(Vec::len), Some(4));
    for measurement in json["measurements"].as_array().expect("measurements") {
        assert_eq!(measurement["errors"].as_u64().unwrap_or(0), 0, "{measurement}");
        assert_eq!(measurement["verify"]["faults"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    for (target, connections) in [("one", "nconnect=1"), ("four", "nconnect=4")] {
        let file = format!("file {target}.raw");
        let expected = ["device vda", "filesystem ext4", "export NFS", "filesystem nfs4", &file];
        assert_eq!(layers(&json, target), expected);
        let targets = json["targets"].as_array().expect("targets");
        let layers = &targets.iter().find(|t| t["name"] == target).expect("there")["layers"];
        let options = layers[3]["detail"].as_str().expect("text");
        assert!(options.contains("vers=4.2") && options.contains(connections), "{options}");
    }
}

fn killed(lab: &mut LabGuest, before: &Before) {
    put_plan(lab, ONE);
    start_until(lab, RUN, "cell 1/");
    lab.sh("{ kill -KILL $run; wait $run; } 2> /tmp/killed; true");
    lab.sh("for i in $(seq 100); do iotax clean > /tmp/cleaned && ! grep -q 'left alone' /tmp/cleaned && break; usleep 100000; done");
    before.assert_nothing_changed(lab, "a kill");

    // Of a run without a fault half of the lines record what is done, the others that it is undone.
    for (kind, expected, least, few) in
        [("kill-after", "137", 20, &[11][..]), ("kill", "137", 20, &[]), ("error", "4", 10, &[11])]
    {
        let all = (1..).take_while(|_| thorough());
        for line in few.iter().copied().filter(|_| !thorough()).chain(all) {
            let fault = format!("{kind}@{line}");
            let (status, _) =
                lab.try_sh(&format!("( IOTAX_FAULT={fault} iotax {RUN} --yes > /tmp/said 2>&1 )"));
            // An error that is met while a cell is measured costs the measurement alone.
            let is_right = [expected, "0"].contains(&&*status) || (kind == "error" && status == "3");
            assert!(is_right, "{fault}: {status}: {}", lab.sh("cat /tmp/said"));
            lab.sh("iotax clean > /tmp/cleaned 2>&1 || { cat /tmp/cleaned; false; }");
            before.assert_nothing_changed(lab, &fault);
            if status == "0" {
                assert!(line > least, "{fault}: too few lines for these stacks");
                break;
            }
        }
    }
}

fn server_lost(lab: &mut LabGuest, before: &Before) {
    put_plan(lab, &ONE.replace("400ms", "20s"));
    start_until(lab, RUN, "cell 1/");
    lab.sh("for threads in /srv/iotax-*/one.nfsd/threads; do echo 0 > $threads; done");
    lab.sh("for i in $(seq 3000); do kill -0 $run 2> /tmp/killed || break; usleep 200000; done");
    let (status, _) = lab.try_sh("wait $run");
    assert_eq!(status, "3", "{}", lab.sh("cat /tmp/said"));
    // A request that waited for the server may have kept something busy.
    lab.sh("iotax clean > /tmp/cleaned 2>&1 || { cat /tmp/cleaned /tmp/said; false; }");
    before.assert_nothing_changed(lab, "a server that ended");
}
