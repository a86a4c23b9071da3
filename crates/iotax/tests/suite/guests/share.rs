//! Tests of directories over NFS and SMB in a guest: server and client are set up, measured and removed, and a server that ends affects
//! only its target.

use iotax_model::units::Bytes;
use iotax_testkit::thorough;
use serde_json::Value;

use super::on_disks::{
    Before, assert_faults_leave_nothing, json, kill_and_clean, layers, put_plan, refused_words, start_until,
    unload,
};
use crate::lab_guest::{Extras, LabGuest};

/// The disk with the user's files.
const DISKS: [Bytes; 1] = [Bytes(1 << 30)];

/// Prints the state that must not change: mounts, namespaces, the servers' threads and processes, and the user's files.
const STATE: &str = "cat /proc/mounts; ls /run/netns; ps -o comm | grep -c '^nfsd'; ps -o args | grep -c '^[^ ]*/smbd '; find /srv; ls -a /tmp; ls /tmp/home/.local/state/iotax/undo";

/// The users that Samba's server needs; no other system files are copied.
const USERS: &str = r"printf 'root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' > /etc/passwd";

/// Modules of the SMB client, and the ciphers that it loads on demand.
const SMB_MODULES: [&str; 7] = ["cifs", "cmac", "ccm", "gcm", "ctr", "ghash_generic", "sha512_generic"];

const RUN: &str = "run /tmp/plan.toml";

/// A plan of targets that read and, with `write`, write.
fn plan(targets: &[(&str, &str)], write: bool) -> String {
    let write = if write { ", { name = 'write', rw = 'randwrite', verify = 'crc32c' }" } else { "" };
    let target = |(name, stack): &(&str, &str)| format!("[[target]]\nname = '{name}'\nstack = '{stack}'\n");
    let targets = targets.iter().map(target).collect::<Vec<_>>().concat();
    format!(
        "repeat = 1\ndefaults = {{ size = '8m', runtime = '400ms', ramp_time = '0s', bs = '16k' }}\nworkload = [{{ name = 'read', rw = 'randread' }}{write}]\n{targets}"
    )
}

/// A guest with the user's files in /srv.
fn boot(programs: &[&str], modules: &[&str]) -> Option<LabGuest> {
    let mut lab = LabGuest::boot_with(&Extras {
        programs: &[&["ip", "mkfs.ext4", "mount", "umount"], programs].concat(),
        modules: &[&["ext4", "overlay"], modules].concat(),
        disks: &DISKS,
        ..Extras::default()
    })?;
    lab.sh(
        "mkdir -p /tmp /etc /srv && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home",
    );
    lab.sh(USERS);
    lab.sh("mkfs.ext4 -q /dev/vda && mount /dev/vda /srv && echo mine > /srv/note");
    lab.sh("touch /tmp/said /tmp/out /tmp/cleaned /tmp/killed /tmp/plan.toml");
    Some(lab)
}

/// Tests a protocol in one guest, because a boot takes longer than any of the tests. Requests to a lost server run into their timeouts.
#[test]
fn an_nfs_share_is_measured_and_gone_afterwards_whatever_ends_it() {
    let Some(mut lab) = boot(&[], &["nfsd", "nfsv4"]) else { return };
    let before = Before::of(&mut lab, STATE);
    if thorough() {
        nfs_server_lost(&mut lab, &before);
    }
    nfs_measured(&mut lab, &before);
    killed(&mut lab, &before, "/srv > nfs share > raw file");
    put_plan(&mut lab, &plan(&[("nfs", "/srv > nfs share > raw file")], false));
    unload(&mut lab, "nfsd");
    refused_words(&mut lab, RUN, "4", &["share: there is no nfsd in /proc/filesystems: modprobe nfsd nfsv4"]);
    before.assert_nothing_changed(&mut lab, "a refusal");
}

#[test]
fn an_smb_share_is_measured_and_gone_afterwards_whatever_ends_it() {
    let Some(mut lab) = boot(&["smbd", "smbpasswd"], &SMB_MODULES) else { return };
    let before = Before::of(&mut lab, STATE);
    if thorough() {
        smb_server_lost(&mut lab, &before);
    }
    smb_measured(&mut lab, &before);
    killed(&mut lab, &before, "/srv > smb share > raw file");
    put_plan(&mut lab, &plan(&[("smb", "/srv > smb share > raw file")], false));
    let (status, said) = lab.try_sh(&format!("PATH=/bin /lab/iotax {RUN} --yes 2>&1"));
    let words = "smbd was not found in PATH; install it (Debian: apt-get install samba)";
    assert!(status == "4" && said.contains(words), "{status}: {said}");
    unload(&mut lab, "cifs");
    refused_words(&mut lab, RUN, "4", &["share: there is no cifs in /proc/filesystems: modprobe cifs"]);
    before.assert_nothing_changed(&mut lab, "a refusal");
}

