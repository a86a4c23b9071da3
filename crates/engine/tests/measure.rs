//! Tests of complete measurements on real files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use iotax_engine::{EngineError, measure};
use iotax_model::record::{Outcome, Sample, Tally};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::{Event, Job};
use iotax_model::workload::{IoEngine, RateProcess, Rw, WorkloadKeys};

const SIZE: u64 = 1 << 20;

fn keys(ioengine: IoEngine, rw: Rw) -> WorkloadKeys {
    WorkloadKeys {
        rw: Some(rw),
        runtime: Some(Nanos::from_millis(250)),
        ramp_time: Some(Nanos::from_millis(50)),
        iodepth: Some(if ioengine.is_synchronous() { 1 } else { 4 }),
        numjobs: Some(2),
        direct: Some(false),
        ioengine: Some(ioengine),
        ..WorkloadKeys::default()
    }
}

fn job(keys: &WorkloadKeys) -> Job {
    let workload = keys.complete(&WorkloadKeys::default());
    Job { writable: true, ..Job::new(workload, Bytes(SIZE), 7, Nanos::from_millis(100)) }
}

/// A file of zeros, twice as long as the area.
fn zeros() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("file");
    file.as_file().set_len(2 * SIZE).expect("sized");
    file
}

fn content(path: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    File::open(path).expect("opened").read_to_end(&mut content).expect("read");
    content
}

/// Measures. Returns `None` and prints a message if another ioengine was used, as without io_uring.
fn outcome(job: &Job, path: &Path, events: &mut dyn FnMut(Event)) -> Option<Outcome> {
    let outcome = measure(job, path, events).expect("measured");
    if outcome.ioengine != Some(job.workload.ioengine) {
        iotax_testkit::skip!("{}", outcome.notes.join("; "));
    }
    Some(outcome)
}

/// Backends that do I/O.
const ENGINES: [IoEngine; 5] =
    [IoEngine::IoUring, IoEngine::Libaio, IoEngine::Psync, IoEngine::Pvsync2, IoEngine::Mmap];

fn sum<'a>(tallies: impl Iterator<Item = &'a Option<Tally>>) -> Option<Tally> {
    tallies.flatten().cloned().reduce(|mut sum, tally| {
        sum.merge(&tally);
        sum
    })
}

/// Checks a measurement of `times` x 250 ms. Returns false if no I/O completed in its warm-up or window because the machine was too busy;
/// nothing is checked then.
fn tiles(ioengine: IoEngine, rw: Rw, times: u64) -> bool {
    let file = zeros();
    let (mut ready, mut measuring, mut samples) = (0, 0, Vec::<Sample>::new());
    let mut job = job(&keys(ioengine, rw));
    for length in [&mut job.workload.runtime, &mut job.workload.ramp_time, &mut job.interval] {
        length.0 *= times;
    }
    let Some(outcome) = outcome(&job, file.path(), &mut |event| match event {
        Event::Ready => {
            assert_eq!(measuring, 0, "it is set up before its window begins");
            ready += 1;
        }
        Event::Measuring => {
            assert!(samples.is_empty(), "the window begins before its samples");
            measuring += 1;
        }
        Event::Sample(sample) => samples.push(*sample),
        Event::Over => assert!(!samples.is_empty(), "it ends after its samples"),
        other => panic!("{other:?}"),
    }) else {
        return true;
    };
    let case = format!("{ioengine} {rw}, {times} times as long");
    assert_eq!(ready, 1, "{case}");
    assert_eq!((measuring, outcome.duration_ns), (1, 250_000_000 * times), "{case}");
    let in_times = |ns: u64| ns / 1_000_000 / times;
    let all: Vec<_> = samples.iter().map(|s| (in_times(s.at_ns), in_times(s.duration_ns))).collect();
    assert_eq!(all, [(100, 100), (200, 100), (250, 50)], "{case}");
    assert_eq!(outcome.tallies.read, sum(samples.iter().map(|s| &s.tallies.read)), "{case}");
    assert_eq!(outcome.tallies.write, sum(samples.iter().map(|s| &s.tallies.write)), "{case}");
    let tallies = [&outcome.tallies.read, &outcome.tallies.write];
    assert_eq!(tallies.map(Option::is_some), [rw.reads(), rw.writes()], "{case}");
    let mut has_io = outcome.ramp_ios > 0;
    for tally in tallies.into_iter().flatten() {
        has_io &= tally.ios > 0;
        assert_eq!((tally.latency.count(), tally.bytes), (tally.ios, tally.ios * 4096), "{case}");
    }
    assert_eq!(outcome.errors, [], "{case}");
    if has_io {
        assert!(outcome.cpu.total_ns() > 0, "{case}");
        let touched = content(file.path()).iter().any(|byte| *byte != 0);
        assert_eq!(touched, rw.writes() && ioengine != IoEngine::Null, "{case}");
    }
    has_io
}

