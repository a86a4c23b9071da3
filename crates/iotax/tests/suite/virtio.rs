//! Tests of images measured through a virtio block device of QEMU's storage daemon, NBD and block filters, without a guest.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use iotax_testkit::require;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::fuse::{MIXED, layers, plan};
use crate::lab::{Lab, assert_valid, start_until, text};

fn measurements(json: &Value) -> &[Value] {
    json["measurements"].as_array().expect("measurements")
}

/// Tests that data written with many concurrent requests is read back correctly, on every format.
#[test]
fn every_format_keeps_what_is_written_and_leaves_nothing() {
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let formats = ["raw", "qcow2", "vmdk", "vhdx", "vpc", "vdi", "parallels", "luks"];
    let stacks =
        formats.map(|format| (format, format!("WORK > {format} file > virtio cache=none aio=threads")));
    let stacks: Vec<(&str, &str)> = stacks.iter().map(|(name, line)| (*name, line.as_str())).collect();
    let verified = format!("{MIXED}numjobs = 2\nverify = 'crc32c'\n");
    let json = lab.json(&["run", &plan(&lab, &stacks, &verified), "--yes", "--json", "-"]);
    assert_valid(&json);
    assert_eq!(measurements(&json).len(), formats.len() * 2);
    for measurement in measurements(&json) {
        assert!(measurement["write"]["iops"].as_f64() > Some(0.0), "{measurement}");
        assert_eq!(measurement["ioengine"], "libblkio", "{measurement}");
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
        let verify = &measurement["verify"];
        assert!(verify["checked"].as_u64() > Some(0) && verify["unfinished"] != true, "{measurement}");
        assert_eq!(verify["faults"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    for format in formats {
        let found = layers(&json, format);
        assert!(found.ends_with(&[format, "virtio-blk export"]), "{found:?}");
    }
    lab.assert_nothing_left();
}

#[test]
fn filters_and_servers_stand_between_an_image_and_its_export() {
    require!(program "qemu-storage-daemon", "qemu-nbd", "nbdkit");
    let lab = Lab::new();
    let stacks = [
        ("nbd", "WORK > qcow2 file > nbd > virtio iothread=false", "NBD export"),
        ("qemu-nbd", "WORK > vmdk file > nbd server=qemu-nbd > virtio", "NBD export"),
        ("nbdkit", "WORK > raw file > nbd server=nbdkit > virtio", "NBD export"),
        ("chained", "WORK > raw file > nbd > nbd > virtio", "NBD export"),
        ("compressed", "WORK > qcow2 file > compress > virtio", "compress filter"),
        ("copied", "WORK > qcow2 file + external snapshot > copy-on-read > virtio", "copy-on-read filter"),
        (
            "twice",
            "WORK > raw file > throttle rate=1g > throttle iops=100000 > nbd > virtio",
            "throttle filter",
        ),
    ];
    let lines: Vec<(&str, &str)> = stacks.iter().map(|(name, line, _)| (*name, *line)).collect();
    let json = lab.json(&["run", &plan(&lab, &lines, MIXED), "--yes", "--json", "-"]);
    assert_eq!(measurements(&json).len(), stacks.len() * 2);
    for measurement in measurements(&json) {
        assert!(measurement["read"]["iops"].as_f64() > Some(0.0), "{measurement}");
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    for (name, _, layer) in stacks {
        let found = layers(&json, name);
        assert!(found.contains(&layer) && found.ends_with(&["virtio-blk export"]), "{name}: {found:?}");
    }
    lab.assert_nothing_left();
}

#[test]
fn a_mirror_keeps_two_files_alike_and_writes_twice() {
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let stacks = [
        ("plain", "WORK > raw file > virtio cache=none"),
        ("mirror", "WORK > raw file > quorum > virtio cache=none"),
        ("served", "WORK > raw file > quorum > nbd > virtio"),
    ];
    let json = lab.json(&[
        "run",
        &plan(&lab, &stacks, &format!("{MIXED}verify = 'xxh3'\n")),
        "--yes",
        "--json",
        "-",
    ]);
    assert_eq!(measurements(&json).len(), 6);
    for measurement in measurements(&json) {
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
        assert_eq!(measurement["verify"]["faults"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    assert!(layers(&json, "mirror").ends_with(&["quorum filter", "virtio-blk export"]));
    lab.assert_nothing_left();
    for line in ["WORK > raw file > fuse > quorum > virtio", "WORK > qcow2 file > quorum > virtio"] {
        let refused = lab.run(&["run", &plan(&lab, &[("t", line)], MIXED), "--yes"]);
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains("needs a raw file"), "{said}");
    }
    // While it is read, both files hold what the target was filled with.
    let reads = "[[workload]]\nrw = 'randread'\nruntime = '20s'\n";
    let mut command = lab.iotax();
    command.args(["run", &plan(&lab, &stacks[1..2], reads), "--yes"]);
    let mut child = start_until(&mut command, "round 1/2");
    let files: Vec<PathBuf> = fs::read_dir(lab.work())
        .expect("read")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.is_dir())
        .flat_map(|dir| fs::read_dir(dir).expect("read").map(|entry| entry.expect("entry").path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "raw"))
        .collect();
    let contents: Vec<Vec<u8>> = files.iter().map(|path| fs::read(path).expect("read")).collect();
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    child.wait().expect("ended");
    let [one, other] = contents.as_slice() else { panic!("{files:?}") };
    assert!(one == other && one.len() == 16 << 20 && one.iter().any(|byte| *byte != 0), "{files:?}");
    lab.assert_nothing_left();
}

/// Tests on a loop device, whose counters contain no writes of other programs.
#[test]
fn a_mirror_doubles_the_bytes_that_its_device_counts() {
    require!(root);
    require!(program "qemu-storage-daemon", "losetup", "mkfs.ext4");
    let lab = Lab::new();
    let device = "WORK > raw file > loop direct_io=true > ext4 > raw file";
    let (plain, mirror) =
        (format!("{device} > virtio cache=none"), format!("{device} > quorum > virtio cache=none"));
    let workload = "[[workload]]\nrw = 'randwrite'\nio_size = '4m'\nruntime = '1m'\n";
    let plan = plan(&lab, &[("plain", &plain), ("mirror", &mirror)], workload);
    let json = lab.json(&["run", &plan, "--yes", "--json", "-"]);
    for (target, times) in [("plain", 1.0), ("mirror", 2.0)] {
        let cells = json["cells"].as_array().expect("cells");
        let cell = cells.iter().find(|cell| cell["target"] == target).expect("measured");
        let levels = cell["levels"].as_array().expect("counted");
        let is_loop = |level: &&Value| level["name"].as_str().is_some_and(|name| name.starts_with("loop"));
        let write = &levels.iter().find(is_loop).expect("its loop device")["write"];
        let ratio = write["bytes_ratio"].as_f64().expect("writes");
        // ext4's journal writes too, and a window's edges cut I/Os off.
        assert!((ratio - times).abs() < 0.05, "{target}: {levels:#?}");
        assert!(write["bytes"].as_f64() > Some(times * 7.9 * f64::from(1 << 20)), "two rounds: {write}");
    }
    lab.assert_nothing_left();
}

/// Tests the smallest queue, which takes one I/O with its flush at a time.
#[test]
fn a_queue_has_the_size_that_a_plan_gives() {
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let stacks =
        [("small", "WORK > qcow2 file > virtio queue_size=4"), ("default", "WORK > qcow2 file > virtio")];
    let workloads = "[[workload]]\nrw = 'randrw'\nsync = 'dsync'\nnumjobs = 2\nverify = 'crc32c'\n";
    let json = lab.json(&["run", &plan(&lab, &stacks, workloads), "--yes", "--json", "-"]);
    let deep = [("deep", "WORK > raw file > virtio queue_size=128")];
    let workload = "[[workload]]\nrw = 'randrw'\niodepth = 42\nverify = 'crc32c'\n";
    let deep = lab.json(&["run", &plan(&lab, &deep, workload), "--yes", "--json", "-"]);
    let all: Vec<&Value> = measurements(&json).iter().chain(measurements(&deep)).collect();
    assert_eq!(all.len(), 6);
    for measurement in all {
        assert!(measurement["write"]["iops"].as_f64() > Some(0.0), "{measurement}");
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
        assert_eq!(measurement["verify"]["faults"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    lab.assert_nothing_left();
}

/// Tests that I/O does not wait for the daemon's signal, with any ioengine of a job file.
#[test]
fn a_queue_is_polled() {
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let stacks = [("raw", "WORK > raw file > virtio")];
    let workloads = "[[workload]]\nname = 'any'\nrw = 'randread'\nhipri = true\nruntime = '300ms'\n\
                     [[workload]]\nname = 'own'\nrw = 'randread'\nhipri = true\nioengine = 'libblkio'\nruntime = '300ms'\n";
    let json = lab.json(&["run", &plan(&lab, &stacks, workloads), "--yes", "--json", "-"]);
    assert_eq!(measurements(&json).len(), 4);
    for measurement in measurements(&json) {
        assert!(measurement["read"]["iops"].as_f64() > Some(0.0), "{measurement}");
        assert_eq!(measurement["ioengine"], "libblkio", "{measurement}");
    }
    lab.assert_nothing_left();
}

#[test]
fn trims_are_taken_as_discards_and_as_zeroes() {
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let stacks = [("raw", "WORK > raw file > virtio"), ("qcow2", "WORK > qcow2 file > virtio")];
    let trims = "rw = 'randtrim'\nioengine = 'libblkio'\nio_size = '1m'\nruntime = '60s'\n";
    let workloads = format!(
        "[[workload]]\nname = 'discard'\n{trims}[[workload]]\nname = 'zeroes'\nlibblkio_write_zeroes_on_trim = true\n{trims}"
    );
    let json = lab.json(&["run", &plan(&lab, &stacks, &workloads), "--yes", "--json", "-"]);
    assert_valid(&json);
    assert_eq!(measurements(&json).len(), 8);
    for measurement in measurements(&json) {
        assert!(measurement["trim"]["ios"].as_u64() > Some(0), "{measurement}");
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    lab.assert_nothing_left();
}

#[test]
fn errors_of_nbdkit_are_counted_exactly() {
    require!(program "qemu-storage-daemon", "nbdkit");
    let lab = Lab::new();
    let stacks = [
        ("dead", "WORK > raw file > nbd server=nbdkit error_rate=1 > virtio"),
        ("failing", "WORK > raw file > nbd server=nbdkit error_rate=20% delay=1ms > virtio"),
        ("plain", "WORK > raw file > nbd server=nbdkit > virtio"),
    ];
    let workload = "[[workload]]\nrw = 'randread'\niodepth = 8\nio_size = '4m'\nruntime = '1m'\n";
    let output = lab.run(&["run", &plan(&lab, &stacks, workload), "--yes", "--json", "-"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_valid(&json);
    let failed = |target: &str| -> Vec<u64> {
        let own = measurements(&json).iter().filter(|measurement| measurement["target"] == target);
        own.map(|one| {
            let errors = one["errors"].as_array().into_iter().flatten();
            errors.filter(|error| error["error"] == "EIO").filter_map(|error| error["count"].as_u64()).sum()
        })
        .collect()
    };
    assert_eq!((failed("dead"), failed("plain")), (vec![1024; 2], vec![0; 2]), "{json}");
    // Five standard deviations of a fifth of 2048.
    let some: u64 = failed("failing").iter().sum();
    assert!((320..500).contains(&some), "{some}");
    lab.assert_nothing_left();
}

#[test]
fn an_image_that_exists_is_read_and_stays_as_it_is() {
    require!(program "qemu-storage-daemon", "qemu-img");
    let lab = Lab::new();
    let image = lab.path("mine.vmdk");
    let of_qemu_img = |arguments: &[&str]| {
        let done = Command::new("qemu-img").args(arguments).output().expect("qemu-img");
        assert!(done.status.success(), "{}", text(&done.stderr));
    };
    let raw = lab.path("raw");
    fs::write(&raw, vec![0x5a; 16 << 20]).expect("written");
    let [raw, path] = [&raw, &image].map(|path| path.display().to_string());
    of_qemu_img(&["convert", "-O", "vmdk", &raw, &path]);
    let before = fs::read(&image).expect("read");
    let bench = lab.run(&["bench", &path, "--runtime=300ms", "--json", "-"]);
    let said = text(&bench.stderr);
    assert!(bench.status.success() && said.contains("mine.vmdk is an image"), "{said}");
    let json: Value = serde_json::from_slice(&bench.stdout).expect("JSON");
    let targets: Vec<&Value> = measurements(&json).iter().map(|one| &one["target"]).collect();
    assert_eq!(targets.len(), 3, "{targets:?}");
    assert!(layers(&json, "as-raw").ends_with(&["raw", "virtio-blk export"]));
    let compared = text(&lab.run(&["report", "1"]).stdout);
    for sentence in ["QEMU's block layer and virtio over ", "vmdk over as-raw: "] {
        assert!(compared.contains(sentence), "{compared}");
    }
    assert!(layers(&json, "as-vmdk").ends_with(&["vmdk", "virtio-blk export"]));
    let through_fuse = lab.run(&["bench", &format!("image {path} > fuse"), "--runtime=300ms"]);
    assert!(through_fuse.status.success(), "{}", text(&through_fuse.stderr));
    assert!(fs::read(&image).expect("read") == before, "it was changed");

    let elsewhere = lab.path("elsewhere.qcow2").display().to_string();
    of_qemu_img(&[
        "create",
        "-q",
        "-f",
        "qcow2",
        "-u",
        "-b",
        "nbd://localhost/x",
        "-F",
        "raw",
        &elsewhere,
        "16m",
    ]);
    // What a guest has open to write is not read, raw images too, whose lock keeps no reader out.
    let held = fs::OpenOptions::new().write(true).open(&raw).expect("opened");
    let overlay = format!("image {raw} overlay={} > virtio", lab.work().display());
    let refused = lab.run(&["bench", &overlay, "--rw", "randread"]);
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(4) && said.contains("has it, or a file that it reads"), "{said}");
    drop(held);
    let misnamed = lab.path("plain.vmdk");
    fs::copy(&raw, &misnamed).expect("copied");
    let bench = lab.run(&["bench", &misnamed.display().to_string(), "--runtime=300ms"]);
    let said = text(&bench.stderr);
    assert!(bench.status.success() && said.contains("QEMU finds no vmdk image in "), "{said}");
    let missing = lab.path("missing.vmdk").display().to_string();
    let refused = lab.run(&["bench", &missing]);
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("would be raw, not vmdk"), "{said}");

    for (line, rw, words) in [
        (format!("image {path} > virtio"), "randwrite", "overlay=DIR"),
        (format!("image {path}"), "randread", "nothing can be measured; add virtio = {}"),
        (format!("image {path} > virtio-blk > guest"), "randread", "guest needs a block device"),
        (format!("image {raw} > virtio"), "randread", "QEMU knows no format by its content"),
        (format!("image {path}.none > virtio"), "randread", "does not exist"),
        (format!("image {} > virtio", lab.work().display()), "randread", "is no regular file"),
        (format!("image {elsewhere} > virtio"), "randread", "it reads \"nbd://localhost/x\" too"),
    ] {
        let refused = lab.run(&["bench", &line, "--rw", rw]);
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains(words), "{line}: {said}");
    }
    lab.assert_nothing_left();
}

#[test]
fn an_image_that_a_machine_runs_on_is_refused() {
    require!(program "qemu-storage-daemon", "qemu-img", "qemu-io");
    let lab = Lab::new();
    let path = lab.path("held.qcow2").display().to_string();
    let made = Command::new("qemu-img").args(["create", "-q", "-f", "qcow2", &path, "16m"]).status();
    assert!(made.expect("qemu-img").success());
    // It has the image open for writing, as a guest has.
    let mut holder =
        Command::new("qemu-io").args(["-f", "qcow2", &path, "-c", "sleep 20000"]).spawn().expect("held");
    thread::sleep(Duration::from_millis(500));
    let refused = lab.run(&["bench", &format!("image {path} > virtio"), "--runtime=300ms"]);
    let said = text(&refused.stderr);
    holder.kill().and_then(|()| holder.wait()).expect("ended");
    assert!(!refused.status.success() && said.contains("a program has it open to write it"), "{said}");
    lab.assert_nothing_left();
}

/// By its path too. QEMU's lock of a raw image says who writes it and keeps no reader out.
#[test]
fn a_raw_image_that_a_machine_writes_is_refused_and_one_that_it_reads_is_not() {
    require!(program "qemu-io");
    let lab = Lab::new();
    let path = lab.path("held.img");
    fs::write(&path, vec![0x5a; 16 << 20]).expect("written");
    let inode = fs::metadata(&path).expect("there").ino();
    let path = path.display().to_string();
    for (more, is_written, last) in [(&[][..], true, 101), (&["-r"], false, 100)] {
        let mut holder = Command::new("qemu-io")
            .args(["-f", "raw", &path])
            .args(more)
            .args(["-c", "sleep 20000"])
            .spawn()
            .expect("held");
        let lock = format!(":{inode} 100 {last}");
        while !fs::read_to_string("/proc/locks").expect("locks").contains(&lock) {
            thread::sleep(Duration::from_millis(10));
        }
        let bench = lab.run(&["bench", &path, "--runtime=300ms"]);
        let said = text(&bench.stderr);
        let refusal =
            format!("{path}: qemu-io (process {}) has it open as an image and writes it", holder.id());
        holder.kill().and_then(|()| holder.wait()).expect("ended");
        assert_eq!(bench.status.code(), Some(if is_written { 4 } else { 0 }), "{said}");
        assert_eq!(said.contains(&refusal), is_written, "{said}");
    }
    lab.assert_nothing_left();
}

#[test]
fn killed_at_any_moment_it_can_be_cleaned() {
    require!(program "qemu-storage-daemon", "nbdkit");
    for moment in ["creating files", "filled virtio", "cell 2/", "cell 5/"] {
        let lab = Lab::new();
        let stacks = [
            ("virtio", "WORK > qcow2 file + external snapshot > virtio"),
            ("nbd", "WORK > raw file > nbd server=nbdkit > virtio"),
            ("nbd-fuse", "WORK > qcow2 file > nbd server=qemu-nbd > fuse"),
        ];
        let path = plan(&lab, &stacks, "[[workload]]\nrw = 'randrw'\n");
        let child = start_until(lab.iotax().args(["run", &path, "--yes"]), moment);
        lab.kill_and_clean(child, moment);
    }
}

#[test]
fn killed_during_an_operation_it_can_be_cleaned() {
    require!(program "qemu-storage-daemon", "qemu-img");
    for operation in ["snapshot", "stream", "backup", "backup-fleecing"] {
        let lab = Lab::new();
        let target = format!("{} > qcow2 file + 2 external snapshots > virtio", lab.work().display());
        let event = format!("{operation}@1s");
        let load = ["--size=64m", "--rate-iops=200", "--runtime=4s", "--ramp-time=0", "--yes"];
        let slow: &[&str] = if operation.starts_with("backup") { &["--copy-iops=20"] } else { &[] };
        let arguments = [&["watch", &target, "--event", &event], &load[..], slow].concat();
        let child = start_until(lab.iotax().args(&arguments), &format!("{operation} begins"));
        lab.kill_and_clean(child, &format!("{operation} begins"));
    }
}

#[test]
fn a_daemon_that_dies_costs_its_own_target_alone() {
    require!(program "qemu-storage-daemon");
    // Every request to a file that its daemon does not answer is waited for: minutes.
    let fuse = Some(("-STOP", "fuse")).filter(|_| iotax_testkit::thorough());
    let cases = [("-9", "virtio"), ("-STOP", "virtio")].into_iter().chain(fuse);
    // They wait for the daemon most of the time.
    thread::scope(|scope| {
        cases.for_each(|(signal, export)| {
            scope.spawn(move || a_signal_costs_its_own_target_alone(signal, export));
        });
    });
}

fn a_signal_costs_its_own_target_alone(signal: &str, export: &str) {
    let lab = Lab::new();
    let dying = format!("WORK > qcow2 file > {export}");
    let stacks = [("dying", dying.as_str()), ("plain", "WORK > raw file")];
    let path = plan(&lab, &stacks, "[[workload]]\nrw = 'randread'\n");
    let mut child = start_until(lab.iotax().args(["run", &path, "--yes", "--json", "out.json"]), "cell 1/");
    let pattern = format!("{}.*dying.qcow2", lab.work().display());
    let found = Command::new("pkill").args([signal, "-f", &pattern]).status();
    assert!(found.expect("pkill").success());
    child.wait().expect("it ends");
    let json = fs::read(lab.path("out.json")).expect("results");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    let plain = measurements(&json).iter().filter(|m| m["target"] == "plain");
    assert_eq!(plain.count(), 2, "{signal}, {export}: {json}");
    // What was not answered is no figure to be used.
    let usable = |m: &&Value| m["target"] == "dying" && m["grade"] != "unusable";
    assert_eq!(measurements(&json).iter().find(usable), None, "{signal}, {export}");
    lab.assert_nothing_left();
}

#[test]
fn what_a_virtio_device_does_not_take_is_refused_with_the_remedy() {
    require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    for (line, workload, words) in [
        ("WORK > raw file > virtio", "direct = false", "use direct = true"),
        ("WORK > raw file > virtio", "iodepth = 400", "a queue of 1024 entries holds 341 I/Os"),
        ("WORK > raw file > virtio queue_size=128", "iodepth = 43", "a queue of 128 entries holds 42 I/Os"),
        ("WORK > raw file > virtio queue_size=100", "", "accepted: a power of two from 4 to 1024"),
        ("WORK > raw file > virtio queues=2", "numjobs = 3", "use queues = 4"),
        ("WORK > raw file > virtio queues=257", "", "accepted: 2 to 256"),
        ("WORK > raw file > virtio", "numjobs = 256", "accepted: up to 255"),
        (
            "WORK > qcow2 file > fuse",
            "test = 'create'\ndirect = false\nramp_time = '0s'",
            "fuse shows one file",
        ),
        (
            "WORK > raw file > virtio",
            "test = 'create'\ndirect = false\nramp_time = '0s'",
            "a virtio device is a raw disk",
        ),
        ("WORK > raw file", "ioengine = 'libblkio'", "libblkio drives a virtio device; add virtio"),
        ("WORK > qcow2 file + external snapshot > nbd > virtio", "", "leave snapshot or overlay out"),
        ("WORK > qcow2 file + internal snapshot > nbd > virtio", "", "leave snapshot or overlay out"),
        (
            "WORK > qcow2 file + internal snapshot > copy-on-read > virtio",
            "",
            "copy-on-read needs something below",
        ),
        ("WORK > raw file > compress > virtio", "", "compress needs an image"),
        ("WORK > qcow2 file encrypt=luks > compress > virtio", "", "qcow2 file without encrypt"),
        ("WORK > qcow2 file encrypt=luks > nbd server=qemu-nbd > virtio", "", "is not given the key"),
        ("WORK > qcow2 file > copy-on-read > virtio", "", "copy-on-read needs something below"),
        ("WORK > raw file > virtio", "test = 'seeks'\ndirect = false\nramp_time = '0s'", "use direct = true"),
        ("WORK > raw file > throttle > virtio", "", "throttle needs iops = 500"),
        ("WORK > raw file > nbd server=nbdkit delay=500us > virtio", "", "accepted: whole milliseconds"),
        ("WORK > raw file > nbd delay=1ms > virtio", "", "delay needs server = \"nbdkit\""),
        ("WORK > raw file > nbd rate=1m > virtio", "", "rate needs server = \"nbdkit\""),
        ("WORK > raw file > nbd server=nbdkit error_rate=2 > virtio", "", "2 is no error rate"),
        (
            "WORK > qcow2 file > nbd server=nbdkit > virtio",
            "",
            "nbd needs a raw file, and file is a disk image",
        ),
    ] {
        let rw = if workload.contains("test") { "" } else { "rw = 'randread'\n" };
        let path = plan(&lab, &[("t", line)], &format!("[[workload]]\n{rw}{workload}\n"));
        let refused = lab.run(&["run", &path, "--yes"]);
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains(words), "{line}, {workload}: {said}");
        lab.assert_nothing_left();
    }
}

/// Tests that the daemon performs the operations of a guest's QEMU on its export, and that the image is restored afterwards.
#[test]
fn operations_are_carried_out_on_what_a_daemon_exports() {
    require!(program "qemu-storage-daemon", "qemu-img");
    let lab = Lab::new();
    let targets = [
        ("raw", "WORK > raw file > virtio"),
        ("qcow2", "WORK > qcow2 file > virtio"),
        ("chain", "WORK > qcow2 file + 3 external snapshots > virtio"),
    ];
    let targets =
        targets.map(|(name, line)| format!("[[target]]\nname = '{name}'\nstack = '{line}'\n")).concat();
    let operations = ["snapshot", "commit", "stream", "mirror", "backup"];
    let events = operations.map(|operation| format!("{{ operation = '{operation}' }}")).join(", ");
    let text_of_plan = format!(
        "repeat = 2\n[watch]\nevents = [{events}]\n{targets}[[workload]]\nrw = 'randrw'\nbs = '4k'\nrate_iops = 200\nsize = '16m'\nruntime = '4s'\n\
         ramp_time = '0s'\nblackout = '500ms'\nverify = 'xxh3'\n"
    );
    let json = lab.json(&["run", &lab.plan(&text_of_plan).display().to_string(), "--yes", "--json", "-"]);
    let episodes = json["watch"].as_array().expect("a watch");
    assert_eq!(episodes.len(), 6, "{json}");
    for episode in episodes {
        let events = episode["events"].as_array().expect("events");
        let names: Vec<&str> = events.iter().filter_map(|event| event["name"].as_str()).collect();
        assert_eq!(names, operations, "{episode}");
        for event in events {
            assert!(event["failure"].is_null() && event["duration_ns"].as_u64() > Some(0), "{event}");
        }
        assert_eq!((&episode["failed"], &episode["lost"]), (&0.into(), &0.into()), "{episode}");
    }
    // Each operation on each target against the first one, by duration, gap and response times.
    let compared = json["price_comparisons"].as_array().expect("comparisons");
    let of = |event: &str| compared.iter().filter(|one| one["event"] == event).count();
    assert!(operations.iter().all(|operation| of(operation) >= 6), "{json}");
    assert!(compared.iter().all(|one| one["baseline"] == "raw" && one["rounds"] == 2), "{json}");
    lab.assert_nothing_left();
}

/// Tests that in a plain backup first writes wait for the slow copy of the old data, and with fleecing only for a local file.
#[test]
fn writes_wait_for_a_slow_backup_and_not_with_fleecing() {
    require!(program "qemu-storage-daemon", "qemu-img");
    let lab = Lab::new();
    let (megabytes, iops) = (32_u64, 20_u64);
    let text_of_plan = format!(
        "repeat = 2\n[watch]\ncontrol = 'control'\ncopy_iops = {iops}\n\
         events = [{{ operation = 'snapshot', at = '300ms' }}, {{ operation = 'stream', at = '1s' }}, {{ operation = 'backup' }}, \
         {{ operation = 'backup-fleecing' }}, {{ operation = 'mirror', at = '10s' }}]\n\
         [[target]]\nname = 'qcow2'\nstack = 'WORK > qcow2 file > virtio'\n\
         [defaults]\nrw = 'randwrite'\nbs = '4k'\nrate_iops = 100\niodepth = 300\nsize = '{megabytes}m'\nruntime = '12s'\nramp_time = '0s'\n\
         blackout = '500ms'\nverify = 'xxh3'\n[[workload]]\nname = 'load'\n[[workload]]\nname = 'control'\n"
    );
    let json = lab.json(&["run", &lab.plan(&text_of_plan).display().to_string(), "--yes", "--json", "-"]);
    assert_valid(&json);
    let episodes = json["watch"].as_array().expect("a watch");
    let mut orders = Vec::new();
    for episode in episodes.iter().filter(|episode| episode["workload"] == "load") {
        assert_eq!((&episode["failed"], &episode["lost"]), (&0.into(), &0.into()), "{episode}");
        let events = episode["events"].as_array().expect("events");
        assert!(events.iter().all(|event| event["failure"].is_null()), "{episode}");
        orders.push([2, 3].map(|index: usize| events[index]["name"].as_str().expect("a name")));
    }
    orders.sort_unstable();
    assert_eq!(orders, [["backup", "backup-fleecing"], ["backup-fleecing", "backup"]], "{json}");

    // A copy is made by I/Os of a megabyte.
    let least_ns = (megabytes * 1_000_000_000 / iops) as f64;
    let price = |event: &str| {
        let prices = json["prices"].as_array().expect("prices");
        let price = prices.iter().find(|price| price["event"] == event).expect("a price");
        (
            price["took_ns"].as_f64().expect("took"),
            price["response_mean_ns"]["with"].as_f64().expect("a mean"),
        )
    };
    let ((plain_took, plain), (fleecing_took, fleecing)) = (price("backup"), price("backup-fleecing"));
    assert!(plain_took > 0.8 * least_ns && fleecing_took > 0.8 * least_ns, "{json}");
    // A write at a random time to a random place waits for a sixth of the copy on average.
    assert!((0.5..1.5).contains(&(plain / (plain_took / 6.0))), "{plain} of {plain_took}: {json}");
    assert!(plain > 3.0 * fleecing, "{plain}, {fleecing}: {json}");
    let compared = json["price_comparisons"].as_array().expect("comparisons");
    let mean = compared.iter().find(|one| one["figure"] == "response_mean_ns").expect("a comparison");
    let names = [&mean["event"], &mean["baseline_event"], &mean["target"], &mean["baseline"]];
    assert_eq!(names, ["backup-fleecing", "backup", "qcow2", "qcow2"], "{mean}");
    assert!(mean["ratio"].as_f64() < Some(1.0 / 3.0), "{mean}");
    lab.assert_nothing_left();
}
