//! Facts about disk images.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fact::Known;

/// A disk image, or another file that holds a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Absolute path.
    pub path: String,
    /// The format by its first bytes: `qcow2`, `vmdk`, `vdi`, `vhdx`, `vpc`; `None` for a raw or unreadable one.
    pub format: Known<String>,
    /// Its length, and what is allocated for it.
    pub file: Known<ImageFile>,
    /// Extents that the filesystem keeps it in.
    pub extents: Known<u64>,
    /// True if the filesystem overwrites its blocks in place (chattr +C); `None` where there is no such attribute.
    pub in_place: Known<bool>,
    /// The header of a qcow2 image; absent if a guest uses the file as a raw disk, as the guest then writes these bytes.
    pub qcow2: Known<Qcow2>,
    /// Why it, or an image below, could not be read.
    pub unread: Option<String>,
}

/// The space of an image's file.
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
    /// The size of its disk.
    pub virtual_bytes: Option<u64>,
    /// The cluster size.
    pub cluster_bytes: Option<u64>,
    /// Its version: `0.10` or `1.1`.
    pub compat: Option<String>,
    /// True if clusters are allocated in 32 parts.
    pub extended_l2: Option<bool>,
    /// True if QEMU marked it corrupt.
    pub corrupt: Option<bool>,
    /// Snapshots within the image.
    pub snapshots: u64,
    /// The encryption, such as `luks` or `aes`.
    pub encryption: Option<String>,
    /// Images below it, from the nearest.
    pub backing: Vec<String>,
    /// The first image below whose overlay does not name its format.
    pub probed: Option<ProbedBacking>,
    /// The place where the chain of images below breaks off.
    pub broken: Option<BrokenChain>,
}

/// An image whose overlay leaves its format to QEMU's guess.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbedBacking {
    /// The image that names it.
    pub overlay: String,
    /// The image below.
    pub base: String,
    /// The base's format by its first bytes; `None` for a device.
    pub format: Option<String>,
}

/// A backing file that cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum BrokenChain {
    /// The backing file does not exist.
    Missing {
        /// The image that names it.
        overlay: String,
        /// The absent file.
        base: String,
    },
    /// The backing file is an image further up.
    Loop {
        /// The image that names it.
        overlay: String,
        /// The image that is further up.
        base: String,
    },
}

impl Image {
    /// Size in bytes of the disk that the image holds: the virtual size of a qcow2 image, the length of a raw file; `None` for other formats.
    #[must_use]
    pub fn disk_bytes(&self) -> Option<u64> {
        match (&self.qcow2, &self.format) {
            (Some(qcow2), _) => qcow2.value.virtual_bytes,
            (None, None) => self.file.as_ref().map(|file| file.value.length_bytes),
            (None, Some(_)) => None,
        }
    }
}
