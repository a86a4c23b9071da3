//! Runs one measurement: starts the workers, collects their reports, and builds the outcome.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use iotax_load::clock;
use iotax_load::control::Control;
use iotax_load::error::EngineError;
use iotax_load::io_errors::errno_name;
use iotax_load::latencies::Latencies;
use iotax_load::request::IoKind;
use iotax_load::shared::Common;
use iotax_load::watch;
use iotax_load::window::Window;
use iotax_load::workers::{Work, Workers};
use iotax_model::record::{ErrorCount, Outcome};
use iotax_model::trace::{Events, OffsetMap};
use iotax_model::wire::{Event, Job};
use iotax_model::workload::IoEngine;

use crate::backend::{self, Choice, Options, Setup};
use crate::flow::{Flow, FlowShare};
use crate::layout::{self, CutFile};
use crate::open::Target;
use crate::page_cache::{self, CachedPages};
use crate::passes::Passes;
use crate::pattern::Pattern;
use crate::payload::SECTOR;
use crate::prepare;
use crate::replay::Replay;
use crate::verify::Verification;
use crate::worker::{self, Task};

/// A job whose target is open and whose workers are ready and wait for the start.
pub(crate) struct Prepared<'a> {
    job: &'a Job,
    target: &'a Target,
    ioengine: IoEngine,
    note: Option<String>,
    verification: Option<Arc<Verification>>,
    workers: Workers,
    room: Latencies,
    cached: Option<CachedPages>,
    cut: Option<CutFile>,
}

impl<'a> Prepared<'a> {
    /// Prepares a job on an open target: chooses the backend, prepares file and caches, and starts the workers.
    pub(crate) fn new(
        job: &'a Job,
        target: &'a Target,
        flow: &Arc<Flow>,
        trace: Option<(Events, OffsetMap)>,
    ) -> Result<Self, EngineError> {
        let workload = &job.workload;
        let Choice { ioengine, note } = backend::choose(workload, target.virtio.is_some())?;
        clock::calibrate();
        let cut = layout::lay_out(job, target)?;
        if job.workload.pre_read && ioengine != IoEngine::Null {
            prepare::read_ahead(target, &job.workload, job.size)?;
        }
        let verification = Verification::new(job, target)?.map(Arc::new);
        let room = Latencies::new(workload);
        let mut replay = trace.map(|trace| Replay::new(job, target, trace)).transpose()?;
        let workers = Workers::spawn(workload.numjobs, workload.max_errors, &room, |number| {
            let share = FlowShare::new(workload, flow);
            work(job, target, ioengine, verification.as_ref(), share, replay.take(), number)
        })?;
        let bypasses_the_cache = workload.direct && ioengine.moves_data();
        let cached = if bypasses_the_cache { CachedPages::sample(job, target) } else { None };
        Ok(Self { job, target, ioengine, note, verification, workers, room, cached, cut })
    }

    /// Starts the load and waits for its end. Written data is not yet flushed or verified afterwards.
    pub(crate) fn go(
        &mut self,
        window: Window,
        end: &AtomicBool,
        events: &mut dyn FnMut(Event),
    ) -> Result<Outcome, EngineError> {
        let mut outcome = watch::carry_out(&mut self.workers, self.job, window, &self.room, end, events)?;
        outcome.ioengine = Some(self.ioengine);
        outcome.notes.extend(self.note.take());
        Ok(outcome)
    }

    /// Flushes the target if the job writes and nothing failed, reads the written data back if the job verifies, and adds the results to
    /// the outcome.
    pub(crate) fn conclude(self, outcome: &mut Outcome) {
        let Self { job, target, ioengine, verification, workers, cached, cut, .. } = self;
        outcome.page_cache = cached.and_then(|before| before.and_now(target));
        if job.workload.rw.writes() && ioengine != IoEngine::Null && workers.is_unharmed(outcome) {
            flush(|| target.sync_data(), outcome);
        }
        // Restores the file's length before the file is read back.
        drop(cut);
        if let Some(verification) = verification {
            outcome.notes.extend(verification.note());
            let findings = outcome.verify.get_or_insert_default();
            // A failed read-back must not lose the measurement and the findings so far.
            if let Err(error) = verification.conclude(target, findings) {
                findings.unfinished = true;
                outcome.notes.push(format!("what was written was not verified to the end: {error}"));
            }
        }
    }

