//! The large-file and small-file tests of bonnie++ 2.00.
//!
//! bonnie++ cannot drop caches and therefore uses a file of twice the memory size. iotax drops caches before each test of the large file
//! and counts the flush as part of the write time, so a fixed file size is enough.

use super::{Suite, SuiteOptions, SuiteRemark, SuiteShape};
use crate::units::{Bytes, Nanos};
use crate::workload::{IoEngine, Rw, Test, Workload, WorkloadKeys};

pub(super) const SUITE: Suite = Suite {
    name: "bonnie",
    help: "bonnie++: a file by the byte, by the block, rewritten, at random places by 5 at once; then many small files",
    shape: SuiteShape::Each,
    remarks: &[
        SuiteRemark {
            tests: &["putc", "getc"],
            text: "each byte is a system call, and the page cache has nearly all of them: the figure is the kernel's way in and \
                   out, not the storage's",
        },
        SuiteRemark {
            tests: &["get_block"],
            text: "the kernel reads ahead, so that the latency of most reads is a copy from memory and the rate is the storage's",
        },
        SuiteRemark {
            tests: &["seq_create", "seq_stat", "seq_del", "ran_create", "ran_stat", "ran_del"],
            text: "names without content that are never flushed: figures for the filesystem in memory, until its journal is full",
        },
    ],
    repeat: 3,
    workloads,
};

const SIZE: Bytes = Bytes(1 << 30);
const CHUNK: Bytes = Bytes(8192);
/// Bytes written or read in the tests that move a single byte per system call.
const BY_THE_BYTE: Bytes = Bytes(3 << 20);
const SEEKERS: u32 = 5;
/// Total number of random reads, divided evenly among the concurrent seekers.
const SEEKS: u64 = 8192;
const FILES: u64 = 16 * 1024;
/// Default maximum duration of a test, for slow targets.
const RUNTIME: Nanos = Nanos::from_secs(60);

fn workloads(options: &SuiteOptions) -> Vec<Workload> {
    let size = options.size.unwrap_or(SIZE);
    let defaults = WorkloadKeys {
        bs: Some(CHUNK),
        size: Some(size),
        runtime: Some(options.runtime.unwrap_or(RUNTIME)),
        ramp_time: Some(Nanos(0)),
        direct: Some(false),
        loops: Some(1),
        ioengine: Some(IoEngine::Psync),
        ..WorkloadKeys::default()
    };
    let test = |name: &str, test| WorkloadKeys {
        name: Some(name.to_owned()),
        test: Some(test),
        ..WorkloadKeys::default()
    };
    let by_the_byte = Some(BY_THE_BYTE.min(size));
    [
        WorkloadKeys { io_size: by_the_byte, end_fsync: Some(true), ..test("putc", Test::Putc) },
        WorkloadKeys { end_fsync: Some(true), ..test("put_block", Test::WriteNew) },
        WorkloadKeys { end_fsync: Some(true), ..test("rewrite", Test::Rewrite) },
        WorkloadKeys { io_size: by_the_byte, ..test("getc", Test::Getc) },
        WorkloadKeys { name: Some("get_block".into()), rw: Some(Rw::Read), ..WorkloadKeys::default() },
        WorkloadKeys {
            numjobs: Some(SEEKERS),
            io_size: Some(Bytes(SEEKS / u64::from(SEEKERS) * CHUNK.0)),
            end_fsync: Some(true),
            ..test("seeks", Test::Seeks)
        },
    ]
    .iter()
    .chain(&small_files(options))
    .map(|keys| keys.complete(&defaults))
    .collect()
}

/// Returns the tests that create, stat and delete empty files, as `bonnie++ -n 16` does. bonnie++ stats and deletes files right after
/// creating them, so caches are not dropped. In `seq`, names ascend in the order of creation, and files are stat'ed and deleted in
/// directory order; in `ran`, both orders are random.
fn small_files(options: &SuiteOptions) -> Vec<WorkloadKeys> {
    let orders = [("seq", Rw::Read), ("ran", Rw::RandRead)];
    let tests = [("create", Test::Create), ("stat", Test::Stat), ("del", Test::Delete)];
    let each = orders.iter().flat_map(|order| tests.iter().map(move |test| (order, test)));
    each.map(|((order, rw), (name, test))| WorkloadKeys {
        name: Some(format!("{order}_{name}")),
        test: Some(*test),
        rw: Some(*rw),
        nrfiles: Some(options.files.unwrap_or(FILES)),
        invalidate: Some(false),
        ..WorkloadKeys::default()
    })
    .collect()
}
