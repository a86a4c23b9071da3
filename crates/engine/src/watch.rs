//! Watches workers: makes samples of what they report, and the outcome.

use std::collections::BTreeMap;
use std::time::Duration;

use iotax_model::record::{CpuTime, Outcome, Pacing, ProcessCounts, Stop};
use iotax_model::units::Nanos;
use iotax_model::wire::{Event, Job};

use crate::backend::Note;
use crate::clock;
use crate::collector::{Collector, GRACE};
use crate::error::EngineError;
use crate::io_errors::IoErrors;
use crate::latencies::Latencies;
use crate::window::Window;
use crate::workers::{DRAIN, Finish, Report, Workers};

/// Has workers that are set up make the load of a job.
pub fn carry_out(
    workers: &mut Workers,
    job: &Job,
    window: Window,
    room: &Latencies,
    events: &mut dyn FnMut(Event),
) -> Result<Outcome, EngineError> {
    let check = clock::Check::begin();
    workers.start(window);
    let mut outcome = watch(workers, job, window, room, events)?;
    outcome.notes.extend(check.end());
    Ok(outcome)
}

/// CPU time of the process, and what the kernel had counted of it, when the window began and when it ended.
#[derive(Debug, Default)]
struct CpuMarks {
    begin: Option<(CpuTime, ProcessCounts)>,
    end: Option<(CpuTime, ProcessCounts)>,
}

impl CpuMarks {
    /// Takes what is due. Whether the window has just begun.
    fn take(&mut self, now: u64, window: Window) -> bool {
        let begins = now >= window.begin && self.begin.is_none();
        if begins {
            self.begin = Some(clock::process());
        }
        if now >= window.end && self.end.is_none() {
            self.end = Some(clock::process());
        }
        begins
    }

    fn used(&self) -> (CpuTime, ProcessCounts) {
        let ((cpu, counts), (cpu_then, counts_then)) =
            (self.end.unwrap_or_default(), self.begin.unwrap_or_default());
        let cpu = CpuTime {
            user_ns: cpu.user_ns.saturating_sub(cpu_then.user_ns),
            system_ns: cpu.system_ns.saturating_sub(cpu_then.system_ns),
        };
        let counts = ProcessCounts {
            context_switches: counts.context_switches.saturating_sub(counts_then.context_switches),
            major_faults: counts.major_faults.saturating_sub(counts_then.major_faults),
            minor_faults: counts.minor_faults.saturating_sub(counts_then.minor_faults),
        };
        (cpu, counts)
    }
}

/// Follows the workers until all are done, or beyond hope.
fn watch(
    workers: &mut Workers,
    job: &Job,
    mut window: Window,
    room: &Latencies,
    events: &mut dyn FnMut(Event),
) -> Result<Outcome, EngineError> {
    let mut collector = Collector::new(window, room.empty_alike(), job.workload.numjobs);
    let mut cpu = CpuMarks::default();
    let mut give_up = window.end + DRAIN.0;
    let mut finishes: Vec<Finish> = Vec::with_capacity(job.workload.numjobs as usize);
    let mut stalled = false;
    loop {
        let now = clock::now();
        let gone = workers.at_work == 0;
        // Before the window is over they are gone because there was no more to do, or because they were stopped.
        if gone && now < window.end {
            window = window.cut(finishes.iter().filter_map(|finish| finish.ended_at).max().unwrap_or(now));
            collector.cut(window.end);
            if window.end <= window.begin {
                let errors = IoErrors::merge(finishes.into_iter().map(|finish| finish.io_errors).collect());
                return Err(EngineError::NothingMeasured { ramp_time: job.workload.ramp_time, errors });
            }
        }
        if cpu.take(now, window) {
            events(Event::Measuring);
        }
        let all_done = gone || now >= give_up;
        while let Some(sample) = collector.next_sample(now, all_done, workers.waiting_since()) {
            stalled |= job.workload.stall_timeout.is_some_and(|most| sample.oldest_ns >= Some(most.0));
            events(Event::Sample(Box::new(sample)));
        }
        if all_done {
            break;
        }
        if stalled && !workers.common.is_stopped() {
            // Those that are not stuck themselves hand over what they have.
            workers.common.stop();
            window = window.cut(now);
            collector.cut(now);
            // One that sleeps looks up at the end of its interval.
            give_up = now + job.interval.0 + GRACE.0;
        }
        let marks = [window.begin, window.end, collector.deadline(), give_up];
        let wait = marks.into_iter().filter(|mark| *mark > now).min().unwrap_or(now) - now;
        match workers.next_report(Duration::from_nanos(wait)) {
            Some(Report::Interval(interval)) => {
                collector.add(&interval);
                workers.give_back(interval.worker, interval.latencies);
            }
            Some(Report::Finished(result)) => finishes.push(result?),
            Some(Report::Ready) | None => {}
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
    let (cpu, counts) = cpu.used();
    Ok(Outcome {
        duration_ns: window.end - began(window, job, &finishes),
        tallies,
        ramp_ios: finishes.iter().map(|finish| finish.ramp_ios).sum(),
        cpu,
        counts: Some(counts),
        notes: notes(&finishes).into_iter().chain(stuck).chain(left_behind).collect(),
        ioengine: None,
        pacing: finishes.iter().filter_map(|finish| finish.pacing).reduce(Pacing::merge),
        stop: match (stalled, workers.common.has_failed()) {
            (true, _) => Some(Stop::Stalled),
            (false, true) => Some(Stop::Errors),
            (false, false) => None,
        },
        verify: finishes.iter_mut().filter_map(|finish| finish.verify_errors.take()).reduce(
            |mut all, errors| {
                all.merge(errors);
                all
            },
        ),
        errors: IoErrors::merge(finishes.into_iter().map(|finish| finish.io_errors).collect()),
        inside: None,
        flush_ns: None,
        page_cache: None,
        carried: None,
        jobs: Vec::new(),
    })
}

/// When what is measured began. A little work that ends by itself may take less time than waking up the workers that do it: that is
/// no part of it.
fn began(window: Window, job: &Job, finishes: &[Finish]) -> u64 {
    // One that begins later than others, in a window of all, has its delay told apart.
    let ended_by_itself = window.start <= window.begin && window.end < window.begin + job.workload.window().0;
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
