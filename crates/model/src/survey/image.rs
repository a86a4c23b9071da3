//! Facts about disk images.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fact::Known;

/// A disk image, or another file that holds a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Absolute path of the image.
    pub path: String,
    /// The format according to the file's first bytes: `qcow2`, `vmdk`, `vdi`, `vhdx`, `vpc`; absent for a raw image, for other formats,
    /// and if unreadable.
    pub format: Known<String>,
    /// The length of the image's file and its allocated space.
    pub file: Known<ImageFile>,
    /// The number of extents of the image's file.
    pub extents: Known<u64>,
    /// True if the filesystem overwrites the file's blocks in place (chattr +C); absent if it has no such attribute.
    pub in_place: Known<bool>,
    /// The header of a qcow2 image; absent for other formats, and if a guest uses the file as a raw disk, because the guest then controls
    /// these bytes.
    pub qcow2: Known<Qcow2>,
    /// Reason why the image, or an image below it, could not be read; absent if all images could be read.
    pub unread: Option<String>,
}

/// The length of an image's file and its allocated space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageFile {
    /// The file's length.
    pub length_bytes: u64,
    /// Bytes that the filesystem allocated.
    pub allocated_bytes: u64,
}

/// The header of a qcow2 image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Qcow2 {
    /// The virtual size of the disk.
    pub virtual_bytes: Option<u64>,
    /// The cluster size.
    pub cluster_bytes: Option<u64>,
    /// The qcow2 version: `0.10` or `1.1`.
    pub compat: Option<String>,
    /// True if clusters are divided into 32 subclusters.
    pub extended_l2: Option<bool>,
    /// True if QEMU marked the image as corrupt.
    pub corrupt: Option<bool>,
    /// The number of internal snapshots.
    pub snapshots: u64,
    /// The encryption, such as `luks` or `aes`.
    pub encryption: Option<String>,
    /// The backing files, from the nearest down.
    pub backing: Vec<String>,
    /// The first backing file whose overlay does not name its format; absent if there is none.
    pub probed: Option<ProbedBacking>,
    /// The break in the chain of backing files; absent if the chain is complete.
    pub broken: Option<BrokenChain>,
}

/// A backing file whose overlay does not name its format, so that QEMU guesses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbedBacking {
    /// The overlay that refers to the backing file.
    pub overlay: String,
    /// The backing file.
    pub base: String,
    /// The backing file's format according to its first bytes; absent for a device.
    pub format: Option<String>,
}

/// A backing file that cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum BrokenChain {
    /// The backing file does not exist.
    Missing {
        /// The overlay that refers to the backing file.
        overlay: String,
        /// The backing file that does not exist.
        base: String,
    },
    /// The backing file is an image higher up in the chain.
    Loop {
        /// The overlay that refers to the backing file.
        overlay: String,
        /// The backing file, an image higher up in the chain.
        base: String,
    },
}

impl Image {
    /// Returns the size in bytes of the disk that the image holds: the virtual size of a qcow2 image, the length of a raw file; `None` for
    /// other formats, or if the size is unknown.
    #[must_use]
    pub fn disk_bytes(&self) -> Option<u64> {
        match (&self.qcow2, &self.format) {
            (Some(qcow2), _) => qcow2.value.virtual_bytes,
            (None, None) => self.file.as_ref().map(|file| file.value.length_bytes),
            (None, Some(_)) => None,
        }
    }
}
