//! Tests of ZFS in a guest: pools with volumes and filesystems are created, measured and removed, existing ones are recognised, and reads
//! served by the ARC are detected.

use iotax_model::units::Bytes;
use serde_json::Value;

use super::on_disks::{
    Before, assert_faults_leave_nothing, json, kill_and_clean, layers, put_plan, refused_words, start_until,
    unload,
};
use crate::lab_guest::{Extras, LabGuest};

/// The disk with the user's files and pool, and the one that iotax may overwrite.
const DISKS: [Bytes; 2] = [Bytes(8 << 30), Bytes(1 << 30)];

/// Prints the state that must not change: pools, mounts, devices, loop devices, the user's files, the ends of the disk that is overwritten.
const STATE: &str = "zpool list -H -o name,guid; zfs list -H -o name,volsize; cat /proc/mounts; losetup -a; dmsetup ls | sort; ls -a /srv /tmp /mine; \
                     ls /dev | grep -v '^loop[0-9]'; head -c 1048576 /dev/vdb | sha256sum; ls /tmp/home/.local/state/iotax/undo";

const RUN: &str = "run /tmp/plan.toml";
const OVERWRITING: &str = "run /tmp/plan.toml --overwrite /dev/vdb";

/// A guest with the user's files in /srv, and the user's pool `mine` over one of them, with a filesystem in /mine and a volume.
fn boot() -> Option<LabGuest> {
    let mut lab = LabGuest::boot_with(&Extras {
        programs: &["zpool", "zfs", "lvm", "wipefs", "mkfs.ext4", "mount", "umount", "losetup"],
        files: &["/lib/udev/zvol_id", "/lib/x86_64-linux-gnu/libgcc_s.so.1"],
        modules: &["zfs", "ext4", "loop"],
        disks: &DISKS,
        ..Extras::default()
    })?;
    lab.sh(
        "mkdir -p /tmp /etc /srv && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home",
    );
    lab.sh("mkfs.ext4 -q /dev/vda && mount /dev/vda /srv && truncate -s 256M /srv/mine.img");
    lab.sh("zpool create -o cachefile=none -O recordsize=64k mine /srv/mine.img");
    lab.sh("zfs create -V 8m -b 16k mine/volume && head -c 8388608 /dev/urandom > /mine/file && sync");
    lab.sh("touch /tmp/said /tmp/out /tmp/cleaned /tmp/killed /tmp/plan.toml");
    Some(lab)
}

/// A plan of targets that read and write.
fn plan(targets: &[(&str, &str)]) -> String {
    let target = |(name, stack): &(&str, &str)| format!("[[target]]\nname = '{name}'\nstack = '{stack}'\n");
    let targets: String = targets.iter().map(target).collect();
    format!(
        "repeat = 1\ndefaults = {{ size = '8m', runtime = '400ms', ramp_time = '0s', bs = '16k' }}\n\
         workload = [{{ name = 'read', rw = 'randread' }}, {{ name = 'write', rw = 'randwrite', verify = 'crc32c' }}]\n{targets}"
    )
}

const ON_FILE: &str = "/srv > raw file > loop direct_io=true";

#[test]
fn volumes_and_filesystems_are_measured_and_gone_afterwards() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    built(&mut lab, &before);
    rungs(&mut lab, &before);
    arc(&mut lab, &before);
    existing(&mut lab, &before);
}

