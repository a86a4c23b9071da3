//! Several jobs at the same time on one target.
//!
//! Each job has its own workers and collector, as if it ran alone. All jobs share one window start; a job with a start
//! delay or an early end is idle for the rest of the window. This module merges the jobs' intervals and outcomes.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use iotax_load::control::Control;
use iotax_load::error::EngineError;
use iotax_load::shared::Common;
use iotax_load::watch::NEVER;
use iotax_load::window::Window;
use iotax_model::record::{LoadRelation, Outcome, Sample, Share};
use iotax_model::threads;
use iotax_model::wire::{Event, Job};
use iotax_model::workload::Workload;

use crate::open::{self, Target};
use crate::run::Prepared;

/// Measures a workload with concurrent jobs, as [`crate::measure`] does.
pub(crate) fn run(
    job: &Job,
    path: &Path,
    control: &Control,
    events: &mut dyn FnMut(Event),
) -> Result<Outcome, EngineError> {
    let parts = split(job);
    let targets = open_all(&parts, path)?;
    let mut prepared: Vec<Prepared<'_>> = Vec::with_capacity(parts.len());
    let flow = Arc::default();
    for (part, target) in parts.iter().zip(&targets) {
        match Prepared::new(part, target, &flow, None) {
            Ok(ready) => prepared.push(ready),
            Err(error) => {
                prepared.into_iter().for_each(Prepared::shutdown);
                return Err(error);
            }
        }
    }
    events(Event::Ready);
    let start = control.start();
    let windows: Vec<Window> =
        parts.iter().map(|part| Window::among(part, start, job.workload.ramp_time)).collect();
    let results = perform(&mut prepared, &windows, events);
    let mut outcomes = match results.into_iter().collect::<Result<Vec<Outcome>, EngineError>>() {
        Ok(outcomes) => outcomes,
        Err(error) => {
            prepared.into_iter().for_each(Prepared::shutdown);
            return Err(error);
        }
    };
    events(Event::Over);
    // Only after all jobs have ended, because a flush would disturb the others.
    prepared.into_iter().zip(&mut outcomes).for_each(|(part, outcome)| part.conclude(outcome));
    Ok(put_together(&job.workload, &windows, outcomes))
}

/// Splits a job into its concurrent jobs. Each gets a different seed, so that equal jobs draw different offsets.
fn split(job: &Job) -> Vec<Job> {
    (0_u64..)
        .zip(job.workload.jobs())
        .map(|(number, workload)| Job {
            workload: Workload { beside: Vec::new(), ..workload.clone() },
            size: workload.size.unwrap_or(job.size),
            seed: job.seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            ..job.clone()
        })
        .collect()
}

/// Opens the target once for each job. The first job that writes claims a device exclusively, unless it is shared anyway; the later ones do
/// not.
fn open_all(parts: &[Job], path: &Path) -> Result<Vec<Target>, EngineError> {
    let mut claimed = false;
    let mut targets = Vec::with_capacity(parts.len());
    for part in parts {
        let shared = part.shared || claimed;
        claimed |= part.workload.rw.modifies();
        targets.push(open::for_job(&Job { shared, ..part.clone() }, path)?);
    }
    Ok(targets)
}

/// A job's number and its event; the event is `None` when the job has ended.
type JobEvent = (usize, Option<Event>);

/// Starts all jobs and forwards their merged intervals. Returns the outcome of each job.
fn perform(
    prepared: &mut [Prepared<'_>],
    windows: &[Window],
    events: &mut dyn FnMut(Event),
) -> Vec<Result<Outcome, EngineError>> {
    let (sender, receiver) = mpsc::channel();
    let all: Vec<Arc<Common>> = prepared.iter().map(Prepared::common).collect();
    thread::scope(|scope| {
        let running: Vec<_> = (0..)
            .zip(prepared.iter_mut().zip(windows))
            .map(|(number, (part, window))| {
                let (sender, all) = (sender.clone(), all.as_slice());
                let ended = sender.clone();
                let work = move || {
                    let outcome = go(number, part, *window, &sender);
                    if part.ends_all() {
                        all.iter().for_each(|common| common.stop());
                    }
                    outcome
                };
                threads::spawn_scoped(scope, "job", work).inspect_err(|_| {
                    // The other jobs' results are useless without this one's.
                    all.iter().for_each(|common| common.stop());
                    let _ = ended.send((number, None));
                })
            })
            .collect();
        drop(sender);
        listen(running.len(), &receiver, events);
        running
            .into_iter()
            .map(|thread| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(error) => Err(EngineError::System { doing: "one of several jobs".into(), error }),
            })
            .collect()
    })
}

fn go(
    number: usize,
    part: &mut Prepared<'_>,
    window: Window,
    sender: &Sender<JobEvent>,
) -> Result<Outcome, EngineError> {
    // The receiver lives until all senders are gone.
    let outcome = part.go(window, &NEVER, &mut |event| drop(sender.send((number, Some(event)))));
    let _ = sender.send((number, None));
    outcome
}

/// Forwards an interval, merged over all jobs, once each job has reported it or has ended.
fn listen(jobs: usize, receiver: &Receiver<JobEvent>, events: &mut dyn FnMut(Event)) {
    let mut waiting: Vec<VecDeque<Sample>> = vec![VecDeque::new(); jobs];
    let mut ended = vec![false; jobs];
    let mut measuring = false;
    for (number, event) in receiver {
        match event {
            Some(Event::Measuring) if !measuring => {
                measuring = true;
                events(Event::Measuring);
            }
            Some(Event::Sample(sample)) => waiting[number].push_back(*sample),
            Some(_) => {}
            None => ended[number] = true,
        }
        let has_spoken = |(samples, ended): (&VecDeque<Sample>, &bool)| *ended || !samples.is_empty();
        while waiting.iter().any(|samples| !samples.is_empty()) && waiting.iter().zip(&ended).all(has_spoken)
        {
            pass_on(&mut waiting, events);
        }
    }
}

fn pass_on(waiting: &mut [VecDeque<Sample>], events: &mut dyn FnMut(Event)) {
    let all = waiting.iter_mut().filter_map(VecDeque::pop_front).reduce(|mut all, sample| {
        all.merge(sample);
        all
    });
    if let Some(sample) = all {
        events(Event::Sample(Box::new(sample)));
    }
}

/// Combines the outcomes of all jobs into one, which also lists each job's own figures.
fn put_together(workload: &Workload, windows: &[Window], outcomes: Vec<Outcome>) -> Outcome {
    let parts = workload.jobs().zip(windows).zip(outcomes).map(|((job, window), outcome)| {
        let idle = window.start.saturating_sub(window.begin);
        let share = Share {
            name: job.own_name().to_owned(),
            duration_ns: outcome.duration_ns.saturating_sub(idle),
            tallies: outcome.tallies.clone(),
        };
        (share.name.clone(), Outcome { jobs: vec![share], ..outcome })
    });
    Outcome::merge(parts, LoadRelation::SharedProcess)
}
