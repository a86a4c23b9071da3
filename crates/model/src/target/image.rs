//! Files that iotax creates: their format and allocation.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Bytes;
use crate::words::words;

words! {
    /// The format of a disk image.
    Format, "format" {
        /// The guest's bytes without a container.
        Raw = "raw",
        /// QEMU's copy-on-write format.
        Qcow2 = "qcow2",
    }
}

words! {
    /// Preallocation by `qemu-img create`.
    Preallocation, "preallocation" {
        /// Nothing.
        Off = "off",
        /// qcow2: its metadata tables.
        Metadata = "metadata",
        /// Space reserved with posix_fallocate.
        Falloc = "falloc",
        /// Space reserved and written.
        Full = "full",
    }
}

words! {
    /// A snapshot of the filled image, renewed before each measurement, so that writes copy on write.
    Snapshot, "snapshot" {
        /// A qcow2 overlay with the image as its backing file.
        External = "external",
        /// A snapshot inside the qcow2 image.
        Internal = "internal",
    }
}

/// A file that iotax creates, fills and removes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FileSpec {
    /// An existing directory for the file [default: the target's own `filesystem`]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Image format; all but raw need a guest.
    pub format: Format,
    /// Space to allocate in advance.
    pub preallocation: Preallocation,
    /// qcow2: cluster size, a power of two from 512 bytes to 2 MiB [default: QEMU's, 64 KiB]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_size: Option<Bytes>,
    /// qcow2: divide each cluster into 32 subclusters.
    #[serde(skip_serializing_if = "is_false")]
    pub extended_l2: bool,
    /// qcow2: update reference counts lazily, and check them after a crash.
    #[serde(skip_serializing_if = "is_false")]
    pub lazy_refcounts: bool,
    /// qcow2: size of the cache for L2 tables [default: QEMU's]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2_cache_size: Option<Bytes>,
    /// A snapshot of the filled image; needs a guest and qcow2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
    /// Number of overlays of an external snapshot, at least 1; writes go to the topmost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backing_depth: Option<u32>,
}

impl Default for FileSpec {
    fn default() -> Self {
        Self {
            dir: None,
            format: Format::Raw,
            preallocation: Preallocation::Off,
            cluster_size: None,
            extended_l2: false,
            lazy_refcounts: false,
            l2_cache_size: None,
            snapshot: None,
            backing_depth: None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl FileSpec {
    /// Rejects combinations that no image supports.
    pub(super) fn check(&self, in_guest: bool) -> Result<(), String> {
        if self.format != Format::Raw && !in_guest {
            return Err(format!(
                "format = \"{}\" can only be read by a guest; add guest = {{}}",
                self.format
            ));
        }
        if self.format == Format::Raw {
            if self.preallocation == Preallocation::Metadata {
                return Err("preallocation = \"metadata\" is for qcow2; raw takes off, falloc or full".into());
            }
            let qcow2_only = [
                ("cluster_size", self.cluster_size.is_some()),
                ("extended_l2", self.extended_l2),
                ("lazy_refcounts", self.lazy_refcounts),
                ("l2_cache_size", self.l2_cache_size.is_some()),
                ("snapshot", self.snapshot.is_some()),
                ("backing_depth", self.backing_depth.is_some()),
            ];
            if let Some((key, _)) = qcow2_only.iter().find(|(_, given)| *given) {
                return Err(format!("{key} needs format = \"qcow2\""));
            }
        }
        if let Some(size) = self.cluster_size
            && !(size.0.is_power_of_two() && (512..=2 << 20).contains(&size.0))
        {
            return Err(format!("cluster_size = {size}: accepted: a power of two from 512 to 2m"));
        }
        if self.extended_l2 && self.cluster_size.is_some_and(|size| size < Bytes(16 << 10)) {
            return Err("extended_l2 needs a cluster_size of at least 16k".into());
        }
        if let Some(depth) = self.backing_depth {
            if self.snapshot != Some(Snapshot::External) {
                return Err("backing_depth needs snapshot = \"external\"".into());
            }
            if depth == 0 || depth > 64 {
                return Err(format!("backing_depth = {depth}: accepted: 1 to 64"));
            }
        }
        Ok(())
    }
}
