//! Tests of devices, filesystems and loop devices from the command line.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::Duration;

use iotax_testkit::require;
use serde_json::Value;

use crate::disk::{Disk, run, uses_of};
use crate::lab::{Lab, assert_valid, spawn_until, start_until, text};

/// Returns kinds and names of the first target's layers, from the test's loop device upwards.
fn layers(json: &Value, disk: &Disk) -> Vec<String> {
    assert_valid(json);
    let layers = json["targets"][0]["layers"].as_array().expect("layers");
    let all = layers.iter().map(|layer| format!("{} {}", layer["kind"], layer["name"]).replace('"', ""));
    let ours = format!("loop {}", disk.name().trim_start_matches("/dev/"));
    all.skip_while(|layer| *layer != ours).skip(1).collect()
}

const SHORT: [&str; 6] = ["--runtime", "100ms", "--ramp-time", "0s", "--json", "-"];

#[test]
fn a_device_is_read_as_it_is_and_overwritten_only_if_it_is_named_twice() {
    let Some(disk) = Disk::new(32 << 20) else { return };
    let lab = Lab::new();
    let link = lab.path("by-id");
    symlink(&disk.node, &link).expect("linked");
    let link = link.to_str().expect("UTF-8");
    let json = lab.json(&[&["bench", disk.name()][..], &SHORT].concat());
    assert_eq!(layers(&json, &disk), Vec::<String>::new());
    let refused = lab.run(&["bench", disk.name(), "--rw", "randwrite"]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("iotax bench {0} --overwrite {0}", disk.name())), "{said}");
    assert!(disk.content().iter().all(|byte| *byte == 0), "nothing was written");

    // Under two names; only as much of it as the workload needs.
    let write = ["bench", link, "--overwrite", disk.name(), "--rw", "randwrite", "--size", "8m"];
    let json = lab.json(&[&write[..], &SHORT].concat());
    assert!(json["measurements"][0]["write"]["ios"].as_u64() > Some(0), "{json}");
    let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let is_filled = |bytes: &[u8]| bytes.chunks(4096).all(|block| !is_blank(block));
    let content = disk.content();
    let (filled, rest) = content.split_at(8 << 20);
    assert!(is_filled(&filled[1 << 20..]), "filled");
    assert!(is_blank(rest), "no more than asked for");
    // Without a size the whole. Both ends are blank again afterwards, so that it can be named once more.
    lab.json(&[&["bench", disk.name(), "--overwrite", link][..], &SHORT].concat());
    let content = disk.content();
    let end = content.len() - (1 << 20);
    assert!(is_filled(&content[1 << 20..end]), "filled");
    assert!(is_blank(&content[..1 << 20]) && is_blank(&content[end..]), "as empty as before");

    run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), disk.node.as_path()]);
    let before = disk.content();
    let refused = lab.run(&["bench", disk.name(), "--overwrite", disk.name()]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert!(said.contains("ext4 at 0x438") && said.contains("--overwrite-signature"), "{said}");
    assert!(disk.content() == before, "unchanged");
    let bench = ["bench", disk.name(), "--overwrite", disk.name(), "--overwrite-signature"];
    lab.json(&[&bench[..], &SHORT].concat());
    assert_eq!(disk.signatures(), "");
    lab.assert_nothing_left();
}