    /// Returns the state shared by the job's workers, which includes their stop flag.
    pub(crate) fn common(&self) -> Arc<Common> {
        Arc::clone(&self.workers.common)
    }

    /// Returns whether the end of this job also ends the other concurrent jobs (`exitall`).
    pub(crate) const fn ends_all(&self) -> bool {
        self.job.workload.exitall
    }

    /// Stops the workers without running the load, and waits for them for a limited time.
    pub(crate) fn shutdown(self) {
        self.workers.shutdown(self.job.interval);
    }
}

/// Runs a job on an open target, from the start of the load to the final flush and verification.
pub(crate) fn run(
    job: &Job,
    target: &Target,
    control: &Control,
    trace: Option<(Events, OffsetMap)>,
    events: &mut dyn FnMut(Event),
) -> Result<Outcome, EngineError> {
    let mut prepared = Prepared::new(job, target, &Arc::default(), trace)?;
    events(Event::Ready);
    match prepared.go(Window::new(job, control.start()), control.ending(), events) {
        Ok(mut outcome) => {
            events(Event::Over);
            prepared.conclude(&mut outcome);
            Ok(outcome)
        }
        Err(error) => {
            prepared.shutdown();
            Err(error)
        }
    }
}

/// Creates the closure that worker number `number` runs on its thread.
fn work(
    job: &Job,
    target: &Target,
    ioengine: IoEngine,
    verification: Option<&Arc<Verification>>,
    share: Option<FlowShare>,
    replay: Option<Replay>,
    number: u32,
) -> Result<Work, EngineError> {
    let workload = job.workload.clone();
    let file = target.reopen_for(number)?;
    page_cache::hint(&file, &workload);
    let setup = Setup {
        file,
        depth: workload.iodepth,
        // Contents are made in whole sectors.
        slot_bytes: usize::try_from(workload.max_bs().0.next_multiple_of(SECTOR.into()))
            .unwrap_or(usize::MAX),
        options: Options::new(&workload),
    };
    let pattern = Pattern::new(&workload, job.size, number, job.seed);
    let passes = Passes::new(job, target, number, pattern.pass_bytes(&workload))?;
    let (seed, verification) = (job.seed, verification.cloned());
    Ok(Box::new(move |context| {
        let task = Task { context, workload, setup, pattern, passes, share, seed, verification, replay };
        worker::run(ioengine, task)
    }))
}

