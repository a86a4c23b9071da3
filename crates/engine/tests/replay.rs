//! Tests that replays on files perform exactly the I/O of the trace.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use iotax_engine::{Control, replay_under};
use iotax_model::record::{Outcome, Replayed};
use iotax_model::trace::{OffsetMap, TraceSummary, TracedIo, TracedOperation};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::Job;
use iotax_model::workload::{Workload, WorkloadKeys};

const BLOCK: u64 = 4096;
const SIZE: u64 = 4 << 20;

fn event(at_ns: u64, operation: TracedOperation, offset: u64, length: u64) -> TracedIo {
    TracedIo { at_ns, latency_ns: None, operation, offset, length, fua: false, process: None, queue: None }
}

fn workload(events: &[TracedIo], keys: &[(&str, &str)]) -> Workload {
    let mut own = WorkloadKeys::default();
    for (key, text) in [("read_iolog", "trace"), ("direct", "0")].iter().chain(keys) {
        own.set(key, text).expect(key);
    }
    let mut summary = TraceSummary::default();
    events.iter().for_each(|event| summary.add(event));
    own.complete(&WorkloadKeys::default()).replaying(&summary)
}

fn replay(path: &Path, events: &[TracedIo], keys: &[(&str, &str)]) -> (Outcome, Replayed) {
    let job =
        Job { writable: true, ..Job::new(workload(events, keys), Bytes(SIZE), 1, Nanos::from_millis(100)) };
    let trace = || Box::new(Vec::from(events).into_iter().map(Ok));
    let map = OffsetMap::read(job.workload.replay_offsets, trace()).expect("mapped");
    let outcome = replay_under(&Control::new(), &job, path, (trace(), map), &mut |_| {}).expect("replayed");
    let replayed = outcome.replayed.clone().expect("a replay tells");
    (outcome, replayed)
}

fn file() -> (tempfile::NamedTempFile, File) {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("file");
    file.as_file().write_all_at(&vec![7; usize::try_from(SIZE).expect("small")], 0).expect("written");
    let again = file.reopen().expect("opened");
    (file, again)
}

/// Exponential gaps, as of many independent users.
fn poisson(per_second: f64, seconds: f64) -> Vec<TracedIo> {
    let (mut state, mut at, mut events) = (1_u64, 0.0, Vec::new());
    while at < seconds * 1e9 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = (state >> 11) as f64 / (1_u64 << 53) as f64;
        at += -(1.0 - unit).ln() * 1e9 / per_second;
        let operation = if state & (1 << 20) == 0 { TracedOperation::Read } else { TracedOperation::Write };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
        events.push(event(at as u64, operation, (state >> 30) % (SIZE / BLOCK) * BLOCK, BLOCK));
    }
    events
}

#[test]
fn every_io_of_a_poisson_load_is_done_in_the_time_of_the_trace() {
    for engine in ["io_uring", "psync", "libaio"] {
        let (named, _) = file();
        let events = poisson(500.0, 3.0);
        let depth = if engine == "psync" { "1" } else { "64" };
        let (outcome, replayed) = replay(named.path(), &events, &[("ioengine", engine), ("iodepth", depth)]);
        let all = events.len() as u64;
        let reads = events.iter().filter(|event| event.operation == TracedOperation::Read).count() as u64;
        assert_eq!(
            (replayed.due, replayed.begun, replayed.left_out, replayed.wrapped),
            (all, all, 0, 0),
            "{engine}"
        );
        let ios = |tally: &Option<iotax_model::record::Tally>| tally.as_ref().map(|tally| tally.ios);
        assert_eq!(
            (ios(&outcome.tallies.read), ios(&outcome.tallies.write)),
            (Some(reads), Some(all - reads))
        );
        let span = events[events.len() - 1].at_ns - events[0].at_ns;
        assert_eq!(replayed.recorded_ns, span);
        // A machine that is busy at the very end may be late there; it is never early.
        assert!(replayed.took_ns + replayed.late_max_ns + 50_000_000 >= span, "{replayed:?}");
        assert!(
            outcome.tallies.trim.is_none() && outcome.tallies.sync.is_none(),
            "no such I/O is in the trace"
        );
        let response = outcome.tallies.read.as_ref().and_then(|tally| tally.response.as_ref());
        assert_eq!(response.map(iotax_model::Histogram::count), Some(reads));
    }
}

