//! Converts times of a watch to the host's clock. A guest's clock stops while its virtual CPUs are stopped.

use iotax_model::record::{Blackout, IoClass, Measurement, Standstill};
use schemars::JsonSchema;
use serde::Serialize;

/// A period in which I/Os were due and none completed, or in which the load's machine stood still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "LoadGap")]
pub struct CompletionGap {
    /// The kind of activity that stalled.
    pub of: Stalled,
    /// Start of the gap, in nanoseconds from the start of the window, by the host's clock.
    pub at_ns: u64,
    /// Length of the gap in nanoseconds; a lower bound if the gap has not ended.
    pub duration_ns: u64,
    /// False if the window ended before the gap did.
    pub ended: bool,
}

/// The kind of activity that stalled in a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stalled {
    /// Completions of reads.
    Reads,
    /// Completions of writes and trims.
    Writes,
    /// Completions of flushes.
    Flushes,
    /// Completions of network round trips.
    RoundTrips,
    /// The guest as a whole; its programs did not notice.
    Guest,
    /// Another machine as a whole; its programs did not notice.
    Machine,
}

impl Stalled {
    /// Returns the word in reports and documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Writes => "writes",
            Self::Flushes => "flushes",
            Self::RoundTrips => "round trips",
            Self::Guest => "the guest stood still",
            Self::Machine => "the other machine stood still",
        }
    }
}

impl CompletionGap {
    /// Returns the end of the gap, or of the observation if the gap has not ended, in nanoseconds from the start of the window.
    #[must_use]
    pub const fn end_ns(&self) -> u64 {
        self.at_ns + self.duration_ns
    }

    /// Returns the length of the overlap of two gaps in nanoseconds; 0 if they do not overlap.
    #[must_use]
    pub fn overlap_ns(&self, other: &Self) -> u64 {
        self.end_ns().min(other.end_ns()).saturating_sub(self.at_ns.max(other.at_ns))
    }
}

/// Converter of times of the agent's clock to the host's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostClock<'a>(&'a [Standstill]);

impl HostClock<'static> {
    /// Creates the clock for times that are already the host's.
    pub(super) const fn of_host() -> Self {
        Self(&[])
    }
}

impl<'a> HostClock<'a> {
    pub(super) fn of(m: &'a Measurement) -> Self {
        Self(&m.standstills)
    }

    /// Converts a time to the host's clock. If QEMU did not report when it stopped the guest, the pause counts from the end of the last
    /// interval before the pause.
    pub(super) fn of_agent(self, own_ns: u64) -> u64 {
        let mut host = own_ns;
        for one in self.0 {
            if host > one.at_ns {
                host += one.duration_ns;
            }
        }
        host
    }

    pub(super) fn gap(self, blackout: &Blackout) -> CompletionGap {
        let at_ns = self.of_agent(blackout.at_ns);
        CompletionGap {
            of: match blackout.of {
                IoClass::Reads => Stalled::Reads,
                IoClass::Writes => Stalled::Writes,
                IoClass::Flushes => Stalled::Flushes,
            },
            at_ns,
            duration_ns: self.of_agent(blackout.at_ns + blackout.duration_ns) - at_ns,
            ended: blackout.ended,
        }
    }

    /// Returns the periods in which the machine with this clock did not run, as gaps of the kind `of`.
    pub(super) fn standstills(self, of: Stalled) -> impl Iterator<Item = CompletionGap> + 'a {
        let gap = move |one: &Standstill| CompletionGap {
            of,
            at_ns: one.at_ns,
            duration_ns: one.duration_ns,
            ended: true,
        };
        self.0.iter().map(gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_guest_loses_time_to_its_host() {
        let lost = [Standstill { at_ns: 100, duration_ns: 30 }, Standstill { at_ns: 200, duration_ns: 5 }];
        let clock = HostClock(&lost);
        assert_eq!([50, 100, 101, 170, 171].map(|own| clock.of_agent(own)), [50, 100, 131, 200, 206]);
        let blackout = Blackout { of: IoClass::Writes, at_ns: 90, duration_ns: 20, ended: true };
        let gap = clock.gap(&blackout);
        assert_eq!((gap.at_ns, gap.duration_ns, gap.end_ns()), (90, 50, 140));
    }
}
