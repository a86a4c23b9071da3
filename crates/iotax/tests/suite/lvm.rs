//! Logical volumes, in a guest with disks of its own: made, measured, gone, and nothing else touched.

use iotax_model::units::Bytes;
use serde_json::Value;

use crate::lab::assert_valid;
use crate::lab_guest::{Extras, LabGuest};

/// What iotax may overwrite, what holds the user's groups, and what is in use otherwise.
const DISKS: [Bytes; 3] = [Bytes(2 << 30), Bytes(1 << 30), Bytes(256 << 20)];

/// A guest with LVM whose second disk holds the user's group `users` with a volume `data`, and a home for iotax.
fn boot() -> Option<LabGuest> {
    let mut lab = LabGuest::boot_with(&Extras {
        programs: &["lvm", "wipefs", "mkfs.ext4", "mkfs.xfs", "mount", "umount", "losetup", "thin_check"],
        modules: &["dm_thin_pool", "dm_snapshot", "ext4", "xfs", "loop", "raid1"],
        disks: &DISKS,
    })?;
    lab.sh("mkdir -p /tmp /etc && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home");
    // iotax itself must notice that there is no udev.
    lab.sh("unset DM_DISABLE_UDEV");
    lab.sh("lv() { DM_DISABLE_UDEV=1 lvm \"$@\" > /tmp/lvm.log 2>&1 || { cat /tmp/lvm.log; return 1; }; }");
    lab.sh("lv pvcreate -y /dev/vdb && lv vgcreate users /dev/vdb && lv lvcreate -n data -l 5 users");
    lab.sh("head -c 20971520 /dev/urandom > /dev/users/data");
    Some(lab)
}

/// Writes a plan to /tmp/plan.toml.
fn put_plan(lab: &mut LabGuest, toml: &str) {
    let lines: Vec<String> =
        toml.lines().map(|line| format!("'{}'", line.trim().replace('\'', "'\\''"))).collect();
    lab.sh(&format!("printf '%s\\n' {} > /tmp/plan.toml", lines.join(" ")));
}

/// Runs iotax, expects success, and reads the JSON on its stdout.
fn json(lab: &mut LabGuest, arguments: &str) -> Value {
    let printed =
        lab.sh(&format!("iotax {arguments} --yes --json - 2> /tmp/said || {{ cat /tmp/said; false; }}"));
    let json = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    assert_valid(&json);
    json
}

/// Asserts that of a run nothing is left: no volume, no mapping, no signature, no ledger; and that the user's is as it was.
struct Before {
    state: String,
}

/// What must be the same before and after: every mapping, group, mount, and the bytes of the user's disk.
const STATE: &str = "dmsetup ls | sort; for w in pvs vgs lvs; do DM_DISABLE_UDEV=1 lvm $w 2>&1; done; sha256sum < /dev/users/data; \
                     wipefs --no-act /dev/vda; cat /proc/mounts; losetup -a; ls /etc/lvm /tmp/home/.local/state/iotax/undo /dev";

impl Before {
    fn of(lab: &mut LabGuest) -> Self {
        lab.sh("mkdir -p /etc/lvm /tmp/home/.local/state/iotax/undo");
        Self { state: lab.sh(&format!("{{ {STATE}; }} 2>&1; true")) }
    }

    fn assert_nothing_changed(&self, lab: &mut LabGuest, after: &str) {
        assert_eq!(lab.sh(&format!("{{ {STATE}; }} 2>&1; true")), self.state, "{after}");
    }
}

/// The kinds and names of a target's layers, from the bottom up.
fn layers(json: &Value, target: &str) -> Vec<String> {
    let targets = json["targets"].as_array().expect("targets");
    let target = targets.iter().find(|t| t["name"] == target).unwrap_or_else(|| panic!("{target}"));
    let layers = target["layers"].as_array().expect("layers");
    layers.iter().map(|layer| format!("{} {}", layer["kind"], layer["name"]).replace('"', "")).collect()
}

const PLAN: &str = r#"
repeat = 2
defaults = { size = "48m", runtime = "100ms", ramp_time = "0s", bs = "64k" }
workload = [{ name = "read", rw = "randread" }, { name = "write", rw = "randwrite" }]
[[target]]
name = "host-device"
device = "/dev/vda"
[[target]]
name = "host-lvm"
device = "/dev/vda"
lvm = {}
[[target]]
name = "snapshot"
device = "/dev/vda"
lvm = { snapshot = true }
[[target]]
name = "thin"
device = "/dev/vda"
lvm = { kind = "thin" }
[[target]]
name = "thin-snapshot"
device = "/dev/vda"
lvm = { kind = "thin", snapshot = true }
[[target]]
name = "users-group"
lvm = { vg = "users" }
[[target]]
name = "users-snapshot"
lvm = { vg = "users", snapshot = true }
"#;

#[test]
fn every_kind_of_volume_is_measured_and_gone_afterwards() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab);
    put_plan(&mut lab, PLAN);
    let json = json(&mut lab, "run /tmp/plan.toml --overwrite /dev/vda");
    eprintln!("{}", serde_json::to_string_pretty(&json["targets"]).expect("JSON"));
    for comparison in json["comparisons"].as_array().expect("comparisons") {
        assert!(comparison["verdict"].is_string(), "{comparison}");
    }
    assert_eq!(json["measurements"].as_array().map(Vec::len), Some(7 * 2 * 2));
    before.assert_nothing_changed(&mut lab, "a run");
}
