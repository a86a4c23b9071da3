//! Compares the engine's cost with a lower bound for any generator: a bare loop around the same system calls, without latencies, interval
//! counts or a schedule.
//!
//! 4k random reads of a page-cached file of 1 MiB, interleaved, on one pinned CPU. Prints CPU nanoseconds (user and system)
//! per I/O: the median over the repeats and the range, and the ratio of the medians.
//!
//! usage: cargo bench -p iotax-engine --bench ceiling
#![expect(unsafe_code, reason = "the bare loop speaks to the kernel itself")]

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};
use iotax_engine::measure;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::Job;
use iotax_model::workload::{IoEngine, Rw, WorkloadKeys};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const SIZE: u64 = 1 << 20;
const BLOCK: u32 = 4096;
const BLOCKS: u64 = SIZE / BLOCK as u64;
const BATCH: usize = 32;
const REPEATS: usize = 7;
const TIME: Duration = Duration::from_millis(700);

fn main() {
    pin();
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    let random: Vec<u8> = {
        let mut random = Xorshift(1);
        (0..SIZE / 8).flat_map(|_| random.next().to_le_bytes()).collect()
    };
    file.write_all(&random).expect("written");
    file.as_file().sync_all().expect("flushed");

    println!("{:<16} {:>24} {:>24} {:>8}", "", "bare loop, ns", "iotax, ns", "ratio");
    row("psync", &|| bare_psync(file.path()), &|| iotax(file.path(), IoEngine::Psync, 1));
    for depth in [1, 32, 128] {
        row(&format!("io_uring QD{depth}"), &|| bare_uring(file.path(), depth), &|| {
            iotax(file.path(), IoEngine::IoUring, depth)
        });
    }
}

fn row(name: &str, bare: &dyn Fn() -> f64, engine: &dyn Fn() -> f64) {
    let (mut bares, mut engines) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        bares.push(bare());
        engines.push(engine());
    }
    let shown = |costs: &mut Vec<f64>| {
        costs.sort_by(f64::total_cmp);
        format!("{:.1} [{:.1}, {:.1}]", costs[REPEATS / 2], costs[0], costs[REPEATS - 1])
    };
    let (bare, engine) = (shown(&mut bares), shown(&mut engines));
    println!("{name:<16} {bare:>24} {engine:>24} {:>8.3}", engines[REPEATS / 2] / bares[REPEATS / 2]);
}

/// Keeps the process on the last CPU that it may use; threads inherit it.
fn pin() {
    let allowed = sched_getaffinity(None).expect("affinity");
    let last = (0..CpuSet::MAX_CPU).rfind(|cpu| allowed.is_set(*cpu)).expect("a CPU");
    let mut one = CpuSet::new();
    one.set(last);
    sched_setaffinity(None, &one).expect("pinned");
}

fn iotax(path: &Path, ioengine: IoEngine, iodepth: u32) -> f64 {
    let keys = WorkloadKeys {
        rw: Some(Rw::RandRead),
        iodepth: Some(iodepth),
        runtime: Some(Nanos(u64::try_from(TIME.as_nanos()).expect("short"))),
        ramp_time: Some(Nanos::from_millis(50)),
        direct: Some(false),
        ioengine: Some(ioengine),
        ..WorkloadKeys::default()
    };
    let job = Job::new(keys.complete(&WorkloadKeys::default()), Bytes(SIZE), 1, Nanos::from_millis(100));
    let outcome = measure(&job, path, &mut |_| {}).expect("measured");
    assert_eq!((outcome.errors, outcome.notes), (vec![], vec![]));
    outcome.cpu.total_ns() as f64 / outcome.tallies.ios() as f64
}

fn bare_uring(path: &Path, depth: u32) -> f64 {
    let file = File::open(path).expect("opened");
    let mut ring: IoUring =
        IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(depth).expect("a ring");
    ring.submitter().register_files(&[file.as_raw_fd()]).expect("registered");
    // Page-aligned, as the engine's are.
    let mut memory = vec![0_u8; (depth as usize + 1) * BLOCK as usize];
    let skip = memory.as_ptr().align_offset(BLOCK as usize);
    let base = memory[skip..].as_mut_ptr();
    let stretch = libc::iovec { iov_base: base.cast(), iov_len: depth as usize * BLOCK as usize };
    // SAFETY: the memory outlives the ring's use of it: every read is waited for below.
    unsafe { ring.submitter().register_buffers(&[stretch]) }.expect("registered");

    let mut free: Vec<u32> = (0..depth).collect();
    let mut random = Xorshift(1);
    per_io(|| {
        let mut begun = 0;
        let mut queue = ring.submission();
        while begun < BATCH
            && let Some(slot) = free.pop()
        {
            // SAFETY: slots are numbered below the depth.
            let buffer = unsafe { base.add(slot as usize * BLOCK as usize) };
            let entry = opcode::ReadFixed::new(types::Fixed(0), buffer, BLOCK, 0)
                .offset(random.below(BLOCKS) * u64::from(BLOCK))
                .build()
                .user_data(slot.into());
            // SAFETY: the buffer belongs to the slot, and nothing reads it before the completion.
            unsafe { queue.push(&entry) }.expect("there is a place for each slot");
            begun += 1;
        }
        drop(queue);
        ring.submit_and_wait(1).expect("submitted");
        let mut done = 0;
        for entry in ring.completion() {
            assert_eq!(entry.result(), BLOCK.cast_signed());
            free.push(u32::try_from(entry.user_data()).expect("a slot"));
            done += 1;
        }
        done
    })
}

fn bare_psync(path: &Path) -> f64 {
    let file = File::open(path).expect("opened");
    let mut buffer = vec![0; BLOCK as usize];
    let mut random = Xorshift(1);
    per_io(|| {
        let offset = random.below(BLOCKS) * u64::from(BLOCK);
        assert_eq!(file.read_at(&mut buffer, offset).expect("read"), BLOCK as usize);
        1
    })
}

/// CPU nanoseconds per I/O of a step that returns its number of I/Os.
fn per_io(mut step: impl FnMut() -> u64) -> f64 {
    let (begin, before) = (Instant::now(), cpu_ns());
    let mut ios = 0;
    while begin.elapsed() < TIME {
        // The clock would show in the figure.
        for _ in 0..64 {
            ios += step();
        }
    }
    (cpu_ns() - before) as f64 / ios as f64
}

fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec).cast_unsigned()
}

/// Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8(14), 2003.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}
