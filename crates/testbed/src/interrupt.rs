//! Interrupts, and the pace of waits.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Set by Ctrl-C: whoever waits gives up.
pub type Interrupt = Arc<AtomicBool>;

/// How often a wait looks at the interrupt.
pub const POLL: Duration = Duration::from_millis(50);
/// How long a peer may show no sign of life. Agents say something every [`iotax_model::wire::BEAT`] while they work.
pub const SILENCE: Duration = Duration::from_secs(15);
