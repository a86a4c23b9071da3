//! Observations during a watch: gaps, standstills, events.

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

/// A period in which I/Os of one class were due, and none completed without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blackout {
    /// The I/Os that were due.
    pub of: IoClass,
    /// Start of the gap: the last completion before it, or the time when the next I/O was due if that is later. Counted from the start of the
    /// measured window.
    pub at_ns: u64,
    /// Nanoseconds from the start of the gap to the next completion, or to the end of the window.
    pub duration_ns: u64,
    /// False if the window ended before the gap did.
    pub ended: bool,
}

/// Periods in which I/Os hung in a block device: some were in flight, and none completed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceGaps {
    /// The kernel's name of the device.
    pub device: String,
    /// The gaps in order, with a resolution of 10 ms. A failed I/O counts as completed.
    pub gaps: Vec<Blackout>,
    /// Periods in which the device was not observed, because the machine or the observing process stood still.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub blind: Vec<Blackout>,
}

/// A period in which the clock of a guest or another machine stood still, for example with stopped virtual CPUs. Programs there do not notice it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standstill {
    /// The time at which QEMU stopped the guest, by the host's clock, from the start of the measured window. If QEMU did not report it, the
    /// end of the last interval before.
    pub at_ns: u64,
    /// Time by which the clock fell behind.
    pub duration_ns: u64,
}

/// Something that happened during a watch, apart from the load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Occurrence {
    /// Time from the start of the measured window, by the host's clock.
    pub at_ns: u64,
    /// The kind of occurrence, with its data.
    pub what: Happened,
}

/// The source of an [`Occurrence`], with its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Happened {
    /// A command or operation of the plan.
    Event {
        /// The event's name.
        name: String,
        /// Duration of the event; absent if it could not be started or did not end.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        duration_ns: Option<u64>,
        /// The reason for a failure, with the beginning of stderr; absent on success.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        failure: Option<String>,
    },
    /// A line from the host's kernel log.
    Kernel {
        /// Severity of the line: 0 (emergency) to 7 (debug).
        level: u8,
        /// The line.
        text: String,
    },
    /// Another observation, or a mark.
    Seen {
        /// The source of the observation.
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
