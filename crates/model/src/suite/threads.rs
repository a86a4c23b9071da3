//! A sweep over queue depths and jobs: shows the depth above which only latency grows, not throughput.

use super::{Suite, SuiteOptions, SuiteRemark, SuiteShape, named, timed};
use crate::units::Bytes;
use crate::workload::{Rw, Workload, WorkloadKeys};

pub(super) const SUITE: Suite = Suite {
    name: "threads",
    help: "4k random reads and writes at queue depths 1 to 64 by 1, 2 and 4 jobs: where more depth buys only latency",
    shape: SuiteShape::Depths,
    remarks: &[SuiteRemark {
        tests: &[],
        text: "outstanding I/Os are queue depth x jobs; the same number by more jobs takes more CPUs and may reach further",
    }],
    repeat: 3,
    workloads,
};

/// Queue depths of the sweep.
const DEPTHS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Numbers of concurrent jobs of the sweep.
const JOBS: [u32; 3] = [1, 2, 4];

fn workloads(options: &SuiteOptions) -> Vec<Workload> {
    let mut workloads = Vec::new();
    for rw in [Rw::RandRead, Rw::RandWrite] {
        for jobs in JOBS {
            for depth in DEPTHS {
                let keys = WorkloadKeys {
                    rw: Some(rw),
                    bs: Some(Bytes(4096)),
                    iodepth: Some(depth),
                    numjobs: Some(jobs),
                    ..named(format!("{rw}-4k-j{jobs}-qd{depth}"))
                };
                workloads.push(timed(&keys, options, Bytes(1 << 30), 2));
            }
        }
    }
    workloads
}
