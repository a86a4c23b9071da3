//! A new filesystem on a block device.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Below, FromLine, LayerInterface, LayerType, PlannedLayer, Segments};
use crate::words::words;

words! {
    /// A filesystem that iotax makes.
    FsType, "type" {
        /// ext4.
        Ext4 = "ext4",
        /// XFS.
        Xfs = "xfs",
        /// Btrfs.
        Btrfs = "btrfs",
    }
}

/// A filesystem created on the target's device or volume, mounted for the run and removed afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesystemSpec {
    /// Filesystem type.
    #[serde(rename = "type")]
    pub kind: FsType,
    /// Mount options as for mount(8) after `-o`.
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

    fn check(&self) -> Result<(), String> {
        if self.nodatacow && self.kind != FsType::Btrfs {
            return Err(format!("nodatacow is for btrfs, not {}", self.kind));
        }
        Ok(())
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![format!("{}{}", self.kind, super::keys(self, Some(&Self::new(self.kind)), &["type"]))]
    }
}

impl FromLine for FilesystemSpec {
    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [kind] = segments.next_words()? else { return None };
        let kind = kind.parse::<FsType>().ok()?;
        Some(segments.take().spec([("type", kind.word().into())]))
    }
}

impl FilesystemSpec {
    /// A filesystem with the defaults of its mkfs and of mount(8).
    #[must_use]
    pub const fn new(kind: FsType) -> Self {
        Self { kind, mount_options: None, nodatacow: false }
    }
}
