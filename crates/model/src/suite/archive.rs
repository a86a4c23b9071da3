//! A source tree like the Linux kernel's: extracted from an archive, walked, archived, deleted.

use super::{Suite, SuiteOptions, SuiteRemark, SuiteShape};
use crate::units::{Bytes, Nanos};
use crate::workload::{Test, Workload, WorkloadKeys};

pub(super) const SUITE: Suite = Suite {
    name: "archive",
    help: "a tree of 24,000 source files unpacked, walked, packed from a cold cache, and deleted",
    shape: SuiteShape::Each,
    remarks: &[
        SuiteRemark {
            tests: &["unpack", "pack"],
            text: "its flush is in the time; tar has none, and ends when the page cache has taken the data",
        },
        SuiteRemark {
            tests: &["remove"],
            text: "it is not flushed: the space may be freed on the storage after the end",
        },
    ],
    repeat: 3,
    workloads,
};

/// Size of a read or write: larger than tar's 10 KiB, so that file operations dominate the time rather than I/O to the archive.
const RECORD: Bytes = Bytes(64 << 10);
/// Default maximum duration of a test, for slow targets.
const RUNTIME: Nanos = Nanos::from_secs(300);

fn workloads(options: &SuiteOptions) -> Vec<Workload> {
    let defaults = WorkloadKeys {
        bs: Some(RECORD),
        size: options.size,
        nrfiles: options.files,
        runtime: Some(options.runtime.unwrap_or(RUNTIME)),
        ramp_time: Some(Nanos(0)),
        direct: Some(false),
        ..WorkloadKeys::default()
    };
    let workload = |name: &str, test, end_fsync| {
        let own =
            WorkloadKeys { name: Some(name.into()), test: Some(test), end_fsync, ..WorkloadKeys::default() };
        own.complete(&defaults)
    };
    vec![
        workload("unpack", Test::Unpack, Some(true)),
        workload("walk", Test::Walk, None),
        workload("pack", Test::Pack, Some(true)),
        workload("remove", Test::RemoveTree, None),
    ]
}