/// Runs targets, given by name, stack, layers below the file, and options of the mount.
fn measured(lab: &mut LabGuest, before: &Before, targets: &[(&str, &str, &[&str], &str)]) -> Value {
    let lines: Vec<_> = targets.iter().map(|(name, stack, ..)| (*name, *stack)).collect();
    put_plan(lab, &plan(&lines, true));
    let json = json(lab, RUN);
    before.assert_nothing_changed(lab, "a run");
    let measurements = json["measurements"].as_array().expect("measurements");
    assert_eq!(measurements.len(), 2 * targets.len());
    for measurement in measurements {
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
        assert_eq!(measurement["verify"]["faults"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    for (target, _, expected, mount) in targets {
        let file = format!("file {target}.raw");
        let expected: Vec<_> = expected.iter().copied().chain([&*file]).collect();
        assert_eq!(layers(&json, target), expected);
        let targets = json["targets"].as_array().expect("targets");
        let layers = &targets.iter().find(|t| t["name"] == *target).expect("there")["layers"];
        let options = layers[expected.len() - 2]["detail"].as_str().expect("text");
        assert!(mount.split(' ').all(|option| options.contains(option)), "{options}");
    }
    json
}

fn nfs_measured(lab: &mut LabGuest, before: &Before) {
    let layers = &["device vda", "filesystem ext4", "export NFS", "filesystem nfs4"];
    let targets: [(_, _, &[&str], _); 2] = [
        ("one", "/srv > nfs share > raw file", layers, "vers=4.2 nconnect=1"),
        ("four", "/srv > nfs share nconnect=4 sync=false > raw file", layers, "vers=4.2 nconnect=4"),
    ];
    let _ = measured(lab, before, &targets);
}

fn smb_measured(lab: &mut LabGuest, before: &Before) {
    let layers = &["device vda", "filesystem ext4", "export SMB", "filesystem cifs"];
    let on_overlay =
        &["device vda", "filesystem ext4", "filesystem overlay", "export SMB", "filesystem cifs"];
    let targets: [(_, _, &[&str], _); 3] = [
        ("smb", "/srv > smb share > raw file", layers, "vers=3.1.1 soft"),
        (
            "sealed",
            "/srv > smb share max_channels=4 seal=true sync=false > raw file",
            layers,
            "vers=3.1.1 seal multichannel,max_channels=4",
        ),
        ("layered", "/srv > overlay > smb share > raw file", on_overlay, "vers=3.1.1"),
    ];
    let json = measured(lab, before, &targets);
    // The process that serves the client is a child of the daemon's.
    for measurement in json["measurements"].as_array().expect("measurements") {
        let threads = &measurement["guest_threads"];
        assert!(threads["smbd"]["user_ns"].as_u64() > Some(0), "{threads}");
    }
}

fn killed(lab: &mut LabGuest, before: &Before, stack: &str) {
    put_plan(lab, &plan(&[("one", stack)], false));
    start_until(lab, RUN, "cell 1/");
    kill_and_clean(lab);
    before.assert_nothing_changed(lab, "a kill");

    // In a run without a fault, half of the lines record steps, half their undoing.
    let faults: [(&str, usize, &[usize]); 3] =
        [("kill-after", 14, &[11]), ("kill", 14, &[]), ("error", 7, &[11])];
    assert_faults_leave_nothing(lab, before, RUN, faults);
}

fn nfs_server_lost(lab: &mut LabGuest, before: &Before) {
    let end = "for threads in /srv/iotax-*/one.nfsd/threads; do echo 0 > $threads; done";
    server_lost(lab, before, "/srv > nfs share > raw file", end);
}

fn smb_server_lost(lab: &mut LabGuest, before: &Before) {
    server_lost(lab, before, "/srv > smb share > raw file", "kill -KILL $(pidof smbd)");
}

/// Ends the server during a measurement, by a shell command.
fn server_lost(lab: &mut LabGuest, before: &Before, stack: &str, end: &str) {
    put_plan(lab, &plan(&[("one", stack)], false).replace("400ms", "20s"));
    start_until(lab, RUN, "cell 1/");
    lab.sh(end);
    lab.sh("for i in $(seq 3000); do kill -0 $run 2> /tmp/killed || break; usleep 200000; done");
    let (status, _) = lab.try_sh("wait $run");
    assert_eq!(status, "3", "{}", lab.sh("cat /tmp/said"));
    // A request that waited for the server may have kept something busy.
    lab.sh("iotax clean > /tmp/cleaned 2>&1 || { cat /tmp/cleaned /tmp/said; false; }");
    before.assert_nothing_changed(lab, "a server that ended");
}
