//! Makes I/O load in this process: backends, patterns, pacing, payload, workers.
//!
//! The only crate with `unsafe`. It knows nothing of guests, of the store or of other processes: an agent calls it
//! and passes its events on.

use std::path::Path;

use iotax_model::record::{CacheDrop, Outcome};
use iotax_model::units::Bytes;
use iotax_model::wire::{Event, Job};

/// Why no load could be made.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The target could not be used.
    #[error("{path}: {reason}")]
    Target {
        /// The file or device.
        path: String,
        /// What was tried and what the system said.
        reason: String,
    },
}

/// Carries out one measurement on an existing file or device. `events` gets [`Event::Measuring`] when the warm-up is
/// over and one [`Event::Sample`] per interval.
pub fn measure(job: &Job, path: &Path, events: &mut dyn FnMut(Event)) -> Result<Outcome, EngineError> {
    let _ = (job, events);
    Err(EngineError::Target { path: path.display().to_string(), reason: "not built yet".into() })
}

/// Writes the first `size` bytes of an existing file or device once with incompressible data and flushes.
/// `progress` gets the bytes written so far, a few times a second.
pub fn fill(path: &Path, size: Bytes, seed: u64, progress: &mut dyn FnMut(Bytes)) -> Result<(), EngineError> {
    let _ = (size, seed, progress);
    Err(EngineError::Target { path: path.display().to_string(), reason: "not built yet".into() })
}

/// Syncs and drops the page cache as far as privileges allow.
pub fn drop_caches(path: &Path) -> CacheDrop {
    let _ = path;
    CacheDrop::Nothing
}

/// CPU nanoseconds that the engine spends per I/O on the null backend: the floor beneath every latency.
pub fn floor() -> u64 {
    0
}
