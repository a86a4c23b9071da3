//! Observations of a load and its surroundings: gaps, standstills, events.

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// I/Os that wait for one another's kind.
    IoClass, "of" {
        /// Reads.
        Reads = "reads",
        /// Writes and trims.
        Writes = "writes",
        /// Flushes: fsync and fdatasync.
        Flushes = "flushes",
    }
}

/// A time in which I/Os of one class were due and none of them completed without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blackout {
    /// The I/Os that were due.
    pub of: IoClass,
    /// The last completion before it, or when the next I/O was due if that is later; from the start of the measured window.
    pub at_ns: u64,
    /// Nanoseconds from there to the next completion, or to the end of the window.
    pub duration_ns: u64,
    /// False if the window ended first.
    pub ended: bool,
}

/// Times in which I/Os hung in a block device: some were in flight, and none completed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceGaps {
    /// The kernel's name of it.
    pub device: String,
    /// Gaps in order, to 10 ms. A failed I/O counts as completed.
    pub gaps: Vec<Blackout>,
    /// Times in which nothing looked at it: the machine or the watching process stood still.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub blind: Vec<Blackout>,
}

/// A time in which the clock of a guest or another machine stood still, as when virtual CPUs are stopped: its programs do not notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standstill {
    /// The time at which QEMU stopped the guest, by the host's clock, from the start of the measured window. If QEMU did not report it: the
    /// end of the last interval before.
    pub at_ns: u64,
    /// Time that the clock lost.
    pub duration_ns: u64,
}

/// An event besides the load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Occurrence {
    /// Time from the start of the measured window, by the host's clock.
    pub at_ns: u64,
    /// The occurrence.
    pub what: Happened,
}

/// The source of an [`Occurrence`], with its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Happened {
    /// A command of the plan's.
    Event {
        /// The event's name.
        name: String,
        /// Duration of the command; absent if it could not be begun or did not end.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        duration_ns: Option<u64>,
        /// Why it failed, with the beginning of its stderr; absent if it succeeded.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        failure: Option<String>,
    },
    /// A line of the host's kernel log.
    Kernel {
        /// Its severity: 0 (emergency) to 7 (debug).
        level: u8,
        /// The line.
        text: String,
    },
    /// Something else that was seen, or a mark.
    Seen {
        /// Where.
        source: Source,
        /// One line of text.
        text: String,
    },
}

words! {
    /// The source of what was seen beside a load, other than the kernel's log.
    Source, "source" {
        /// The kernel's events of block devices, SCSI and NVMe (uevents).
        Device = "device",
        /// A network interface that went up or down.
        Link = "link",
        /// The state of a device or of a RAID in /sys that changed.
        State = "state",
        /// An event of a measured guest's QEMU.
        Qemu = "qemu",
        /// A mark of the user's.
        Mark = "mark",
    }
}
