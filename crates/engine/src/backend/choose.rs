//! Picks the backend for a workload from those that this machine supports.

use std::io;

use iotax_load::error::EngineError;
use iotax_model::workload::{IoEngine, Workload};

use super::Options;
use super::io_uring::Ring;
use super::libaio::Context;

/// The backend to use, and a note if it is not the requested one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The engine to use; never `auto`.
    pub(crate) ioengine: IoEngine,
    pub(crate) note: Option<String>,
}

/// Chooses the engine. For `auto` and `io_uring` that is io_uring. If io_uring is not available, chooses the substitute whose I/O looks the
/// same to the device: libaio, or at queue depth 1 psync, which costs less. Fails if io_uring is not available and the workload needs it
/// (hipri, sqthread_poll), if setting it up fails for another reason, or if libaio is needed and not available either. Any other engine is
/// used as requested.
///
/// A virtio device always gets its own engine, unless the workload requests `null`; a note says so if another was requested.
pub(crate) fn choose(workload: &Workload, is_virtio: bool) -> Result<Choice, EngineError> {
    if is_virtio && workload.ioengine != IoEngine::Null {
        let ioengine = IoEngine::Libblkio;
        let note = match workload.ioengine {
            IoEngine::Auto | IoEngine::Libblkio => None,
            other => Some(format!("{other} is for files; {ioengine} drove the virtio device")),
        };
        return Ok(Choice { ioengine, note });
    }
    if !matches!(workload.ioengine, IoEngine::Auto | IoEngine::IoUring) {
        return Ok(Choice { ioengine: workload.ioengine, note: None });
    }
    let plain = Options::default();
    let Err(error) = Ring::new(1, &plain) else {
        return Ok(Choice { ioengine: IoEngine::IoUring, note: None });
    };
    match error {
        EngineError::NoIoUring { error } if !workload.hipri && !workload.sqthread_poll => {
            instead(workload.iodepth, &error)
        }
        error => Err(error),
    }
}

fn instead(iodepth: u32, missing: &io::Error) -> Result<Choice, EngineError> {
    let ioengine = if iodepth == 1 { IoEngine::Psync } else { IoEngine::Libaio };
    if ioengine == IoEngine::Libaio {
        Context::new(1).map_err(|error| EngineError::NotAsynchronous {
            iodepth,
            io_uring: missing.to_string(),
            libaio: error,
        })?;
    }
    let note = format!(
        "io_uring cannot be used here ({missing}): the kernel lacks it, or the sysctl kernel.io_uring_disabled or a \
         container's seccomp filter forbids it; {ioengine} did the I/O"
    );
    Ok(Choice { ioengine, note: Some(note) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::workload::WorkloadKeys;

    #[test]
    fn what_can_be_had_is_taken_as_it_is_named() {
        for ioengine in [IoEngine::Libaio, IoEngine::Psync, IoEngine::Null] {
            let keys = WorkloadKeys { ioengine: Some(ioengine), ..WorkloadKeys::default() };
            let choice = choose(&keys.complete(&WorkloadKeys::default()), false).expect("a choice");
            assert_eq!(choice, Choice { ioengine, note: None });
        }
    }

    #[test]
    fn in_place_of_io_uring_stands_what_keeps_the_iodepth() {
        let forbidden = io::Error::from_raw_os_error(libc::EPERM);
        for (iodepth, ioengine) in [(1, IoEngine::Psync), (2, IoEngine::Libaio)] {
            let choice = instead(iodepth, &forbidden).expect("a choice");
            let note = choice.note.expect("a note");
            assert_eq!(choice.ioengine, ioengine);
            assert!(note.contains("not permitted") && note.contains(&format!("{ioengine} did")), "{note}");
        }
    }
}
