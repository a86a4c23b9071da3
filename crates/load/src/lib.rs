//! Holds what every load in this process needs, of blocks, files or a network: the clock, the start and the end, workers and their window,
//! intervals, latencies, pacing and buffers.
//!
//! A load spawns its [`workers`], which count their I/Os by interval ([`intervals`], [`latencies`]). [`watch`] merges their reports into
//! samples and the outcome.

pub mod blackouts;
pub mod buffers;
pub mod clock;
mod collector;
pub mod control;
pub mod error;
pub mod intervals;
pub mod io_errors;
pub mod latencies;
pub mod pace;
pub mod punctual;
pub mod random;
pub mod request;
pub mod shared;
mod steady;
pub mod watch;
pub mod window;
pub mod workers;

use iotax_model::units::Nanos;
use iotax_model::wire::Job;

use crate::error::EngineError;

/// The shortest interval between samples that a job may ask for.
const SHORTEST_INTERVAL: Nanos = Nanos::from_millis(10);

/// Refuses a job that cannot run: invalid or contradictory keys, or an interval between samples of less than 10 ms.
///
/// # Errors
/// Names the offending key and the accepted values.
pub fn check(job: &Job) -> Result<(), EngineError> {
    job.workload.check()?;
    if job.interval < SHORTEST_INTERVAL {
        return Err(EngineError::Interval(job.interval));
    }
    Ok(())
}
