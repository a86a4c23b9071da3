//! Observations during a watch: gaps without completed I/O, stopped clocks, events.

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// A class of I/Os whose gaps are recorded separately.
    IoClass, "of" {
        /// Reads.
        Reads = "reads",
        /// Writes and trims.
        Writes = "writes",
        /// Flushes: fsync, fdatasync and sync_file_range.
        Flushes = "flushes",
    }
}

/// A period in which I/Os of one class were due, but none of them completed successfully.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blackout {
    /// The class of I/Os that were due.
    pub of: IoClass,
    /// Start of the period in nanoseconds from the start of the measured window: the last completion before the period, or the time when the next
    /// I/O was due if that is later.
    pub at_ns: u64,
    /// Nanoseconds from the start of the period to the next completion, or to the end of the window.
    pub duration_ns: u64,
    /// True if an I/O completed again; false if the window ended first.
    pub ended: bool,
}

/// Periods in which I/Os were in flight in a block device and none of them completed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceGaps {
    /// Kernel name of the device, such as `sda`.
    pub device: String,
    /// The periods in order of time, with a resolution of 10 ms. A failed I/O counts as completed.
    pub gaps: Vec<Blackout>,
    /// Periods in which the device was not observed, because the machine or the observing process was stopped.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub blind: Vec<Blackout>,
}

/// A period in which the clock of a guest or another machine did not advance, for example because its virtual CPUs were stopped. Programs on that
/// machine do not notice the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standstill {
    /// Start of the period in nanoseconds from the start of the measured window, by the host's clock: the time at which QEMU stopped the guest. If
    /// QEMU did not report it, the end of the last interval before.
    pub at_ns: u64,
    /// Nanoseconds by which the stopped clock fell behind the host's clock.
    pub duration_ns: u64,
}

/// An event or observation during a watch, other than an I/O of the load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Occurrence {
    /// Nanoseconds from the start of the measured window, by the host's clock.
    pub at_ns: u64,
    /// The event or observation.
    pub what: Happened,
}

/// An event or observation during a watch, by its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Happened {
    /// A command or operation that the plan triggers.
    Event {
        /// The event's name.
        name: String,
        /// Nanoseconds that the event took; absent if it was not started. For a command that was left running, the time for which iotax
        /// waited for its end.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        duration_ns: Option<u64>,
        /// Reason for the event's failure, such as a command's exit status and the beginning of its stderr. Absent on success.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        failure: Option<String>,
    },
    /// A line from the host's kernel log.
    Kernel {
        /// Severity of the line: 0 (emergency) to 7 (debug).
        level: u8,
        /// The text of the line, without its severity.
        text: String,
    },
    /// A mark that the user set, or an observation from a source other than the kernel log.
    Observed {
        /// Kind of source: block device, network link, state in /sys, QEMU, or the user's mark.
        source: Source,
        /// Description of the observation, in one line.
        text: String,
    },
}

words! {
    /// The source of an observation during a watch, other than the kernel's log.
    Source, "source" {
        /// The kernel's events of block devices, SCSI and NVMe (uevents).
        Device = "device",
        /// A network interface went up or down.
        Link = "link",
        /// The state of a device or of a RAID in /sys changed.
        State = "state",
        /// An event from the QEMU of a measured guest.
        Qemu = "qemu",
        /// A mark that the user set.
        Mark = "mark",
    }
}