#[test]
fn samples_tile_the_window_and_add_up_to_the_totals() {
    for ioengine in [ENGINES.as_slice(), &[IoEngine::Null]].concat() {
        for rw in [Rw::Read, Rw::Write, Rw::RandRead, Rw::RandWrite, Rw::ReadWrite, Rw::RandRw] {
            // A disk or CPUs that others keep busy get more time, as a warm-up of 50 ms can pass before a worker has a CPU.
            let has_io = [1, 4, 16, 64].into_iter().any(|times| tiles(ioengine, rw, times));
            assert!(has_io, "{ioengine} {rw}: no I/O");
        }
    }
}

#[test]
fn a_pass_of_writes_fills_the_area_and_nothing_else() {
    for ioengine in ENGINES {
        for rw in [Rw::Write, Rw::RandWrite] {
            let file = zeros();
            let case = format!("{ioengine} {rw}");
            // A disk that others keep busy gets more time.
            let pass = [250, 1000, 4000, 16000].into_iter().find_map(|millis| {
                let runtime = Some(Nanos::from_millis(millis));
                let job = job(&WorkloadKeys { numjobs: Some(1), runtime, ..keys(ioengine, rw) });
                match outcome(&job, file.path(), &mut |_| {}) {
                    Some(outcome) => {
                        (outcome.tallies.ios() + outcome.ramp_ios >= SIZE / 4096).then_some(Some(outcome))
                    }
                    None => Some(None),
                }
            });
            let Some(_) = pass.unwrap_or_else(|| panic!("{case}: no whole pass in the time")) else {
                continue;
            };
            let content = content(file.path());
            let (area, beyond) = content.split_at(usize::try_from(SIZE).expect("fits"));
            assert!(area.chunks(512).all(|sector| sector.iter().any(|byte| *byte != 0)), "{case}: a hole");
            assert!(beyond.iter().all(|byte| *byte == 0) && beyond.len() == area.len(), "{case}: outside");
            let compressed = zstd::bulk::compress(area, 19).expect("compresses").len();
            assert!(compressed >= area.len(), "{case}: {compressed} of {}", area.len());
        }
    }
}

#[test]
fn the_share_of_reads_is_exact_in_the_long_run() {
    let keys = WorkloadKeys { rwmixread: Some(70), numjobs: Some(1), ..keys(IoEngine::Null, Rw::RandRw) };
    let outcome = outcome(&job(&keys), zeros().path(), &mut |_| {}).expect("null");
    let reads = outcome.tallies.read.as_ref().expect("reads").ios;
    // Whole hundreds are exact; those at both ends of the window may be cut.
    assert!(
        (reads as f64 - 0.7 * outcome.tallies.ios() as f64).abs() <= 200.0,
        "{reads} of {}",
        outcome.tallies.ios()
    );
}

