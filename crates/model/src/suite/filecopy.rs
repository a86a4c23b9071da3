//! UnixBench's file copy: three record sizes, each with its own file size.
//!
//! Nothing is flushed, and the files fit into any page cache: the test measures the page cache, the filesystem's path into it, and system calls.
//! UnixBench's index is defined for these sizes only; `iotax_analysis::suite::filecopy` computes it from the results.

use super::{Suite, SuiteOptions, SuiteRemark, SuiteShape};
use crate::units::{Bytes, Nanos};
use crate::workload::{IoEngine, Rw, Test, Workload, WorkloadKeys};

pub(super) const SUITE: Suite = Suite {
    name: "filecopy",
    help: "UnixBench's file copy: 256, 1024 and 4096 bytes at a time through the page cache, and its index",
    shape: SuiteShape::Each,
    remarks: &[SuiteRemark {
        tests: &[],
        text: "copies between files in the page cache, never flushed: figures for the cache and for system calls, not for a disk",
    }],
    repeat: 3,
    workloads,
};

/// Name of UnixBench's test, its record size in bytes, and its file size in KiB.
const SIZES: [(&str, u64, u64); 3] = [("fstime", 1024, 2000), ("fsbuffer", 256, 500), ("fsdisk", 4096, 8000)];

/// Default duration of a test. UnixBench uses 30 s; iotax repeats the test in rounds instead.
const RUNTIME: Nanos = Nanos::from_secs(10);

fn workloads(options: &SuiteOptions) -> Vec<Workload> {
    let defaults = WorkloadKeys {
        runtime: Some(options.runtime.unwrap_or(RUNTIME)),
        ramp_time: options.ramp_time,
        direct: Some(false),
        // The suite measures the page cache, so the cache is not dropped.
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
