//! Ends a load early when the user interrupts.

use std::io::Write;

use iotax_model::wire::{self, Event, Job, Request};

/// Effect that an interrupt has on the current job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// An interrupt abandons the load; its outcome is lost.
    Never,
    /// An interrupt during the warm-up abandons the load, as with `Never`. Becomes `Possible` when the measurement window begins.
    OnceMeasuring,
    /// An interrupt ends the load early; the client waits for the outcome so far.
    Possible,
    /// The client has sent the request to end the load, and waits for the outcome.
    Sent,
}

impl Ending {
    /// Returns the initial state for a job. Only a job that records I/O gaps may end early.
    pub(super) const fn of(job: &Job) -> Self {
        if job.workload.blackout.is_some() { Self::OnceMeasuring } else { Self::Never }
    }

    /// Handles an event from the agent: once the measurement window begins, the load may end early.
    pub(super) fn see(&mut self, event: &Event) {
        if *event == Event::Measuring && *self == Self::OnceMeasuring {
            *self = Self::Possible;
        }
    }

    /// Handles an interrupt: requests the end of the load, if the load may end early. Returns true if the client must wait for the outcome.
    pub(super) fn tell(&mut self, writer: Option<&mut Box<dyn Write + Send>>) -> bool {
        if *self == Self::Possible {
            let sent = writer.map(|writer| wire::send(writer, &Request::End));
            *self = if matches!(sent, Some(Ok(()))) { Self::Sent } else { Self::Never };
        }
        *self == Self::Sent
    }
}
