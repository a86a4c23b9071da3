//! An I/O and its completion, as patterns, backends and recorders share them.

use crate::buffers::Slot;

/// An I/O to be done: kind, offset and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    /// Kind of the I/O: read, write, trim or flush.
    pub direction: IoKind,
    /// Offset in bytes; 0 for a flush.
    pub offset: u64,
    /// Length in bytes; for a read or write at most that of a slot's buffer, 0 for a flush.
    pub length: u32,
}

/// A completed I/O.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion {
    /// The slot, which is free again.
    pub slot: Slot,
    /// Number of bytes moved or discarded, 0 for a flush, or a negative errno.
    pub result: i32,
}

/// The kinds of I/O: reads, writes, trims and flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoKind {
    /// Read of data into the buffer.
    Read,
    /// Write of the buffer's data.
    Write,
    /// Write that completes when the data is durable (RWF_DSYNC, FUA where the device has it).
    DurableWrite,
    /// Discard of the range: a discard command on a device, a punched hole in a file.
    Trim,
    /// Flush of data and metadata, as by fsync(2).
    Sync,
    /// Flush of data, as by fdatasync(2).
    DataSync,
    /// Writeback of the whole file's dirty pages by sync_file_range(2) with these flags.
    RangeSync(u32),
}

impl IoKind {
    /// Returns true for flushes, which move no data.
    #[inline]
    pub const fn is_flush(self) -> bool {
        matches!(self, Self::Sync | Self::DataSync | Self::RangeSync(_))
    }

    /// Returns true for writes, durable or not.
    #[inline]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::DurableWrite)
    }

    /// Returns the name under which records count this kind of I/O; all flushes are `sync`.
    #[inline]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write | Self::DurableWrite => "write",
            Self::Trim => "trim",
            Self::Sync | Self::DataSync | Self::RangeSync(_) => "sync",
        }
    }
}
