//! One measurement: starts the workers, collects what they report, and tells of it.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use iotax_model::record::{CpuTime, ErrorCount, Outcome, Pacing, Stop};
use iotax_model::units::Nanos;
use iotax_model::wire::{Event, Job};
use iotax_model::workload::IoEngine;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::backend::{self, Choice, Note, Options, Setup};
use crate::cached::Cached;
use crate::clock;
use crate::collector::{Collector, GRACE};
use crate::error::EngineError;
use crate::faults::{Faults, errno_name};
use crate::latencies::Latencies;
use crate::live::{Common, Pulse};
use crate::open::Target;
use crate::pattern::{Direction, Pattern};
use crate::prepare;
use crate::verify::Proof;
use crate::window::Window;
use crate::worker::{Finish, Report, Task};

/// How long after the window's end is waited for I/O in flight. A worker whose I/O takes longer is left behind with it.
const DRAIN: Nanos = if cfg!(test) { Nanos::from_millis(300) } else { Nanos::from_secs(10) };

/// A job that is set up on its target: its workers wait for the start.
pub(crate) struct Prepared<'a> {
    job: &'a Job,
    target: &'a Target,
    ioengine: IoEngine,
    note: Option<String>,
    proof: Option<Arc<Proof>>,
    crew: Crew,
    cached: Option<Cached>,
}

impl<'a> Prepared<'a> {
    /// Sets a job up on an open target.
    pub(crate) fn new(job: &'a Job, target: &'a Target) -> Result<Self, EngineError> {
        let Choice { ioengine, note } = backend::choose(&job.workload)?;
        clock::calibrate();
        if job.workload.pre_read && ioengine != IoEngine::Null {
            prepare::read_ahead(target, &job.workload, job.size)?;
        }
        let proof = Proof::new(job, target)?.map(Arc::new);
        let crew = Crew::muster(job, target, ioengine, proof.as_ref())?;
        let bypasses_the_cache = job.workload.direct && ioengine != IoEngine::Null;
        let cached = if bypasses_the_cache { Cached::look(job, target) } else { None };
        Ok(Self { job, target, ioengine, note, proof, crew, cached })
    }

    /// Makes the load. What was written is not flushed yet, nor verified.
    pub(crate) fn go(
        &mut self,
        window: Window,
        events: &mut dyn FnMut(Event),
    ) -> Result<Outcome, EngineError> {
        let check = clock::Check::begin();
        self.crew.start(window);
        let mut outcome = watch(&mut self.crew, self.job, window, events)?;
        outcome.ioengine = Some(self.ioengine);
        outcome.notes.extend(self.note.take().into_iter().chain(check.end()));
        Ok(outcome)
    }

    /// Has the target make safe what it took, and verifies it if that was asked for.
    pub(crate) fn conclude(self, outcome: &mut Outcome) {
        let Self { job, target, ioengine, proof, crew, cached, .. } = self;
        outcome.page_cache = cached.and_then(|before| before.and_now(target));
        if job.workload.rw.writes() && ioengine != IoEngine::Null && crew.is_unharmed(outcome) {
            flush(|| target.file.sync_data(), outcome);
        }
        if let Some(proof) = proof {
            outcome.notes.extend(proof.note());
            let findings = outcome.verify.get_or_insert_default();
            // What was measured and found until then is not lost with what cannot be read back.
            if let Err(error) = proof.conclude(target, findings) {
                outcome.notes.push(format!("what was written was not verified to the end: {error}"));
            }
        }
    }

    /// Sends the workers home.
    pub(crate) fn dismiss(self) {
        self.crew.dismiss(Duration::from_nanos(self.job.interval.0 + DRAIN.0));
    }
}

/// Makes the load of a job on an open target.
pub(crate) fn run(job: &Job, target: &Target, events: &mut dyn FnMut(Event)) -> Result<Outcome, EngineError> {
    let mut prepared = Prepared::new(job, target)?;
    events(Event::Ready);
    match prepared.go(Window::new(job, clock::now()), events) {
        Ok(mut outcome) => {
            prepared.conclude(&mut outcome);
            Ok(outcome)
        }
        Err(error) => {
            prepared.dismiss();
            Err(error)
        }
    }
}

/// Has the target make safe what it took. The time is that of one flush: how much it had put off is for others to see.
///
/// What the kernel could not write back of buffered I/O shows nowhere but here. What cannot be flushed at all has put nothing off
/// (`EINVAL`, fsync(2)).
fn flush(sync: impl FnOnce() -> io::Result<()>, outcome: &mut Outcome) {
    let begin = clock::now();
    match sync() {
        Ok(()) => outcome.flush_ns = Some(clock::now() - begin),
        Err(error) => match error.raw_os_error() {
            Some(number) if number != libc::EINVAL => outcome.errors.push(ErrorCount {
                error: errno_name(number),
                direction: Direction::DataSync.word().to_owned(),
                count: 1,
                first_offset: 0,
                last_offset: None,
            }),
            _ => outcome.notes.push(format!("the target could not be flushed after the window: {error}")),
        },
    }
}

