//! The Ctrl-C flag, and time limits of waits that check it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Flag that Ctrl-C sets; waits end once it is set.
pub type Interrupt = Arc<AtomicBool>;

/// Interval at which waits check the interrupt.
pub const POLL: Duration = Duration::from_millis(50);
/// Maximum time without a sign of life. Working agents send something every [`iotax_model::wire::BEAT`].
pub const SILENCE: Duration = Duration::from_secs(15);

/// True after the first Ctrl-C: the next one ends the process at once.
pub static PRESSED: LazyLock<Interrupt> = LazyLock::new(Interrupt::default);

/// A guard that detects a further Ctrl-C: while it exists, Ctrl-C ends a wait instead of the process.
#[derive(Debug)]
pub struct AskedAgain {
    before: bool,
}

/// Clears the Ctrl-C flag until the guard is dropped, so that a new Ctrl-C can be detected.
#[must_use]
pub fn ask_again() -> AskedAgain {
    AskedAgain { before: PRESSED.swap(false, Ordering::Relaxed) }
}

impl AskedAgain {
    /// Returns whether Ctrl-C was pressed since the guard was created.
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
