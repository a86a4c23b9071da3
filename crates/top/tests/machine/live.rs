//! Tests of readings of this machine under a load on a loop device.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use iotax_testbed::interrupt::Interrupt;
use iotax_testkit::{program, require};
use iotax_top::buckets;
use iotax_top::collect::{Collector, Options};
use iotax_top::rates;
use iotax_top::raw::{Device, MachineSnapshot, PercentileSource, QemuGuest, RequestKind};
use rustix::fs::OFlags;

const SIZE: u64 = 32 << 20;
/// Large enough for an I/O to take much longer than the programs that watch it.
const BLOCK: usize = 256 << 10;

/// A loop device on a file; removed on drop.
struct Loop {
    device: PathBuf,
    _file: tempfile::NamedTempFile,
}

impl Loop {
    fn attach() -> Self {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
        file.as_file().set_len(SIZE).expect("as long as that");
        let attached = Command::new(program("losetup")).args(["--find", "--show"]).arg(file.path()).output();
        let attached = attached.expect("losetup runs");
        assert!(attached.status.success(), "{}", String::from_utf8_lossy(&attached.stderr));
        Self { device: String::from_utf8_lossy(&attached.stdout).trim().into(), _file: file }
    }

    fn name(&self) -> &str {
        self.device.file_name().and_then(|name| name.to_str()).expect("a name")
    }

    fn of<'a>(&self, snapshot: &'a MachineSnapshot) -> &'a Device {
        let found = snapshot.devices.iter().find(|device| device.name == self.name());
        found.unwrap_or_else(|| panic!("{} is in no reading: {snapshot:?}", self.name()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new(program("losetup")).arg("--detach").arg(&self.device).status();
    }
}

/// Reads and writes blocks with direct I/O until it is stopped.
fn load(device: &Path, over: &AtomicBool) -> io::Result<u64> {
    let direct = i32::try_from(OFlags::DIRECT.bits()).expect("a flag");
    let file = OpenOptions::new().read(true).write(true).custom_flags(direct).open(device)?;
    let mut memory = vec![0; 2 * BLOCK];
    let begin = memory.as_ptr().align_offset(BLOCK);
    let block = &mut memory[begin..begin + BLOCK];
    let mut ios = 0;
    while !over.load(Ordering::Relaxed) {
        let offset = ios * 7919 % (SIZE / BLOCK as u64) * BLOCK as u64;
        if ios % 3 == 0 {
            file.write_all_at(block, offset)?;
        } else {
            file.read_exact_at(block, offset)?;
        }
        ios += 1;
    }
    Ok(ios)
}

/// Puts load on a device while `meanwhile` runs for `time`, and returns the number of I/Os.
fn under_load(device: &Path, time: Duration) -> u64 {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| load(device, &over));
        thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        load.join().expect("no panic").expect("I/O")
    })
}

fn collector(percentiles: bool) -> Collector {
    let options = Options { root: "/".into(), percentiles, qmp: Vec::new() };
    Collector::new(&options, &Interrupt::default())
}

fn close(ours: f64, theirs: f64, tolerance: f64) -> bool {
    (ours - theirs).abs() <= tolerance * theirs.abs()
}

