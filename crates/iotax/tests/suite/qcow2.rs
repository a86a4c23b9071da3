//! Tests of snapshots in qcow2 images and of encryption, without a guest.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use iotax_testkit::{require, thorough};
use serde_json::Value;

use crate::fuse::{layers, plan};
use crate::lab::{Lab, assert_valid, start_until, text};

/// Returns the image of a target in the run's directory; `None` before it exists.
fn image_of(dir: &Path, target: &str) -> Option<PathBuf> {
    let mut folders = fs::read_dir(dir).ok()?.flatten();
    folders.find_map(|folder| {
        let path = folder.path().join(target).with_added_extension("qcow2");
        path.exists().then_some(path)
    })
}

/// Returns the header of an image as read by qemu-img; `None` if the image is gone or being changed.
fn header(image: &Path) -> Option<Value> {
    let info = Command::new("qemu-img").args(["info", "-U", "--output=json"]).arg(image).output().ok()?;
    serde_json::from_slice(&info.stdout).ok()
}

/// Returns the names of the snapshots in an image.
fn snapshots(image: &Path) -> Vec<String> {
    let list = header(image).and_then(|info| info["snapshots"].as_array().cloned()).unwrap_or_default();
    let names = list.iter().filter_map(|one| one["name"].as_str());
    // A name that is read while it is written is empty.
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

const MIB: u64 = 1 << 20;

/// Tests that each first write to a cluster allocates a new one, also in the second round, which starts from the filled image again.
#[test]
fn snapshots_in_an_image_are_kept_and_writes_copy() {
    require!(program "qemu-storage-daemon", "qemu-img");
    let lab = Lab::new();
    let stacks = [
        ("plain", "WORK > qcow2 file > virtio"),
        ("within", "WORK > qcow2 file + 3 internal snapshots > virtio"),
        ("mounted", "WORK > qcow2 file + internal snapshot > fuse"),
    ];
    let workload = "[[workload]]\nrw = 'randwrite'\niodepth = 4\nruntime = '1s'\n";
    let path = plan(&lab, &stacks, workload);
    let mut run = start_until(lab.iotax().args(["run", &path, "--yes", "--json", "out.json"]), "cell 1/");
    let (mut names, mut sizes) = (BTreeSet::new(), [const { Vec::new() }; 3]);
    while run.try_wait().expect("asked").is_none() {
        for ((target, _), sizes) in stacks.iter().zip(&mut sizes) {
            let Some(image) = image_of(&lab.work(), target) else { continue };
            sizes.extend(fs::metadata(&image).map(|found| found.blocks() * 512));
            if *target == "within" {
                names.extend(snapshots(&image));
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["iotax-1", "iotax-2", "iotax-3"]);
    for ((target, line), sizes) in stacks.iter().zip(sizes) {
        let most = sizes.iter().max().copied().expect("seen");
        // The image's 16 MiB, and those clusters again that were written.
        assert_eq!(most > 18 * MIB, line.contains("snapshot"), "{target}: {most}");
        // The clusters that the first round took were given back.
        let below_the_most = sizes.iter().scan(0, |most: &mut u64, size| {
            *most = (*most).max(*size);
            Some(*most - size)
        });
        assert_eq!(below_the_most.max() > Some(MIB), line.contains("snapshot"), "{target}");
    }
    let json = fs::read(lab.path("out.json")).expect("results");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    assert_valid(&json);
    let measurements = json["measurements"].as_array().expect("measurements");
    assert_eq!(measurements.len(), 6);
    for measurement in measurements {
        assert!(measurement["write"]["iops"].as_f64() > Some(0.0), "{measurement}");
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    assert!(layers(&json, "within").ends_with(&["qcow2", "internal snapshot", "virtio-blk export"]));
    lab.assert_nothing_left();
}

/// Tests that all data is encrypted, also in overlays, and read back correctly.
#[test]
fn an_encrypted_image_is_measured_and_keeps_what_is_written() {
    require!(program "qemu-storage-daemon", "qemu-img");
    let lab = Lab::new();
    let stacks = [
        ("split", "WORK > qcow2 file data_file=true encrypt=luks > virtio"),
        ("chain", "WORK > qcow2 file + 2 external snapshots encrypt=luks > virtio"),
        ("nbd", "WORK > qcow2 file encrypt=luks > nbd > virtio"),
        ("virtio", "WORK > qcow2 file encrypt=luks > virtio"),
        ("fuse", "WORK > qcow2 file encrypt=luks > fuse"),
        ("within", "WORK > qcow2 file + internal snapshot encrypt=luks > virtio"),
    ];
    // QEMU takes a second of CPU time for each header.
    let stacks = &stacks[..if thorough() { stacks.len() } else { 3 }];
    let workload = "[[workload]]\nrw = 'randrw'\nverify = 'crc32c'\n";
    let path = plan(&lab, stacks, workload);
    let mut run = start_until(lab.iotax().args(["run", &path, "--yes", "--json", "out.json"]), "cell 1/");
    let of_chain = ["chain.below-1", "chain.overlay-2"];
    let images: BTreeSet<&str> = stacks.iter().map(|(name, _)| *name).chain(of_chain).collect();
    let mut seen = BTreeSet::new();
    while run.try_wait().expect("asked").is_none() {
        for name in images.difference(&seen).copied().collect::<Vec<_>>() {
            let Some(header) = image_of(&lab.work(), name).and_then(|image| header(&image)) else { continue };
            // qemu-img writes the key's header last.
            if header["format-specific"]["data"]["encrypt"]["format"] == "luks" {
                seen.insert(name);
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(seen, images);
    let json = fs::read(lab.path("out.json")).expect("results");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    assert_valid(&json);
    let measurements = json["measurements"].as_array().expect("measurements");
    assert_eq!(measurements.len(), 2 * stacks.len());
    for measurement in measurements {
        assert!(measurement["write"]["iops"].as_f64() > Some(0.0), "{measurement}");
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
        let verify = &measurement["verify"];
        assert!(verify["checked"].as_u64() > Some(0), "{measurement}");
        // QEMU's FUSE export corrupts concurrent writes, those of the fill too, with and without encryption.
        let faults = verify["faults"].as_array().map_or(0, Vec::len);
        assert!(faults == 0 || measurement["target"] == "fuse", "{measurement}");
    }
    lab.assert_nothing_left();
}

/// Tests that overlays of operations are encrypted like the image.
#[test]
fn operations_are_carried_out_on_an_encrypted_image() {
    require!(program "qemu-storage-daemon", "qemu-img");
    let lab = Lab::new();
    let target = format!("{} > qcow2 file encrypt=luks > virtio", lab.work().display());
    let operations = ["snapshot", "commit", "stream", "mirror"];
    let events = operations.iter().flat_map(|operation| ["--event", operation]);
    let load = ["--size=16m", "--rate-iops=200", "--runtime=4s", "--ramp-time=0", "--yes", "--json", "-"];
    let json = lab.json(&["watch", &target].into_iter().chain(events).chain(load).collect::<Vec<_>>());
    let events = json["watch"][0]["events"].as_array().expect("events");
    let names: Vec<&str> = events.iter().filter_map(|event| event["name"].as_str()).collect();
    assert_eq!(names, operations, "{json}");
    assert!(events.iter().all(|event| event["failure"].is_null()), "{json}");
    assert_eq!((&json["watch"][0]["failed"], &json["watch"][0]["lost"]), (&0.into(), &0.into()), "{json}");
    lab.assert_nothing_left();
}

#[test]
fn what_an_image_does_not_take_is_refused_with_the_remedy() {
    let lab = Lab::new();
    for (keys, words) in [
        (
            "format = 'vmdk', snapshot = 'internal', internal_snapshots = 2",
            "snapshot needs format = \"qcow2\"",
        ),
        ("format = 'vmdk', internal_snapshots = 2", "internal_snapshots needs format = \"qcow2\""),
        ("format = 'qcow2', internal_snapshots = 2", "internal_snapshots needs snapshot = \"internal\""),
        ("format = 'qcow2', snapshot = 'external', internal_snapshots = 2", "writes go to the overlay"),
        ("format = 'qcow2', snapshot = 'internal', internal_snapshots = 65", "accepted: 1 to 64"),
        ("format = 'qcow2', snapshot = 'internal', internal_snapshots = 0", "for none leave snapshot out"),
        ("format = 'raw', encrypt = 'luks'", "a raw image is encrypted by format = \"luks\""),
        ("format = 'qcow2', encrypt = 'aes'", "accepted: luks"),
    ] {
        let target = format!("[[target]]\nname = 't'\nfile = {{ dir = 'WORK', {keys} }}\nvirtio = {{}}\n");
        let plan = lab.plan(&format!("{target}[[workload]]\nrw = 'randread'\nsize = '16m'\n"));
        let refused = lab.run(&["run", &plan.display().to_string(), "--yes"]);
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains(words), "{keys}: {said}");
    }
    lab.assert_nothing_left();
}
