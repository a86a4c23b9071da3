//! Tests of Xen in a guest: iotax runs in the control domain and measures storage natively and as the disk of domains, which it removes.

use iotax_model::units::Bytes;
use iotax_testkit::thorough;
use serde_json::Value;

use super::on_disks::{Before, json, kill_and_clean, layers, put_plan, refused_words, start_until};
use crate::lab_guest::{Extras, LabGuest};
use crate::lab_xen;

/// Prints the state that must not change: domains, loop devices, files, backends of disks.
const STATE: &str = "xl vm-list; losetup -a; ls -a /srv /tmp; ls /sys/bus/xen-backend/devices; pidof xen-qemu-system-i386; \
                     ls /tmp/home/.local/state/iotax/undo";

const RUN: &str = "run /tmp/plan.toml";

/// The control domain of a Xen hypervisor for PV domains, with a filesystem in /srv.
fn boot() -> Option<LabGuest> {
    let mut lab = LabGuest::boot_with(&Extras {
        programs: &[&lab_xen::PROGRAMS[..], &["mkfs.ext4", "qemu-img"]].concat(),
        modules: &[&lab_xen::MODULES[..], &["crc32c_generic", "ext4", "loop"]].concat(),
        disks: &[Bytes(1 << 30)],
        xen: true,
        ..Extras::default()
    })?;
    let info = lab.sh("xen");
    assert!(info.contains("virt_caps") && !info.contains("hvm"), "{info}");
    lab.sh(
        "mkdir -p /tmp /etc /srv && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home",
    );
    lab.sh("mkfs.ext4 -q /dev/vda && mount /dev/vda /srv");
    lab.sh("touch /tmp/said /tmp/out /tmp/cleaned /tmp/killed /tmp/plan.toml");
    Some(lab)
}

/// A plan of targets on /srv: the loop device itself, and domains.
fn plan(targets: &[(&str, &str)], runtime: &str) -> String {
    let target = |(name, stack): &(&str, &str)| format!("[[target]]\nname = '{name}'\nstack = '{stack}'\n");
    let targets: String = targets.iter().map(target).collect();
    format!(
        "repeat = {ROUNDS}\ndefaults = {{ size = '8m', runtime = '{runtime}', ramp_time = '0s', bs = '16k' }}\n\
         workload = [{{ name = 'read', rw = 'randread' }}, {{ name = 'write', rw = 'randwrite', verify = 'crc32c' }}]\n{targets}"
    )
}

/// Rounds of a plan, the minimum for a confidence interval.
const ROUNDS: usize = 3;

const NATIVE: (&str, &str) = ("native", "/srv > raw file > loop direct_io=true");
const PHY: (&str, &str) = ("phy", "/srv > raw file > loop direct_io=true > pv domain");
const QCOW2: (&str, &str) = ("qcow2", "/srv > qcow2 file preallocation=metadata > pv domain backend=qdisk");
const RAW: (&str, &str) = ("raw", "/srv > raw file > pv domain backend=qdisk");

#[test]
fn domains_are_measured_beside_their_native_twin_and_gone_afterwards() {
    // Two kernels above one another, emulated, take minutes.
    if !thorough() {
        return;
    }
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    refusals(&mut lab);
    before.assert_nothing_changed(&mut lab, "refusals");
    measured(&mut lab, &before);
    killed(&mut lab, &before);
}

fn refusals(lab: &mut LabGuest) {
    for (stack, status, words) in [
        (
            "/srv > raw file > pvh domain backend=qdisk",
            "4",
            &["type = \"pvh\": the hypervisor cannot run it here", "without hvm", "VT-x or AMD-V"][..],
        ),
        ("/srv > raw file > pv domain", "2", &["takes a block device; put loop = {} between"]),
        ("/srv > vmdk file > pv domain backend=qdisk", "2", &["format = \"vmdk\": accepted: raw and qcow2"]),
        ("/srv > qcow2 file + external snapshot > pv domain backend=qdisk", "2", &["snapshot"]),
    ] {
        put_plan(lab, &plan(&[("refused", stack)], "400ms"));
        refused_words(lab, RUN, status, words);
    }
}

fn measured(lab: &mut LabGuest, before: &Before) {
    put_plan(lab, &plan(&[NATIVE, PHY, RAW, QCOW2], "1s"));
    let json = json(lab, RUN);
    before.assert_nothing_changed(lab, "a run");
    let measurements = json["measurements"].as_array().expect("measurements");
    assert_eq!(measurements.len(), 4 * 2 * ROUNDS);
    for measurement in measurements {
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
        assert_eq!(measurement["verify"]["faults"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    let below = ["device vda", "filesystem ext4"];
    let [native, phy, qcow2] = ["native", "phy", "qcow2"].map(|target| layers(&json, target));
    assert_eq!(native[..2], below);
    assert_eq!(
        phy[..native.len() - 1],
        native[..native.len() - 1].iter().map(|layer| layer.replace("native", "phy")).collect::<Vec<_>>()
    );
    assert_eq!(phy[phy.len() - 2..], ["bus xen-blk", "guest domain"]);
    assert_eq!(qcow2[..2], below);
    assert_eq!(qcow2[qcow2.len() - 3..], ["image qcow2", "bus xen-blk", "guest domain"]);
    let targets = json["targets"].as_array().expect("targets");
    let of = |name: &str| targets.iter().find(|target| target["name"] == name).expect("a target");
    for name in ["phy", "qcow2"] {
        let target = of(name);
        assert_eq!(target["emulated"], true, "{target}");
        assert!(target["guest_kernel"].is_string(), "{target}");
        let details: Vec<&str> = target["layers"]
            .as_array()
            .expect("layers")
            .iter()
            .rev()
            .take(2)
            .filter_map(|layer| layer["detail"].as_str())
            .collect();
        assert!(details[0].starts_with("pv, 1 vCPU, 512 MiB, Xen 4.17"), "{details:?}");
        assert_eq!(details[1], if name == "phy" { "phy" } else { "qdisk through the page cache" });
    }
    // What is read and written through the kernel's backend reaches the disk.
    let lies: Vec<&Value> = json["warnings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|warning| warning["kind"] == "cache_lie" && warning["target"] == "phy")
        .collect();
    assert!(lies.is_empty(), "{lies:?}");
}

/// Kills a run while its domain measures.
fn killed(lab: &mut LabGuest, before: &Before) {
    put_plan(lab, &plan(&[PHY], "1h"));
    start_until(lab, RUN, "round 1");
    let domains = lab.sh("xl vm-list");
    assert!(domains.lines().any(|line| line.contains("iotax-")), "{domains}");
    kill_and_clean(lab);
    before.assert_nothing_changed(lab, "a killed run");
}
