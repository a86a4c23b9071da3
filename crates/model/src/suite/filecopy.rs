//! UnixBench's file copy: three lengths of records, each with a file of its own length.
//!
//! Nothing is flushed, and the files fit into any page cache: what is measured is the cache, the filesystem's way into it and
//! the cost of a system call. The sizes make the index what it is, so that no other is taken. The index is made of the copies alone, in `results::exchange::filecopy`.

use super::{Options, Remark, Shape, Suite};
use crate::units::{Bytes, Nanos};
use crate::workload::{IoEngine, Rw, Test, Workload, WorkloadKeys};

pub(super) const SUITE: Suite = Suite {
    name: "filecopy",
    help: "UnixBench's file copy: 256, 1024 and 4096 bytes at a time through the page cache, and its index",
    shape: Shape::Each,
    remarks: &[Remark {
        tests: &[],
        text: "copies between files in the page cache, never flushed: figures for the cache and for system calls, not for a disk",
    }],
    repeat: 3,
    workloads,
};

/// Its name there, bytes of a record, and KiB of the file.
const SIZES: [(&str, u64, u64); 3] = [("fstime", 1024, 2000), ("fsbuffer", 256, 500), ("fsdisk", 4096, 8000)];

/// A pass there takes 30 s; here rounds repeat it.
const RUNTIME: Nanos = Nanos::from_secs(10);

fn workloads(options: &Options) -> Vec<Workload> {
    let defaults = WorkloadKeys {
        runtime: Some(options.runtime.unwrap_or(RUNTIME)),
        ramp_time: options.ramp_time,
        direct: Some(false),
        // What is in the cache is what is measured.
        invalidate: Some(false),
        ioengine: Some(IoEngine::Psync),
        ..WorkloadKeys::default()
    };
    SIZES
        .iter()
        .flat_map(|(name, bs, kib)| {
            let keys = WorkloadKeys {
                bs: Some(Bytes(*bs)),
                size: Some(Bytes(kib << 10)),
                ..WorkloadKeys::default()
            };
            let named = |suffix: &str| Some(format!("{name}{suffix}"));
            [
                WorkloadKeys { name: named(""), test: Some(Test::Copy), ..keys.clone() },
                WorkloadKeys { name: named("-w"), rw: Some(Rw::Write), ..keys.clone() },
                WorkloadKeys { name: named("-r"), rw: Some(Rw::Read), ..keys },
            ]
        })
        .map(|keys| keys.complete(&defaults))
        .collect()
}
