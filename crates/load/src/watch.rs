//! Watches the workers of a measurement and turns their reports into samples and the outcome.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iotax_model::record::{CpuTime, ErrorCount, Outcome, Pacing, Replayed, Stop, WindowEdges};
use iotax_model::units::Nanos;
use iotax_model::verify_errors::Findings;
use iotax_model::wire::{Event, Job};

use crate::blackouts;
use crate::clock::{self, ProcessUsage};
use crate::collector::{Collector, GRACE};
use crate::error::EngineError;
use crate::io_errors::IoErrors;
use crate::latencies::Latencies;
use crate::steady::SteadyWatch;
use crate::window::Window;
use crate::workers::{DRAIN, Finish, Note, WorkerReport, Workers};

/// The stop flag for loads that are never ended early.
pub static NEVER: AtomicBool = AtomicBool::new(false);

/// Runs the load of a job on workers that are ready. Setting `end` ends the load once the window has begun, at the next sample at the
/// latest. Fails if a worker failed, or if the load was over before the window began.
pub fn carry_out(
    workers: &mut Workers,
    job: &Job,
    window: Window,
    room: &Latencies,
    end: &AtomicBool,
    events: &mut dyn FnMut(Event),
) -> Result<Outcome, EngineError> {
    let check = clock::Check::begin();
    workers.start(window);
    let mut outcome = watch(workers, job, window, room, end, events)?;
    outcome.notes.extend(check.end());
    Ok(outcome)
}

/// The process's CPU usage at the window's start and end.
#[derive(Debug, Default)]
struct CpuMarks {
    begin: Option<ProcessUsage>,
    end: Option<ProcessUsage>,
}

impl CpuMarks {
    /// Reads the CPU usage if the window has begun or ended by `now`. Returns true at the first call after the window's start.
    fn take(&mut self, now: u64, window: Window) -> bool {
        let begins = now >= window.begin && self.begin.is_none();
        if begins {
            self.begin = Some(ProcessUsage::now());
        }
        if now >= window.end && self.end.is_none() {
            self.end = Some(ProcessUsage::now());
        }
        begins
    }

    fn used(&self) -> ProcessUsage {
        self.end.unwrap_or_default().since(&self.begin.unwrap_or_default())
    }
}