/// CPU time of the process when the window began and when it ended.
#[derive(Debug, Default)]
struct CpuMarks {
    begin: Option<CpuTime>,
    end: Option<CpuTime>,
}

impl CpuMarks {
    /// Takes what is due. Whether the window has just begun.
    fn take(&mut self, now: u64, window: Window) -> bool {
        let begins = now >= window.begin && self.begin.is_none();
        if begins {
            self.begin = Some(clock::process_cpu());
        }
        if now >= window.end && self.end.is_none() {
            self.end = Some(clock::process_cpu());
        }
        begins
    }

    fn used(&self) -> CpuTime {
        let (begin, end) = (self.begin.unwrap_or_default(), self.end.unwrap_or_default());
        CpuTime {
            user_ns: end.user_ns.saturating_sub(begin.user_ns),
            system_ns: end.system_ns.saturating_sub(begin.system_ns),
        }
    }
}

/// Follows the workers until all are done, or beyond hope.
fn watch(
    crew: &mut Crew,
    job: &Job,
    mut window: Window,
    events: &mut dyn FnMut(Event),
) -> Result<Outcome, EngineError> {
    let empty = Latencies::new(&job.workload);
    let mut collector = Collector::new(window, empty, job.workload.numjobs);
    let mut cpu = CpuMarks::default();
    let mut give_up = window.end + DRAIN.0;
    let mut finishes: Vec<Finish> = Vec::with_capacity(crew.starts.len());
    let mut stalled = false;
    loop {
        let now = clock::now();
        let gone = crew.at_work == 0;
        // Before the window is over they are gone because there was no more to do, or because they were stopped.
        if gone && now < window.end {
            window = window.cut(finishes.iter().filter_map(|finish| finish.ended_at).max().unwrap_or(now));
            collector.cut(window.end);
            if window.end <= window.begin {
                let errors = Faults::merge(finishes.into_iter().map(|finish| finish.faults).collect());
                return Err(EngineError::NothingMeasured { ramp_time: job.workload.ramp_time, errors });
            }
        }
        if cpu.take(now, window) {
            events(Event::Measuring);
        }
        let all_done = gone || now >= give_up;
        while let Some(sample) = collector.next_sample(now, all_done, crew.waiting_since()) {
            stalled |= job.workload.stall_timeout.is_some_and(|most| sample.oldest_ns >= Some(most.0));
            events(Event::Sample(Box::new(sample)));
        }
        if all_done {
            break;
        }
        if stalled && !crew.common.is_stopped() {
            // Those that are not stuck themselves hand over what they have.
            crew.common.stop();
            window = window.cut(now);
            collector.cut(now);
            // One that sleeps looks up at the end of its interval.
            give_up = now + job.interval.0 + GRACE.0;
        }
        let marks = [window.begin, window.end, collector.deadline(), give_up];
        let wait = marks.into_iter().filter(|mark| *mark > now).min().unwrap_or(now) - now;
        match crew.next_report(Duration::from_nanos(wait)) {
            Some(Report::Interval(interval)) => {
                collector.add(&interval);
                crew.give_back(interval.worker, interval.latencies);
            }
            Some(Report::Finished(result)) => finishes.push(result?),
            Some(Report::Ready) | None => {}
        }
    }
    let (tallies, stuck) = collector.finish();
    let left_behind = (crew.at_work > 0).then(|| {
        format!(
            "{} worker(s) still waited {} after the end for I/O that was in flight then; it is not counted",
            crew.at_work,
            Nanos(give_up - window.end)
        )
    });
    Ok(Outcome {
        duration_ns: window.end - began(window, job, &finishes),
        tallies,
        ramp_ios: finishes.iter().map(|finish| finish.ramp_ios).sum(),
        cpu: cpu.used(),
        notes: notes(&finishes).into_iter().chain(stuck).chain(left_behind).collect(),
        ioengine: None,
        pacing: finishes.iter().filter_map(|finish| finish.pacing).reduce(Pacing::merge),
        stop: match (stalled, crew.common.has_failed()) {
            (true, _) => Some(Stop::Stalled),
            (false, true) => Some(Stop::Errors),
            (false, false) => None,
        },
        verify: finishes.iter_mut().filter_map(|finish| finish.findings.take()).reduce(
            |mut all, findings| {
                all.merge(findings);
                all
            },
        ),
        errors: Faults::merge(finishes.into_iter().map(|finish| finish.faults).collect()),
        inside: None,
        flush_ns: None,
        page_cache: None,
        jobs: Vec::new(),
    })
}

