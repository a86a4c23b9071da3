//! I/O on a target that is not measured, through the fastest available backend.

use std::io;

use iotax_load::buffers::Slot;
use iotax_load::error::EngineError;

use crate::backend::{Backend, Options, Psync, Setup, Uring, Virtio};
use crate::open::Target;

/// A task of unmeasured I/O, such as a fill, that runs on any backend.
pub(crate) trait Transfer {
    /// Runs the task on a backend whose free slots are `free`.
    fn perform<B: Backend>(self, backend: B, free: Vec<Slot>) -> io::Result<()>;
}

/// Runs a task on a target: on a virtio device through one of its queues, on others with io_uring, with up to `depth` I/Os in flight (fewer
/// if the virtio queue is smaller), or without io_uring one I/O at a time. `slot_bytes` is the maximum length of an I/O. Fails if no
/// backend can be opened; the inner result is the task's.
pub(crate) fn perform(
    target: &Target,
    depth: u32,
    slot_bytes: usize,
    task: impl Transfer,
) -> Result<io::Result<()>, EngineError> {
    let setup = |depth| -> Result<Setup, EngineError> {
        let file = target.reopen().map_err(EngineError::system("opening the target again"))?;
        Ok(Setup { file, depth, slot_bytes, options: Options::default() })
    };
    if let Some(device) = &target.virtio {
        let (backend, slots) = Virtio::open(setup(depth.min(device.depth))?)?;
        return Ok(task.perform(backend, slots));
    }
    match Uring::open(setup(depth)?) {
        Ok((backend, slots)) => Ok(task.perform(backend, slots)),
        Err(EngineError::NoIoUring { .. }) => {
            let (backend, slots) = Psync::open(setup(1)?)?;
            Ok(task.perform(backend, slots))
        }
        Err(error) => Err(error),
    }
}
