//! Tests of kernel layers in a guest with its own disks: dm-crypt, dm-integrity, dm-cache, dm-writecache and md are built, measured and
//! removed.

use iotax_model::units::Bytes;
use iotax_testkit::thorough;

use super::on_disks::{
    Before, assert_faults_leave_nothing, json, kill_and_clean, layers, put_plan, refused_words, start_until,
    unload,
};
use crate::lab_guest::{Extras, LabGuest};

/// The disk that iotax may overwrite, the one with the user's files, the one with the user's group, and one with a container of the user's.
const DISKS: [Bytes; 4] = [Bytes(256 << 20), Bytes(1 << 30), Bytes(256 << 20), Bytes(64 << 20)];

/// Prints the state that must not change: mappings, arrays, loop devices with a file, mounts, files, and the signatures of the disks.
const STATE: &str = "dmsetup ls | sort; grep : /proc/mdstat; losetup -a; cat /proc/mounts; ls -a /srv /tmp /dev/mapper /run/cryptsetup; ls /dev | grep -v '^loop[0-9]'; \
                     DM_DISABLE_UDEV=1 lvm lvs; for disk in /dev/vda /dev/vdc /dev/vdd; do wipefs --no-act $disk; done; \
                     head -c 1048576 /dev/vda | sha256sum; tail -c 1048576 /dev/vda | sha256sum; ls /tmp/home/.local/state/iotax/undo";

/// A guest whose second disk holds the user's files in /srv, the third the user's group `users`, and the fourth a LUKS container.
fn boot() -> Option<LabGuest> {
    let mut lab = LabGuest::boot_with(&Extras {
        programs: &[
            "cryptsetup",
            "integritysetup",
            "mdadm",
            "lvm",
            "wipefs",
            "mkfs.ext4",
            "mount",
            "umount",
            "losetup",
        ],
        modules: &[
            "dm_crypt",
            "xts",
            "ecb",
            "algif_skcipher",
            "dm_delay",
            "dm_integrity",
            "dm_cache",
            "dm_cache_smq",
            "dm_writecache",
            "raid0",
            "raid1",
            "raid456",
            "raid10",
            "ext4",
            "loop",
        ],
        disks: &DISKS,
        ..Extras::default()
    })?;
    lab.sh(
        "mkdir -p /tmp /etc /srv && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home",
    );
    lab.sh("mkfs.ext4 -q /dev/vdb && mount /dev/vdb /srv && echo mine > /srv/note");
    lab.sh("lv() { lvm \"$@\" > /tmp/lvm.log 2>&1 || { cat /tmp/lvm.log; return 1; }; }");
    lab.sh("lv pvcreate -y /dev/vdc && lv vgcreate users /dev/vdc");
    lab.sh("echo secret | cryptsetup luksFormat --batch-mode --pbkdf pbkdf2 --pbkdf-force-iterations 1000 /dev/vdd");
    lab.sh("rm -rf /tmp/lvm.log /run/cryptsetup; touch /tmp/said /tmp/out /tmp/cleaned /tmp/killed /tmp/plan.toml");
    // iotax itself must notice that there is no udev.
    lab.sh("unset DM_DISABLE_UDEV");
    Some(lab)
}

/// Windows long enough for completed I/O while other tests run.
const DEFAULTS: &str = r#"
defaults = { size = "4m", runtime = "400ms", ramp_time = "0s", bs = "64k" }
workload = [{ name = "read", rw = "randread" }, { name = "write", rw = "randwrite" }]
"#;

