//! Several jobs at the same time on one file.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use iotax_engine::measure;
use iotax_model::record::{Outcome, Sample, Tallies};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::{Event, Job};
use iotax_model::workload::{Workload, WorkloadKeys};

const AREA: u64 = 1 << 20;

fn keys(name: &str, pairs: &[(&str, &str)]) -> WorkloadKeys {
    let mut keys = WorkloadKeys { name: Some(name.into()), ..WorkloadKeys::default() };
    for (key, text) in
        [("direct", "0"), ("ioengine", "psync"), ("size", "1m"), ("runtime", "600ms"), ("ramp_time", "0s")]
            .iter()
            .chain(pairs)
    {
        keys.set(key, text).expect(text);
    }
    keys
}

fn workload(first: &[(&str, &str)], others: &[(&str, &[(&str, &str)])]) -> Workload {
    let mut all = keys("first", first);
    all.beside = others.iter().map(|(name, pairs)| keys(name, pairs)).collect();
    let workload = all.complete(&WorkloadKeys::default());
    workload.check().expect("a workload");
    workload
}

fn job(workload: Workload) -> Job {
    Job { writable: true, ..Job::new(workload, Bytes(AREA), 3, Nanos::from_millis(100)) }
}

fn run(workload: Workload) -> (Outcome, Vec<Sample>, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().expect("file");
    file.as_file().set_len(8 * AREA).expect("sized");
    let job = job(workload);
    let (mut samples, mut order, mut reported_at) = (Vec::new(), Vec::new(), Vec::new());
    let outcome = measure(&job, file.path(), &mut |event| match event {
        Event::Ready => order.push("ready"),
        Event::Measuring => order.push("measuring"),
        Event::Sample(sample) => {
            samples.push(*sample);
            reported_at.push(Instant::now());
        }
        Event::Over => order.push("over"),
        other => panic!("{other:?}"),
    })
    .expect("measured");
    assert_eq!(order, ["ready", "measuring", "over"]);
    // Samples arrive during the run, not only after the last job has ended.
    if let (Some(first), Some(last), Some(end)) = (reported_at.first(), reported_at.last(), samples.last()) {
        let span = Duration::from_nanos(end.at_ns - samples[0].at_ns);
        assert!(*last - *first >= span / 2, "{:?} of {span:?}", *last - *first);
    }
    (outcome, samples, file)
}

fn total<'a>(parts: impl Iterator<Item = &'a Tallies>) -> Tallies {
    parts.fold(Tallies::default(), |mut all, part| {
        all.merge(part);
        all
    })
}

#[test]
fn shares_and_samples_each_add_up_to_the_whole() {
    let (outcome, samples, _) = run(workload(
        &[("rw", "randread")],
        &[
            ("writes", &[("rw", "write"), ("offset", "1m"), ("numjobs", "2")]),
            ("mixed", &[("rw", "randrw"), ("offset", "2m")]),
        ],
    ));
    assert_eq!(
        outcome.jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(),
        ["first", "writes", "mixed"]
    );
    assert_eq!(total(outcome.jobs.iter().map(|job| &job.tallies)), outcome.tallies);
    assert_eq!(total(samples.iter().map(|sample| &sample.tallies)), outcome.tallies);
    assert_eq!(samples.iter().map(|sample| sample.duration_ns).sum::<u64>(), outcome.duration_ns);
    assert!(samples.windows(2).all(|pair| pair[0].at_ns + pair[1].duration_ns == pair[1].at_ns));
    for job in &outcome.jobs {
        assert_eq!(job.duration_ns, 600_000_000);
        assert_eq!(job.tallies.read.is_some(), job.name != "writes");
        assert_eq!(job.tallies.write.is_some(), job.name != "first");
        assert!(job.tallies.ios() > 100, "{job:?}");
    }
    assert!(outcome.flush_ns.is_some() && outcome.errors.is_empty(), "{outcome:?}");
}

#[test]
fn what_fails_in_an_interval_is_that_of_all_jobs() {
    let file = tempfile::NamedTempFile::new().expect("file");
    file.as_file().set_len(2 * AREA).expect("sized");
    let job = job(workload(&[("rw", "randread")], &[("second", &[("rw", "randread"), ("offset", "1m")])]));
    let mut failed = 0;
    let outcome = measure(&job, file.path(), &mut |event| match event {
        // From now on nothing is there to be read.
        Event::Measuring => file.as_file().set_len(0).expect("cut"),
        Event::Sample(sample) => failed += sample.failed,
        _ => {}
    })
    .expect("measured");
    let errors: u64 = outcome.errors.iter().map(|error| error.count).sum();
    assert!(errors > 64, "{outcome:?}");
    assert_eq!(failed, errors);
}

#[test]
fn each_job_keeps_to_its_time_within_the_window_of_all() {
    let late: &[(&str, &str)] = &[("rw", "randread"), ("startdelay", "300ms"), ("runtime", "500ms")];
    let (outcome, samples, _) = run(workload(
        &[("rw", "write")],
        &[("late", late), ("done", &[("rw", "read"), ("loops", "1"), ("offset", "1m")])],
    ));
    assert_eq!(outcome.duration_ns, 800_000_000);
    assert_eq!(samples.len(), 8);
    let [first, second, done] = outcome.jobs.as_slice() else { panic!("{:?}", outcome.jobs) };
    assert_eq!((first.duration_ns, second.duration_ns), (600_000_000, 500_000_000));
    // One pass over a megabyte takes no 600 ms.
    assert_eq!(done.tallies.bytes(), AREA);
    assert!(done.duration_ns < 600_000_000, "{}", done.duration_ns);
    // Whoever is late has done nothing before.
    let early: u64 =
        samples[..2].iter().filter_map(|sample| sample.tallies.read.as_ref()).map(|tally| tally.ios).sum();
    assert!(early <= AREA / 4096, "{early}");
    assert!(
        samples[6..].iter().all(|sample| sample.tallies.write.as_ref().is_none_or(|tally| tally.ios == 0))
    );
}

#[test]
fn jobs_have_areas_of_their_own() {
    let own =
        [("rw", "write"), ("numjobs", "3"), ("offset", "1m"), ("offset_increment", "2m"), ("loops", "1")];
    let (outcome, _, file) = run(workload(&own, &[]));
    assert_eq!((outcome.tallies.bytes(), outcome.jobs.len()), (3 * AREA, 0));
    for (mebibyte, written) in [false, true, false, true, false, true, false, false].into_iter().enumerate() {
        let mut content = vec![0; 1 << 20];
        file.as_file().read_exact_at(&mut content, mebibyte as u64 * AREA).expect("read");
        assert_eq!(content.iter().any(|byte| *byte != 0), written, "mebibyte {mebibyte}");
    }
}

#[test]
fn what_one_of_them_cannot_do_is_refused_before_anything_is_written() {
    let file = tempfile::NamedTempFile::new().expect("file");
    file.as_file().set_len(2 * AREA).expect("sized");
    let job = job(workload(&[("rw", "write")], &[("beyond", &[("offset", "4m")])]));
    let error =
        measure(&job, file.path(), &mut |event| panic!("{event:?}")).expect_err("too long").to_string();
    assert!(error.contains("4m"), "{error}");
    let content = std::fs::read(file.path()).expect("read");
    assert!(content.iter().all(|byte| *byte == 0));
}
