//! A filesystem that iotax creates on a block device.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments};
use crate::units::Bytes;
use crate::words::words;

words! {
    /// The type of a filesystem that iotax creates.
    FsType, "type" {
        /// ext4.
        Ext4 = "ext4",
        /// XFS.
        Xfs = "xfs",
        /// Btrfs.
        Btrfs = "btrfs",
    }
}

/// A filesystem created on the block device below, mounted for the run and removed afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesystemSpec {
    /// Filesystem type.
    #[serde(rename = "type")]
    pub kind: FsType,
    /// Mount options as for mount(8) after `-o` [default: none]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mount_options: Option<String>,
    /// btrfs: overwrite files in place (chattr +C).
    #[serde(default)]
    pub nodatacow: bool,
}

impl LayerType for FilesystemSpec {
    fn key(&self) -> &'static str {
        "filesystem"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::Block]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Directory
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn formats(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), String> {
        if self.nodatacow && self.kind != FsType::Btrfs {
            return Err(format!("nodatacow is for btrfs, not {}", self.kind));
        }
        Ok(())
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("filesystem mounts one".into())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("filesystem", self.kind.word(), self, &[])]
    }

    fn size_below(&self, above: Bytes, files: &mut Option<Bytes>) -> Bytes {
        let beside = files.take().unwrap_or_default();
        self.kind.room(Bytes(above.0.saturating_add(beside.0)))
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![format!("{}{}", self.kind, super::keys(self, Some(&Self::new(self.kind)), &["type"]))]
    }
}

impl FromLine for FilesystemSpec {
    const FORMS: &[&str] = FsType::WORDS;

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [kind] = segments.next_words()? else { return None };
        let kind = kind.parse::<FsType>().ok()?;
        Some(segments.take().spec([("type", kind.word().into())]))
    }
}

impl FilesystemSpec {
    /// Creates the settings of a filesystem with default options.
    #[must_use]
    pub const fn new(kind: FsType) -> Self {
        Self { kind, mount_options: None, nodatacow: false }
    }
}

impl FsType {
    /// Returns the size that a device needs, so that a file of size `file` fits on a new filesystem of this type.
    #[must_use]
    pub fn room(self, file: Bytes) -> Bytes {
        const MIB: u64 = 1 << 20;
        // The fixed overhead, and the smallest size that mkfs accepts.
        let (fixed, least) = match self {
            Self::Ext4 => (8 * MIB, 16 * MIB),
            Self::Xfs => (90 * MIB, 300 * MIB),
            Self::Btrfs => (80 * MIB, 110 * MIB),
        };
        let spare = (file.0 / 7).min(2560 * MIB + file.0 / 50);
        Bytes(file.0.saturating_add(fixed + spare).max(least))
    }
}
