//! File sizes by record sizes, after IOzone (its own documentation, "IOzone Filesystem Benchmark"): the same file written and read in
//! every way, one record at a time, through the page cache.

use super::{Options, Remark, Shape, Suite, named};
use crate::units::{Bytes, Nanos};
use crate::workload::{IoEngine, Rw, Stride, Test, Workload, WorkloadKeys};

pub(super) const SUITE: Suite = Suite {
    name: "records",
    help: "As iozone: 14 tests over file sizes from 64k to --size [512m] by record sizes from 4k to 16M",
    shape: Shape::Files,
    remarks: &[
        Remark {
            tests: &[],
            text: "like its model it goes through the page cache and does not flush: files that fit into memory tell of memory; \
                   --size of twice the memory shows the storage",
        },
        Remark { tests: &["write", "fwrite"], text: "it ends when the page cache has taken the data" },
        Remark {
            tests: &["read", "fread"],
            text: "it begins with an empty cache, as far as that could be dropped: iozone does so only with -U",
        },
        Remark {
            tests: &[
                "rewrite",
                "reread",
                "randread",
                "randwrite",
                "mixed",
                "backward",
                "record-rewrite",
                "strided",
                "frewrite",
                "freread",
            ],
            text: "it begins with as much of the file in the page cache as fits there, as in iozone, which has just written it",
        },
        Remark {
            tests: &["record-rewrite"],
            text: "one record is written over and over, so that it stays in the CPU's caches too",
        },
    ],
    repeat: 1,
    workloads,
};

const SMALLEST_FILE: u64 = 64 << 10;
const LARGEST_FILE: u64 = 512 << 20;
const SMALLEST_RECORD: u64 = 4 << 10;
const LARGEST_RECORD: u64 = 16 << 20;

/// Files larger than this are not measured by records smaller than [`LARGE_RECORD`] (iozone -a), unless all are asked for (-z).
const CROSSOVER: u64 = 32 << 20;
const LARGE_RECORD: u64 = 64 << 10;

/// Records from one of a strided read to the next.
const STRIDE: i64 = 17;

/// A measurement that has not ended by then is cut off.
const LONGEST: Nanos = Nanos::from_secs(300);

/// The tests in iozone's order.
pub(super) const TESTS: [&str; 14] = [
    "write",
    "rewrite",
    "read",
    "reread",
    "randread",
    "randwrite",
    "mixed",
    "backward",
    "record-rewrite",
    "strided",
    "fwrite",
    "frewrite",
    "fread",
    "freread",
];

/// Each number and its doubles, up to a largest.
fn doubling(from: u64, to: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(from), |n| n.checked_mul(2)).take_while(move |n| *n <= to)
}

/// File and record sizes that are measured.
fn sizes(options: &Options) -> Vec<(u64, u64)> {
    let largest = options.size.map_or(LARGEST_FILE, |size| size.0);
    doubling(SMALLEST_FILE, largest)
        .flat_map(|file| {
            let least = if file > CROSSOVER && !options.all_records { LARGE_RECORD } else { SMALLEST_RECORD };
            doubling(least, LARGEST_RECORD.min(file)).map(move |record| (file, record))
        })
        .collect()
}

fn workloads(options: &Options) -> Vec<Workload> {
    let sizes = sizes(options);
    TESTS.iter().flat_map(|test| sizes.iter().map(|(file, record)| workload(test, *file, *record))).collect()
}

fn workload(test: &str, file: u64, record: u64) -> Workload {
    let stride = i64::try_from(record).unwrap_or(i64::MAX);
    let (rw, warm, stride, special) = match test {
        "write" => (Rw::Write, false, None, Some(Test::WriteNew)),
        "rewrite" => (Rw::Write, true, None, None),
        "read" => (Rw::Read, false, None, None),
        "reread" => (Rw::Read, true, None, None),
        "randread" => (Rw::RandRead, true, None, None),
        "randwrite" => (Rw::RandWrite, true, None, None),
        "mixed" => (Rw::RandRw, true, None, None),
        "backward" => (Rw::Read, true, Some(-stride), None),
        "record-rewrite" => (Rw::Write, true, Some(0), None),
        "strided" => (Rw::Read, true, Some(STRIDE * stride), None),
        "fwrite" => (Rw::Write, false, None, Some(Test::StdioWrite)),
        "frewrite" => (Rw::Write, true, None, Some(Test::StdioWrite)),
        "fread" => (Rw::Read, false, None, Some(Test::StdioRead)),
        _ => (Rw::Read, true, None, Some(Test::StdioRead)),
    };
    let (file, bs) = (Bytes(file), Bytes(record));
    WorkloadKeys {
        rw: Some(rw),
        bs: Some(bs),
        iodepth: Some(1),
        ioengine: Some(IoEngine::Psync),
        direct: Some(false),
        size: Some(file),
        io_size: special.is_none().then_some(file),
        stride: stride.map(Stride),
        test: special,
        pre_read: Some(warm),
        runtime: Some(LONGEST),
        ramp_time: Some(Nanos(0)),
        ..named(format!("{test}-{file}-{bs}"))
    }
    .complete(&WorkloadKeys::default())
}