/// Tests that both programs count the whole load, which begins and ends within both windows.
#[test]
fn iostat_counts_the_same() {
    const WINDOW: Duration = Duration::from_secs(3);
    require!(root);
    require!(program "iostat", "losetup");
    let device = Loop::attach();
    let mut collector = collector(false);
    loop {
        let began = Instant::now();
        let earlier = collector.snapshot();
        let iostat = Command::new(program("iostat"))
            .args(["-dxy", "-o", "JSON", "--dec=2", device.name(), &WINDOW.as_secs().to_string(), "1"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("iostat starts");
        thread::sleep(Duration::from_millis(500));
        let ios = under_load(&device.device, Duration::from_secs(1));
        let is_within = began.elapsed() < WINDOW;
        let printed = iostat.wait_with_output().expect("iostat ends");
        let later = collector.snapshot();
        if !is_within {
            // This machine stood still: iostat may have looked in between.
            continue;
        }
        let printed: serde_json::Value = serde_json::from_slice(&printed.stdout).expect("JSON");
        let disk = &printed["sysstat"]["hosts"][0]["statistics"][0]["disk"][0];
        let theirs = |key: &str| disk[key].as_f64().unwrap_or_else(|| panic!("{key} in {printed}"));
        let (mut a, mut b) = (earlier.clone(), later.clone());
        // Rates of both over the same time.
        (a.clock_ns, b.clock_ns) = (0, u64::try_from(WINDOW.as_nanos()).expect("short"));
        let frame = iotax_top::rates::between(&a, &b).expect("time passed");
        let ours = frame.layers.iter().find(|layer| layer.name == device.name()).expect("there");
        let both = device.of(&later).counters.reads + device.of(&later).counters.writes
            - device.of(&earlier).counters.reads
            - device.of(&earlier).counters.writes;
        assert!(both >= ios, "the load alone was {ios} of {both}");
        for (key, ours, unit) in [
            ("r/s", ours.read_iops, 1.0),
            ("w/s", ours.write_iops, 1.0),
            ("rkB/s", ours.read_bytes_per_s, 1024.0),
            ("wkB/s", ours.write_bytes_per_s, 1024.0),
            ("aqu-sz", ours.queue, 1.0),
            ("util", ours.busy, 0.01),
        ] {
            let ours = ours.expect(key) / unit;
            assert!(
                close(ours, theirs(key), 0.01) || (ours - theirs(key)).abs() <= 0.01,
                "{key}: {ours} {disk}"
            );
        }
        // Two decimals of a millisecond are little for a fast device.
        for (key, ours) in [("r_await", ours.read_latency_ns), ("w_await", ours.write_latency_ns)] {
            let ours = ours.expect(key) / 1e6;
            assert!(
                close(ours, theirs(key), 0.01) || (ours - theirs(key)).abs() <= 0.01,
                "{key}: {ours} {disk}"
            );
        }
        return;
    }
}

/// Tests that the mean of the kernel's histogram equals that of diskstats: both measure from the same start of each request.
#[test]
fn percentiles_are_of_the_requests_that_diskstats_counts() {
    require!(root);
    require!(program "losetup");
    let device = Loop::attach();
    let mut collector = collector(true);
    let earlier = collector.snapshot();
    if let PercentileSource::Unknown(reason) = &earlier.percentiles {
        iotax_testkit::skip!("no BPF here: {reason}");
    }
    under_load(&device.device, Duration::from_secs(1));
    let later = collector.snapshot();
    let (a, b) = (device.of(&earlier), device.of(&later));
    for (direction, ios, ms) in [
        (RequestKind::Read, b.counters.reads - a.counters.reads, b.counters.read_ms - a.counters.read_ms),
        (
            RequestKind::Write,
            b.counters.writes - a.counters.writes,
            b.counters.write_ms - a.counters.write_ms,
        ),
    ] {
        let new = b.latencies.iter().find(|latencies| latencies.direction == direction).expect("seen");
        let seen: u64 = new.buckets.iter().map(|(_, count)| count).sum();
        // A request started before the programs were attached may be missing.
        assert!(seen.abs_diff(ios) <= 2, "{direction:?}: {seen} seen, {ios} counted");
        let mean_ns = buckets::mean_ns(&new.buckets).expect("I/Os");
        let counted_ns = ms as f64 * 1e6 / ios as f64;
        // The tracepoint is a moment before the kernel counts the request, and the programs themselves take time in between.
        let share = mean_ns / counted_ns;
        assert!(
            (0.75..1.0 + buckets::RELATIVE_ERROR).contains(&share),
            "{direction:?}: {mean_ns} ns by histogram, {counted_ns} ns by diskstats, {ios} I/Os"
        );
        let (p50, p99) =
            (buckets::percentile_ns(&new.buckets, 0.5), buckets::percentile_ns(&new.buckets, 0.99));
        eprintln!("{direction:?}: {ios} I/Os, mean {counted_ns:.0} ns, p50 {p50:?}, p99 {p99:?}");
        assert!(new.device_ns as f64 / new.device_ios as f64 <= mean_ns * (1.0 + buckets::RELATIVE_ERROR));
    }
}

/// Tests QEMU with only a disk: stopped before its first instruction, it counts no I/O.
#[test]
fn a_guest_of_qemu_is_found_and_its_disk_is_counted() {
    require!(program "qemu-system-x86_64");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let sockets = tempfile::tempdir().expect("a directory with a short path");
    let (disk, socket) = (dir.path().join("web,1.img"), sockets.path().join("qmp"));
    std::fs::write(&disk, vec![0; 1 << 20]).expect("written");
    let disk = disk.display().to_string();
    let mut qemu = Command::new(program("qemu-system-x86_64"))
        .args([
            "-name",
            "guest=web-17,debug-threads=on",
            "-nodefaults",
            "-display",
            "none",
            "-S",
            "-accel",
            "tcg",
        ])
        .args(["-drive", &format!("file={},format=raw,if=virtio,id=d0", disk.replace(',', ",,"))])
        .args(["-qmp", &format!("unix:{},server=on,wait=off", socket.display())])
        .spawn()
        .expect("QEMU starts");
    let end = Instant::now() + Duration::from_mins(1);
    let missing = sockets.path().join("none");
    let options = Options { root: "/".into(), percentiles: false, qmp: vec![socket, missing.clone()] };
    // Its socket is there before it listens.
    let read = loop {
        let read = Collector::new(&options, &Interrupt::default()).snapshot();
        let is_ours = |guest: &QemuGuest| guest.pid == qemu.id() && guest.qemu.is_some();
        if read.guests.iter().any(is_ours) || Instant::now() > end {
            break read;
        }
        assert!(qemu.try_wait().expect("a child").is_none(), "it ended");
        thread::sleep(Duration::from_millis(20));
    };
    let guest = read.guests.iter().find(|guest| guest.pid == qemu.id()).cloned();
    let _ = qemu.kill();
    let _ = qemu.wait();
    let guest = guest.unwrap_or_else(|| panic!("not found: {:?}", read.guests));
    assert_eq!(guest.name, "web-17");
    assert_eq!(guest.disks.iter().map(|disk| disk.path.as_str()).collect::<Vec<_>>(), [disk.as_str()]);
    let [counted] = &guest.qemu.expect("connected")[..] else { panic!("one disk") };
    assert_eq!((counted.path.as_deref(), counted.writes), (Some(disk.as_str()), 0));
    let is_named = |remark: &String| remark.starts_with(&missing.display().to_string());
    assert!(read.remarks.iter().any(is_named), "{:?}", read.remarks);
}

#[test]
fn what_a_child_did_in_all_its_life_is_no_rate_of_its_parent() {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    let options = Options { root: "/".into(), percentiles: false, qmp: Vec::new() };
    let mut collector = Collector::new(&options, &Interrupt::default());
    let earlier = collector.snapshot();
    let to = format!("of={}", file.path().display());
    let written =
        Command::new("dd").args(["if=/dev/zero", &to, "bs=1M", "count=4"]).output().expect("dd runs");
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let frame = rates::between(&earlier, &collector.snapshot()).expect("time passed");
    let ours = frame.processes.iter().find(|process| process.pid == std::process::id()).expect("it read");
    let rates =
        [ours.read_bytes_per_s, ours.write_bytes_per_s, ours.read_calls_per_s, ours.write_calls_per_s];
    assert_eq!(rates, [None; 4]);
}
