//! Tests of host directories in guests, shared by 9p and virtiofs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use iotax_model::record::CacheDrop;
use iotax_store::Store;
use iotax_testkit::{require, thorough};
use serde_json::Value;

use crate::lab::{Lab, OtherUser, assert_valid, start_until, text};

/// Directory of virtiofsd, which scripts/setup unpacks.
const VIRTIOFSD: &str = "/var/cache/iotax/virtiofsd/usr/lib/qemu";

const PLAN: &str = r#"
repeat = 1
defaults = { size = "16m", runtime = "400ms", ramp_time = "0s", bs = "16k" }
[[target]]
name = "host"
file = { dir = "WORK" }
[[target]]
name = "by-9p"
9p = { dir = "WORK", msize = "256k" }
guest = {}
[[target]]
name = "by-virtiofs"
virtiofs = { dir = "WORK", xattr = true }
guest = {}
[[target]]
name = "past-caches"
virtiofs = { dir = "WORK", cache = "never", allow_direct_io = true, thread_pool_size = 2 }
guest = {}
[[workload]]
name = "write"
rw = "randwrite"
iodepth = 4
verify = "crc32c"
[[workload]]
name = "again"
rw = "randread"
bs = "64k"
size = "1m"
runtime = "1s"
[[workload]]
name = "create"
test = "create"
nrfiles = 20
direct = false
"#;

/// A plan of one target with a short read workload.
fn one(lab: &Lab, target: &str) -> PathBuf {
    lab.plan(&format!(
        "repeat = 1\ndefaults = {{ size = '4m', runtime = '300ms', ramp_time = '0s' }}\nworkload = [{{ rw = 'randread' }}]\n\
         [[target]]\nname = 't'\n{target}\n"
    ))
}

const BY_VIRTIOFS: &str = "virtiofs = { dir = 'WORK' }\nguest = {}";

/// The tested binary, with virtiofsd in PATH.
fn iotax(lab: &Lab) -> Command {
    let mut command = lab.iotax();
    command.env("PATH", format!("{VIRTIOFSD}:{}", std::env::var("PATH").expect("PATH")));
    command
}

fn assert_nothing_left(lab: &Lab, after: &str) {
    assert_eq!(lab.processes("virtiofsd"), Vec::<String>::new(), "{after}");
    lab.assert_nothing_left();
}

/// The measurement of a workload on a target.
fn measurement<'a>(json: &'a Value, target: &str, workload: &str) -> &'a Value {
    let all = json["measurements"].as_array().expect("measurements");
    let found = all.iter().find(|m| m["target"] == target && m["workload"] == workload);
    found.unwrap_or_else(|| panic!("{target}, {workload}"))
}