#[test]
fn every_filesystem_carries_a_file_and_leaves_the_device_without_one() {
    require!(program "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "losetup");
    for (keys, bytes, option) in [
        ("type = 'ext4', mount_options = 'data=writeback,noatime'", 32 << 20, "noatime"),
        ("type = 'xfs', mount_options = 'largeio'", 300 << 20, "largeio"),
        ("type = 'btrfs', nodatacow = true", 120 << 20, "rw"),
    ] {
        let Some(disk) = Disk::new(bytes) else { return };
        let lab = Lab::new();
        let plan = |more: &str| {
            lab.plan(&format!(
                "repeat = 1\n[[workload]]\nrw = 'randwrite'\nsize = '4m'\nruntime = '100ms'\nramp_time = '0s'\n\
                 [[target]]\nname = 't'\ndevice = '{}'\nfilesystem = {{ {keys} }}\nfile = {{}}\n{more}",
                disk.name()
            ))
        };
        let run = ["run", "plan.toml", "--yes", "--overwrite", disk.name(), "--json", "-"];
        plan("");
        let json = lab.json(&run);
        let kind = keys.split('\'').nth(1).expect("a kind");
        assert_eq!(layers(&json, &disk), [format!("filesystem {kind}"), "file t.raw".into()]);
        let mounted = json["targets"][0]["layers"].to_string();
        assert!(mounted.contains(option), "{mounted}");
        // On top of that file a loop device, through the page cache.
        plan("loop = { direct_io = false }");
        let json = lab.json(&run);
        let layers = layers(&json, &disk);
        assert!(layers.len() == 3 && layers[2].starts_with("loop loop"), "{layers:?}");
        assert!(json["targets"][0]["layers"].to_string().contains("t.raw, 4.00 MiB, through the page cache"));
        // Direct I/O on this loop device draws no warning; an answer from memory does.
        let mut kinds =
            json["warnings"].as_array().expect("warnings").iter().map(|warning| warning["kind"].as_str());
        assert!(!kinds.any(|kind| kind == Some("buffered_direct")), "{}", json["warnings"]);
        assert_eq!(disk.signatures(), "");
        lab.assert_nothing_left();
    }
}

#[test]
fn a_filesystem_that_cannot_be_mounted_is_taken_away_again() {
    let Some(disk) = Disk::new(32 << 20) else { return };
    let lab = Lab::new();
    lab.plan(&format!(
        "[[workload]]\nsize = '4m'\n[[target]]\nname = 't'\ndevice = '{}'\nfile = {{}}\n\
         filesystem = {{ type = 'ext4', mount_options = 'nonsense=3' }}",
        disk.name()
    ));
    let output = lab.run(&["run", "plan.toml", "--yes", "--overwrite", disk.name()]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("nonsense=3") && said.contains("bad option"), "{said}");
    assert_eq!(disk.signatures(), "");
    lab.assert_nothing_left();
}

#[test]
fn a_directory_is_measured_by_a_file_in_it() {
    let lab = Lab::new();
    let work = lab.work();
    let work = work.to_str().expect("UTF-8");
    let json = lab.json(&[&["bench", work, "--size", "4m", "--rw", "randwrite"][..], &SHORT].concat());
    let layers = json["targets"][0]["layers"].as_array().expect("layers");
    assert_eq!(layers.last().expect("a layer")["name"], "work.raw");
    lab.assert_nothing_left();
    // A filesystem without a device is described by type, mount point and options.
    let json = lab.json(&[&["bench", "/dev/shm", "--size", "1m", "--direct=0"][..], &SHORT].concat());
    let filesystem = &json["targets"][0]["layers"][0];
    assert_eq!((&filesystem["kind"], &filesystem["name"]), (&"filesystem".into(), &"tmpfs".into()));
    let detail = filesystem["detail"].as_str().expect("a detail");
    assert!(detail.starts_with("/dev/shm, rw") && detail.ends_with("its source is \"tmpfs\""), "{detail}");
}

#[test]
fn a_second_iotax_leaves_alone_what_the_first_one_uses() {
    let Some(disk) = Disk::new(64 << 20) else { return };
    let lab = Lab::new();
    let device = format!("device = '{}'", disk.name());
    let filesystem = format!("{device}\nfilesystem = {{ type = 'ext4' }}\nfile = {{}}");
    for (target, refusal) in [(device, "O_EXCL"), (filesystem, "is mounted on")] {
        lab.plan(&format!(
            "repeat = 1\n[[workload]]\nsize = '4m'\nruntime = '4s'\nramp_time = '0s'\n\
             [[target]]\nname = 't'\n{target}"
        ));
        let run = ["run", "plan.toml", "--yes", "--overwrite", disk.name()];
        let mut first = start_until(lab.iotax().args(run), "cell 1/1");
        let clean = lab.run(&["clean"]);
        assert!(
            text(&clean.stdout).contains("left alone: a run that is still going on"),
            "{}",
            text(&clean.stdout)
        );
        let bench = ["bench", disk.name(), "--overwrite", disk.name(), "--overwrite-signature"];
        let second = lab.run(&[&bench[..], &["--runtime", "100ms"]].concat());
        let said = text(&second.stderr);
        assert_eq!(second.status.code(), Some(4), "{said}");
        assert!(said.contains(refusal), "{said}");
        assert!(first.wait().expect("it ended").success(), "{target}");
        assert_eq!(disk.signatures(), "", "{target}");
        lab.assert_nothing_left();
    }
}

#[test]
fn a_disk_that_fills_up_meanwhile_is_said_and_nothing_is_left() {
    require!(program "fallocate", "mkfs.ext4", "mount", "umount", "stat");
    let Some(disk) = Disk::new(2 << 30) else { return };
    let lab = Lab::new();
    run("mkfs.ext4", &["-q".as_ref(), "-m".as_ref(), "0".as_ref(), disk.node.as_path()]);
    let work = lab.work();
    run("mount", &[disk.node.as_path(), work.as_path()]);
    fs::remove_dir(work.join("lost+found")).expect("removed");
    let arguments =
        ["bench", work.to_str().expect("UTF-8"), "--size", "768m", "--runtime", "100ms", "--rw", "randwrite"];
    let is_time = |said: &str| said.contains("measuring the engine");
    let (mut child, mut said, rest) = spawn_until(lab.iotax().args(arguments), is_time);
    // The user takes the room just now.
    let free = run("stat", &["--file-system".as_ref(), "--format=%a %S".as_ref(), work.as_path()]);
    let free = text(&free);
    let (blocks, size) = free.trim().split_once(' ').expect("two numbers");
    let free = blocks.parse::<u64>().expect("a number") * size.parse::<u64>().expect("a number");
    let taken = format!("{}", free - (8 << 20));
    run("fallocate", &["--length".as_ref(), taken.as_ref(), work.join("mine").as_path()]);
    said.extend(rest.map_while(Result::ok));
    assert_eq!(child.wait().expect("it ended").code(), Some(4), "{said}");
    assert!(said.contains("No space left"), "{said}");
    fs::remove_file(work.join("mine")).expect("still there");
    lab.assert_nothing_left();
    // The kernel closes a ring's files a moment after the process that had it ended.
    for _ in 0..100 {
        if Command::new("umount").arg(&work).stderr(Stdio::null()).status().expect("umount starts").success()
        {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(uses_of(&work), Vec::<String>::new());
}

mod guests {
    use super::*;

    #[test]
    fn a_guest_sees_a_loop_device_and_a_device_as_its_disk() {
        require!(guests);
        let Some(disk) = Disk::new(32 << 20) else { return };
        let lab = Lab::new();
        lab.plan(&format!(
            "repeat = 1\n[[workload]]\nrw = 'randrw'\nsize = '8m'\nruntime = '300ms'\nramp_time = '0s'\n\
             [[target]]\nname = 'vm-device'\ndevice = '{}'\nguest = {{}}\n\
             [[target]]\nname = 'vm-loop'\nfile = {{ dir = 'WORK' }}\nloop = {{}}\nguest = {{}}",
            disk.name()
        ));
        let json = lab.json(&["run", "plan.toml", "--yes", "--overwrite", disk.name(), "--json", "-"]);
        assert_eq!(json["measurements"].as_array().map(Vec::len), Some(2));
        for measurement in json["measurements"].as_array().expect("measurements") {
            assert!(measurement["write"]["ios"].as_u64() > Some(0), "{measurement}");
        }
        let text = json["targets"][1]["layers"].to_string();
        assert!(text.contains("vm-loop.raw, 8.00 MiB, direct I/O"), "{text}");
        lab.assert_nothing_left();
    }
}
