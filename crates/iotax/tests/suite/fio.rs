//! Tests that iotax agrees with fio on the same jobs: a check of correctness, not of speed.
//!
//! In all jobs the storage is the bottleneck, not the tool: a disk slowed down so that one core can saturate it, or the page cache with
//! large blocks. fio registers its file and buffers with io_uring, as iotax does, and aligns buffers to pages; without that, copies reach
//! two thirds of the speed. Writes are short, so that the cost of new data, which fio does not generate, is small, or so long that iotax
//! does not generate it either.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use iotax_model::record::Tally;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::Job;
use iotax_model::workload::{IoEngine, Rw, WorkloadKeys};
use iotax_testbed::agent_client::AgentClient;
use iotax_testbed::interrupt::Interrupt;
use iotax_testkit::{require, skip, thorough};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::lab::{Lab, text};
use crate::slowed::Slowed;

const SIZE: Bytes = Bytes(512 << 20);
/// The disk's limit for reads and for writes, in IOPS. At a higher limit the CPU becomes the bottleneck, and fio is slower because it makes
/// one system call per I/O.
const DISK_IOPS: u64 = 4000;
/// Without a warm-up, because fio counts the latencies of I/Os at its end without counting the I/Os.
const RAMP_MS: u64 = 200;

/// Accepted difference, by the median of the pairs' ratios: the scatter of one tool from run to run, at most the upper bound.
const TOLERANCE: (f64, f64) = (0.05, 0.3);

#[derive(Clone, Copy)]
struct Shape {
    rw: Rw,
    /// A block size, or several with their shares in the syntax of bssplit.
    bs: &'static str,
    ioengine: IoEngine,
    iodepth: u32,
    numjobs: u32,
    direct: bool,
}

const fn disk(rw: Rw, bs: &'static str, ioengine: IoEngine, iodepth: u32) -> Shape {
    Shape { rw, bs, ioengine, iodepth, numjobs: 1, direct: true }
}

const fn cached(rw: Rw, bs: &'static str) -> Shape {
    Shape { direct: false, ..disk(rw, bs, IoEngine::Psync, 1) }
}

const SHAPES: [Shape; 10] = [
    disk(Rw::RandWrite, "4k", IoEngine::Psync, 1),
    disk(Rw::RandRw, "4k", IoEngine::IoUring, 16),
    Shape { numjobs: 4, ..disk(Rw::Read, "64k", IoEngine::Psync, 1) },
    cached(Rw::RandRead, "256k"),
    disk(Rw::RandRead, "4k", IoEngine::Psync, 1),
    disk(Rw::RandRead, "4k", IoEngine::IoUring, 16),
    disk(Rw::RandWrite, "4k", IoEngine::IoUring, 16),
    disk(Rw::RandRead, "4k/50:64k/50", IoEngine::IoUring, 1),
    disk(Rw::Write, "8k", IoEngine::IoUring, 1),
    cached(Rw::Write, "1m"),
];

/// Number of shapes that quick tests compare: one of each I/O pattern.
const FEW: usize = 4;
/// Number of shapes on slowed disks that are compared at the same time.
const AT_ONCE: usize = 3;

impl Shape {
    /// Long enough that one burst more or less hardly matters: the kernel's throttle passes a burst every 100 ms.
    fn run_ms(&self) -> u64 {
        if self.direct { 2500 } else { 600 }
    }

    /// Number of pairs of consecutive runs; the tool that starts alternates.
    fn pairs(&self) -> usize {
        if self.direct { 3 } else { 7 }
    }

    fn bs_key(&self) -> &'static str {
        if self.bs.contains(':') { "bssplit" } else { "bs" }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rw, bs, ioengine, iodepth, numjobs, direct } = self;
        write!(f, "{ioengine} {rw} {bs} qd{iodepth} x{numjobs} direct={}", u8::from(*direct))
    }
}

/// Figures of one run by name: IOPS of each direction of the job, and the mean latency.
type Figures = Vec<(String, f64)>;

