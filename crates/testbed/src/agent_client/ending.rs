//! The end of a load that the user interrupts.

use std::io::Write;

use iotax_model::wire::{self, Event, Job, Request};

/// The effect of an interrupt on a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Nobody waits for it any more.
    Never,
    /// The same, until the window begins.
    OnceMeasuring,
    /// The load can be told to end; its outcome is then waited for.
    Possible,
    /// The load was told to end.
    Told,
}

impl Ending {
    /// The state for a job: one that records gaps is a watch, which may end early.
    pub(super) const fn of(job: &Job) -> Self {
        if job.workload.blackout.is_some() { Self::OnceMeasuring } else { Self::Never }
    }

    /// Sees that a window begins.
    pub(super) fn see(&mut self, event: &Event) {
        if *event == Event::Measuring && *self == Self::OnceMeasuring {
            *self = Self::Possible;
        }
    }

    /// Tells the agent to end its load, if that may end early. Returns whether to wait for its outcome.
    pub(super) fn tell(&mut self, writer: Option<&mut Box<dyn Write + Send>>) -> bool {
        if *self == Self::Possible {
            let told = writer.map(|writer| wire::send(writer, &Request::End));
            *self = if matches!(told, Some(Ok(()))) { Self::Told } else { Self::Never };
        }
        *self == Self::Told
    }
}
