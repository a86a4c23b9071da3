//! File sizes combined with record sizes, modelled on IOzone ("IOzone Filesystem Benchmark"): a file written and read in every pattern, one record at
//! a time, through the page cache.

use super::{Suite, SuiteOptions, SuiteRemark, SuiteShape, named};
use crate::units::{Bytes, Nanos};
use crate::workload::{IoEngine, Rw, Stride, Test, Workload, WorkloadKeys};

pub(super) const SUITE: Suite = Suite {
    name: "records",
    help: "As iozone: 13 tests over file sizes from 64k to --size [512m] by record sizes from 4k to 16M",
    shape: SuiteShape::Files,
    remarks: &[
        SuiteRemark {
            tests: &[],
            text: "like its model it goes through the page cache and does not flush: files that fit into memory tell of memory; \
                   --size of twice the memory shows the storage",
        },
        SuiteRemark { tests: &["write", "fwrite"], text: "it ends when the page cache has taken the data" },
        SuiteRemark {
            tests: &["read", "fread"],
            text: "it begins with an empty cache, as far as that could be dropped: iozone does so only with -U",
        },
        SuiteRemark {
            tests: &[
                "rewrite",
                "reread",
                "randread",
                "randwrite",
                "mixed",
                "backward",
                "record-rewrite",
                "strided",
                "freread",
            ],
            text: "it begins with as much of the file in the page cache as fits there, as in iozone, which has just written it",
        },
        SuiteRemark {
            tests: &["fwrite", "fread", "freread"],
            text: "the stream's buffer is stdio's own of 4k, where iozone gives it one of a record; fwrite makes a new file, where \
                   iozone overwrites one",
        },
        SuiteRemark {
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

/// Largest file that is combined with records smaller than [`LARGE_RECORD`], as with `iozone -a`. `all_records` lifts this limit, as `-z` does.
const CROSSOVER: u64 = 32 << 20;
const LARGE_RECORD: u64 = 64 << 10;

/// Distance between two reads of the strided test, in records.
const STRIDE: i64 = 17;

/// Maximum duration of a measurement.
const LONGEST: Nanos = Nanos::from_secs(300);

/// The tests in iozone's order. iozone's frewrite is left out, because iotax has no test that rewrites an existing file through stdio.
pub(super) const TESTS: [&str; 13] = [
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
    "fread",
    "freread",
];

/// Returns `from`, twice `from`, four times `from` and so on, up to `to`.
fn doubling(from: u64, to: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(from), |n| n.checked_mul(2)).take_while(move |n| *n <= to)
}

/// Returns the combinations of file size and record size in bytes. Large files with small records are left out unless `all_records` is set.
fn sizes(options: &SuiteOptions) -> Vec<(u64, u64)> {
    let largest = options.size.map_or(LARGEST_FILE, |size| size.0);
    doubling(SMALLEST_FILE, largest)
        .flat_map(|file| {
            let least = if file > CROSSOVER && !options.all_records { LARGE_RECORD } else { SMALLEST_RECORD };
            doubling(least, LARGEST_RECORD.min(file)).map(move |record| (file, record))
        })
        .collect()
}

fn workloads(options: &SuiteOptions) -> Vec<Workload> {
    let sizes = sizes(options);
    TESTS.iter().flat_map(|test| sizes.iter().map(|(file, record)| workload(test, *file, *record))).collect()
}

fn workload(test: &str, file: u64, record: u64) -> Workload {
    let records = |count: i64| Some(Stride(i64::try_from(record).unwrap_or(i64::MAX).saturating_mul(count)));
    let (rw, warm, stride, special) = match test {
        "write" => (None, false, None, Some(Test::WriteNew)),
        "rewrite" => (Some(Rw::Write), true, None, None),
        "read" => (Some(Rw::Read), false, None, None),
        "reread" => (Some(Rw::Read), true, None, None),
        "randread" => (Some(Rw::RandRead), true, None, None),
        "randwrite" => (Some(Rw::RandWrite), true, None, None),
        "mixed" => (Some(Rw::RandRw), true, None, None),
        "backward" => (Some(Rw::Read), true, records(-1), None),
        "record-rewrite" => (Some(Rw::Write), true, records(0), None),
        "strided" => (Some(Rw::Read), true, records(STRIDE), None),
        "fwrite" => (None, false, None, Some(Test::StdioWrite)),
        "fread" => (None, false, None, Some(Test::StdioRead)),
        _ => (None, true, None, Some(Test::StdioRead)),
    };
    // iozone shifts each pass over a strided file by one record, so no record is repeated. A single pass repeats none either.
    let once = if test == "strided" {
        Bytes(file.div_ceil(record * STRIDE.unsigned_abs()) * record)
    } else {
        Bytes(file)
    };
    let (file, bs) = (Bytes(file), Bytes(record));
    WorkloadKeys {
        rw,
        bs: Some(bs),
        iodepth: Some(1),
        ioengine: Some(IoEngine::Psync),
        direct: Some(false),
        size: Some(file),
        io_size: special.is_none().then_some(once),
        loops: special.map(|_| 1),
        stride,
        test: special,
        pre_read: Some(warm),
        runtime: Some(LONGEST),
        ramp_time: Some(Nanos(0)),
        ..named(format!("{test}-{file}-{bs}"))
    }
    .complete(&WorkloadKeys::default())
}