/// When what is measured began. A little work that ends by itself may take less time than waking up the workers that do it: that is
/// no part of it.
fn began(window: Window, job: &Job, finishes: &[Finish]) -> u64 {
    let ended_by_itself = window.end < window.begin + job.workload.window().0;
    let first = finishes.iter().filter_map(|finish| finish.began_at).min();
    let first = first.filter(|_| ended_by_itself && job.workload.ramp_time.0 == 0);
    first.map_or(window.begin, |first| first.clamp(window.begin, window.end.saturating_sub(1)))
}

/// What the workers' backends remarked, each remark once, with the I/Os that it is about over all workers.
fn notes(finishes: &[Finish]) -> Vec<String> {
    let mut notes: BTreeMap<&str, Option<u64>> = BTreeMap::new();
    for Note { ios, words } in finishes.iter().filter_map(|finish| finish.note.as_ref()) {
        let sum = notes.entry(words).or_default();
        *sum = ios.map(|ios| ios + sum.unwrap_or(0));
    }
    notes
        .into_iter()
        .map(|(words, ios)| ios.map_or_else(|| words.to_owned(), |ios| format!("{ios} I/Os {words}")))
        .collect()
}

/// The workers of one measurement, each a thread of its own. Threads are not joined: one that is stuck in the kernel would
/// take this one with it. Each says that it has finished, and what it leaves behind is its own.
struct Crew {
    common: Arc<Common>,
    pulses: Vec<Arc<Pulse>>,
    reports: Receiver<Report>,
    starts: Vec<Sender<Window>>,
    spares: Vec<Sender<Latencies>>,
    /// Workers that have not finished.
    at_work: usize,
}

impl Crew {
    /// Starts the workers and waits until all are set up.
    fn muster(
        job: &Job,
        target: &Target,
        ioengine: IoEngine,
        proof: Option<&Arc<Proof>>,
    ) -> Result<Self, EngineError> {
        raise_file_limit(job.workload.numjobs);
        let (sender, reports) = mpsc::channel();
        let mut crew = Self {
            common: Arc::new(Common::new(job.workload.max_errors)),
            pulses: Vec::new(),
            reports,
            starts: Vec::new(),
            spares: Vec::new(),
            at_work: 0,
        };
        let mut mustered = Ok(());
        for number in 0..job.workload.numjobs {
            mustered = crew.enlist(job, target, ioengine, proof, number, sender.clone());
            if mustered.is_err() {
                break;
            }
        }
        drop(sender);
        let mut ready = 0;
        while mustered.is_ok() && ready < crew.starts.len() {
            match crew.next_report(Duration::MAX) {
                Some(Report::Finished(result)) => mustered = result.map(drop),
                Some(_) => ready += 1,
                None => {}
            }
        }
        if let Err(error) = mustered {
            crew.dismiss(Duration::from_nanos(DRAIN.0));
            return Err(error);
        }
        Ok(crew)
    }

    fn enlist(
        &mut self,
        job: &Job,
        target: &Target,
        ioengine: IoEngine,
        proof: Option<&Arc<Proof>>,
        number: u32,
        reports: Sender<Report>,
    ) -> Result<(), EngineError> {
        let workload = &job.workload;
        let trouble = |doing: &str| {
            let doing = format!("{doing} for worker {number}");
            move |error| EngineError::System { doing, error }
        };
        let (start, started) = mpsc::channel();
        let (spare, spares) = mpsc::channel();
        // One in the worker's hands and one on the way suffice while the collector keeps up.
        let _ = spare.send(Latencies::new(workload));
        let pulse = Pulse::new();
        let task = Task {
            number,
            workload: workload.clone(),
            setup: Setup {
                file: target.reopen().map_err(trouble("opening the target"))?,
                depth: workload.iodepth,
                slot_bytes: usize::try_from(workload.max_bs().0).unwrap_or(usize::MAX),
                options: Options::new(workload),
            },
            pattern: Pattern::new(workload, job.size, number, job.seed),
            seed: job.seed,
            proof: proof.cloned(),
            common: Arc::clone(&self.common),
            pulse: Arc::clone(&pulse),
            start: started,
            spare: spares,
            reports: reports.clone(),
        };
        std::thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || {
                let result = catch_unwind(AssertUnwindSafe(|| backend::run(ioengine, task)))
                    .unwrap_or(Err(EngineError::Panicked(number)));
                // The watcher may have given up on this worker.
                let _ = reports.send(Report::Finished(result));
            })
            .map_err(trouble("starting a thread"))?;
        self.pulses.push(pulse);
        self.starts.push(start);
        self.spares.push(spare);
        self.at_work += 1;
        Ok(())
    }

    /// Whether a flush will return: nobody waits for I/O any more, and none failed.
    fn is_unharmed(&self, outcome: &Outcome) -> bool {
        self.at_work == 0 && outcome.errors.is_empty() && outcome.stop.is_none()
    }

    fn start(&self, window: Window) {
        for start in &self.starts {
            // A worker that is gone has said why.
            let _ = start.send(window);
        }
    }

    /// The next report, if one comes within `wait`.
    fn next_report(&mut self, wait: Duration) -> Option<Report> {
        let report = match self.reports.recv_timeout(wait) {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => return None,
            // All have finished: only time is left to pass.
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(wait);
                return None;
            }
        };
        if matches!(report, Report::Finished(_)) {
            self.at_work -= 1;
        }
        Some(report)
    }

    /// When the call began that a worker has been in for longest.
    fn waiting_since(&self) -> Option<u64> {
        self.pulses.iter().filter_map(|pulse| pulse.since()).min()
    }

    /// Returns a worker's histograms to it, emptied.
    fn give_back(&self, worker: u32, mut latencies: Latencies) {
        latencies.clear();
        // It may have finished.
        let _ = self.spares[worker as usize].send(latencies);
    }

    /// Has all workers stop at the end of their interval, and waits for them, though not for ever.
    fn dismiss(mut self, patience: Duration) {
        self.common.stop();
        self.starts.clear();
        self.spares.clear();
        let give_up = clock::now().saturating_add(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX));
        while self.at_work > 0 {
            let left = give_up.saturating_sub(clock::now());
            if left == 0 {
                return;
            }
            self.next_report(Duration::from_nanos(left));
        }
    }
}

