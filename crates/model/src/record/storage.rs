//! How a target's bytes lie: in caches, on storage, and what they are.

use serde::{Deserialize, Serialize};

use crate::words::words;

/// How much of a target's area the page cache held, looked at in stretches that are spread evenly over it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageCache {
    /// Bytes of all stretches.
    pub looked_at: u64,
    /// Bytes of these that were cached before the load began.
    pub before: u64,
    /// Bytes of these that were cached when it had ended.
    pub after: u64,
}

impl PageCache {
    /// Two areas as one.
    #[must_use]
    pub const fn merge(self, other: Self) -> Self {
        Self {
            looked_at: self.looked_at + other.looked_at,
            before: self.before + other.before,
            after: self.after + other.after,
        }
    }
}

words! {
    /// Who says what of a file is backed by storage.
    Mapper, "source" {
        /// The filesystem, by the FIEMAP ioctl.
        Fiemap = "fiemap",
        /// The image, by qemu-img map.
        QemuImg = "qemu-img map",
    }
}

/// What of a file or image is backed by storage, in bytes. `written`, `unwritten` and `holes` add up to its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allocation {
    /// Backed by data.
    pub written: u64,
    /// Allocated and never written, or known to be zeros: a read is answered without the device.
    pub unwritten: u64,
    /// Not allocated.
    pub holes: u64,
    /// Part of `written` that other files share, or that lies in a backing image: the first write to it copies.
    pub shared: u64,
    /// Part of `written` that is compressed.
    pub compressed: u64,
    /// Who says so.
    pub source: Mapper,
}

/// What some blocks of an area hold, spread evenly over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// Bytes that were read.
    pub bytes: u64,
    /// Bytes of these in blocks of nothing but zeros.
    pub zeros: u64,
    /// What a fast compressor makes of all of them.
    pub compressed: u64,
}
