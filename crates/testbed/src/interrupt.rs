//! Interrupts and polling.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Set by Ctrl-C: all waits give up.
pub type Interrupt = Arc<AtomicBool>;

/// Interval at which waits check the interrupt.
pub const POLL: Duration = Duration::from_millis(50);
/// Maximum time without a sign of life. Working agents send something every [`iotax_model::wire::BEAT`].
pub const SILENCE: Duration = Duration::from_secs(15);
