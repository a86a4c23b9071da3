//! The I/O request that patterns, backends and recorders share.

use rustix::fs::FallocateFlags;

/// Flags that punch a hole and keep the file's length.
pub(crate) const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// An I/O to issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    /// The direction.
    pub direction: IoKind,
    /// Offset in bytes; 0 for a flush.
    pub offset: u64,
    /// Length in bytes, at most the slot's; 0 for a flush.
    pub length: u32,
}

/// The kind of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoKind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Writes, and completes when the data is durable (RWF_DSYNC, FUA where the device has it).
    DurableWrite,
    /// Discards the range.
    Trim,
    /// Flushes data and metadata, as fsync(2).
    Sync,
    /// Flushes data, as fdatasync(2).
    DataSync,
    /// Writes back dirty pages of the whole file, like sync_file_range(2) with these flags.
    RangeSync(u32),
}

impl IoKind {
    /// True for flushes, which move no data.
    #[inline]
    pub(crate) const fn is_flush(self) -> bool {
        matches!(self, Self::Sync | Self::DataSync | Self::RangeSync(_))
    }

    /// True for writes, durable or not.
    #[inline]
    pub(crate) const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::DurableWrite)
    }

    /// The direction's name in records.
    #[inline]
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write | Self::DurableWrite => "write",
            Self::Trim => "trim",
            Self::Sync | Self::DataSync | Self::RangeSync(_) => "sync",
        }
    }
}
