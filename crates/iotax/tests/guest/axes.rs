//! Tests every value of a guest's axes with real guests: boot, disk, writing and reading back, pause and resume, new snapshots of both
//! kinds, power off.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use iotax_model::target::{
    Aio, Bus, CacheMode, Discard, FileSpec, Format, GuestSpec, MachineType, PlannedDevice,
};
use iotax_model::units::Bytes;
use iotax_model::workload::{Content, Rw, Verify};
use iotax_testbed::guest::capabilities::Capabilities;
use iotax_testbed::guest::{Guest, GuestDevice, GuestStorage, image, modules};
use iotax_testbed::interrupt::Interrupt;
use iotax_testkit::thorough;

use crate::rig::{BOOT, Rig, SIZE, area, job, kernel_with, storage};

/// Well above the duration of a power off, and below the time after which QEMU is told to quit.
const POWER_OFF: Duration = Duration::from_secs(25);

/// The default guest with the host's page cache, which works on every filesystem of the host.
fn cached() -> GuestSpec {
    GuestSpec { cache: CacheMode::Writeback, aio: Aio::Threads, ..GuestSpec::default() }
}

/// Performs all operations of a run on a guest.
fn exercise(name: &str, spec: GuestSpec, disk: &str) {
    let Some(rig) = Rig::build_for(&spec) else { return };
    exercise_on(&rig, name, spec, disk);
}

fn exercise_on(rig: &Rig, name: &str, spec: GuestSpec, disk: &str) {
    Capabilities::ask([(&spec, PlannedDevice::Disk)], "iotax-test-able", &rig.lock)
        .expect("answered")
        .check((&spec, PlannedDevice::Disk))
        .expect("this QEMU can");
    let qcow2 = FileSpec { format: Format::Qcow2, cluster_size: Some(Bytes(4096)), ..FileSpec::default() };
    let base = rig.dir.path().join("base.qcow2");
    image::create(&base, &qcow2, SIZE, &rig.lock).expect("created");
    let mut config = rig.config(name);
    config.spec = spec;
    let l2_cache_size = Some(Bytes(64 << 10));
    config.device = GuestDevice::Disk(GuestStorage { l2_cache_size, ..storage(base.clone(), Format::Qcow2) });
    let mut guest = Guest::boot(&config, &Interrupt::default()).expect("started");
    let hello = guest.wait_ready(BOOT).expect("ready");
    println!("{name}: {disk} {:.2} s after its start", guest.boot_ns().expect("known") as f64 / 1e9);
    assert_eq!((hello.disk.as_deref(), hello.filesystem), (Some(disk), None));
    let threads = guest.threads().expect("listed");
    assert_eq!(threads.get("iothread").map_or(0, Vec::len), config.spec.iothreads() as usize);
    assert_eq!(threads["vcpu"].len(), config.spec.vcpus as usize);

    guest.agent().fill(&area(None), &Content::default(), 1, BOOT, &mut |_| {}).expect("filled");
    guest.pause().expect("paused");
    let filled = fs::read(&base).expect("readable");
    let mut below = (base.clone(), Format::Qcow2);
    let times = if thorough() { 2 } else { 1 };
    for round in 0..times {
        let overlay = rig.dir.path().join(format!("overlay-{round}"));
        image::create_overlay(&overlay, &below.0, below.1, &qcow2, &rig.lock).expect("created");
        let empty = allocated(&overlay);
        guest.swap_disk(&overlay, Format::Qcow2).expect("exchanged");
        guest.resume().expect("resumed");
        work(&mut guest);
        guest.pause().expect("paused");
        assert!(allocated(&overlay) > empty, "writes went to the overlay");
        below = (overlay, Format::Qcow2);
    }
    assert!(filled == fs::read(&base).expect("readable"), "what is below was written");

    let top = below.0;
    for _ in 0..times {
        guest.renew_snapshots(2).expect("taken");
        let before = allocated(&top);
        guest.resume().expect("resumed");
        work(&mut guest);
        guest.pause().expect("paused");
        // Clusters that the last snapshot held are taken again, unless they were given back.
        let taken = allocated(&top) > before;
        assert!(taken || config.spec.discard == Discard::Ignore, "writes left the snapshot alone");
    }
    guest.resume().expect("resumed");
    guest.agent().ping().expect("answers");
    let began = Instant::now();
    guest.shutdown();
    assert!(began.elapsed() < POWER_OFF, "it did not power itself off: {:?}", began.elapsed());
    assert_eq!(snapshots(&top), ["iotax-1", "iotax-2"], "new ones in place of the old");
}