fn built(lab: &mut LabGuest, before: &Before) {
    let zvol = format!("{ON_FILE} > zvol volblocksize=16k compression=lz4 sync=always primarycache=metadata");
    let dataset =
        format!("{ON_FILE} > zfs dataset recordsize=16k sync=always primarycache=metadata > raw file");
    let ext4 = format!("{ON_FILE} > zvol sync=always primarycache=metadata > ext4 > raw file");
    let on_device =
        "device /dev/vdb > thick LVM volume > zfs dataset sync=always primarycache=none > raw file";
    put_plan(lab, &plan(&[("zvol", &zvol), ("dataset", &dataset), ("ext4", &ext4), ("lvm", on_device)]));
    let json = json(lab, OVERWRITING);
    before.assert_nothing_changed(lab, "a run");
    let measurements = json["measurements"].as_array().expect("measurements");
    assert_eq!(measurements.len(), 2 * 4);
    for measurement in measurements {
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
        assert_eq!(measurement["verify"]["faults"].as_array().map_or(0, Vec::len), 0, "{measurement}");
        assert_eq!(measurement["counters"][0]["layer"], "ZFS ARC", "{measurement}");
    }
    // What is read and written reaches the disk.
    let lies = warnings(&json, "cache_lie");
    assert!(lies.is_empty(), "{lies:?}");

    let below = |target: &str| {
        let file = format!("file {target}.raw");
        let found = layers(&json, target);
        assert_eq!(found[..3], ["device vda", "filesystem ext4", &*file], "{target}");
        assert!(found[3].starts_with("loop loop"), "{found:?}");
        found[4..].to_vec()
    };
    assert_eq!(below("zvol"), ["zvol iotax-TAG-zvol-zfs/volume"]);
    assert_eq!(below("dataset"), ["filesystem zfs", "file dataset-2.raw"]);
    assert_eq!(below("ext4"), ["zvol iotax-TAG-ext4-zfs/volume", "filesystem ext4", "file ext4-2.raw"]);
    let on_device = layers(&json, "lvm");
    assert_eq!(on_device[0], "device vdb");
    assert_eq!(on_device[2..], ["filesystem zfs", "file lvm.raw"]);
    let properties = detail(&json, "zvol", "zvol");
    assert!(
        properties.contains("volblocksize=16K, compression=lz4, sync=always, primarycache=metadata"),
        "{properties}"
    );
    let properties = detail(&json, "dataset", "filesystem");
    assert!(
        properties.contains("recordsize=16K, compression=off, sync=always, primarycache=metadata"),
        "{properties}"
    );
}

/// Builds the rungs of a ladder.
fn rungs(lab: &mut LabGuest, before: &Before) {
    let ladder = "ladder /srv --rungs host-loop,host-zvol,host-zfs --size 16m --repeat 1 --runtime 400ms --ramp-time 0s --workloads randread-4k-qd1";
    let json = json(lab, ladder);
    before.assert_nothing_changed(lab, "a ladder");
    assert!(layers(&json, "host-zvol").contains(&"zvol iotax-TAG-host-zvol-zfs/volume".to_owned()));
    assert!(layers(&json, "host-zfs").contains(&"filesystem zfs".to_owned()));
    let lies = warnings(&json, "cache_lie");
    assert!(lies.is_empty(), "{lies:?}");
}

/// Measures 64 MiB just written, with and without data in the ARC.
fn arc(lab: &mut LabGuest, before: &Before) {
    let target = |name: &str, cache: &str| {
        format!(
            "[[target]]\nname = '{name}'\nstack = '{ON_FILE} > zfs dataset primarycache={cache} > raw file'\n"
        )
    };
    let work = "repeat = 2\ndefaults = { size = '64m', runtime = '400ms', ramp_time = '0s', bs = '4k' }\nworkload = [{ name = 'read', rw = 'randread' }]\n";
    put_plan(lab, &format!("{work}{}{}", target("hot", "all"), target("cold", "metadata")));
    let json = json(lab, RUN);
    before.assert_nothing_changed(lab, "a run with data in the ARC");
    let counts = |target: &str, name: &str| -> u64 {
        let all = json["measurements"].as_array().expect("measurements").iter();
        let of_target = all.filter(|m| m["target"] == target);
        of_target.map(|m| m["counters"][0]["counts"][name].as_u64().expect("counted")).sum()
    };
    let [hits, misses] = ["data hits", "data misses"].map(|name| counts("hot", name));
    assert!(hits > 0 && misses * 10 < hits, "{hits} hits, {misses} misses");
    assert!(counts("cold", "data misses") > 0);
    let lies = warnings(&json, "cache_lie");
    let (hot, cold): (Vec<&Value>, Vec<&Value>) = lies.iter().partition(|lie| lie["target"] == "hot");
    assert!(hot.len() == 2 && cold.is_empty(), "{lies:?}");
    let (evidence, remedy) = (hot[0]["evidence"].as_str(), hot[0]["remedy"].as_str());
    assert!(evidence.is_some_and(|text| text.contains("its cache in memory (ARC) answered")), "{evidence:?}");
    assert!(remedy.is_some_and(|text| text.contains("primarycache = \"metadata\" for zfs")), "{remedy:?}");
}

