//! Ctrl-C at a fleet's coordinator: a second Ctrl-C ends the process only after the members have been asked to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use iotax_testbed::interrupt::{Interrupt, POLL, PRESSED};

use super::super::signals::watch_signals_with;
use iotax_model::threads;

/// Time after the first Ctrl-C from which a second one ends the process in any case, because the coordinator may be blocked forever.
const LONGEST: Duration = Duration::from_secs(5);

/// True while members are at work and have not been asked to stop.
#[derive(Debug, Clone, Default)]
pub(super) struct MembersAtWork(Arc<AtomicBool>);

impl MembersAtWork {
    pub(super) fn set(&self, are_at_work: bool) {
        self.0.store(are_at_work, Ordering::Relaxed);
    }
}

/// Watches for signals as a single run does, except that a second Ctrl-C does not end the process while members are at work. Returns the
/// stop flag, and the flag to set while members are at work.
pub(super) fn watch() -> anyhow::Result<(Interrupt, MembersAtWork)> {
    let (pressed, at_work) = (Interrupt::default(), MembersAtWork::default());
    let stop = watch_signals_with(&pressed)?;
    let members = at_work.clone();
    threads::spawn("ctrl-c", move || {
        while !pressed.load(Ordering::Relaxed) {
            threads::sleep(POLL);
        }
        let end = Instant::now() + LONGEST;
        while members.0.load(Ordering::Relaxed) && Instant::now() < end {
            threads::sleep(POLL);
        }
        PRESSED.store(true, Ordering::Relaxed);
    })?;
    Ok((stop, at_work))
}
