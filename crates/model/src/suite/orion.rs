//! Database I/O modelled on Oracle's ORION (Oracle Database Performance Tuning Guide, "I/O Calibration with the Oracle Orion Calibration Tool"):
//! small random I/O as in transactions (`oltp`), large random I/O as in striped scans (`dss`), at increasing queue depths.

use super::{Suite, SuiteOptions, SuiteRemark, SuiteShape, named, timed};
use crate::units::Bytes;
use crate::workload::{Rw, Workload, WorkloadKeys};

pub(super) const SUITE: Suite = Suite {
    name: "orion",
    help: "As Oracle's ORION: 8k random I/O with 0 to 50% writes (OLTP) and 1M random reads (DSS) by outstanding I/Os",
    shape: SuiteShape::Depths,
    remarks: &[
        SuiteRemark {
            tests: &[],
            text: "like its model it bypasses the page cache; what a database keeps in its own cache is not part of it",
        },
        SuiteRemark {
            tests: &["dss"],
            text: "large I/O is random over the area, as ORION has it for scans by many; a single scan is sequential (suite stream)",
        },
    ],
    repeat: 3,
    workloads,
};

/// Queue depths of the workloads with small random I/Os.
const SMALL: [u32; 8] = [1, 2, 4, 8, 12, 16, 24, 32];

/// Queue depths of the workloads with large random I/Os.
const LARGE: [u32; 6] = [1, 2, 4, 6, 8, 12];

/// Percentages of writes among the small I/Os.
const WRITES: [u8; 4] = [0, 10, 30, 50];

fn workloads(options: &SuiteOptions) -> Vec<Workload> {
    let small = WRITES.into_iter().flat_map(|writes| SMALL.map(|depth| (writes, depth)));
    let small = small.map(|(writes, depth)| {
        let mix = if writes == 0 { String::new() } else { format!("-w{writes}") };
        let keys = WorkloadKeys {
            rw: Some(if writes == 0 { Rw::RandRead } else { Rw::RandRw }),
            rwmixread: Some(100 - writes),
            bs: Some(Bytes(8192)),
            iodepth: Some(depth),
            ..named(format!("oltp{mix}-qd{depth}"))
        };
        timed(&keys, options, Bytes(1 << 30), 3)
    });
    let large = LARGE.into_iter().map(|depth| {
        let keys = WorkloadKeys {
            rw: Some(Rw::RandRead),
            bs: Some(Bytes(1 << 20)),
            iodepth: Some(depth),
            ..named(format!("dss-qd{depth}"))
        };
        timed(&keys, options, Bytes(1 << 30), 3)
    });
    small.chain(large).collect()
}