/// Flushes the target and records how long the flush took.
///
/// With buffered I/O, an error of the kernel's writeback appears only in this flush. If the target does not support flushing (`EINVAL`, see
/// fsync(2)), the outcome gets a note instead of an error.
pub(crate) fn flush(sync: impl FnOnce() -> io::Result<()>, outcome: &mut Outcome) {
    let begin = clock::now();
    match sync() {
        Ok(()) => outcome.flush_ns = Some(clock::now() - begin),
        Err(error) => match error.raw_os_error() {
            Some(number) if number != libc::EINVAL => outcome.errors.push(ErrorCount {
                error: errno_name(number),
                direction: IoKind::DataSync.word().to_owned(),
                count: 1,
                in_ramp: 0,
                first_offset: 0,
                last_offset: None,
            }),
            _ => outcome.notes.push(format!("the target could not be flushed after the window: {error}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::Access;
    use iotax_model::record::Stop;
    use iotax_model::units::{Bytes, Nanos};
    use iotax_model::workload::{Rw, SyncMode, WorkloadKeys};
    use std::fs::File;
    use std::io::Write;

    fn job(ioengine: IoEngine, rw: Rw) -> Job {
        let keys = WorkloadKeys {
            rw: Some(rw),
            runtime: Some(Nanos::from_millis(200)),
            ramp_time: Some(Nanos(0)),
            direct: Some(false),
            ioengine: Some(ioengine),
            ..WorkloadKeys::default()
        };
        let workload = keys.complete(&WorkloadKeys::default());
        Job { writable: true, ..Job::new(workload, Bytes(1 << 20), 1, Nanos::from_millis(100)) }
    }

    fn target(file: File, write: bool) -> Target {
        Target {
            file,
            access: Access {
                write,
                direct: false,
                sync: SyncMode::None,
                shared: false,
                identity: None,
                queue_size: None,
            },
            is_device: false,
            virtio: None,
            length: 1 << 20,
        }
    }

    /// Runs a load for its full duration.
    fn run(job: &Job, target: &Target, events: &mut dyn FnMut(Event)) -> Result<Outcome, EngineError> {
        super::run(job, target, &Control::new(), None, events)
    }

    #[test]
    fn a_load_that_is_ended_has_the_results_until_then() {
        let mut job = job(IoEngine::Null, Rw::Read);
        job.workload.runtime = Nanos::from_secs(30);
        let (control, mut samples) = (Control::new(), Vec::new());
        let file = target(tempfile::tempfile().expect("a file"), false);
        let outcome = super::run(&job, &file, &control, None, &mut |event| {
            if let Event::Sample(sample) = event {
                samples.push(*sample);
                if samples.len() == 2 {
                    control.end();
                }
            }
        });
        let outcome = outcome.expect("an outcome");
        assert!((100_000_000..2_000_000_000).contains(&outcome.duration_ns), "{}", outcome.duration_ns);
        let counted: u64 = samples.iter().map(|sample| sample.tallies.ios()).sum();
        assert_eq!((outcome.stop, outcome.tallies.ios()), (None, counted));
    }

    /// Returns the scheduling policies of this process's threads: field 41 of proc_pid_stat(5).
    fn policies() -> Vec<String> {
        let tasks = std::fs::read_dir("/proc/self/task").expect("procfs");
        let stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
        let policy = |stat: String| stat.rsplit_once(") ")?.1.split(' ').nth(38).map(str::to_owned);
        stats.filter_map(policy).collect()
    }

    #[test]
    fn a_load_begins_at_the_agreed_moment_and_runs_under_normal_scheduling() {
        let mut job = job(IoEngine::Null, Rw::Read);
        // The second I/O is not due before the first sample.
        job.workload.rate_iops = Some(5);
        let file = target(tempfile::tempfile().expect("a file"), false);
        let (control, mut asked_ns, mut seen) = (Control::new(), 0, Vec::new());
        let before = policies();
        let outcome = super::run(&job, &file, &control, None, &mut |event| match event {
            Event::Ready => {
                asked_ns = clock::system() + 50_000_000;
                control.start_at(asked_ns);
            }
            Event::Sample(_) => seen.extend(policies()),
            _ => {}
        });
        let outcome = outcome.expect("an outcome");
        assert!(control.take_started_ns() >= Some(asked_ns) && clock::system() >= asked_ns + 200_000_000);
        assert!(outcome.first_io_ns.is_some_and(|first_ns| first_ns < 200_000_000), "{outcome:?}");
        assert!(
            !seen.is_empty() && seen.iter().all(|policy| before.contains(policy)),
            "{seen:?}, {before:?}"
        );
    }

    fn io_uring_is_missing() -> bool {
        let note =
            backend::choose(&job(IoEngine::IoUring, Rw::Read).workload, false).expect("a backend").note;
        note.is_some_and(|note| {
            iotax_testkit::skipped::<()>(note);
            true
        })
    }

    #[test]
    fn if_every_io_fails_the_outcome_comes_with_the_errors_and_at_an_easy_pace() {
        for ioengine in [IoEngine::IoUring, IoEngine::Psync, IoEngine::Pvsync2] {
            let full =
                File::options().read(true).write(true).open("/dev/full").expect("a device that is full");
            let mut samples = 0;
            let mut job = job(ioengine, Rw::Write);
            job.workload.ramp_time = Nanos::from_millis(100);
            let outcome = run(&job, &target(full, true), &mut |event| {
                samples += usize::from(matches!(event, Event::Sample(_)));
            })
            .expect("an outcome");
            assert_eq!((outcome.tallies.ios(), samples), (0, 2));
            assert_eq!(outcome.tallies.write.as_ref().map(|write| write.bytes), Some(0));
            let [error] = outcome.errors.as_slice() else { panic!("{:?}", outcome.errors) };
            assert_eq!(
                (error.error.as_str(), error.direction.as_str(), error.first_offset),
                ("ENOSPC", "write", 0)
            );
            // 64 at once, then at most one each millisecond of 300.
            assert!((1..=64 + 301).contains(&error.count), "{}", error.count);
            assert!((1..error.count).contains(&error.in_ramp), "{} of {}", error.in_ramp, error.count);
        }
    }

    #[test]
    fn a_flush_that_fails_after_the_window_is_an_error_of_the_measurement() {
        let after = |result: io::Result<()>| {
            let mut outcome = Outcome::default();
            flush(|| result, &mut outcome);
            outcome
        };
        let failed = after(Err(io::Error::from_raw_os_error(libc::EIO)));
        let [error] = failed.errors.as_slice() else { panic!("{:?}", failed.errors) };
        assert_eq!((error.error.as_str(), error.direction.as_str(), error.count), ("EIO", "sync", 1));
        assert_eq!((failed.flush_ns, failed.notes.len()), (None, 0));
        let passed = after(Ok(()));
        assert!(passed.flush_ns.is_some() && passed.errors.is_empty());
        // A pipe takes no flush.
        let (reader, _writer) = std::io::pipe().expect("pipe");
        let reader = File::from(std::os::fd::OwnedFd::from(reader));
        let never = after(reader.sync_data());
        assert_eq!((never.flush_ns, never.errors.len(), never.notes.len()), (None, 0, 1));
    }

    #[test]
    fn an_io_that_does_not_return_holds_back_no_sample() {
        if io_uring_is_missing() {
            return;
        }
        // Reading an empty pipe waits; a byte lets it return, once all samples are in.
        let (reader, mut writer) = std::io::pipe().expect("pipe");
        let reader = File::from(std::os::fd::OwnedFd::from(reader));
        let mut samples = Vec::new();
        let outcome = run(&job(IoEngine::IoUring, Rw::Read), &target(reader, false), &mut |event| {
            if let Event::Sample(sample) = event {
                samples.push(sample.at_ns);
                if samples.len() == 2 {
                    writer.write_all(b"x").expect("written");
                }
            }
        });
        let outcome = outcome.expect("an outcome");
        assert_eq!(samples, [100_000_000, 200_000_000]);
        assert_eq!((outcome.tallies.ios(), outcome.notes), (0, vec![]), "nothing came, nothing was late");
        assert_eq!(outcome.errors, [], "what ends after the window counts nowhere");
    }

    #[test]
    fn an_io_that_never_returns_shows_its_age_and_ends_a_measurement_in_time() {
        if io_uring_is_missing() {
            return;
        }
        let (reader, writer) = std::io::pipe().expect("pipe");
        let reader = File::from(std::os::fd::OwnedFd::from(reader));
        let mut job = job(IoEngine::IoUring, Rw::Read);
        job.workload.runtime = Nanos::from_secs(60);
        job.workload.stall_timeout = Some(Nanos::from_millis(250));
        let mut ages = Vec::new();
        let outcome = run(&job, &target(reader, false), &mut |event| {
            if let Event::Sample(sample) = event {
                // Absent only where the worker did not get to a CPU in time.
                ages.extend(sample.oldest_ns.map(|age| age / 1_000_000));
            }
        });
        let outcome = outcome.expect("an outcome");
        assert_eq!((outcome.stop, outcome.tallies.ios()), (Some(Stop::Stalled), 0));
        // The third sample shows an age of 300 ms; then it is over.
        assert!((300..900).contains(&(outcome.duration_ns / 1_000_000)), "{}", outcome.duration_ns);
        assert!(ages.is_sorted() && ages.last() >= Some(&250), "{ages:?}");
        drop(writer);
    }

    #[test]
    fn too_many_failures_end_a_measurement() {
        let (reader, _writer) = std::io::pipe().expect("pipe");
        let mut job = job(IoEngine::Psync, Rw::Read);
        job.workload.runtime = Nanos::from_secs(60);
        job.workload.max_errors = Some(1000);
        // pread(2) on a pipe is an error at once.
        let pipe = target(File::from(std::os::fd::OwnedFd::from(reader)), false);
        let outcome = run(&job, &pipe, &mut |_| {}).expect("an outcome");
        assert_eq!((outcome.stop, outcome.errors[0].count), (Some(Stop::Errors), 1000));
        assert!(outcome.duration_ns < 10_000_000_000, "{}", outcome.duration_ns);
    }

    #[test]
    fn one_worker_that_cannot_start_ends_the_measurement() {
        if io_uring_is_missing() {
            return;
        }
        let mut job = job(IoEngine::IoUring, Rw::RandRead);
        // More than a ring holds; Workload::check would refuse it earlier.
        job.workload.iodepth = 1 << 20;
        job.workload.bs = Bytes(512);
        job.workload.numjobs = 3;
        let file = tempfile::tempfile().expect("file");
        let error = run(&job, &target(file, false), &mut |_| {}).expect_err("refused").to_string();
        assert!(error.contains("io_uring"), "{error}");
    }
}
