//! Tests of the classic workloads on real files.

use std::path::Path;

use iotax_engine::{EngineError, measure};
use iotax_model::crash::Synchronous;
use iotax_model::record::{Outcome, Sample, Tallies};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::{Event, Job};
use iotax_model::workload::{Kind, PgbenchScript, Test, WorkloadKeys};

/// An empty directory and a file of 1 MiB next to it, on a filesystem on disk.
struct Fixture {
    directory: tempfile::TempDir,
    file: tempfile::NamedTempFile,
}

const SIZE: u64 = 1 << 20;

impl Fixture {
    fn new() -> Self {
        let here = env!("CARGO_MANIFEST_DIR");
        let file = tempfile::NamedTempFile::new_in(here).expect("file");
        let content: Vec<u8> = (0..SIZE).map(|n| (n % 251) as u8).collect();
        std::fs::write(file.path(), content).expect("written");
        Self { directory: tempfile::TempDir::new_in(here).expect("directory"), file }
    }

    fn job(&self, test: Test, keys: WorkloadKeys) -> Job {
        let keys = WorkloadKeys {
            test: Some(test),
            runtime: keys.runtime.or(Some(Nanos::from_secs(20))),
            ramp_time: keys.ramp_time.or(Some(Nanos(0))),
            direct: keys.direct.or(Some(false)),
            ..keys
        };
        Job {
            writable: true,
            directory: Some(self.directory.path().display().to_string()),
            ..Job::new(keys.complete(&WorkloadKeys::default()), Bytes(SIZE), 7, Nanos::from_millis(20))
        }
    }

    /// Measures and returns the outcome. Asserts that the samples add up to it, and that the directory is left empty.
    fn measure(&self, job: &Job) -> Outcome {
        let (mut samples, mut begun) = (Vec::<Sample>::new(), Vec::new());
        let outcome = measure(job, self.file.path(), &mut |event| match event {
            Event::Sample(sample) => samples.push(*sample),
            other => begun.push(other),
        })
        .expect("measured");
        assert_eq!(begun, [Event::Ready, Event::Measuring, Event::Over]);
        let mut sum = Tallies::default();
        samples.iter().for_each(|sample| sum.merge(&sample.tallies));
        assert_eq!(sum, outcome.tallies);
        let spanned = samples.iter().map(|sample| sample.duration_ns).sum::<u64>();
        if outcome.duration_ns < job.workload.window().0 && samples.len() > 1 {
            // Waking the workers up is no part of work that ends by itself, but the first sample may be given before it is known to be such.
            assert!(spanned >= outcome.duration_ns, "{spanned} of {}", outcome.duration_ns);
        } else {
            assert_eq!(spanned, outcome.duration_ns);
        }
        let left = std::fs::read_dir(self.directory.path()).expect("read").count();
        assert_eq!(left, 0, "what a test made is removed");
        outcome
    }
}

fn refused(job: &Job, path: &Path) -> String {
    measure(job, path, &mut |_| {}).expect_err("refused").to_string()
}

#[test]
fn getc_reads_each_byte_by_a_call_of_its_own_and_ends_when_all_are_read() {
    let fixture = Fixture::new();
    let keys = WorkloadKeys { loops: Some(1), numjobs: Some(2), ..WorkloadKeys::default() };
    let outcome = fixture.measure(&fixture.job(Test::Getc, keys));
    let read = outcome.tallies.read.as_ref().expect("reads");
    assert_eq!((read.ios, read.bytes, read.latency.count()), (SIZE, SIZE, SIZE));
    assert_eq!((outcome.tallies.write.is_none(), outcome.tallies.meta.is_none()), (true, true));
    assert!(outcome.duration_ns < 20_000_000_000, "{}", outcome.duration_ns);
    assert_eq!((outcome.errors.len(), outcome.flush_ns), (0, None));
    assert!(outcome.cpu.total_ns() > 0);
}

#[test]
fn what_is_to_be_read_before_is_in_the_cache_then() {
    let fixture = Fixture::new();
    let cold =
        || rustix::fs::fadvise(fixture.file.as_file(), 0, None, rustix::fs::Advice::DontNeed).expect("told");
    fixture.file.as_file().sync_all().expect("flushed");
    let read_ahead = |pre_read| {
        cold();
        let keys = WorkloadKeys {
            bs: Some(Bytes(512)),
            io_size: Some(Bytes(512)),
            loops: Some(1),
            pre_read: Some(pre_read),
            ..WorkloadKeys::default()
        };
        fixture.measure(&fixture.job(Test::Getc, keys));
        let last = rustix::io::preadv2(
            fixture.file.as_file(),
            &mut [std::io::IoSliceMut::new(&mut [0; 512])],
            SIZE - 512,
            rustix::io::ReadWriteFlags::NOWAIT,
        );
        last == Ok(512)
    };
    if read_ahead(false) {
        iotax_testkit::skip!("no word on what is cached");
    }
    assert!(read_ahead(true), "the last page too, though only the first 512 bytes were asked for");
}

