//! Methods of making a write durable, named as in pg_test_fsync if that has the method.

use super::{Suite, SuiteOptions, SuiteRemark, SuiteShape, named, timed};
use crate::units::Bytes;
use crate::workload::{IoEngine, Rw, SyncFileRange, SyncMode, Workload, WorkloadKeys};

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

fn workloads(options: &SuiteOptions) -> Vec<Workload> {
    let jobs = options.jobs.unwrap_or(1);
    let method = |name: &str| WorkloadKeys {
        rw: Some(Rw::Write),
        bs: Some(options.bs.unwrap_or(BS)),
        numjobs: Some(jobs),
        // Databases call fsync in the thread that waits for it; io_uring would run it in another thread.
        ioengine: Some(IoEngine::Psync),
        direct: Some(options.is_direct),
        ..named(name)
    };
    let direct = |name: &str, sync| WorkloadKeys { direct: Some(true), sync: Some(sync), ..method(name) };
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
    methods.iter().map(|keys| timed(keys, options, SIZE, 1)).collect()
}
