//! Tests of the classics on real files.

use std::path::Path;

use iotax_engine::{EngineError, measure};
use iotax_model::record::{Outcome, Sample, Tallies};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::{Event, Job};
use iotax_model::workload::{Test, WorkloadKeys};

/// A place on a filesystem of a disk: an empty directory, and a file of 1 MiB beside it.
struct Ground {
    directory: tempfile::TempDir,
    file: tempfile::NamedTempFile,
}

const SIZE: u64 = 1 << 20;

impl Ground {
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
            path: None,
            workload: keys.complete(&WorkloadKeys::default()),
            size: Bytes(SIZE),
            seed: 7,
            interval: Nanos::from_millis(20),
            writable: true,
            shared: false,
            identity: None,
            directory: Some(self.directory.path().display().to_string()),
        }
    }

    /// The outcome, of which the samples are seen to be the parts, and whether the directory was left empty.
    fn measure(&self, job: &Job) -> Outcome {
        let (mut samples, mut begun) = (Vec::<Sample>::new(), Vec::new());
        let outcome = measure(job, self.file.path(), &mut |event| match event {
            Event::Sample(sample) => samples.push(*sample),
            other => begun.push(other),
        })
        .expect("measured");
        assert_eq!(begun, [Event::Ready, Event::Measuring]);
        let mut sum = Tallies::default();
        samples.iter().for_each(|sample| sum.merge(&sample.tallies));
        assert_eq!(sum, outcome.tallies);
        assert_eq!(samples.iter().map(|sample| sample.duration_ns).sum::<u64>(), outcome.duration_ns);
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
    let ground = Ground::new();
    let keys = WorkloadKeys { loops: Some(1), numjobs: Some(2), ..WorkloadKeys::default() };
    let outcome = ground.measure(&ground.job(Test::Getc, keys));
    let read = outcome.tallies.read.as_ref().expect("reads");
    assert_eq!((read.ios, read.bytes, read.latency.count()), (SIZE, SIZE, SIZE));
    assert_eq!((outcome.tallies.write.is_none(), outcome.tallies.meta.is_none()), (true, true));
    assert!(outcome.duration_ns < 20_000_000_000, "{}", outcome.duration_ns);
    assert_eq!((outcome.errors.len(), outcome.flush_ns), (0, None));
    assert!(outcome.cpu.total_ns() > 0);
}

#[test]
fn a_test_without_an_end_ends_with_its_window() {
    let ground = Ground::new();
    let keys = WorkloadKeys {
        runtime: Some(Nanos::from_millis(250)),
        ramp_time: Some(Nanos::from_millis(50)),
        ..WorkloadKeys::default()
    };
    let outcome = ground.measure(&ground.job(Test::Getc, keys));
    assert_eq!(outcome.duration_ns, 250_000_000);
    assert!(outcome.ramp_ios > 0 && outcome.tallies.ios() > 0);
}

#[test]
fn what_cannot_be_read_is_counted_and_ends_a_test_that_is_to_bear_so_much() {
    let ground = Ground::new();
    let keys = WorkloadKeys { max_errors: Some(3), ..WorkloadKeys::default() };
    let job = ground.job(Test::Getc, keys);
    let (mut shortened, path) = (false, ground.file.path());
    let outcome = measure(&job, path, &mut |event| {
        if event == Event::Ready {
            ground.file.as_file().set_len(1000).expect("shortened");
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
    let ground = Ground::new();
    let path = ground.file.path();
    let foreign = ground.job(Test::Foreign, WorkloadKeys::default());
    assert!(matches!(measure(&foreign, path, &mut |_| {}), Err(EngineError::NoTest(Test::Foreign))));
    assert!(refused(&foreign, path).contains("test = foreign"));
}