/// Writes and reads back what was written.
fn work(guest: &mut Guest) {
    let mut job = job(Rw::RandWrite);
    job.workload.verify = Verify::Crc32c;
    let done = guest.agent().run(&job, BOOT, &mut |_| {}).expect("done");
    let checked = done.verify.as_ref().expect("verified");
    assert!(done.tallies.ios() > 0 && done.errors.is_empty() && checked.faults.is_empty(), "{done:?}");
}

fn allocated(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).expect("there").blocks()
}

/// The names of the snapshots within an image.
fn snapshots(path: &Path) -> Vec<String> {
    let output = std::process::Command::new("qemu-img").args(["info", "--output=json"]).arg(path).output();
    let info: serde_json::Value =
        serde_json::from_slice(&output.expect("qemu-img runs").stdout).expect("JSON");
    let list = info["snapshots"].as_array().cloned().unwrap_or_default();
    list.iter().filter_map(|snapshot| snapshot["name"].as_str().map(str::to_owned)).collect()
}

#[test]
fn virtio_blk_with_several_threads_and_queues() {
    let spec = GuestSpec { iothread: Some(2), queues: Some(4), vcpus: 2, aio: Aio::IoUring, ..cached() };
    exercise("blk-threads", spec, "/dev/vda");
}

#[test]
fn virtio_scsi_with_a_thread_past_the_hosts_cache() {
    let spec = GuestSpec { bus: Bus::VirtioScsi, aio: Aio::Native, cache: CacheMode::None, ..cached() };
    exercise("scsi", spec, "/dev/sda");
}

#[test]
fn virtio_scsi_with_several_threads_on_the_old_pc() {
    let spec = GuestSpec {
        bus: Bus::VirtioScsi,
        machine: Some(MachineType::Pc),
        iothread: Some(2),
        vcpus: 2,
        cache: CacheMode::Writethrough,
        memory: Bytes(384 << 20),
        ..cached()
    };
    exercise("scsi-threads", spec, "/dev/sda");
}

#[test]
fn nvme_with_queues_and_every_write_flushed() {
    let spec = GuestSpec {
        bus: Bus::Nvme,
        queues: Some(2),
        cache: CacheMode::Directsync,
        discard: Discard::Ignore,
        ..cached()
    };
    exercise("nvme", spec, "/dev/nvme0n1");
}

#[test]
fn ide_with_flushes_ignored() {
    exercise("ide", GuestSpec { bus: Bus::Ide, cache: CacheMode::Unsafe, ..cached() }, "/dev/sda");
}

#[test]
fn virtio_blk_on_microvm() {
    let spec = GuestSpec { machine: Some(MachineType::Microvm), ..cached() };
    exercise("microvm", spec, "/dev/vda");
}

#[test]
fn virtio_scsi_on_microvm_in_qemus_main_loop() {
    let spec = GuestSpec {
        bus: Bus::VirtioScsi,
        machine: Some(MachineType::Microvm),
        iothread: Some(0),
        ..cached()
    };
    exercise("microvm-scsi", spec, "/dev/sda");
}

#[test]
fn sata_on_both_pcs() {
    iotax_testkit::require!(guests);
    iotax_testkit::require!(kernel "ahci");
    let on = |machine| GuestSpec { bus: Bus::Sata, machine: Some(machine), ..cached() };
    let needed = modules::needed(&on(MachineType::Q35), PlannedDevice::Disk);
    let kernel = kernel_with(&needed);
    for machine in [MachineType::Q35, MachineType::Pc] {
        let rig = Rig::build_on(&on(machine), PlannedDevice::Disk, &kernel);
        exercise_on(&rig, &format!("sata-{machine}"), on(machine), "/dev/sda");
    }
}
