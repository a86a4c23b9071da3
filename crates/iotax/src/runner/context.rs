//! The context that all steps of a run share.

use std::sync::atomic::Ordering;

use iotax_store::Store;
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::undo::UndoLog;

use super::{Interrupted, Progress};

/// The environment of a run: undo log, store, progress, and stop flag.
pub(crate) struct RunContext<'a> {
    pub(crate) undo_log: &'a mut UndoLog,
    pub(crate) store: &'a mut Store,
    pub(crate) progress: &'a mut dyn Progress,
    /// Flag that is set when the user or a fleet's coordinator stops the run.
    pub(crate) stop: &'a Interrupt,
}

impl RunContext<'_> {
    /// Reborrows the context for a shorter lifetime.
    pub(super) fn reborrow(&mut self) -> RunContext<'_> {
        let Self { undo_log, store, progress, stop } = self;
        RunContext { undo_log, store, progress: &mut **progress, stop }
    }

    /// Returns whether the user or a fleet's coordinator has stopped the run.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns an error once the user or a fleet's coordinator has stopped the run.
    pub(super) fn fail_if_stopped(&self) -> Result<(), Interrupted> {
        if self.is_stopped() { Err(Interrupted) } else { Ok(()) }
    }
}