#[test]
fn a_test_without_an_end_ends_with_its_window() {
    let fixture = Fixture::new();
    let keys = WorkloadKeys {
        runtime: Some(Nanos::from_millis(250)),
        ramp_time: Some(Nanos::from_millis(50)),
        ..WorkloadKeys::default()
    };
    let outcome = fixture.measure(&fixture.job(Test::Getc, keys));
    assert_eq!(outcome.duration_ns, 250_000_000);
    assert!(outcome.ramp_ios > 0 && outcome.tallies.ios() > 0);
}

#[test]
fn what_cannot_be_read_is_counted_and_ends_a_test_that_is_to_bear_so_much() {
    let fixture = Fixture::new();
    let keys = WorkloadKeys { max_errors: Some(3), ..WorkloadKeys::default() };
    let job = fixture.job(Test::Getc, keys);
    let (mut shortened, path) = (false, fixture.file.path());
    let outcome = measure(&job, path, &mut |event| {
        if event == Event::Ready {
            fixture.file.as_file().set_len(1000).expect("shortened");
            shortened = true;
        }
    })
    .expect("measured");
    let [error] = outcome.errors.as_slice() else { panic!("{:?}", outcome.errors) };
    assert_eq!((error.error.as_str(), error.count, error.first_offset), ("empty read", 3, 1000));
    assert_eq!((shortened, outcome.tallies.ios()), (true, 1000));
}

#[test]
fn what_is_no_test_and_what_is_not_its_own_is_refused() {
    let fixture = Fixture::new();
    let path = fixture.file.path();
    let mut foreign = fixture.job(Test::Stat, WorkloadKeys::default());
    foreign.workload.kind = Kind::Foreign;
    assert!(matches!(measure(&foreign, path, &mut |_| {}), Err(EngineError::Foreign(_))));
    assert!(refused(&foreign, path).contains("is the work of another tool"));
}

/// Returns the number of writes, their bytes, and the number of flushes.
fn written(outcome: &Outcome) -> (u64, u64, u64) {
    let write = outcome.tallies.write.as_ref().expect("writes");
    (write.ios, write.bytes, outcome.tallies.sync.as_ref().map_or(0, |sync| sync.ios))
}

fn once(keys: WorkloadKeys) -> WorkloadKeys {
    WorkloadKeys { loops: Some(1), ..keys }
}

#[test]
fn putc_writes_each_byte_by_a_call_of_its_own_and_counts_the_flush() {
    let fixture = Fixture::new();
    let keys = WorkloadKeys {
        io_size: Some(Bytes(100 << 10)),
        end_fsync: Some(true),
        bs: Some(Bytes(8192)),
        ..WorkloadKeys::default()
    };
    let outcome = fixture.measure(&fixture.job(Test::Putc, once(keys)));
    assert_eq!(written(&outcome), (100 << 10, 100 << 10, 1));
    let sync = outcome.tallies.sync.as_ref().expect("a flush");
    let longest = sync.latency.max().expect("one");
    assert!(outcome.duration_ns >= longest, "the flush is part of the measurement");
    assert!(outcome.flush_ns.is_some());
}

#[test]
fn write_new_writes_whole_records_of_any_length_and_flushes_as_told() {
    let fixture = Fixture::new();
    for (bs, direct) in [(256, false), (1000, false), (8192, false), (65536, true)] {
        let keys = WorkloadKeys {
            bs: Some(Bytes(bs)),
            direct: Some(direct),
            fsync: Some(SIZE / 2 / bs / 4),
            numjobs: Some(2),
            ..WorkloadKeys::default()
        };
        let job = fixture.job(Test::WriteNew, once(keys));
        if direct && !takes_direct_io(&fixture) {
            continue;
        }
        let each = SIZE / 2 / bs;
        let flushes = each / (each / 4);
        assert_eq!(written(&fixture.measure(&job)), (2 * each, 2 * each * bs, 2 * flushes), "bs = {bs}");
    }
}

fn takes_direct_io(fixture: &Fixture) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    let opened = std::fs::File::options().read(true).custom_flags(0o40000).open(fixture.file.path());
    match opened {
        Ok(_) => true,
        Err(error) => iotax_testkit::skip!("no direct I/O here: {error}"),
    }
}