fn fio(exe: &Path, shape: &Shape, file: &Path) -> Figures {
    let option = |name: &str, value: &dyn fmt::Display| format!("--{name}={value}");
    let mut command = Command::new(exe);
    command
        .args([
            "--name=job",
            "--output-format=json",
            "--group_reporting",
            "--time_based",
            "--invalidate=0",
            "--iomem_align=4k",
        ])
        .args([
            option("filename", &file.display()),
            option("size", &(SIZE.0 / u64::from(shape.numjobs))),
            option("runtime", &format!("{}ms", shape.run_ms())),
            option("rw", &shape.rw),
            option(shape.bs_key(), &shape.bs),
            option("ioengine", &shape.ioengine),
            option("iodepth", &shape.iodepth),
            option("numjobs", &shape.numjobs),
            option("rwmixread", &70),
            option("direct", &u8::from(shape.direct)),
        ]);
    if !shape.rw.is_random() {
        // As iotax does, jobs of a sequential pattern divide the area.
        command.arg(option("offset_increment", &(SIZE.0 / u64::from(shape.numjobs))));
    }
    if shape.ioengine == IoEngine::IoUring {
        command.args(["--fixedbufs", "--registerfiles"]);
    }
    let output = command.output().expect("fio runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("fio's JSON");
    let figure = |direction: &str, name: &str| {
        json["jobs"][0][direction].pointer(name).and_then(Value::as_f64).expect("a figure")
    };
    // fio's lat begins before it scrambles a buffer, which iotax does before it starts the clock; its clat leaves out what a
    // submission takes, which for a call that returns when the I/O is done is nothing.
    let mean = if shape.ioengine == IoEngine::Psync { "/clat_ns/mean" } else { "/lat_ns/mean" };
    let of = |direction: &str| (figure(direction, "/iops"), figure(direction, mean));
    figures(shape, ["read", "write"].map(of))
}

fn iotax(link: &mut AgentClient, shape: &Shape, file: &Path) -> Figures {
    let mut keys = WorkloadKeys {
        rw: Some(shape.rw),
        ioengine: Some(shape.ioengine),
        iodepth: Some(shape.iodepth),
        numjobs: Some(shape.numjobs),
        rwmixread: Some(70),
        direct: Some(shape.direct),
        ramp_time: Some(Nanos::from_millis(RAMP_MS)),
        runtime: Some(Nanos::from_millis(shape.run_ms())),
        ..WorkloadKeys::default()
    };
    keys.set(shape.bs_key(), shape.bs).expect("a size");
    let workload = keys.complete(&WorkloadKeys::default());
    let (path, interval) = (Some(file.display().to_string()), Nanos::from_millis(shape.run_ms()));
    let job = Job { path, writable: true, ..Job::new(workload, SIZE, 1, interval) };
    let outcome = link.run(&job, Duration::from_mins(1), &mut |_| {}).expect("measured");
    assert_eq!(outcome.errors, []);
    // fio takes completions out one by one and counts an I/O as in flight until then, so its slots are never empty. Here a slot
    // is, from when its I/O is seen to be done until the next one begins; Little's law gives that time per I/O.
    let slots = f64::from(shape.iodepth) * f64::from(shape.numjobs);
    let tallies = &outcome.tallies;
    let cycle_ns = slots * outcome.duration_ns as f64 / tallies.ios() as f64;
    let empty_ns = if shape.iodepth > 1 { cycle_ns - tallies.latency().mean().expect("I/Os") } else { 0.0 };
    let of = |tally: &Option<Tally>| {
        let per_second = |ios: u64| ios as f64 * 1e9 / outcome.duration_ns as f64;
        tally.as_ref().map_or((0.0, 0.0), |tally| {
            (per_second(tally.ios), tally.latency.mean().expect("I/Os") + empty_ns)
        })
    };
    figures(shape, [of(&outcome.tallies.read), of(&outcome.tallies.write)])
}

/// Builds the figures from IOPS and mean latency of reads and of writes. Of a mix on a slowed disk, whose I/Os come in bursts, the order
/// within a burst decides which direction waits: the mean over both does not depend on it.
fn figures(shape: &Shape, [read, write]: [(f64, f64); 2]) -> Figures {
    let there = [("read", shape.rw.reads(), read), ("write", shape.rw.writes(), write)];
    let there = there.into_iter().filter(|(_, there, _)| *there);
    let (iops, busy) =
        there.clone().fold((0.0, 0.0), |(iops, busy), (_, _, one)| (iops + one.0, busy + one.0 * one.1));
    there.map(|(word, _, one)| (format!("{word} IOPS"), one.0)).chain([("ns".into(), busy / iops)]).collect()
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the range of the values as a share of the median.
fn spread(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    (most - least) / median(values)
}

/// Runs fio and an agent, given by their programs, in turns on one shape. Returns the figures on which they disagree.
fn compare([fio_exe, exe]: [&Path; 2], shape: &Shape, path: &Path) -> Vec<String> {
    let mut link = AgentClient::spawn_local(exe, &Interrupt::default()).expect("an agent");
    // Direct I/O drops the pages that it writes over.
    if !shape.direct {
        std::fs::read(path).expect("cached");
    }
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for pair in 0..shape.pairs() {
        if pair % 2 == 0 {
            theirs.push(fio(fio_exe, shape, path));
            ours.push(iotax(&mut link, shape, path));
        } else {
            ours.push(iotax(&mut link, shape, path));
            theirs.push(fio(fio_exe, shape, path));
        }
    }
    let mut disagreements = Vec::new();
    for (index, (name, _)) in theirs[0].iter().enumerate() {
        let of = |runs: &[Figures]| -> Vec<f64> { runs.iter().map(|figures| figures[index].1).collect() };
        let (theirs, ours) = (of(&theirs), of(&ours));
        let tolerance = spread(&ours).max(spread(&theirs)).clamp(TOLERANCE.0, TOLERANCE.1);
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
        let ratio = median(&ratios);
        let shown = format!(
            "{shape} {name}: ratio {ratio:.3}, tolerance {tolerance:.3}, iotax {ours:.0?}, fio {theirs:.0?}"
        );
        eprintln!("{shown}");
        if ratio.ln().abs() > tolerance.ln_1p() {
            disagreements.push(shown);
        }
    }
    disagreements
}

/// Creates a file whose blocks all differ.
fn create(path: &Path) {
    let mut file = File::create(path).expect("created");
    let chunk: Vec<u8> = (0..1_u32 << 18).flat_map(|n| n.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
    (0..SIZE.0 >> 20).for_each(|_| file.write_all(&chunk).expect("written"));
    file.sync_all().expect("synced");
}

/// A file that QEMU's storage daemon shows as another file, by FUSE, with 1,000 I/Os a second: the two programs differ in the CPU time that
/// they take from the daemon, and the limit does not depend on it. The daemon ends on drop.
struct FuseExport(Child);

impl FuseExport {
    fn start(file: &Path, shown: &Path) -> Self {
        File::create(shown).expect("created");
        let node =
            format!("driver=file,node-name=f,filename={},cache.direct=on,aio=io_uring", file.display());
        let limit = "driver=throttle,node-name=limited,throttle-group=limit,file=f";
        let export = format!("type=fuse,id=e,node-name=limited,mountpoint={},writable=on", shown.display());
        let mut daemon = Command::new("qemu-storage-daemon");
        daemon.args(["--object", "throttle-group,id=limit,x-iops-total=1000", "--blockdev", &node]);
        let export = Self(daemon.args(["--blockdev", limit, "--export", &export]).spawn().expect("a daemon"));
        for _ in 0..100 {
            if shown.metadata().is_ok_and(|found| found.len() == SIZE.0) {
                return export;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("{}: the export is not there", shown.display());
    }
}

impl Drop for FuseExport {
    fn drop(&mut self) {
        // It unmounts what it shows.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Tests that run while no other test does.
mod alone {
    use super::*;

    #[test]
    fn the_same_jobs_give_the_same_figures() {
        require!(program "fio");
        let lab = Lab::alone();
        let path = lab.work().join("data");
        create(&path);
        let shapes = &SHAPES[..if thorough() { SHAPES.len() } else { FEW }];
        let limit = |number| Slowed::new(&path, DISK_IOPS, number);
        let slowed = match (0..shapes.len()).map(limit).collect::<Result<Vec<Slowed>, String>>() {
            Ok(slowed) => slowed,
            Err(reason) => skip!("{reason}"),
        };
        let compare = |(number, shape): (usize, &Shape)| {
            let program =
                |name: &str, exe: &Path| slowed[number].program(&lab, &format!("{name}-{number}"), exe);
            let fio = program("fio", &iotax_testkit::program("fio"));
            let agent = program("agent", Path::new(env!("CARGO_BIN_EXE_iotax")));
            super::compare([&fio, &agent], shape, &path)
        };
        let (direct, cached): (Vec<_>, Vec<_>) =
            shapes.iter().enumerate().partition(|(_, shape)| shape.direct);
        let mut disagreements = Vec::new();
        // Each waits for its own limit, so the disk and the CPUs can serve several at the same time.
        for some in direct.chunks(AT_ONCE) {
            thread::scope(|scope| {
                let all: Vec<_> = some.iter().map(|one| scope.spawn(|| compare(*one))).collect();
                disagreements.extend(all.into_iter().flat_map(|one| one.join().expect("compared")));
            });
        }
        disagreements.extend(cached.into_iter().flat_map(compare));
        assert_eq!(disagreements, Vec::<String>::new());
    }

    #[test]
    fn an_export_gives_the_same_figures() {
        require!(program "fio", "qemu-storage-daemon");
        let lab = Lab::alone();
        let (file, shown) = (lab.work().join("data"), lab.work().join("export"));
        create(&file);
        let _export = FuseExport::start(&file, &shown);
        let programs = [&iotax_testkit::program("fio"), Path::new(env!("CARGO_BIN_EXE_iotax"))];
        let shapes = [
            disk(Rw::RandRead, "4k", IoEngine::Psync, 1),
            disk(Rw::RandRead, "4k", IoEngine::IoUring, 32),
            disk(Rw::Read, "64k", IoEngine::IoUring, 4),
            disk(Rw::RandWrite, "4k", IoEngine::IoUring, 4),
        ];
        let disagreements: Vec<String> =
            shapes.iter().flat_map(|shape| compare(programs, shape, &shown)).collect();
        assert_eq!(disagreements, Vec::<String>::new());
    }
}