#[test]
fn twice_the_speed_takes_half_of_the_time() {
    let (named, _) = file();
    let events: Vec<TracedIo> =
        (0..21).map(|n| event(n * 50_000_000, TracedOperation::Read, n * BLOCK, BLOCK)).collect();
    let (_, replayed) = replay(named.path(), &events, &[("replay_time_scale", "200")]);
    assert_eq!((replayed.begun, replayed.recorded_ns), (21, 500_000_000));
}

#[test]
fn a_trace_that_points_beyond_the_target_writes_nothing_outside_of_its_area() {
    let (named, content) = file();
    content.set_len(4 * SIZE).expect("longer");
    let far = [SIZE, SIZE - 512, u64::MAX - 10, 1 << 63, 3 * SIZE + 100];
    let events: Vec<TracedIo> = far
        .into_iter()
        .zip(0..)
        .map(|(offset, n)| event(n * 1_000_000, TracedOperation::Write, offset, BLOCK))
        .collect();
    let (outcome, replayed) = replay(named.path(), &events, &[]);
    assert_eq!((replayed.begun, replayed.wrapped, outcome.errors.len()), (5, 5, 0));
    let mut beyond = vec![1; usize::try_from(3 * SIZE).expect("small")];
    content.read_exact_at(&mut beyond, SIZE).expect("read");
    assert!(beyond.iter().all(|byte| *byte == 0), "a hole as before");
    assert_eq!(content.metadata().expect("metadata").len(), 4 * SIZE);
}

#[test]
fn a_trace_of_a_large_disk_is_scaled_to_a_small_file_as_the_key_says() {
    // Two streams of 8 blocks, at 16 GiB and at 48 GiB.
    let events: Vec<TracedIo> = (0..16)
        .map(|n| {
            let at = (16 << 30) + n % 2 * (32 << 30) + n / 2 * BLOCK;
            event(n * 1_000_000, TracedOperation::Write, at, BLOCK)
        })
        .collect();
    let written = |content: &File| -> Vec<u64> {
        let changed = |block: &u64| {
            let mut bytes = [0; 4096];
            content.read_exact_at(&mut bytes, block * BLOCK).expect("read");
            bytes.iter().any(|byte| *byte != 7)
        };
        (0..SIZE / BLOCK).filter(changed).collect()
    };
    let last = SIZE / BLOCK - 1;
    for (offsets, blocks, sequential) in [
        ("wrap", (0..8).collect(), 14),
        ("compress", vec![0, last], 0),
        ("working_set", (0..16).collect::<Vec<_>>(), 14),
    ] {
        let (named, content) = file();
        let (_, replayed) = replay(named.path(), &events, &[("replay_offsets", offsets)]);
        assert_eq!((replayed.begun, replayed.moved, replayed.recorded_sequential), (16, 16, 14), "{offsets}");
        assert_eq!(replayed.wrapped, if offsets == "wrap" { 16 } else { 0 }, "{offsets}");
        assert_eq!(written(&content), blocks, "{offsets}");
        assert_eq!(replayed.sequential, sequential, "{offsets}: {replayed:?}");
        let mean = replayed.moved_mean_bytes.expect("moved");
        assert!((28 << 30..=32 << 30).contains(&mean), "{offsets}: {mean}");
    }
}

#[test]
fn trims_and_flushes_are_done_and_what_cannot_be_is_counted_as_left_out() {
    let (named, content) = file();
    let events = [
        event(0, TracedOperation::Write, 0, BLOCK),
        event(1_000_000, TracedOperation::Flush, 0, 0),
        event(2_000_000, TracedOperation::Trim, 2 * BLOCK, BLOCK),
        event(3_000_000, TracedOperation::Read, 0, 0),
        event(4_000_000, TracedOperation::Read, 0, 1 << 63),
    ];
    let (outcome, replayed) = replay(named.path(), &events, &[]);
    if outcome.tallies.trim.is_none() {
        iotax_testkit::skip!("the filesystem here makes no holes in files");
    }
    assert_eq!((replayed.due, replayed.begun, replayed.left_out), (5, 3, 2));
    assert_eq!(outcome.tallies.sync.map(|tally| tally.ios), Some(1));
    let mut block = [1; 4096];
    content.read_exact_at(&mut block, 2 * BLOCK).expect("read");
    assert!(block.iter().all(|byte| *byte == 0));
    content.read_exact_at(&mut block, 0).expect("read");
    assert!(block.iter().any(|byte| *byte != 7));
}