#[test]
fn each_pass_of_write_new_begins_with_an_empty_file() {
    let fixture = Fixture::new();
    let keys = WorkloadKeys { loops: Some(3), bs: Some(Bytes(SIZE / 4)), ..WorkloadKeys::default() };
    let job = fixture.job(Test::WriteNew, keys);
    assert_eq!(written(&fixture.measure(&job)), (12, 3 * SIZE, 0));
}

#[test]
fn rewrite_changes_one_byte_of_each_record_and_nothing_else() {
    let fixture = Fixture::new();
    let before = std::fs::read(fixture.file.path()).expect("read");
    let keys = WorkloadKeys { bs: Some(Bytes(8192)), numjobs: Some(2), ..WorkloadKeys::default() };
    let outcome = fixture.measure(&fixture.job(Test::Rewrite, once(keys)));
    let records = SIZE / 8192;
    assert_eq!(written(&outcome), (records, SIZE, 0));
    assert_eq!(outcome.tallies.read.as_ref().map(|read| read.ios), Some(records));
    let after = std::fs::read(fixture.file.path()).expect("read");
    let changed: Vec<usize> = (0..after.len()).filter(|at| before[*at] != after[*at]).collect();
    assert_eq!(
        changed,
        (0..records).filter_map(|record| usize::try_from(record * 8192).ok()).collect::<Vec<_>>()
    );
}

#[test]
fn what_may_only_be_read_is_not_rewritten() {
    let fixture = Fixture::new();
    let mut job = fixture.job(Test::Rewrite, WorkloadKeys::default());
    job.writable = false;
    assert!(refused(&job, fixture.file.path()).contains("test = rewrite writes"));
    job.workload.kind = Kind::Files(Test::Getc);
    job.workload.loops = Some(1);
    assert_eq!(fixture.measure(&job).tallies.read.map(|read| read.ios), Some(SIZE));
}

#[test]
fn seeks_change_every_tenth_record() {
    let fixture = Fixture::new();
    let before = std::fs::read(fixture.file.path()).expect("read");
    let keys = WorkloadKeys {
        bs: Some(Bytes(4096)),
        numjobs: Some(5),
        // More than a fifth of the area: each of them roams over all of it.
        io_size: Some(Bytes(105 * 4096)),
        end_fsync: Some(true),
        ..WorkloadKeys::default()
    };
    let outcome = fixture.measure(&fixture.job(Test::Seeks, once(keys)));
    assert_eq!(outcome.tallies.read.as_ref().map(|read| (read.ios, read.bytes)), Some((525, 525 * 4096)));
    assert_eq!(written(&outcome), (50, 50 * 4096, 5));
    let after = std::fs::read(fixture.file.path()).expect("read");
    let changed = before.iter().zip(&after).filter(|(one, other)| one != other).count();
    // Two may have gone to one place.
    assert!((20..=50).contains(&changed), "{changed}");
}

#[test]
fn stdio_makes_the_calls_that_glibc_makes() {
    let fixture = Fixture::new();
    let calls = |test, bs: u64, direction: fn(&Tallies) -> &Option<iotax_model::record::Tally>| {
        let keys = WorkloadKeys { bs: Some(Bytes(bs)), size: None, ..WorkloadKeys::default() };
        let mut job = fixture.job(test, once(keys));
        job.size = Bytes(SIZE / bs * bs);
        let outcome = fixture.measure(&job);
        let tally = direction(&outcome.tallies).clone().expect("done");
        (tally.ios, tally.bytes)
    };
    // The expected calls assume a 4 KiB buffer; the filesystem here may prefer a longer one.
    let buffer = std::os::unix::fs::MetadataExt::blksize(&fixture.file.as_file().metadata().expect("facts"));
    if buffer != 4096 {
        iotax_testkit::skip!("the buffer here is one of {buffer} bytes");
    }
    for (bs, writes) in [(1024, SIZE / 4096), (4096, SIZE / 4096), (100, (SIZE / 100 * 100).div_ceil(4096))] {
        let bytes = SIZE / bs * bs;
        assert_eq!(calls(Test::StdioWrite, bs, |tallies| &tallies.write), (writes, bytes), "bs = {bs}");
        assert_eq!(calls(Test::StdioRead, bs, |tallies| &tallies.read), (writes, bytes), "bs = {bs}");
    }
    // The buffer is filled first, then what remains of a record goes past it; a read goes past it at once.
    let records = SIZE / 65536;
    assert_eq!(calls(Test::StdioWrite, 65536, |tallies| &tallies.write), (2 * records, SIZE));
    assert_eq!(calls(Test::StdioRead, 65536, |tallies| &tallies.read), (records, SIZE));
}

