//! Tests with real guests: QEMU under TCG, the tested binary as PID 1 and agent.
//!
//! Without QEMU or a guest kernel each test is skipped, or fails if guests are required.

mod axes;
mod device;
mod filesystem;
mod hangs;
mod network;
mod rig;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use iotax_model::guest_abi;
use iotax_model::record::CacheDrop;
use iotax_model::target::{Accel, Aio, CacheMode, FileSpec, Format};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::Event;
use iotax_model::workload::{Content, Rw};
use iotax_testbed::agent_client::AgentError;
use iotax_testbed::guest::{Guest, GuestError, accel, image, qemu_version};
use iotax_testbed::interrupt::Interrupt;
use rig::{BOOT, Rig, SIZE, area, disk, job, text};

/// Kills a process that this test started.
fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
    // It can be dead already when a second sample comes.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// True if a process with this id still runs.
fn runs(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_guest_boots_finds_its_disk_and_ends() {
    let Some(rig) = Rig::build() else { return };
    let config = rig.config("plain");
    let mut guest = Guest::boot(&config, &Interrupt::default()).expect("started");
    assert!(guest.command_line().contains(&config.marker));
    let hello = guest.wait_ready(BOOT).expect("ready");
    assert_eq!(hello.disk.as_deref(), Some("/dev/vda"));
    assert_eq!(Some(hello.kernel.as_str()), rig.kernel.release());
    assert!(hello.clocksource.is_some_and(|name| name != "tsc-early"), "a provisional clocksource");
    println!("boot to agent-ready: {:.2} s", guest.boot_ns().expect("known") as f64 / 1e9);

    guest.agent().ping().expect("answers");
    let error = text(guest.agent().fill(&area(Some("/no/disk")), &Content::default(), 1, BOOT, &mut |_| {}));
    assert!(error.contains("/no/disk"), "{error}");
    guest.agent().ping().expect("goes on after a failure");

    let threads = guest.threads().expect("listed");
    assert_eq!((threads["vcpu"].len(), threads["iothread"].len()), (1, 1));
    assert_eq!(threads["main"], [guest.pid()]);
    let pid = guest.pid();
    guest.shutdown();
    assert!(!runs(pid));
}

#[test]
fn a_paused_guest_is_silent_and_a_resumed_one_answers() {
    let Some(rig) = Rig::build() else { return };
    let interrupt = Interrupt::default();
    let mut guest = Guest::boot(&rig.config("paused"), &interrupt).expect("started");
    guest.pause().expect("paused");
    // Stopped while it boots, it cannot have answered.
    let silent = guest.wait_ready(Duration::from_secs(1));
    assert!(matches!(silent, Err(GuestError::AgentClient(AgentError::Deadline { .. }))), "{silent:?}");
    drop(guest);

    let mut guest = rig.boot("resumed");
    for _ in 0..3 {
        guest.pause().expect("paused");
        guest.resume().expect("resumed");
        guest.agent().ping().expect("answers");
    }
    let pid = guest.pid();
    guest.pause().expect("paused");
    guest.shutdown();
    assert!(!runs(pid), "a paused guest ends too");
}

#[test]
fn overlays_are_swapped_under_a_guest() {
    let Some(rig) = Rig::build() else { return };
    let mut config = rig.config("swapped");
    let base = rig.image("base.qcow2", Format::Qcow2);
    config.device = disk(base.clone(), Format::Qcow2);
    for iothread in [true, false] {
        config.spec.iothread = Some(u32::from(iothread));
        config.run_dir = rig.dir.path().join(format!("iothread-{iothread}"));
        fs::create_dir(&config.run_dir).expect("made");
        let mut guest = Guest::boot(&config, &Interrupt::default()).expect("started");
        guest.wait_ready(BOOT).expect("ready");
        for round in 0..3 {
            let overlay = rig.dir.path().join(format!("overlay-{iothread}-{round}"));
            image::create_overlay(&overlay, &base, Format::Qcow2, &FileSpec::default(), &rig.lock)
                .expect("created");
            if round == 1 {
                // Swapped by a caller who keeps it paused.
                guest.pause().expect("paused");
                guest.swap_disk(&overlay, Format::Qcow2).expect("swapped");
                let chain =
                    [base.clone(), overlay.clone()].map(|file| fs::canonicalize(file).expect("there"));
                assert!(
                    chain.iter().all(|file| guest.open_files().contains(file)),
                    "{:?}",
                    guest.open_files()
                );
                guest.resume().expect("resumed");
            } else {
                guest.swap_disk(&overlay, Format::Qcow2).expect("swapped");
            }
            guest.agent().ping().expect("answers");
            let open = open_files(guest.pid());
            let is_open = |wanted: &Path| open.iter().any(|(path, _)| path == wanted);
            assert!(is_open(&overlay) && is_open(&base), "{open:?}");
            assert!(!open.iter().any(|(path, _)| is_other_overlay(path, &overlay)), "{open:?}");
        }
        let error = text(guest.swap_disk(&rig.dir.path().join("absent"), Format::Raw));
        assert!(error.contains("absent"), "{error}");
        guest.agent().ping().expect("goes on with the disk it had");
        guest.shutdown();
    }
}

/// Returns the open files of a process, and whether each bypasses the page cache.
fn open_files(pid: u32) -> Vec<(PathBuf, bool)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("readable").flatten();
    let file = |entry: fs::DirEntry| {
        let path = fs::read_link(entry.path()).ok()?;
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", entry.file_name().display())).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
        Some((path, flags & rustix::fs::OFlags::DIRECT.bits() != 0))
    };
    entries.filter_map(file).collect()
}

