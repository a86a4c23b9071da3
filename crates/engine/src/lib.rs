//! Makes block and file load in this process: backends, patterns, pacing, payload, workers.
//!
//! It knows nothing of guests, of the store or of other processes: an agent calls it and passes its events on. What any load
//! needs (clock, workers, windows, intervals, paces, counts) is public, for `iotax-netperf`.
//!
//! A measurement goes through these rooms: [`measure`] checks the job and opens the target (`open`); `run` starts a
//! thread for each of numjobs; each (`worker`) draws I/Os from its `pattern`, with content from its `payload`, hands
//! them to the kernel through a `backend`, and counts their service times, without an allocation, a lock or memory that
//! it shares with anyone; at the end of each interval it hands its counts over, and the `collector` makes samples of them.

mod backend;
pub mod buffers;
pub mod clock;
mod collector;
mod concurrent;
mod error;
mod file_ops;
mod identity;
pub mod intervals;
pub mod io_errors;
pub mod latencies;
mod open;
mod overhead;
pub mod pace;
mod page_cache;
mod pattern;
mod payload;
mod prepare;
mod queue;
pub mod random;
pub mod request;
mod run;
mod shared;
#[cfg(test)]
mod simulated;
mod verify;
pub mod watch;
pub mod window;
mod worker;
pub mod workers;

use std::path::Path;

use iotax_model::record::{CacheDrop, Outcome};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::verify_errors::Recovery;
use iotax_model::wire::{Area, Event, Job};
use iotax_model::workload::{Content, Workload};

pub use crate::error::{EngineError, Refusal};

/// The shortest interval between samples.
const SHORTEST_INTERVAL: Nanos = Nanos::from_millis(10);

/// Carries out one measurement on an existing file or device. `events` gets [`Event::Ready`] when everything is set up; the
/// load starts when it returns from that. It gets [`Event::Measuring`] when the warm-up is over and one [`Event::Sample`] per
/// interval, in order and without gaps; they add up to the outcome's totals.
///
/// A test (the workload's `test`) that makes files makes them in the job's directory, and leaves that empty.
///
/// An I/O counts, with its service time, in the interval in which it is seen to be complete; what is in flight when the
/// window ends counts nowhere. I/Os that fail are counted by error and the run goes on, even if all fail.
///
/// # Errors
/// A job that cannot be done on this target, and a system that refuses what it needs. Nothing is created or truncated.
pub fn measure(job: &Job, path: &Path, events: &mut dyn FnMut(Event)) -> Result<Outcome, EngineError> {
    check(job)?;
    check_memory(job)?;
    if let Some(test) = job.workload.test {
        return file_ops::run(job, test, path, events);
    }
    if !job.workload.beside.is_empty() {
        return concurrent::run(job, path, events);
    }
    let target = open::for_job(job, path)?;
    run::run(job, &target, events)
}

/// Refuses what no load can do: a workload that contradicts itself, and samples more often than every 10 ms.
///
/// # Errors
/// The key at fault, and what it accepts.
pub fn check(job: &Job) -> Result<(), EngineError> {
    job.workload.check()?;
    if job.interval < SHORTEST_INTERVAL {
        return Err(EngineError::Interval(job.interval));
    }
    Ok(())
}

/// Buffers that do not fit would have the kernel kill processes of its choice.
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

/// Bytes of memory of this machine.
fn memory() -> u64 {
    let system = rustix::system::sysinfo();
    system.totalram.saturating_mul(system.mem_unit.into())
}

/// Writes the first `size` bytes of an existing file or device once with such content, in duplicates of 1 MiB where it asks
/// for any, and flushes. The seed decides the data. A file that is shorter grows. `progress` gets the bytes written so
/// far, a few times a second and at the end.
///
/// # Errors
/// A target that cannot be opened for writing or is too small, and the first write that fails, with its offset.
pub fn fill(
    path: &Path,
    area: &Area,
    content: &Content,
    seed: u64,
    progress: &mut dyn FnMut(Bytes),
) -> Result<(), EngineError> {
    prepare::fill(path, area, content, seed, progress)
}

/// Compares what a target holds with the journal of the writes that it acknowledged (the workload's `write_journal`). Only
/// reads. A block may hold a later write than the last one on record, or a part of it: that was in flight when the
/// machine stopped.
///
/// # Errors
/// A file that is no journal, and a target that cannot be opened. What cannot be read of the target is a finding.
pub fn audit(path: &Path, journal: &Path) -> Result<Recovery, EngineError> {
    verify::audit(path, journal)
}

/// Syncs and drops the page cache as far as privileges allow: all of it, else the file's pages, else nothing.
pub fn drop_caches(path: &Path) -> CacheDrop {
    page_cache::drop_caches(path)
}

/// CPU nanoseconds that the engine spends per I/O on the null backend: the floor beneath every latency. Measured for some
/// 50 ms at queue depth 1, where no batch shares the cost of a time stamp, with all accounting on.
///
/// # Panics
/// If the system has not even a page of memory left.
pub fn floor() -> u64 {
    overhead::floor()
}