/// Lets the process have the files that the workers need, as far as it may: the usual limit of 1024 is meant for programs
/// that use select(2). If that is not enough, opening fails and says so.
fn raise_file_limit(workers: u32) {
    // A target and a ring for each, and something for everyone else; and other jobs may be there already.
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
    let needed = open + u64::from(workers) * 2 + 64;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::Access;
    use iotax_model::units::Bytes;
    use iotax_model::workload::{IoEngine, Rw, SyncMode, WorkloadKeys};
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
        let (size, interval) = (Bytes(1 << 20), Nanos::from_millis(100));
        Job {
            path: None,
            workload,
            size,
            seed: 1,
            interval,
            writable: true,
            shared: false,
            identity: None,
            directory: None,
        }
    }

    fn target(file: File, write: bool) -> Target {
        Target {
            file,
            access: Access { write, direct: false, sync: SyncMode::None, shared: false, identity: None },
            is_device: false,
            length: 1 << 20,
        }
    }

    fn io_uring_is_missing() -> bool {
        let note = backend::choose(&job(IoEngine::IoUring, Rw::Read).workload).expect("a backend").note;
        note.is_some_and(|note| {
            eprintln!("skipped: {note}");
            true
        })
    }

    #[test]
    fn if_every_io_fails_the_outcome_comes_with_the_errors_and_at_an_easy_pace() {
        for ioengine in [IoEngine::IoUring, IoEngine::Psync, IoEngine::Pvsync2] {
            let full =
                File::options().read(true).write(true).open("/dev/full").expect("a device that is full");
            let mut samples = 0;
            let outcome = run(&job(ioengine, Rw::Write), &target(full, true), &mut |event| {
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
            // 64 at once, then at most one each millisecond of 200.
            assert!((1..=64 + 201).contains(&error.count), "{}", error.count);
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
    fn a_worker_whose_io_never_returns_is_left_behind() {
        if io_uring_is_missing() {
            return;
        }
        let (reader, writer) = std::io::pipe().expect("pipe");
        let reader = File::from(std::os::fd::OwnedFd::from(reader));
        let mut samples = 0;
        let outcome = run(&job(IoEngine::IoUring, Rw::Read), &target(reader, false), &mut |event| {
            samples += usize::from(matches!(event, Event::Sample(_)));
        });
        let outcome = outcome.expect("an outcome");
        assert_eq!((outcome.tallies.ios(), samples), (0, 2));
        let [note] = outcome.notes.as_slice() else { panic!("{:?}", outcome.notes) };
        assert!(note.starts_with("1 worker(s) still waited 300ms after the end"), "{note}");
        // Now it may go.
        drop(writer);
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
        // More than a ring can have; Workload::check, which comes before, would refuse it.
        job.workload.iodepth = 1 << 20;
        job.workload.bs = Bytes(512);
        job.workload.numjobs = 3;
        let file = tempfile::tempfile().expect("file");
        let error = run(&job, &target(file, false), &mut |_| {}).expect_err("refused").to_string();
        assert!(error.contains("io_uring"), "{error}");
    }
}