#[test]
fn a_copy_is_made_over_and_over_until_the_window_ends() {
    let fixture = Fixture::new();
    let keys = WorkloadKeys {
        bs: Some(Bytes(256)),
        runtime: Some(Nanos::from_millis(200)),
        ramp_time: Some(Nanos::from_millis(50)),
        ..WorkloadKeys::default()
    };
    let outcome = fixture.measure(&fixture.job(Test::Copy, keys));
    let (writes, bytes, flushes) = written(&outcome);
    let reads = outcome.tallies.read.as_ref().map_or(0, |read| read.ios);
    assert!(reads.abs_diff(writes) <= 1 && writes > SIZE / 256, "{reads} reads, {writes} writes");
    assert_eq!((bytes, flushes, outcome.duration_ns), (writes * 256, 0, 200_000_000));
}

#[test]
fn a_directory_that_is_not_empty_or_not_there_is_refused_and_left_alone() {
    let fixture = Fixture::new();
    let mut job = fixture.job(Test::WriteNew, once(WorkloadKeys::default()));
    let kept = fixture.directory.path().join("precious");
    std::fs::write(&kept, "data").expect("written");
    assert!(refused(&job, fixture.file.path()).contains("is not empty"));
    assert_eq!(std::fs::read_to_string(&kept).expect("kept"), "data");
    job.directory = None;
    assert!(refused(&job, fixture.file.path()).contains("no directory"));
}

#[test]
fn transactions_are_committed_until_the_window_ends() {
    let fixture = Fixture::new();
    let of = |synchronous| {
        let keys = WorkloadKeys {
            runtime: Some(Nanos::from_millis(300)),
            ramp_time: Some(Nanos::from_millis(50)),
            numjobs: Some(2),
            synchronous: Some(synchronous),
            ..WorkloadKeys::default()
        };
        let outcome = fixture.measure(&fixture.job(Test::Sqlite, keys));
        assert!(outcome.errors.is_empty() && outcome.duration_ns == 300_000_000, "{:?}", outcome.errors);
        let Tallies { read: None, write: None, sync: None, meta: Some(transactions), .. } = outcome.tallies
        else {
            panic!("SQLite's reads and writes are its own: {:?}", outcome.tallies)
        };
        transactions
    };
    let (durable, loose) = (of(Synchronous::Full), of(Synchronous::Off));
    assert!(durable.ios >= 2 && loose.ios > 2 * durable.ios, "{} and {}", durable.ios, loose.ios);
    // At least a page of the log for each.
    assert!(loose.bytes / loose.ios >= 4096, "{} bytes in {}", loose.bytes, loose.ios);
}

#[test]
fn pgbench_runs_all_clients_and_its_server_is_gone_after() {
    iotax_testkit::require!(file iotax_testkit::postgres::PROGRAM);
    let programs = Path::new(iotax_testkit::postgres::PROGRAM).parent().expect("a directory");
    let fixture = Fixture::new();
    let of = |builtin| {
        let keys = WorkloadKeys {
            runtime: Some(Nanos::from_secs(1)),
            ramp_time: Some(Nanos::from_millis(500)),
            numjobs: Some(3),
            builtin: Some(builtin),
            ..WorkloadKeys::default()
        };
        let job = fixture.job(Test::Pgbench, keys);
        let outcome = fixture.measure(&Job { postgresql: Some(programs.display().to_string()), ..job });
        assert!(outcome.errors.is_empty() && outcome.duration_ns == 1_000_000_000, "{:?}", outcome.errors);
        assert!(outcome.ramp_ios > 0 && outcome.pacing.is_none(), "{outcome:?}");
        let Tallies { read: None, write: None, sync: None, meta: Some(transactions), .. } = outcome.tallies
        else {
            panic!("PostgreSQL's reads and writes are its own: {:?}", outcome.tallies)
        };
        // Three clients that wait only for their transactions.
        let mean_ns = transactions.latency.mean().expect("some");
        let clients = transactions.ios as f64 * mean_ns / 1e9;
        assert!((2.0..3.3).contains(&clients), "{clients} clients at work: {transactions:?}");
        (transactions, outcome.cpu.total_ns())
    };
    let (durable, _) = of(PgbenchScript::SimpleUpdate);
    let (queries, cpu_ns) = of(PgbenchScript::SelectOnly);
    assert!(durable.ios >= 10 && queries.ios > durable.ios, "{} and {}", durable.ios, queries.ios);
    // At least a record of the log for each, and queries of tables in memory take nothing but CPU time.
    assert!(durable.bytes / durable.ios >= 100, "{} bytes in {}", durable.bytes, durable.ios);
    assert!(cpu_ns > 100_000_000, "{cpu_ns} ns of CPU time for {} queries", queries.ios);
}