#[test]
fn directories_by_9p_and_virtiofs_are_measured_beside_the_hosts() {
    require!(guests);
    require!(root);
    require!(kernel "9p", "virtiofs");
    require!(file "/var/cache/iotax/virtiofsd/usr/lib/qemu/virtiofsd");
    let lab = Lab::new();
    let plan = lab.plan(PLAN);
    let mut run = iotax(&lab);
    run.arg("run").arg(&plan).args(["--yes", "--json", "-", "--db", "runs.db"]);
    let output = run.output().expect("iotax starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_nothing_left(&lab, "a run");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_valid(&json);

    let all = json["measurements"].as_array().expect("measurements");
    assert_eq!(all.len(), 4 * 3);
    for one in all {
        assert_eq!(one["errors"].as_array().map_or(0, Vec::len), 0, "{one}");
        assert_eq!(one["verify"]["faults"].as_array().map_or(0, Vec::len), 0, "{one}");
    }
    // The guest's open file is dropped from the host's cache, regardless of the process that opened it.
    let store = Store::open(&lab.path("runs.db")).expect("a store");
    let run = store.load(store.latest().expect("read").expect("a run")).expect("loaded");
    for m in run.measurements.iter().filter(|m| m.workload == "write") {
        let dropped = m.host_cache;
        let is_whole =
            matches!(dropped, Some(CacheDrop::Target { of, left }) if of >= 16 << 20 && left == Some(0));
        assert!(is_whole, "{}: {dropped:?}", m.target);
    }
    for (target, layer, mount) in [
        ("by-9p", "9p security_model=mapped-xattr cache=none msize=256k", "msize=262144"),
        ("by-virtiofs", "virtiofs cache=auto allow_direct_io=false xattr=true", "rw"),
        ("past-caches", "virtiofs cache=never allow_direct_io=true xattr=false thread_pool_size=2", "rw"),
    ] {
        let targets = json["targets"].as_array().expect("targets");
        let layers = targets.iter().find(|t| t["name"] == target).expect("there")["layers"].as_array();
        let layers: Vec<String> = layers.expect("layers").iter().map(Value::to_string).collect();
        let (name, detail) = layer.split_once(' ').expect("two words");
        let [.., shared, guest, inside] = layers.as_slice() else { panic!("{layers:?}") };
        assert!(shared.contains(&format!("\"name\":\"{name}\"")) && shared.contains(detail), "{shared}");
        assert!(guest.contains("TCG") || guest.contains("KVM"), "{guest}");
        assert!(inside.contains(&format!("\"name\":\"{name}\"")) && inside.contains(mount), "{inside}");
        // The daemon's CPU time is a storage server's, QEMU's is its own.
        let threads = &measurement(&json, target, "write")["guest_threads"];
        assert!(threads["vcpu"]["user_ns"].as_u64() > Some(0), "{threads}");
        assert_eq!(threads["virtiofsd"].is_object(), name == "virtiofs", "{threads}");
        // A guest's O_DIRECT ends at QEMU and virtiofsd, unless configured to pass it on. Other load may keep the disk as busy as the guest
        // expects, but hardly during both reads and writes.
        let warnings = json["warnings"].as_array().expect("warnings");
        let mut lies = warnings.iter().filter(|w| w["kind"] == "cache_lie" && w["target"] == target);
        assert_eq!(lies.next().is_some(), target != "past-caches", "{target}: {warnings:?}");
    }
}

#[test]
fn what_serves_a_directory_ends_with_the_run_however_it_ends() {
    require!(guests);
    require!(root);
    require!(kernel "virtiofs");
    require!(file "/var/cache/iotax/virtiofsd/usr/lib/qemu/virtiofsd");
    let lab = Lab::new();
    let plan = one(&lab, BY_VIRTIOFS);
    let child = start_until(iotax(&lab).arg("run").arg(&plan).arg("--yes"), "cell 1/");
    // What the guest was filled with is in the host's directory.
    let folders = fs::read_dir(lab.work()).expect("there").flatten().map(|folder| folder.path());
    let shared = folders.flat_map(|folder| fs::read_dir(folder).expect("there").flatten());
    let files: Vec<PathBuf> = shared.map(|directory| directory.path().join("measured")).collect();
    let [file] = files.as_slice() else { panic!("{files:?}") };
    let bytes = fs::read(file).expect("it is there");
    let pages = bytes.chunks(4096).filter(|page| page.iter().any(|byte| *byte != 0));
    assert_eq!((bytes.len(), pages.count()), (4 << 20, (4 << 20) / 4096));
    assert_ne!(lab.processes("virtiofsd"), Vec::<String>::new());
    lab.kill_and_clean(child, "cell 1/");
    assert_nothing_left(&lab, "a kill");

    let mut faults = 0;
    for kind in ["kill", "kill-after"] {
        for line in (2..).step_by(if thorough() { 1 } else { 9 }) {
            let fault = format!("{kind}@{line}");
            let status = iotax(&lab).arg("run").arg(&plan).arg("--yes").env("IOTAX_FAULT", &fault).output();
            let is_over = status.expect("iotax starts").status.success();
            let clean = lab.run(&["clean"]);
            assert!(clean.status.success(), "{fault}: {}{}", text(&clean.stdout), text(&clean.stderr));
            assert_nothing_left(&lab, &fault);
            if is_over {
                break;
            }
            faults += 1;
        }
    }
    assert!(faults > 3, "{faults}");
}

#[test]
fn what_cannot_be_shared_is_refused_with_the_remedy() {
    require!(guests);
    require!(root);
    require!(program "setpriv");
    require!(kernel "9p", "virtiofs");
    require!(file "/var/cache/iotax/virtiofsd/usr/lib/qemu/virtiofsd");
    let lab = Lab::new();
    let refused = |command: &mut Command, plan: &Path, words: &str| {
        let output = command.arg("run").arg(plan).arg("--yes").output().expect("iotax starts");
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(4) && said.contains(words), "{:?}: {said}", output.status);
        lab.assert_nothing_left();
    };
    let elsewhere = ["/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd"];
    let plan = one(&lab, BY_VIRTIOFS);
    if !elsewhere.iter().any(|path| Path::new(path).exists()) {
        let words = "virtiofs: virtiofsd was not found in PATH, /usr/libexec or /usr/lib/qemu; install it";
        refused(&mut lab.iotax(), &plan, words);
    }
    // The virtiofsd of QEMU 7.2 requires root; 9p does not.
    let user = OtherUser::beside(&lab);
    fs::create_dir(user.path("work")).expect("made");
    std::os::unix::fs::chown(user.path("work"), Some(65534), Some(65534)).expect("root may");
    let of_user = |target: &str| {
        let plan = fs::read_to_string(one(&lab, target)).expect("written");
        let work = user.path("work").display().to_string();
        let to = user.path("plan.toml");
        fs::write(&to, plan.replace(&lab.work().display().to_string(), &work)).expect("written");
        to
    };
    let as_user = || {
        let mut command = user.iotax();
        command.env("PATH", format!("{VIRTIOFSD}:{}", std::env::var("PATH").expect("PATH")));
        command
    };
    let words = "the daemon of QEMU 7.2, runs as root alone; run iotax as root, install the newer virtiofsd, or use 9p";
    refused(&mut as_user(), &of_user(BY_VIRTIOFS), words);
    let cloud = fs::read_dir("/boot").expect("there").flatten().map(|entry| entry.path());
    let cloud = cloud.into_iter().find(|path| {
        path.to_string_lossy().contains("vmlinuz-") && path.to_string_lossy().contains("-cloud-")
    });
    if let Some(kernel) = cloud {
        let target = format!("9p = {{ dir = 'WORK' }}\nguest = {{ kernel = '{}' }}", kernel.display());
        let words = "has no module \"9p\", and it is not built in: the guest needs it; take another kernel";
        refused(&mut lab.iotax(), &one(&lab, &target), words);
        refused(&mut lab.iotax(), &one(&lab, &target), "(Debian: linux-image-amd64)");
    }
    let plan = of_user("9p = { dir = 'WORK' }\nguest = {}");
    let output =
        as_user().arg("run").arg(plan).args(["--yes", "--json", "-"]).output().expect("setpriv starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(json["measurements"][0]["read"]["iops"].as_f64() > Some(0.0), "{json}");
    assert_eq!(fs::read_dir(user.path("work")).expect("there").count(), 0);
}
