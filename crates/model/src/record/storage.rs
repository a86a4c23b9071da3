//! The state of a target's data before and after a measurement: cached, allocated, compressible.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

/// Page cache residency of a target's area, from samples spread evenly over it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PageCache {
    /// Bytes sampled.
    pub looked_at: u64,
    /// Sampled bytes cached before the load.
    pub before: u64,
    /// Sampled bytes cached after the load.
    pub after: u64,
}

impl PageCache {
    /// Adds the sampled bytes of another area.
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
    /// The source of allocation data.
    Mapper, "source" {
        /// The filesystem (FIEMAP ioctl).
        Fiemap = "fiemap",
        /// The image (qemu-img map).
        QemuImg = "qemu-img map",
    }
}

/// Allocation of a file or image in bytes. `written`, `unwritten` and `holes` add up to its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Allocation {
    /// Bytes that are allocated and written.
    pub written: u64,
    /// Bytes that are allocated but unwritten, or known to be zeros: a read does not reach the device.
    pub unwritten: u64,
    /// Bytes that are not allocated.
    pub holes: u64,
    /// The part of `written` that is shared with other files or a backing image: the first write to it copies.
    pub shared: u64,
    /// Part of `written` that is compressed.
    pub compressed: u64,
    /// The source of these numbers.
    pub source: Mapper,
}

/// Contents of sample blocks spread evenly over an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SampledContent {
    /// Bytes sampled.
    pub bytes: u64,
    /// Bytes in all-zero blocks.
    pub zeros: u64,
    /// Size in bytes of all sampled blocks together after fast compression (zstd).
    pub compressed: u64,
}