/// Tests each layer on a loop device on a file, on a device, on a volume, and on another layer.
const TARGETS: &str = r#"
[[target]]
name = "loop"
stack = "/srv > raw file > loop direct_io=true"
[[target]]
name = "luks"
stack = "/srv > raw file > loop direct_io=true > luks"
[[target]]
name = "luks-queues"
stack = "/srv > raw file > loop direct_io=true > luks no_read_workqueue=true"
[[target]]
name = "luks-all"
stack = "/srv > raw file > loop direct_io=true > luks cipher=aes-xts-plain64 key_size=256 sector_size=4096 no_read_workqueue=true no_write_workqueue=true allow_discards=true"
[[target]]
name = "luks-on-device"
device = "/dev/vda"
luks = {}
filesystem = { type = "ext4" }
file = {}
[[target]]
name = "luks-on-volume"
lvm = { vg = "users" }
luks = {}
[[target]]
name = "integrity"
stack = "/srv > raw file > loop direct_io=true > integrity mode=journal sector_size=4096"
[[target]]
name = "integrity-bitmap"
stack = "/srv > raw file > loop direct_io=true > integrity mode=bitmap sector_size=4096"
[[target]]
name = "delay"
stack = "/srv > raw file > loop direct_io=true > delay read=20ms write=30ms"
[[target]]
name = "nested"
stack = "/srv > raw file > loop direct_io=true > delay read=1ms > ext4 > raw file > loop direct_io=true > ext4 > raw file"
[[target]]
name = "cache"
stack = "/srv > raw file > loop direct_io=true > dm-cache size=4m"
[[target]]
name = "cache-on-volume"
lvm = { vg = "users" }
cache = { dir = "/srv", size = "8m", mode = "writeback", block_size = "32k" }
[[target]]
name = "writecache"
stack = "/srv > raw file > loop direct_io=true > dm-writecache size=4m > luks"
[[target]]
name = "raid0"
md = { dir = "/srv", level = "raid0", raid_devices = 2, chunk = "64k" }
[[target]]
name = "raid1"
md = { dir = "/srv", level = "raid1", raid_devices = 2, bitmap = "internal" }
[[target]]
name = "raid5"
md = { dir = "/srv", level = "raid5", raid_devices = 3, chunk = "64k" }
[[target]]
name = "raid10"
md = { dir = "/srv", level = "raid10", raid_devices = 3 }
[[target]]
name = "all"
md = { dir = "/srv", level = "raid1", raid_devices = 2 }
luks = {}
filesystem = { type = "ext4" }
file = {}
"#;

/// Some of the targets.
fn few(names: &[&str]) -> String {
    let is_asked = |target: &&str| names.iter().any(|name| target.contains(&format!("name = \"{name}\"")));
    TARGETS.split("[[target]]").filter(is_asked).flat_map(|target| ["[[target]]", target]).collect()
}

#[test]
fn each_layer_of_the_kernel_is_measured_and_gone_afterwards() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    put_plan(&mut lab, &format!("repeat = 1{DEFAULTS}{TARGETS}"));
    let json = json(&mut lab, "run /tmp/plan.toml --overwrite /dev/vda");
    before.assert_nothing_changed(&mut lab, "a run");
    assert_eq!(json["measurements"].as_array().map(Vec::len), Some(18 * 2));
    for measurement in json["measurements"].as_array().expect("measurements") {
        assert_eq!(measurement["errors"].as_u64().unwrap_or(0), 0, "{measurement}");
    }

    let of = |target: &str, workload: &str| {
        let all = json["measurements"].as_array().expect("measurements");
        all.iter().find(|m| m["target"] == target && m["workload"] == workload).expect("measured").clone()
    };
    for (workload, least) in [("read", 20e6), ("write", 30e6)] {
        let mean = of("delay", workload)["metrics"]["latency_mean"].as_f64().expect("I/Os");
        assert!(mean >= least, "{workload}: {mean}");
    }
    let counters = of("cache", "read")["counters"].clone();
    let counts = &counters[0]["counts"];
    let reads = ["read hits", "read misses"].map(|name| counts[name].as_u64().expect("counted"));
    assert!(counters[0]["layer"] == "dm-cache" && reads.iter().sum::<u64>() > 0, "{counters}");

    let top = |target: &str| layers(&json, target).pop().expect("layers");
    assert_eq!(top("delay"), "dm iotax-TAG-delay-delay");
    assert_eq!(top("luks"), "dm iotax-TAG-luks");
    assert_eq!(layers(&json, "luks-on-device")[..2], ["device vda", "dm iotax-TAG-luks-on-device"]);
    let on_volume = ["device vdc", "dm users/iotax-TAG-volume1", "dm iotax-TAG-luks-on-volume"];
    assert_eq!(layers(&json, "luks-on-volume"), on_volume);
    assert_eq!(top("integrity"), "dm iotax-TAG-integrity-integrity");
    assert_eq!(top("cache"), "dm iotax-TAG-cache-cache");
    let cached = layers(&json, "cache-on-volume");
    let below =
        ["device vdb", "filesystem ext4", "file cache-on-volume.cache.raw", "dm users/iotax-TAG-volume2"];
    assert!(below.iter().all(|layer| cached.contains(&(*layer).to_owned())), "{cached:?}");
    assert_eq!(cached.last().expect("layers"), "dm iotax-TAG-cache-on-volume-cache");
    // The fast file is on a disk, whose counters have what it took.
    for warning in json["warnings"].as_array().into_iter().flatten() {
        let is_cached = warning["target"].as_str().is_some_and(|target| target.contains("cache"));
        assert!(!(is_cached && warning["kind"] == "cache_lie"), "{warning}");
    }
    for level in ["raid0", "raid1", "raid5", "raid10"] {
        let made = layers(&json, level);
        assert!(made.last().expect("layers").starts_with("md md"), "{made:?}");
        let loops = made.iter().filter(|layer| layer.starts_with("loop ")).count();
        assert_eq!(loops, if level == "raid0" || level == "raid1" { 2 } else { 3 }, "{made:?}");
    }
    assert!(layers(&json, "all").contains(&"dm iotax-TAG-all".to_owned()), "{:?}", layers(&json, "all"));
}

