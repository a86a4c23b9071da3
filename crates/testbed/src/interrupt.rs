//! The interrupt flag, which signals set, and the limits of waits that check it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// A flag that the first Ctrl-C or SIGTERM sets, and a SIGHUP unless it is ignored. Waits that check it end early.
pub type Interrupt = Arc<AtomicBool>;

/// Interval at which waits check the interrupt flag.
pub const POLL: Duration = Duration::from_millis(50);
/// Maximum time without a message or other sign of life from an agent or guest. A working agent sends a message at least every
/// [`iotax_model::wire::BEAT`].
pub const SILENCE: Duration = Duration::from_secs(15);

/// True after the first Ctrl-C. A second Ctrl-C ends the process immediately.
pub static PRESSED: LazyLock<Interrupt> = LazyLock::new(Interrupt::default);

/// Guard around a wait that a second Ctrl-C may end: while the guard exists, the next Ctrl-C only sets the flag and does not end the
/// process.
#[derive(Debug)]
pub struct AskedAgain {
    before: bool,
}

/// Clears the Ctrl-C flag until the guard is dropped, so that another Ctrl-C can be detected.
#[must_use]
pub fn ask_again() -> AskedAgain {
    AskedAgain { before: PRESSED.swap(false, Ordering::Relaxed) }
}

impl AskedAgain {
    /// Returns true if Ctrl-C was pressed after the guard had been created.
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