/// Receives the workers' reports and forwards samples, until all workers are done or abandoned as stuck.
fn watch(
    workers: &mut Workers,
    job: &Job,
    mut window: Window,
    room: &Latencies,
    end: &AtomicBool,
    events: &mut dyn FnMut(Event),
) -> Result<Outcome, EngineError> {
    // pgbench writes its log when a buffer is full, however late that is.
    let patience = if job.workload.is_pgbench() { Nanos(u64::MAX) } else { GRACE };
    let mut collector = Collector::new(window, room.empty_alike(), workers.count(), patience);
    let mut cpu = CpuMarks::default();
    let mut give_up = window.end + DRAIN.0;
    let mut finishes: Vec<Finish> = Vec::with_capacity(job.workload.numjobs as usize);
    let (mut stalled, mut steady) = (false, SteadyWatch::new(&job.workload));
    loop {
        let now = clock::now();
        let gone = workers.at_work == 0;
        // Workers end before the window because there was no more to do, or because they were stopped.
        if gone && now < window.end {
            window = window.cut(finishes.iter().filter_map(|finish| finish.ended_at).max().unwrap_or(now));
            collector.cut(window.end);
            if window.end <= window.begin {
                let errors = IoErrors::merge(finishes.into_iter().map(|finish| finish.io_errors).collect());
                return Err(EngineError::NothingMeasured { ramp_time: job.workload.ramp_time, errors });
            }
            collector.begin(began(window, job, &finishes));
        }
        if cpu.take(now, window) {
            events(Event::Measuring);
        }
        let all_done = gone || now >= give_up;
        let mut is_steady = false;
        while let Some(sample) = collector.next_sample(now, all_done, workers.waiting_since()) {
            stalled |= job.workload.stall_timeout.is_some_and(|most| sample.oldest_ns >= Some(most.0));
            is_steady |= steady.as_mut().is_some_and(|steady| steady.add(&sample));
            events(Event::Sample(Box::new(sample)));
        }
        if all_done {
            break;
        }
        let is_to_end = (is_steady || end.load(Ordering::Relaxed)) && now > window.begin && now < window.end;
        if (stalled || is_to_end) && !workers.common.is_stopped() {
            // Workers that are not stuck hand over their counts.
            workers.common.stop();
            window = window.cut(now);
            collector.cut(now);
            // A sleeping worker checks the stop flag at the end of its interval.
            give_up = now + if stalled { job.interval.0 + GRACE.0 } else { DRAIN.0 };
        }
        let marks = [window.begin, window.end, collector.deadline(), give_up];
        let wait = marks.into_iter().filter(|mark| *mark > now).min().unwrap_or(now) - now;
        match workers.next_report(Duration::from_nanos(wait)) {
            Some(WorkerReport::Interval(interval)) => {
                collector.add(&interval);
                workers.give_back(interval.worker, interval.latencies);
            }
            Some(WorkerReport::Finished(result)) => finishes.push(result?),
            Some(WorkerReport::Ready) | None => {}
        }
    }
    let (tallies, stuck) = collector.finish();
    let left_behind = (workers.at_work > 0).then(|| {
        format!(
            "{} worker(s) still waited {} after the end for I/O that was in flight then; it is not counted",
            workers.at_work,
            Nanos(give_up - window.end)
        )
    });
    let ProcessUsage { cpu, counts } = cpu.used();
    let cpu = finishes.iter().map(|finish| finish.programs_cpu).fold(cpu, CpuTime::plus);
    let stop = match (stalled, workers.common.has_failed()) {
        (true, _) => Some(Stop::Stalled),
        (false, true) => Some(Stop::Errors),
        // A load that records gaps shows this as a gap.
        (false, false) if workers.at_work > 0 && job.workload.blackout.is_none() => Some(Stop::Unanswered),
        (false, false) => None,
    };
    let first = finishes.iter().filter_map(|finish| finish.began_at).min();
    let first_io_ns = first.map(|first| first.saturating_sub(window.start));
    let duration_ns = window.end - began(window, job, &finishes);
    // If a worker did not return, the time of its last completion is unknown.
    let all_known = workers.at_work == 0;
    let least = job.workload.blackout.filter(|_| all_known);
    let blackouts = least.and_then(|least| {
        let [Finish { blackouts: Some(spans), .. }] = finishes.as_slice() else { return None };
        Some(blackouts::within(spans, least, window))
    });
    let edges = edges(window, &finishes).filter(|_| all_known);
    let WorkerTotals { ramp_ios, pacing, replayed, verify, errors, mut notes } = WorkerTotals::of(finishes);
    notes.extend(stuck.into_iter().chain(left_behind));
    Ok(Outcome {
        duration_ns,
        tallies,
        edges,
        ramp_ios,
        cpu,
        counts: Some(counts),
        errors,
        notes,
        pacing,
        replayed,
        stop,
        steadystate: steady.map(|steady| steady.result()),
        blackouts,
        verify,
        first_io_ns,
        // Known to the caller.
        ioengine: None,
        devices: Vec::new(),
        inside: None,
        flush_ns: None,
        page_cache: None,
        carried: None,
        jobs: Vec::new(),
    })
}

/// Returns the time from the last completion of the warm-up to the start of the window, and from the last completion of the window to its end.
/// `None` if no I/O completed in the warm-up, or none in the window.
fn edges(window: Window, finishes: &[Finish]) -> Option<WindowEdges> {
    let before = finishes.iter().filter_map(|finish| finish.ramp_completed_at).max()?;
    let last = finishes.iter().filter_map(|finish| finish.completed_at).max()?;
    let is_within = before < window.begin && (window.begin..window.end).contains(&last);
    is_within.then(|| WindowEdges { before_ns: window.begin - before, after_ns: window.end - last })
}

/// The results of all workers together, except for their counts of I/Os and the times of their loads.
struct WorkerTotals {
    ramp_ios: u64,
    pacing: Option<Pacing>,
    replayed: Option<Replayed>,
    verify: Option<Findings>,
    errors: Vec<ErrorCount>,
    notes: Vec<String>,
}

impl WorkerTotals {
    fn of(finishes: Vec<Finish>) -> Self {
        let mut notes = notes(&finishes);
        notes.extend(finishes.iter().filter_map(|finish| of_replay(finish.replayed.as_ref()?)));
        let (mut ramp_ios, mut pacing, mut replayed, mut verify) = (0, None, None, None::<Findings>);
        let mut errors = Vec::with_capacity(finishes.len());
        for finish in finishes {
            let Finish {
                // The caller reads the times, the programs' CPU time and the gaps.
                began_at: _,
                ended_at: _,
                ramp_ios: in_ramp,
                ramp_completed_at: _,
                completed_at: _,
                pacing: paced,
                replayed: replay,
                programs_cpu: _,
                io_errors,
                blackouts: _,
                verify_errors,
                note: _,
            } = finish;
            ramp_ios += in_ramp;
            pacing = pacing.into_iter().chain(paced).reduce(Pacing::merge);
            replayed = replayed.into_iter().chain(replay).reduce(Replayed::merge);
            if let Some(findings) = verify_errors {
                verify.get_or_insert_default().merge(findings);
            }
            errors.push(io_errors);
        }
        Self { ramp_ios, pacing, replayed, verify, errors: IoErrors::merge(errors), notes }
    }
}

