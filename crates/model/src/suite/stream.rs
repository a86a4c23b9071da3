//! Streams like dd(1)'s: sequential I/O through the page cache, with and without a final flush.

use super::{Suite, SuiteOptions, SuiteRemark, SuiteShape, named};
use crate::units::{Bytes, Nanos};
use crate::workload::{IoEngine, Rw, Workload, WorkloadKeys};

pub(super) const SUITE: Suite = Suite {
    name: "stream",
    help: "As dd: sequential writes of 8k and 1M through the page cache, with and without a final fsync, and reads",
    shape: SuiteShape::Each,
    remarks: &[
        SuiteRemark {
            tests: &["write-8k", "write-1m"],
            text: "it ends when the page cache has taken the data, as dd does without conv=fsync: while memory lasts, the figure is \
                   memory's and not the storage's; compare it with that of the same write with -fsync",
        },
        SuiteRemark {
            tests: &["read-8k", "read-1m"],
            text: "the kernel reads ahead, so that the latency of most reads is a copy from memory and the rate is the storage's",
        },
    ],
    repeat: 3,
    workloads,
};

/// Default maximum duration of a stream.
const LONGEST: Nanos = Nanos::from_secs(120);

fn workloads(options: &SuiteOptions) -> Vec<Workload> {
    let size = options.size.unwrap_or(Bytes(1 << 30));
    let kinds = [(Rw::Write, false, ""), (Rw::Write, true, "-fsync"), (Rw::Read, false, "")];
    [Bytes(8192), Bytes(1 << 20)]
        .into_iter()
        .flat_map(|bs| kinds.map(|(rw, flush, end)| (rw, bs, flush, end)))
        .map(|(rw, bs, flush, end)| {
            WorkloadKeys {
                rw: Some(rw),
                bs: Some(bs),
                iodepth: Some(1),
                ioengine: Some(IoEngine::Psync),
                direct: Some(false),
                end_fsync: Some(flush),
                size: Some(size),
                loops: Some(1),
                runtime: Some(options.runtime.unwrap_or(LONGEST)),
                ramp_time: Some(Nanos(0)),
                ..named(format!("{rw}-{bs}{end}"))
            }
            .complete(&WorkloadKeys::default())
        })
        .collect()
}
