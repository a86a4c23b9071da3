//! The early end of a load when the user interrupts.

use std::io::Write;

use iotax_model::wire::{self, Event, Job, Request};

/// The reaction of a running load to an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// An interrupt abandons the load without waiting for its outcome.
    Never,
    /// Like `Never` during the warm-up; becomes `Possible` once the measurement window begins.
    OnceMeasuring,
    /// An interrupt ends the load early, and its outcome is waited for.
    Possible,
    /// The agent was told to end the load; its outcome is pending.
    Told,
}

impl Ending {
    /// The initial state for a job: only a job that records gaps may end early.
    pub(super) const fn of(job: &Job) -> Self {
        if job.workload.blackout.is_some() { Self::OnceMeasuring } else { Self::Never }
    }

    /// Allows an early end once the measurement window begins.
    pub(super) fn see(&mut self, event: &Event) {
        if *event == Event::Measuring && *self == Self::OnceMeasuring {
            *self = Self::Possible;
        }
    }

    /// Tells the agent to end its load, if the load may end early. Returns whether to wait for the outcome.
    pub(super) fn tell(&mut self, writer: Option<&mut Box<dyn Write + Send>>) -> bool {
        if *self == Self::Possible {
            let told = writer.map(|writer| wire::send(writer, &Request::End));
            *self = if matches!(told, Some(Ok(()))) { Self::Told } else { Self::Never };
        }
        *self == Self::Told
    }
}