/// Measures the user's existing files and volumes on ZFS.
fn existing(lab: &mut LabGuest, before: &Before) {
    let bench = "--rw randread --size 8m --runtime 400ms --ramp-time 0s --repeat 1";
    let below = ["device vda", "filesystem ext4", "file mine.img"];
    let of_file = json(lab, &format!("bench /mine/file {bench}"));
    assert_eq!(layers(&of_file, "file")[..3], below);
    assert_eq!(layers(&of_file, "file")[3..], ["filesystem zfs", "file file"]);
    assert!(detail(&of_file, "file", "filesystem").contains("recordsize=64K"));
    let of_volume = json(lab, &format!("bench /dev/zd0 {bench}"));
    assert_eq!(layers(&of_volume, "zd0")[..3], below);
    assert_eq!(layers(&of_volume, "zd0")[3..], ["zvol mine/volume"]);
    assert!(detail(&of_volume, "zd0", "zvol").contains("volblocksize=16K"));
    for json in [&of_file, &of_volume] {
        assert_eq!(json["measurements"][0]["counters"][0]["layer"], "ZFS ARC", "{}", json["measurements"]);
        let lies = warnings(json, "cache_lie");
        assert!(lies.iter().any(|lie| lie["evidence"].to_string().contains("ARC")), "{lies:?}");
    }
    before.assert_nothing_changed(lab, "a look at what the user has");
}

/// Returns the warnings of one kind.
fn warnings(json: &Value, kind: &str) -> Vec<Value> {
    let all = json["warnings"].as_array().into_iter().flatten();
    all.filter(|warning| warning["kind"] == kind).cloned().collect()
}

/// Returns the details of a target's topmost layer of one kind.
fn detail(json: &Value, target: &str, kind: &str) -> String {
    let targets = json["targets"].as_array().expect("targets");
    let target = targets.iter().find(|found| found["name"] == target).expect("there");
    let mut layers = target["layers"].as_array().expect("layers").iter().rev();
    let layer = layers.find(|layer| layer["kind"] == kind).expect("such a layer");
    layer["detail"].as_str().expect("text").to_owned()
}

#[test]
fn a_killed_run_leaves_no_pool_and_touches_none_of_the_users() {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    let zvol = format!("{ON_FILE} > zvol volblocksize=16k");
    put_plan(&mut lab, &plan(&[("zvol", &zvol), ("dataset", DATASET)]));
    start_until(&mut lab, OVERWRITING, "cell 2/");
    kill_and_clean(&mut lab);
    before.assert_nothing_changed(&mut lab, "a kill");
    replaced(&mut lab, &before);
    lost(&mut lab);
    refusals(&mut lab, &before);
}

/// Tests a filesystem on a device that the plan may overwrite.
const DATASET: &str = "device /dev/vdb > thick LVM volume > zfs dataset > raw file";

#[test]
fn a_fault_at_any_line_of_a_zvols_undo_log_leaves_nothing() {
    let stack = format!("{ON_FILE} > zvol volblocksize=16k");
    faults(&stack, RUN, [("kill-after", 14, &[8]), ("kill", 14, &[9, 10]), ("error", 7, &[9])]);
}

#[test]
fn a_fault_at_any_line_of_a_datasets_undo_log_leaves_nothing() {
    faults(DATASET, OVERWRITING, [("kill-after", 14, &[11]), ("kill", 14, &[6]), ("error", 7, &[6])]);
}

/// Runs a plan of one target with a fault at lines of the undo log. In a run without a fault, half of the lines record steps, half their
/// undoing.
fn faults(stack: &str, run: &str, faults: [(&str, usize, &[usize]); 3]) {
    let Some(mut lab) = boot() else { return };
    let before = Before::of(&mut lab, STATE);
    put_plan(&mut lab, &plan(&[("one", stack)]));
    assert_faults_leave_nothing(&mut lab, &before, run, faults);
}