#[test]
fn a_killed_run_with_arrays_and_mappings_can_be_cleaned() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    let targets = if thorough() {
        TARGETS.to_owned()
    } else {
        few(&["luks-all", "luks-on-device", "cache-on-volume", "writecache", "raid1", "raid5", "all"])
    };
    put_plan(&mut lab, &format!("repeat = 1{DEFAULTS}{targets}"));
    let moments = ["cell 9/", "filled luks-on-device", "filled raid5", "cell 20/"];
    for moment in &moments[..if thorough() { 4 } else { 1 }] {
        start_until(&mut lab, "run /tmp/plan.toml --overwrite /dev/vda", moment);
        if *moment == "cell 9/" {
            lab.sh("kill -STOP $run $(pidof iotax)");
            // Nothing is synchronized beside a measurement, because nothing needs it.
            let md = |file: &str| format!("cat /sys/block/md*/md/{file} | sort -u");
            assert_eq!(lab.sh(&md("sync_action")), "idle");
            assert_eq!(lab.sh(&md("degraded")), "0");
            // All is written by now, and all copies are the same.
            lab.sh("for md in /sys/block/md*/md/sync_action; do echo check > $md; done");
            lab.sh(&format!(
                "for i in $(seq 600); do [ \"$({})\" = idle ] && break; usleep 100000; done",
                md("sync_action")
            ));
            assert_eq!(lab.sh(&md("mismatch_cnt")), "0");
            // Both caches hold what was filled.
            let tag = "$(ls /tmp/home/.local/state/iotax/undo | sed -n 's/[.]jsonl$//p')";
            let table = lab.sh(&format!("dmsetup table iotax-{tag}-cache-on-volume-cache"));
            assert!(table.contains(" 64 1 writeback smq 0"), "{table}");
            let status = lab.sh(&format!("dmsetup status iotax-{tag}-cache-on-volume-cache"));
            // A write of a whole block that is taken into the cache at once is neither a hit nor a miss.
            let used = status.split(' ').nth(6).and_then(|used| used.split_once('/')).expect("blocks").0;
            assert_eq!(used.parse::<u64>().expect("blocks"), (4 << 20) / (32 << 10), "{status}");
            let status = lab.sh(&format!("dmsetup status iotax-{tag}-writecache-cache"));
            let blocks: Vec<u64> =
                status.split(' ').skip(3).take(3).map(|blocks| blocks.parse().expect("blocks")).collect();
            assert!(
                blocks[0] == 0 && blocks[1] > 900 && blocks[2] < blocks[1],
                "errors, blocks, free ones: {status}"
            );
            // The key is known to nobody any more.
            assert_eq!(lab.sh("ls /tmp/iotax-*/*.key 2> /tmp/killed | wc -l"), "0");
            let table = lab.sh("dmsetup table iotax-$(ls /tmp/home/.local/state/iotax/undo | sed -n 's/[.]jsonl$//p')-luks-all");
            for word in [
                "aes-xts-plain64",
                "allow_discards",
                "no_read_workqueue",
                "no_write_workqueue",
                "sector_size:4096",
            ] {
                assert!(table.contains(word), "{word}: {table}");
            }
        }
        kill_and_clean(&mut lab);
        before.assert_nothing_changed(&mut lab, moment);
        eprintln!("killed at {moment:?}: {}", lab.sh("cat /tmp/cleaned").lines().count());
    }
}

/// Tests faults with a few steps of each kind.
const STACKS: &str = r#"
repeat = 1
defaults = { size = "4m", runtime = "400ms", ramp_time = "0s", bs = "4k" }
workload = [{ name = "write", rw = "randwrite" }]
[[target]]
name = "device"
device = "/dev/vda"
luks = {}
filesystem = { type = "ext4" }
file = {}
[[target]]
name = "raid"
stack = "/srv > raid1 raid_devices=2 > integrity mode=bitmap"
[[target]]
name = "cache"
stack = "/srv > raw file > loop direct_io=true > dm-cache size=4m"
"#;

