//! Generates block and file load in this process: backends, access patterns, pacing, content, workers.
//!
//! The engine is independent of guests, the store and other processes: an agent calls the engine and forwards its events. The parts that
//! a network's load needs too (clock, workers, windows, intervals, pacing, counts) are in `iotax-load`.
//!
//! A measurement passes through these modules: [`measure`] checks the job and opens the target (`open`). `run` starts numjobs threads. Each
//! thread (`worker`) draws I/Os from its `pattern`, with content from its `payload`, submits them through a `backend`, and counts their service
//! times without allocating, locking or sharing memory. At the end of each interval the thread sends its counts, which the `collector` merges
//! into samples.

mod backend;
mod concurrent;
mod file_ops;
mod flow;
mod identity;
mod layout;
mod open;
mod overhead;
mod page_cache;
mod passes;
mod pattern;
mod payload;
mod placement;
mod prepare;
mod queue;
mod replay;
mod run;
#[cfg(test)]
mod simulated;
mod transfer;
mod verify;
mod worker;

use std::path::Path;

use iotax_load::check;
use iotax_model::record::Outcome;
use iotax_model::trace::{Events, OffsetMap};
use iotax_model::units::Bytes;
use iotax_model::wire::{Event, Job};
use iotax_model::workload::{Kind, Workload};

pub use iotax_load::control::Control;
pub use iotax_load::error::{EngineError, OpenRefusal};

pub use crate::overhead::overhead_ns;
pub use crate::page_cache::{drop_caches_of, drop_caches_of_machine};
pub use crate::prepare::fill;
pub use crate::verify::audit;

/// Runs one measurement on an existing file or device. `events` receives [`Event::Ready`] when all workers are ready; the load starts when
/// that call returns. `events` then receives [`Event::Measuring`] when the warm-up is over, one [`Event::Sample`] per interval, in order
/// and without gaps, and [`Event::Over`] after the window. The samples add up to the outcome's totals.
///
/// A test (the workload's `test`) that creates files does so in the job's directory, and empties that directory at the end unless a worker
/// is stuck in the kernel.
///
/// An I/O counts in the interval in which its completion is seen. I/O in flight at the window's end does not count. Failed I/Os are counted
/// by error; without a limit (`max_errors`), the run goes on even if all I/Os fail.
///
/// # Errors
/// The job is invalid or needs too much memory, the target cannot run it, a system call fails, or the load is over within the warm-up. A
/// target that does not exist is not created.
pub fn measure(job: &Job, path: &Path, events: &mut dyn FnMut(Event)) -> Result<Outcome, EngineError> {
    measure_under(&Control::new(), job, path, events)
}

/// Runs a measurement like [`measure`], but starts at the time set in `control`. Plain reads and writes of a single job
/// can also be ended early through `control` once the window has begun; the outcome then covers the time until the end.
///
/// # Errors
/// The errors of [`measure`].
pub fn measure_under(
    control: &Control,
    job: &Job,
    path: &Path,
    events: &mut dyn FnMut(Event),
) -> Result<Outcome, EngineError> {
    if job.workload.read_iolog.is_some() {
        return Err(EngineError::Trace("nobody opened it for this job".into()));
    }
    check(job)?;
    check_memory(job)?;
    match &job.workload.kind {
        Kind::Foreign => return Err(EngineError::Foreign(job.workload.name.clone())),
        Kind::Files(test) => return file_ops::run(job, *test, path, control, events),
        Kind::Block | Kind::Streams(_) | Kind::RoundTrips(_) => {}
    }
    if !job.workload.beside.is_empty() {
        return concurrent::run(job, path, control, events);
    }
    let target = open::for_job(job, path)?;
    run::run(job, &target, control, None, events)
}

/// Replays a trace like [`measure_under`]: at the recorded times, unless the workload sets another pace, and at the offsets of a map. The replay
/// ends when all its I/Os are complete, at the latest at the end of the window.
///
/// # Errors
/// The errors of [`measure`], and a trace that cannot be read to its end.
pub fn replay_under(
    control: &Control,
    job: &Job,
    path: &Path,
    trace: (Events, OffsetMap),
    events: &mut dyn FnMut(Event),
) -> Result<Outcome, EngineError> {
    check(job)?;
    check_memory(job)?;
    let target = open::for_job(job, path)?;
    run::run(job, &target, control, Some(trace), events)
}

/// Refuses a job whose buffers need more than half of this machine's memory: the kernel's OOM killer would end some process.
fn check_memory(job: &Job) -> Result<(), EngineError> {
    // At most 1024 x 4096 x 64 MiB = 2^48 each, by Workload::check.
    let buffers =
        |workload: &Workload| u64::from(workload.numjobs) * u64::from(workload.iodepth) * workload.max_bs().0;
    let asked: u64 = job.workload.jobs().map(buffers).fold(0, u64::saturating_add);
    let memory = memory();
    if asked > memory / 2 {
        return Err(EngineError::Memory { asked: Bytes(asked), memory: Bytes(memory) });
    }
    Ok(())
}

/// Returns this machine's memory in bytes.
fn memory() -> u64 {
    let system = rustix::system::sysinfo();
    system.totalram.saturating_mul(system.mem_unit.into())
}