/// Tests that `clean` leaves a pool alone that only has the name of a killed run's pool.
fn replaced(lab: &mut LabGuest, before: &Before) {
    put_plan(lab, &plan(&[("dataset", &format!("{ON_FILE} > zfs dataset > raw file"))]));
    start_until(lab, RUN, "cell 2/");
    lab.sh("{ kill -KILL $run; wait $run; } 2> /tmp/killed; kill -KILL $(pidof iotax) 2> /tmp/killed; true");
    lab.sh("pool=$(zpool list -H -o name | grep iotax-) && umount $pool && zpool destroy $pool");
    lab.sh("truncate -s 128M /srv/other.img && zpool create -o cachefile=none -O mountpoint=none $pool /srv/other.img");
    let (status, said) = lab.try_sh("iotax clean 2>&1");
    assert!(status == "4" && said.contains("another pool has this name now; left alone"), "{status}: {said}");
    lab.sh("zpool list -H -o name | grep -qx $pool && zpool destroy $pool && rm /srv/other.img");
    lab.sh("iotax clean > /tmp/cleaned 2>&1 || { cat /tmp/cleaned; false; }");
    before.assert_nothing_changed(lab, "a pool of the same name");
}

/// Tests a failing disk of a pool: the run ends although all I/O waits for the disk, and `clean` names the next step.
fn lost(lab: &mut LabGuest) {
    let table = |kind: &str| format!("0 2097152 {kind}");
    lab.map("disk", &[table("linear /dev/vdb 0")]);
    let before = Before::of(lab, STATE);
    let dataset = DATASET.replace("/dev/vdb", "/dev/mapper/disk");
    let writes = plan(&[("lost", &dataset)]).replace("{ name = 'read', rw = 'randread' }, ", "");
    put_plan(lab, &writes.replace("400ms", "3s"));
    start_until(lab, "run /tmp/plan.toml --overwrite /dev/mapper/disk", "cell 1/");
    let turned_into = |kind: &str| {
        format!(
            "dmsetup suspend --nolockfs --noflush disk && echo {} | dmsetup load disk; dmsetup resume disk",
            table(kind)
        )
    };
    lab.sh(&turned_into("error"));
    lab.sh("for i in $(seq 600); do kill -0 $run 2> /tmp/killed || break; usleep 200000; done");
    let (status, _) = lab.try_sh("wait $run");
    let said = lab.sh("cat /tmp/said");
    let words = "everything would wait for it; run zpool clear iotax-";
    assert!(status == "3" && said.contains(words), "{status}: {said}");
    lab.sh(&turned_into("linear /dev/vdb 0"));
    lab.sh("zpool clear $(zpool list -H -o name | grep iotax-)");
    lab.sh("for i in $(seq 100); do iotax clean > /tmp/cleaned 2>&1 && break; usleep 200000; done");
    before.assert_nothing_changed(lab, "a disk that failed and came back");
    lab.sh("dmsetup remove disk");
}

fn refusals(lab: &mut LabGuest, before: &Before) {
    put_plan(lab, &plan(&[("zvol", &format!("{ON_FILE} > zvol"))]));
    let (status, said) = lab.try_sh(&format!("PATH=/bin /lab/iotax {RUN} --yes 2>&1"));
    let words = "was not found in PATH; install it (Debian: apt-get install zfsutils-linux)";
    assert!(status == "4" && said.contains(words), "{status}: {said}");
    put_plan(lab, &plan(&[("zvol", "device /dev/vdb > zvol")]));
    refused_words(
        lab,
        OVERWRITING,
        "2",
        &["zpool writes a partition table to a whole device; put lvm = {} between"],
    );
    let limited = format!("{ON_FILE} > zvol > cgroup riops=500");
    put_plan(lab, &plan(&[("limited", &limited)]));
    refused_words(lab, RUN, "2", &["cgroup: ZFS reads and writes by threads of the kernel's"]);
    before.assert_nothing_changed(lab, "refusals");
    lab.sh("umount /mine && zpool export mine");
    unload(lab, "zfs");
    put_plan(lab, &plan(&[("zvol", &format!("{ON_FILE} > zvol"))]));
    refused_words(
        lab,
        RUN,
        "4",
        &["zfs: there is no zfs in /proc/filesystems: modprobe zfs (Debian: apt-get install zfs-dkms"],
    );
}