#[test]
fn reads_beyond_a_file_that_shrinks_are_short_or_empty_and_the_rest_goes_on() {
    for ioengine in ENGINES {
        let file = zeros();
        let cut = SIZE / 2 + 904;
        // When it is open and its length is known. Later, a busy machine may have the window pass before the cut.
        let mut cut_off = |event| {
            if event == Event::Ready {
                file.as_file().set_len(cut).expect("cut");
            }
        };
        // Long enough to outlast a stall.
        let keys = WorkloadKeys { runtime: Some(Nanos::from_secs(1)), ..keys(ioengine, Rw::RandRead) };
        let Some(outcome) = outcome(&job(&keys), file.path(), &mut cut_off) else { continue };
        assert!(!outcome.errors.is_empty(), "{ioengine}");
        for error in &outcome.errors {
            // The block that the cut goes through, which mmap has whole, and those beyond it.
            assert!(["short read", "empty read"].contains(&error.error.as_str()), "{ioengine}: {error:?}");
            assert!(error.count > 0 && error.first_offset >= SIZE / 2 && error.first_offset < SIZE);
        }
        assert!(outcome.tallies.ios() > 0, "what was not cut off is read");
    }
}

#[test]
fn direct_io_reads_and_writes() {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("file");
    file.as_file().set_len(SIZE).expect("sized");
    for ioengine in ENGINES.into_iter().filter(|engine| *engine != IoEngine::Mmap) {
        let keys = WorkloadKeys { direct: Some(true), ..keys(ioengine, Rw::RandRw) };
        match measure(&job(&keys), file.path(), &mut |_| {}) {
            Ok(outcome) => {
                assert!(outcome.tallies.read.is_some_and(|read| read.ios > 0));
                assert!(outcome.tallies.write.is_some_and(|write| write.ios > 0));
                assert_eq!(outcome.errors, []);
            }
            Err(error @ EngineError::Target { .. }) => iotax_testkit::skipped(error),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn jobs_that_cannot_be_done_are_refused_with_the_remedy() {
    let file = zeros();
    let good = job(&keys(IoEngine::Null, Rw::RandRead));
    let with = |keys: WorkloadKeys| job(&keys);
    let base = || keys(IoEngine::Null, Rw::RandRead);
    for (bad, words) in [
        (Job { interval: Nanos(0), ..good.clone() }, ["interval = 0ns", "10ms and more"]),
        (
            with(WorkloadKeys { bs: Some(Bytes(100)), direct: Some(true), ..base() }),
            ["bs = 100", "multiple of 512"],
        ),
        (
            with(WorkloadKeys {
                bs: Some(Bytes(64 << 20)),
                iodepth: Some(4096),
                numjobs: Some(1024),
                ..base()
            }),
            ["256TiB of buffers", "lower one"],
        ),
        (
            Job { writable: false, ..job(&keys(IoEngine::Null, Rw::RandWrite)) },
            ["rw = randwrite", "randread"],
        ),
        (Job { size: Bytes(4 * SIZE), ..good }, ["size = 4m", "length of 2m"]),
    ] {
        let error = measure(&bad, file.path(), &mut |_| {}).expect_err(words[0]).to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

#[test]
fn an_open_loop_keeps_its_rate() {
    for rate_process in [RateProcess::Linear, RateProcess::Poisson] {
        for (rate, numjobs) in [(10, 1), (1_000, 1), (20_000, 1), (250_000, 2), (500_000, 1)] {
            let keys = WorkloadKeys {
                rate_iops: Some(rate),
                rate_process: Some(rate_process),
                numjobs: Some(numjobs),
                runtime: Some(Nanos::from_secs(2)),
                ramp_time: Some(Nanos(0)),
                ..keys(IoEngine::Null, Rw::RandRead)
            };
            let outcome = outcome(&job(&keys), zeros().path(), &mut |_| {}).expect("null");
            let (asked, done) = (2 * rate * u64::from(numjobs), outcome.tallies.ios());
            let pacing = outcome.pacing.expect("an open loop");
            let case = format!("{rate_process} {rate} x {numjobs}: {done} of {asked}, {pacing:?}");
            eprintln!("{case}");
            // At random, four standard deviations of a Poisson distribution.
            let chance = if rate_process == RateProcess::Poisson { 4.0 * (asked as f64).sqrt() } else { 0.0 };
            assert!(pacing.due.abs_diff(asked) as f64 <= chance, "{case}");
            // A machine that is busy at the window's end leaves a backlog, and I/O that is not seen to be done in time.
            let begun = pacing.due - pacing.backlog;
            let in_flight = if pacing.backlog > 0 { 4.0 * f64::from(numjobs) } else { 0.0 };
            assert!(done.abs_diff(begun) as f64 <= 0.005 * begun as f64 + in_flight, "{case}");
            let response = outcome.tallies.response().expect("an open loop");
            assert_eq!(response.count(), done, "{case}");
        }
    }
}

#[test]
fn many_workers_start_and_finish() {
    for ioengine in ENGINES {
        // More than fit under the usual limit of 1024 open files.
        let keys = WorkloadKeys { numjobs: Some(600), ..keys(ioengine, Rw::RandRead) };
        let Some(outcome) = outcome(&job(&keys), zeros().path(), &mut |_| {}) else { continue };
        assert!(outcome.tallies.ios() > 0);
        assert_eq!(outcome.errors, []);
    }
}

#[test]
fn a_flush_at_the_end_comes_once_for_each_job_and_counts() {
    for (ioengine, rw, flushes) in [
        (IoEngine::Psync, Rw::Write, Some(2)),
        (IoEngine::IoUring, Rw::RandWrite, Some(2)),
        (IoEngine::Psync, Rw::Read, None),
    ] {
        let file = zeros();
        let job = job(&WorkloadKeys {
            end_fsync: Some(true),
            io_size: Some(Bytes(SIZE / 2)),
            runtime: Some(Nanos::from_secs(20)),
            ramp_time: Some(Nanos(0)),
            ..keys(ioengine, rw)
        });
        let Some(outcome) = outcome(&job, file.path(), &mut |_| {}) else { continue };
        let sync = outcome.tallies.sync.as_ref();
        assert_eq!(sync.map(|sync| sync.ios), flushes, "{ioengine} {rw}");
        assert_eq!(outcome.tallies.bytes(), SIZE, "{ioengine} {rw}: all was done before");
        let longest = sync.and_then(|sync| sync.latency.max()).unwrap_or(0);
        assert!(outcome.duration_ns >= longest, "{ioengine} {rw}: it is part of the window");
        assert!(outcome.duration_ns < 20_000_000_000, "{ioengine} {rw}: it ended by itself");
    }
}

#[test]
fn what_is_read_before_is_in_the_page_cache() {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("file");
    std::fs::write(file.path(), vec![1; 1 << 20]).expect("written");
    let cached = |offset| {
        let mut buffer = [0; 4096];
        let mut into = [std::io::IoSliceMut::new(&mut buffer)];
        preadv2(file.as_file(), &mut into, offset, ReadWriteFlags::NOWAIT)
    };
    iotax_engine::drop_caches_of(&[file.path().to_owned()]);
    if !matches!(cached(SIZE - 4096), Err(Errno::AGAIN)) {
        iotax_testkit::skip!("no word on what is cached");
    }
    let job = job(&WorkloadKeys {
        pre_read: Some(true),
        io_size: Some(Bytes(4096)),
        numjobs: Some(1),
        ramp_time: Some(Nanos(0)),
        ..keys(IoEngine::Psync, Rw::Read)
    });
    measure(&job, file.path(), &mut |_| {}).expect("measured");
    assert_eq!(cached(SIZE - 4096), Ok(4096), "the last page too, though only the first was asked for");
}