#[test]
fn a_trim_may_be_longer_than_all_reads_and_writes() {
    for ioengine in ["psync", "libaio", "io_uring"] {
        let (named, content) = file();
        let long = event(0, TracedOperation::Trim, BLOCK, SIZE / 2);
        let events = [long, event(9_000_000, TracedOperation::Read, 0, BLOCK)];
        let (outcome, replayed) = replay(named.path(), &events, &[("ioengine", ioengine)]);
        if outcome.tallies.trim.is_none() {
            iotax_testkit::skip!("the filesystem here makes no holes in files");
        }
        assert_eq!((replayed.begun, replayed.left_out), (2, 0), "{ioengine}");
        let mut end = [1; 4096];
        content.read_exact_at(&mut end, SIZE / 2).expect("read");
        assert!(end.iter().all(|byte| *byte == 0), "{ioengine}");
    }
}

#[test]
fn a_trace_that_breaks_off_fails_the_measurement_with_its_reason() {
    let (named, _) = file();
    let events = [event(0, TracedOperation::Read, 0, BLOCK)];
    let job = Job::new(workload(&events, &[]), Bytes(SIZE), 1, Nanos::from_millis(100));
    let trace = events.map(Ok).into_iter().chain([Err("line 3: cut off".to_owned())]);
    let failed =
        replay_under(&Control::new(), &job, named.path(), (Box::new(trace), OffsetMap::Wrap), &mut |_| {});
    assert!(failed.expect_err("broken").to_string().contains("the trace: line 3: cut off"));
}

#[test]
fn what_a_target_has_no_time_for_is_counted_as_not_begun() {
    let (named, _) = file();
    let events: Vec<TracedIo> =
        (0..100).map(|n| event(n * 10_000_000, TracedOperation::Read, n * BLOCK, BLOCK)).collect();
    let (_, replayed) = replay(named.path(), &events, &[("runtime", "500ms")]);
    assert_eq!((replayed.due, replayed.begun + replayed.not_begun), (50, 50), "{replayed:?}");
}

/// Two simultaneous I/Os, a pause of 20 ms after both, and the same again.
fn pairs(count: u64) -> Vec<TracedIo> {
    let one = |n: u64| TracedIo {
        latency_ns: Some(5_000_000),
        ..event(n / 2 * 25_000_000, TracedOperation::Read, n * BLOCK, BLOCK)
    };
    (0..count).map(one).collect()
}

#[test]
fn by_dependency_pauses_are_kept_and_the_target_s_own_time_replaces_the_recorded() {
    let (named, _) = file();
    let (outcome, replayed) = replay(named.path(), &pairs(20), &[("replay_pace", "dependency")]);
    assert_eq!((replayed.begun, replayed.recorded_ns), (20, 225_000_000));
    // Nine pauses of 20 ms; the 5 ms that each I/O took when it was recorded are not waited for.
    assert!(replayed.took_ns >= 9 * 20_000_000, "{replayed:?}");
    let ios: u64 = replayed.phases.iter().map(|phase| phase.ios).sum();
    assert_eq!((ios, replayed.phases[0].recorded_mean_ns), (20, Some(5_000_000)));
    assert_eq!(outcome.tallies.read.map(|tally| tally.ios), Some(20));
}

#[test]
fn without_stalls_the_order_alone_is_kept() {
    let (named, _) = file();
    let events: Vec<TracedIo> =
        (0..50).map(|n| event(n * 3_600_000_000_000, TracedOperation::Read, n * BLOCK, BLOCK)).collect();
    let (outcome, replayed) = replay(named.path(), &events, &[("replay_pace", "no_stall")]);
    assert_eq!((replayed.begun, replayed.late_max_ns), (50, 0));
    assert!(replayed.took_ns < replayed.recorded_ns / 100, "two days in a moment");
    assert!(outcome.tallies.read.is_some_and(|tally| tally.response.is_none()), "a closed loop");
}