fn is_other_overlay(path: &Path, overlay: &Path) -> bool {
    path != overlay && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("overlay-"))
}

#[test]
fn cache_and_aio_reach_every_image_of_a_chain() {
    let Some(rig) = Rig::build() else { return };
    let mut config = rig.config("chained");
    let base = rig.image("chain-base", Format::Raw);
    let top = rig.dir.path().join("chain-top");
    image::create_overlay(&top, &base, Format::Raw, &FileSpec::default(), &rig.lock).expect("created");
    config.device = disk(top.clone(), Format::Qcow2);
    for (cache, aio) in [(CacheMode::None, Aio::IoUring), (CacheMode::Writeback, Aio::Threads)] {
        config.run_dir = rig.dir.path().join(format!("chained-{cache}"));
        fs::create_dir(&config.run_dir).expect("made");
        (config.spec.cache, config.spec.aio) = (cache, aio);
        let guest = match Guest::boot(&config, &Interrupt::default()) {
            Ok(guest) => guest,
            // Some filesystems, tmpfs of old kernels among them, have no direct I/O.
            Err(error) if cache.direct() && error.to_string().contains("O_DIRECT") => {
                iotax_testkit::skipped::<()>(format_args!("cache={cache}: {error}"));
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let open = open_files(guest.pid());
        for image in [&base, &top] {
            let direct = open.iter().filter(|(path, _)| path == image).map(|(_, direct)| *direct);
            assert!(
                direct.clone().count() > 0 && direct.clone().all(|direct| direct == cache.direct()),
                "{open:?}"
            );
        }
    }
}

#[test]
fn a_guest_ends_when_its_conductor_is_killed() {
    let Some(rig) = Rig::build() else { return };
    // Its leftovers are removed with this test's directory.
    let mut conductor = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "stand_in_for_a_conductor", "--ignored", "--nocapture"])
        .env("TMPDIR", rig.dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let lines = BufReader::new(conductor.stdout.take().expect("a pipe")).lines();
    let pid = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("guest ")?.parse().ok());
    conductor.kill().expect("killed");
    conductor.wait().expect("reaped");
    let pid = pid.expect("the guest booted");
    let end = Instant::now() + BOOT;
    while runs(pid) {
        assert!(Instant::now() < end, "QEMU {pid} still runs");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "started by a_guest_ends_when_its_conductor_is_killed, which kills it"]
fn stand_in_for_a_conductor() {
    let rig = Rig::build().expect("checked by the caller");
    let guest = rig.boot("orphan");
    println!("\nguest {}", guest.pid());
    std::thread::sleep(BOOT);
}

#[test]
fn a_guest_whose_kernel_panics_is_an_error_with_its_console() {
    let Some(rig) = Rig::build() else { return };
    let mut config = rig.config("panics");
    config.kernel_parameters = "rdinit=/no/init init=/no/init root=/dev/none".into();
    let mut guest = Guest::boot(&config, &Interrupt::default()).expect("started");
    let error = text(guest.wait_ready(BOOT));
    assert!(error.contains("exited") && error.contains("Kernel panic"), "{error}");
    assert!(!runs(guest.pid()));
}

#[test]
fn a_guest_without_its_driver_says_so_on_its_way_down() {
    let Some(rig) = Rig::build() else { return };
    let mut config = rig.config("driverless");
    config.kernel_parameters = "module_blacklist=virtio_blk".into();
    let mut guest = Guest::boot(&config, &Interrupt::default()).expect("started");
    let error = text(guest.wait_ready(BOOT));
    assert!(error.contains("iotax init:") && error.contains("virtio_blk"), "{error}");
}

#[test]
fn a_killed_qemu_is_an_error_at_once() {
    let Some(rig) = Rig::build() else { return };
    let mut guest = rig.boot("killed");
    kill(guest.pid());
    let began = Instant::now();
    let error = text(guest.agent().ping());
    assert!(error.contains("exited") && error.contains("signal: 9"), "{error}");
    assert!(matches!(guest.pause(), Err(GuestError::Qmp { .. })));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_guest_that_is_dropped_leaves_nothing() {
    let Some(rig) = Rig::build() else { return };
    let guest = Guest::boot(&rig.config("dropped"), &Interrupt::default()).expect("started");
    let pid = guest.pid();
    assert!(runs(pid));
    drop(guest);
    assert!(!runs(pid));
}

#[test]
fn what_qemu_refuses_is_told_in_its_words() {
    let Some(rig) = Rig::build() else { return };
    let mut config = rig.config("refused");
    config.kernel.image = rig.initramfs.clone();
    let error =
        text(Guest::boot(&config, &Interrupt::default()).and_then(|mut guest| guest.wait_ready(BOOT)));
    assert!(error.contains("QEMU ended"), "{error}");
    config.run_dir = rig.dir.path().join("x".repeat(120));
    assert!(text(Guest::boot(&config, &Interrupt::default())).contains("too long"));
}

#[test]
fn the_accelerator_is_decided_with_a_reason() {
    let Some(rig) = Rig::build() else { return };
    let interrupt = Interrupt::default();
    let (marker, kernel, run_dir) = ("iotax-test-probe", &rig.kernel, rig.dir.path());
    let probe = accel::Probe { marker, kernel, initramfs: &rig.initramfs, run_dir, lock: &rig.lock };
    let resolve = |wanted| accel::resolve(wanted, probe, &interrupt);
    let (taken, reason) = resolve(Accel::Auto).expect("decided");
    println!("QEMU {}: {taken}: {reason}", qemu_version().expect("told"));
    match taken {
        Accel::Kvm => assert_eq!(resolve(Accel::Kvm).expect("works").0, Accel::Kvm),
        Accel::Tcg => {
            assert!(reason.ends_with("using TCG (emulation)"), "{reason}");
            assert!(text(resolve(Accel::Kvm)).contains("--accel tcg"));
        }
        Accel::Auto => panic!("auto is no decision"),
    }
    assert!(!rig.dir.path().join("kvm-probe").exists());
}

#[test]
fn the_probe_prints_its_marker_and_ends() {
    let Some(rig) = Rig::build() else { return };
    let mut config = rig.config("probed");
    config.kernel_parameters = guest_abi::PROBE_PARAMETER.into();
    let mut guest = Guest::boot(&config, &Interrupt::default()).expect("started");
    let error = text(guest.wait_ready(BOOT));
    assert!(error.contains(guest_abi::PROBE_MARKER), "{error}");
}

#[test]
fn a_guest_measures_what_lies_under_its_disk() {
    let Some(rig) = Rig::build() else { return };
    let mut config = rig.config("measured");
    let base = rig.image("measured.qcow2", Format::Qcow2);
    config.device = disk(base.clone(), Format::Qcow2);
    let mut guest = Guest::boot(&config, &Interrupt::default()).expect("started");
    guest.wait_ready(BOOT).expect("ready");
    let mut done = Bytes(0);
    guest.agent().fill(&area(None), &Content::default(), 1, BOOT, &mut |bytes| done = bytes).expect("filled");
    assert!(fs::metadata(&base).expect("there").len() > SIZE.0, "the fill reached the image");

    let written = fs::read(&base).expect("readable");
    for round in 0..3 {
        let overlay = rig.dir.path().join(format!("measured-{round}"));
        image::create_overlay(&overlay, &base, Format::Qcow2, &FileSpec::default(), &rig.lock)
            .expect("created");
        let empty = fs::metadata(&overlay).expect("there").len();
        guest.swap_disk(&overlay, Format::Qcow2).expect("swapped");
        assert_eq!(guest.agent().drop_caches(&[], true).expect("dropped"), CacheDrop::Machine);

        let mut samples = 0;
        let count = &mut |event: &Event| samples += u32::from(matches!(event, Event::Sample(_)));
        let read = guest.agent().run(&job(Rw::RandRead), BOOT, count).expect("read");
        assert!(read.tallies.ios() > 0 && read.errors.is_empty() && samples > 0, "{read:?}");
        assert_eq!(fs::metadata(&overlay).expect("there").len(), empty, "a read allocates nothing");
        let written = guest.agent().run(&job(Rw::RandWrite), BOOT, &mut |_| {}).expect("written");
        assert!(written.tallies.ios() > 0 && written.errors.is_empty(), "{written:?}");
        assert!(fs::metadata(&overlay).expect("there").len() > empty + 4096, "writes went to the overlay");
    }
    guest.shutdown();
    assert!(written == fs::read(&base).expect("readable"), "the backing image was written");
}

#[test]
fn what_interrupts_a_measurement_ends_it_at_once() {
    let Some(rig) = Rig::build() else { return };
    let interrupt = Interrupt::default();
    let mut guest = Guest::boot(&rig.config("interrupted"), &interrupt).expect("started");
    guest.wait_ready(BOOT).expect("ready");
    let mut long = job(Rw::RandRead);
    long.workload.runtime = Nanos::from_secs(600);
    let mut began = None;
    let stop = &mut |_: &Event| {
        interrupt.store(true, Ordering::Relaxed);
        began.get_or_insert_with(Instant::now);
    };
    assert!(matches!(guest.agent().run(&long, BOOT, stop), Err(AgentError::Interrupted)));
    let pid = guest.pid();
    guest.shutdown();
    assert!(!runs(pid));
    // A power off that is heard in the middle of a measurement, or QEMU's quit after it: far from the ten minutes.
    assert!(began.expect("measured").elapsed() < BOOT);

    let mut guest = rig.boot("murdered");
    let pid = guest.pid();
    let kill = &mut |_: &Event| kill(pid);
    let error = text(guest.agent().run(&long, BOOT, kill));
    assert!(error.contains("exited during run") && error.contains("signal: 9"), "{error}");
}
