//! Methods of making a write durable, named as in pg_test_fsync if that has the method.

use super::{Suite, SuiteOptions, SuiteRemark, SuiteShape, named, timed};
use crate::units::{Bytes, Nanos};
use crate::workload::{FileLayout, IoEngine, Rw, SyncFileRange, SyncMode, Workload, WorkloadKeys};

pub(super) const SUITE: Suite = Suite {
    name: "flush",
    help: "pg_test_fsync: 4k writes made durable in every way that there is, and the flushes that each layer passed on; iotax flush",
    shape: SuiteShape::Methods,
    remarks: &[
        SuiteRemark {
            tests: &["sync_file_range"],
            text: "it writes pages out and flushes no device's cache: after a power cut the data may be gone",
        },
        SuiteRemark {
            tests: &["write"],
            text: "nothing is made durable: the price of durability is counted from here",
        },
    ],
    repeat: 5,
    workloads,
};

/// Default length of the area that is overwritten sequentially: 64 MiB, the size of some databases' log segments.
const SIZE: Bytes = Bytes(64 << 20);
const BS: Bytes = Bytes(4096);

/// Names of the methods, in the order of a report.
pub const METHODS: [&str; 8] =
    ["open_datasync", "fdatasync", "fsync", "open_sync", "rwf_dsync", "msync", "sync_file_range", "write"];

/// Returns each method at each combination of the options' sizes, jobs, depths and layouts, also the combinations that no engine can run.
fn workloads(options: &SuiteOptions) -> Vec<Workload> {
    let of_method = |keys: &WorkloadKeys| -> Vec<Workload> {
        points(options).into_iter().map(|point| at(keys, point, options)).collect()
    };
    methods(options).iter().flat_map(of_method).collect()
}

fn methods(options: &SuiteOptions) -> Vec<WorkloadKeys> {
    let method = |name: &str| WorkloadKeys {
        rw: Some(Rw::Write),
        // Databases call fsync in the thread that waits for it; io_uring would run it in another thread.
        ioengine: Some(IoEngine::Psync),
        direct: Some(options.is_direct),
        ..named(name)
    };
    let is_deep = options.depths.iter().any(|depth| *depth > 1);
    let direct = |name: &str, sync| WorkloadKeys {
        direct: Some(true),
        sync: Some(sync),
        // One engine for all depths, so that a step of the depth is nothing else.
        ioengine: Some(if is_deep { IoEngine::Auto } else { IoEngine::Psync }),
        ..method(name)
    };
    let range = SyncFileRange { wait_before: true, write: true, wait_after: true, writes: 1 };
    let mut methods = vec![
        direct("open_datasync", SyncMode::DSync),
        WorkloadKeys { fdatasync: Some(1), ..method("fdatasync") },
        WorkloadKeys { fsync: Some(1), ..method("fsync") },
        direct("open_sync", SyncMode::Sync),
    ];
    if !options.is_direct {
        methods.extend([
            WorkloadKeys {
                sync: Some(SyncMode::RwfDSync),
                ioengine: Some(IoEngine::Pvsync2),
                ..method("rwf_dsync")
            },
            // A sync of this engine is msync(MS_SYNC) of the whole mapping.
            WorkloadKeys { fdatasync: Some(1), ioengine: Some(IoEngine::Mmap), ..method("msync") },
            WorkloadKeys { sync_file_range: Some(range), ..method("sync_file_range") },
        ]);
    }
    methods.push(method("write"));
    methods
}

/// Size of a write, jobs, queue depth and state of the file.
type Point = (Bytes, u32, u32, FileLayout);

fn points(options: &SuiteOptions) -> Vec<Point> {
    let mut points = Vec::new();
    for &bs in or(&options.bs, &[BS]) {
        for &jobs in or(&options.jobs, &[1]) {
            for &depth in or(&options.depths, &[1]) {
                let layouts = or(&options.layouts, &[FileLayout::Filled]);
                points.extend(layouts.iter().map(|layout| (bs, jobs, depth, *layout)));
            }
        }
    }
    points
}

fn or<'a, T>(given: &'a [T], default: &'a [T]) -> &'a [T] {
    if given.is_empty() { default } else { given }
}

fn at(method: &WorkloadKeys, (bs, jobs, depth, layout): Point, options: &SuiteOptions) -> Workload {
    let mut name = method.name.clone().unwrap_or_default();
    let words = [
        (options.bs.len(), bs.to_string()),
        (options.jobs.len(), format!("j{jobs}")),
        (options.depths.len(), format!("qd{depth}")),
        (options.layouts.len(), layout.to_string()),
    ];
    for (_, word) in words.iter().filter(|(values, _)| *values > 1) {
        name = format!("{name}-{word}");
    }
    // A second pass, or one after a warm-up, would find blocks that were written before.
    let is_once = options.layouts.iter().any(|layout| *layout != FileLayout::Filled);
    let keys = WorkloadKeys {
        name: Some(name),
        bs: Some(bs),
        numjobs: Some(jobs),
        iodepth: Some(depth),
        layout: Some(layout),
        loops: is_once.then_some(1),
        ..method.clone()
    };
    let ramp_time = options.ramp_time.or(is_once.then_some(Nanos(0)));
    timed(&keys, &SuiteOptions { ramp_time, ..options.clone() }, SIZE, 1)
}