/// Returns the start of the measured time in nanoseconds of the engine's clock: the start of the window. For a load that ended early
/// without a warm-up it is the start of the first I/O, because starting the workers may take longer than a small amount of work.
fn began(window: Window, job: &Job, finishes: &[Finish]) -> u64 {
    // A job that begins after others, in a common window, reports its delay separately.
    let ended_by_itself = window.start <= window.begin && window.end < window.begin + job.workload.window().0;
    let first = finishes.iter().filter_map(|finish| finish.began_at).min();
    let first = first.filter(|_| ended_by_itself && job.workload.ramp_time.0 == 0);
    first.map_or(window.begin, |first| first.clamp(window.begin, window.end.saturating_sub(1)))
}

/// Describes how many I/Os were replayed differently than recorded; `None` if all were replayed as recorded.
fn of_replay(replayed: &Replayed) -> Option<String> {
    let changed = [
        (replayed.wrapped, "were moved into the target, which ends before their place"),
        (replayed.aligned, "were rounded to what direct I/O takes"),
        (replayed.left_out, "were left out, because the target cannot do them"),
    ];
    let changes: Vec<String> = changed
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!changes.is_empty()).then(|| format!("of {} I/Os of the trace {}", replayed.due, changes.join(", ")))
}

/// Returns the distinct notes of the workers' backends, with the number of I/Os concerned summed over the workers.
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

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::units::Bytes;
    use iotax_model::workload::WorkloadKeys;
    use std::sync::mpsc;

    #[test]
    fn edges_are_the_last_completions_of_all_workers_before_the_window_and_in_it() {
        let window = Window { start: 900, begin: 1000, end: 2000, interval: 100 };
        let worker =
            |ramp_completed_at, completed_at| Finish { ramp_completed_at, completed_at, ..Finish::default() };
        let both = [worker(Some(950), Some(1800)), worker(Some(990), Some(1700))];
        assert_eq!(edges(window, &both), Some(WindowEdges { before_ns: 10, after_ns: 200 }));
        assert_eq!(edges(window, &[worker(None, Some(1800))]), None, "no warm-up");
        assert_eq!(edges(window, &[worker(Some(990), Some(990))]), None, "nothing in the window");
        assert_eq!(edges(window.cut(1500), &both), None, "stopped before the last one");
    }

    #[test]
    fn a_worker_whose_io_never_returns_is_left_behind() {
        let keys = WorkloadKeys {
            runtime: Some(Nanos::from_millis(200)),
            ramp_time: Some(Nanos(0)),
            ..WorkloadKeys::default()
        };
        let workload = keys.complete(&WorkloadKeys::default());
        let job = Job::new(workload, Bytes(1 << 20), 1, Nanos::from_millis(100));
        let room = Latencies::new(&job.workload);
        let (release, io) = mpsc::channel::<()>();
        let mut io = Some(io);
        let spawned = Workers::spawn(1, None, &room, |_| {
            let io = io.take().expect("one worker");
            Ok(Box::new(move |context| {
                let _ = context.reports.send(WorkerReport::Ready);
                let _ = context.start.recv();
                let _ = io.recv();
                Ok(Finish::default())
            }))
        });
        let mut workers = spawned.expect("a thread");
        let mut samples = 0;
        let window = Window::new(&job, clock::now());
        let outcome = carry_out(&mut workers, &job, window, &room, &NEVER, &mut |event| {
            samples += usize::from(matches!(event, Event::Sample(_)));
        });
        let outcome = outcome.expect("an outcome");
        assert_eq!((outcome.tallies.ios(), samples), (0, 2));
        let [note] = outcome.notes.as_slice() else { panic!("{:?}", outcome.notes) };
        assert!(note.starts_with("1 worker(s) still waited 300ms after the end"), "{note}");
        assert_eq!(outcome.stop, Some(Stop::Unanswered));
        drop(release);
    }
}
