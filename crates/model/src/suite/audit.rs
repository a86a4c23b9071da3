//! Measures rates by direction and block size, to tell a limit on I/Os or bytes per second from the device's own speed.

use super::{Suite, SuiteOptions, SuiteShape, named, timed};
use crate::units::{Bytes, Nanos};
use crate::workload::{Rw, Workload, WorkloadKeys};

pub(super) const SUITE: Suite = Suite {
    name: "audit",
    help: "random and sequential I/O of several sizes, long enough for bursts to end: which rate limit is in front of the storage; iotax audit",
    shape: SuiteShape::Limits,
    remarks: &[],
    repeat: 3,
    workloads,
};

/// Block size and queue depth of each workload: two small sizes that reveal a limit on I/Os per second, and two large sizes that reveal a limit on
/// bytes per second.
const SIZES: [(Bytes, u32); 4] =
    [(Bytes(4 << 10), 32), (Bytes(16 << 10), 32), (Bytes(256 << 10), 8), (Bytes(1 << 20), 8)];

fn workloads(options: &SuiteOptions) -> Vec<Workload> {
    // Without a warm-up, because the result includes an initial burst.
    let options = SuiteOptions { ramp_time: options.ramp_time.or(Some(Nanos(0))), ..options.clone() };
    let mut workloads = Vec::new();
    for (bs, iodepth) in SIZES {
        let is_mixed_too = [SIZES[0].0, SIZES[3].0].contains(&bs);
        let mixed = is_mixed_too.then_some(Rw::RandRw);
        for rw in [Rw::RandRead, Rw::RandWrite].into_iter().chain(mixed) {
            let keys = WorkloadKeys {
                rw: Some(rw),
                bs: Some(bs),
                iodepth: Some(iodepth),
                ..named(format!("{rw}-{bs}"))
            };
            workloads.push(timed(&keys, &options, Bytes(1 << 30), 10));
        }
    }
    workloads
}
