//! Tests of a filesystem created in the guest: a file on it is measured, and its contents survive a reboot.

use std::fs;
use std::process::Command;

use iotax_model::target::{Aio, CacheMode, FileSpec, Format, GuestFs, GuestSpec, LayerKind};
use iotax_model::units::Bytes;
use iotax_model::workload::{Content, Rw, Verify};
use iotax_testbed::guest::{Guest, GuestDevice, GuestFilesystem, GuestStorage, image, mkfs};
use iotax_testbed::interrupt::Interrupt;
use iotax_testkit::require;

use crate::rig::{BOOT, Rig, SIZE, area, job, storage};

/// Creates the filesystem, measures on it, reboots the guest, and reads the data back.
fn lives(kind: GuestFs, options: &str) {
    let checker = match kind {
        GuestFs::Ext4 => "e2fsck",
        GuestFs::Xfs => "xfs_repair",
    };
    require!(program mkfs::program(kind).name, checker);
    let spec = GuestSpec {
        filesystem: Some(kind),
        cache: CacheMode::Writeback,
        aio: Aio::Threads,
        ..GuestSpec::default()
    };
    let Some(rig) = Rig::build_for(&spec) else { return };
    let disk = rig.dir.path().join("disk.qcow2");
    let qcow2 = FileSpec { format: Format::Qcow2, ..FileSpec::default() };
    image::create(&disk, &qcow2, spec.disk_size(SIZE), &rig.lock).expect("created");
    for make in [true, false] {
        let mut config = rig.config(&format!("{kind}-{make}"));
        config.spec = spec.clone();
        let filesystem = Some(GuestFilesystem { make, size: SIZE });
        let image = GuestStorage { filesystem, ..storage(disk.clone(), Format::Qcow2) };
        config.device = GuestDevice::Disk(image);
        let mut guest = Guest::boot(&config, &Interrupt::default()).expect("started");
        let hello = guest.wait_ready(BOOT).expect("ready");
        println!("{kind}: {:.2} s from the start", guest.boot_ns().expect("known") as f64 / 1e9);
        assert_eq!(hello.disk.as_deref(), Some("/disk/measured"));
        let layer = hello.filesystem.expect("told");
        assert_eq!((layer.kind, layer.name.as_str()), (LayerKind::Filesystem, kind.word()));
        assert!(layer.detail.contains(options), "{layer:?}");
        if make {
            guest.agent().fill(&area(None), &Content::default(), 1, BOOT, &mut |_| {}).expect("filled");
        }
        // An internal snapshot is renewed under a mounted filesystem.
        guest.pause().expect("paused");
        guest.renew_snapshots(1).expect("taken");
        guest.resume().expect("resumed");
        let mut job = job(Rw::RandRw);
        (job.writable, job.workload.verify) = (true, Verify::Crc32c);
        let done = guest.agent().run(&job, BOOT, &mut |_| {}).expect("done");
        assert!(done.tallies.ios() > 0 && done.errors.is_empty(), "{done:?}");
        assert!(done.verify.expect("verified").faults.is_empty());
        guest.shutdown();
        let console = fs::read_to_string(config.run_dir.join("console.log")).expect("a console");
        assert!(!console.contains("iotax init:"), "{console}");
        checked(checker, &rig, &disk);
    }
}

/// Asserts that fsck finds the filesystem intact and unmounted.
fn checked(checker: &str, rig: &Rig, disk: &std::path::Path) {
    let raw = rig.dir.path().join("disk.raw");
    let converted = Command::new("qemu-img").args(["convert", "-O", "raw"]).args([disk, &raw]).status();
    assert!(converted.expect("qemu-img runs").success());
    let output = Command::new(checker).args(["-f", "-n"]).arg(&raw).output().expect("it comes with mkfs");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("recovering journal"), "{said}");
}

#[test]
fn ext4_is_made_filled_measured_and_found_again() {
    lives(GuestFs::Ext4, "rw");
}

#[test]
fn xfs_is_made_filled_measured_and_found_again() {
    lives(GuestFs::Xfs, "attr2");
}

#[test]
fn a_disk_too_small_for_its_filesystem_is_said_on_the_way_down() {
    let spec = GuestSpec { filesystem: Some(GuestFs::Xfs), ..GuestSpec::default() };
    require!(program "mkfs.xfs");
    let Some(rig) = Rig::build_for(&spec) else { return };
    let mut config = rig.config("small");
    config.spec = GuestSpec { cache: CacheMode::Writeback, ..spec };
    let filesystem = Some(GuestFilesystem { make: true, size: Bytes(1 << 20) });
    if let GuestDevice::Disk(storage) = &mut config.device {
        storage.filesystem = filesystem;
    }
    let mut guest = Guest::boot(&config, &Interrupt::default()).expect("started");
    let error = guest.wait_ready(BOOT).expect_err("too small").to_string();
    assert!(error.contains("mkfs of xfs on /dev/vda") && error.contains("300MB"), "{error}");
}
