//! Interrupts and polling.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Set by Ctrl-C: all waits give up.
pub type Interrupt = Arc<AtomicBool>;

/// Interval at which waits check the interrupt.
pub const POLL: Duration = Duration::from_millis(50);
/// Maximum time without a sign of life. Working agents send something every [`iotax_model::wire::BEAT`].
pub const SILENCE: Duration = Duration::from_secs(15);

/// True after the first Ctrl-C: the next one ends the process at once.
pub static PRESSED: LazyLock<Interrupt> = LazyLock::new(Interrupt::default);

/// While it exists, Ctrl-C ends a wait instead of the process.
#[derive(Debug)]
pub struct AskedAgain {
    before: bool,
}

/// Begins to ask.
#[must_use]
pub fn ask_again() -> AskedAgain {
    AskedAgain { before: PRESSED.swap(false, Ordering::Relaxed) }
}

impl AskedAgain {
    /// Returns whether Ctrl-C was pressed since.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        PRESSED.load(Ordering::Relaxed)
    }
}

impl Drop for AskedAgain {
    fn drop(&mut self) {
        PRESSED.fetch_or(self.before, Ordering::Relaxed);
    }
}
