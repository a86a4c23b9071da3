//! A sweep over block sizes: the cost per I/O limits throughput at small sizes, bandwidth at large sizes, and the sweep shows the transition.

use super::{Suite, SuiteOptions, SuiteRemark, SuiteShape, named, timed};
use crate::units::Bytes;
use crate::workload::{Rw, Workload, WorkloadKeys};

pub(super) const SUITE: Suite = Suite {
    name: "sizes",
    help: "Block sizes from 512 bytes to 4 MiB, random and sequential, reads and writes: IOPS against bandwidth",
    shape: SuiteShape::Sizes,
    remarks: &[
        SuiteRemark {
            tests: &[],
            text: "8 I/Os are outstanding at every size, so that a device which works on several at once can show it",
        },
        SuiteRemark {
            tests: &["randwrite", "write"],
            text: "blocks below the device's own sector are refused by it, or read, changed and written back: compare 512 with 4k",
        },
    ],
    repeat: 3,
    workloads,
};

/// Largest block size in bytes.
const LARGEST: u64 = 4 << 20;

/// Queue depth of all workloads, enough to use a device's internal parallelism.
const DEPTH: u32 = 8;

fn workloads(options: &SuiteOptions) -> Vec<Workload> {
    let from_4k = std::iter::successors(Some(4096), |bs| Some(bs * 2)).take_while(|bs| *bs <= LARGEST);
    let sizes: Vec<u64> = [512].into_iter().chain(from_4k).collect();
    [Rw::RandRead, Rw::RandWrite, Rw::Read, Rw::Write]
        .into_iter()
        .flat_map(|rw| sizes.iter().map(move |bs| (rw, Bytes(*bs))))
        .map(|(rw, bs)| {
            let keys = WorkloadKeys {
                rw: Some(rw),
                bs: Some(bs),
                iodepth: Some(DEPTH),
                ..named(format!("{rw}-{bs}"))
            };
            timed(&keys, options, Bytes(1 << 30), 2)
        })
        .collect()
}