#[test]
fn a_fault_at_any_line_leaves_no_mapping_and_no_array() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    put_plan(&mut lab, STACKS);
    // Of a run without a fault half of the lines record what is done, the others that it is undone.
    let faults: [(&str, usize, &[usize]); 3] =
        [("kill-after", 54, &[3, 14, 26, 28, 44, 54]), ("kill", 54, &[26, 52]), ("error", 32, &[8, 27])];
    assert_faults_leave_nothing(&mut lab, &before, "run /tmp/plan.toml --overwrite /dev/vda", faults);
}

#[test]
fn layers_that_cannot_be_made_are_refused_before_anything_is_touched() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    let refused = |lab: &mut LabGuest, target: &str, size: &str, status: &str, words: &[&str]| {
        let workload = format!("repeat = 1\nworkload = [{{ rw = \"randwrite\", size = \"{size}\" }}]");
        put_plan(lab, &format!("{workload}\n[[target]]\nname = \"t\"\n{target}"));
        let device = target.split('"').nth(1).filter(|word| word.starts_with("/dev"));
        let overwrite = device.map(|device| format!("--overwrite {device}")).unwrap_or_default();
        refused_words(lab, &format!("run /tmp/plan.toml {overwrite}"), status, words);
    };
    let device = "device = \"/dev/vda\"\nluks = {}";
    refused(&mut lab, device, "240m", "2", &["/dev/vda", "more than its length of 224 MiB"]);
    refused(&mut lab, &device.replace("vda", "vdd"), "8m", "4", &["crypto_LUKS", "--overwrite-signature"]);
    let twice = format!("{device}\n[[target]]\nname = \"u\"\ndevice = \"/dev/vda\"");
    refused(
        &mut lab,
        &twice,
        "8m",
        "2",
        &["\"t\" and \"u\" are on the same device, and luks takes all of it"],
    );
    put_plan(&mut lab, &format!("workload = [{{ size = \"8m\" }}]\n[[target]]\nname = \"t\"\n{device}"));
    refused_words(&mut lab, "run /tmp/plan.toml", "2", &["it would be overwritten; name it once more"]);
    let array = "md = { dir = \"/srv\", level = \"raid1\", raid_devices = 4 }";
    refused(&mut lab, array, "400m", "4", &["/srv: ", "are needed and", "are free"]);
    refused(&mut lab, &array.replace("4 }", "2, chunk = \"64k\" }"), "8m", "2", &["raid1 has no chunks"]);
    let unknown = "stack = \"/srv > raw file > loop direct_io=true > luks cipher=none-of-these\"";
    before.assert_nothing_changed(&mut lab, "refusals");
    // The kernel knows no such cipher; what was begun is undone.
    refused(&mut lab, unknown, "8m", "4", &["cryptsetup luksFormat", "none-of-these"]);
    before.assert_nothing_changed(&mut lab, "a cipher that is none");

    refused(
        &mut lab,
        "stack = \"/srv > raw file > loop direct_io=true > dm-cache size=4m dir=/none\"",
        "8m",
        "2",
        &["/none: no such directory"],
    );
    refused(
        &mut lab,
        "stack = \"/srv > raw file > loop direct_io=true > dm-cache size=4g\"",
        "8m",
        "4",
        &["are needed and"],
    );
    refused(&mut lab, "lvm = { vg = \"users\" }\ncache = { size = \"4m\" }", "8m", "2", &["cache needs dir"]);

    unload(&mut lab, "dm_crypt dm_integrity dm_cache_smq dm_cache dm_writecache raid10 raid456");
    let stack = |top: &str| format!("stack = \"/srv > raw file > loop direct_io=true > {top}\"");
    refused(
        &mut lab,
        &stack("luks"),
        "8m",
        "4",
        &["has no crypt, which luks needs (its module is dm_crypt)"],
    );
    refused(&mut lab, &stack("integrity mode=journal"), "8m", "4", &["(its module is dm_integrity)"]);
    refused(
        &mut lab,
        &stack("dm-cache size=4m"),
        "8m",
        "4",
        &["has no cache, which cache needs (its module is dm_cache)"],
    );
    refused(&mut lab, &stack("dm-writecache size=4m"), "8m", "4", &["(its module is dm_writecache)"]);
    let raid5 = "md = { dir = \"/srv\", level = \"raid5\", raid_devices = 3 }";
    refused(&mut lab, raid5, "8m", "4", &["this kernel has no raid5 of md's (its module is raid456)"]);
}
