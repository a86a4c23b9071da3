//! A logical volume that iotax creates in a volume group.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, BottomLocation, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments,
};
use crate::words::words;

words! {
    /// Allocation of a logical volume.
    LvKind, "kind" {
        /// Fully allocated on creation.
        Thick = "thick",
        /// Allocated from a thin pool on write.
        Thin = "thin",
    }
}

/// A logical volume that iotax creates and removes, in a new group on the target's `device` or in an existing group with free space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LvmSpec {
    /// An existing volume group [default: a new one on the target's `device`]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vg: Option<String>,
    /// Allocation of the volume.
    pub kind: LvKind,
    /// Take a new snapshot before each measurement, so that writes trigger copy-on-write.
    pub snapshot: bool,
}

impl Default for LvmSpec {
    fn default() -> Self {
        Self { vg: None, kind: LvKind::Thick, snapshot: false }
    }
}

impl LayerType for LvmSpec {
    fn key(&self) -> &'static str {
        "lvm"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        if self.vg.is_some() { &[LayerInterface::Nothing] } else { &[LayerInterface::Block] }
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Block
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn amplifies(&self) -> bool {
        self.snapshot || self.kind == LvKind::Thin
    }

    fn location(&self) -> Option<BottomLocation<'_>> {
        self.vg.as_deref().map(BottomLocation::Group)
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("lvm changes a volume group".into())
    }

    fn parts(&self) -> Vec<Part> {
        let volume = Part::new("lvm", "LVM", self, &["vg", "snapshot"]);
        let snapshot = self.snapshot.then(|| Part::plain("LVM snapshot"));
        [volume].into_iter().chain(snapshot).collect()
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        let snapshot = if self.snapshot { " + snapshot" } else { "" };
        let volume = format!("{} LVM volume{snapshot}", self.kind);
        self.vg.as_deref().map(super::word).into_iter().chain([volume]).collect()
    }
}

impl FromLine for LvmSpec {
    const FORMS: &[&str] = &["thick LVM volume", "thin LVM volume", "thick LVM volume + snapshot"];

    fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>> {
        let words = segments.next_words()?;
        let (kind, rest) = words.split_first()?;
        let kind = kind.parse::<LvKind>().ok()?;
        let snapshot = match rest {
            [lvm, volume] if lvm == "LVM" && volume == "volume" => false,
            [lvm, volume, plus, snapshot]
                if lvm == "LVM" && volume == "volume" && plus == "+" && snapshot == "snapshot" =>
            {
                true
            }
            _ => return None,
        };
        let spec = Self { vg: below.place.map(str::to_owned), kind, snapshot };
        Some(segments.take().without_keys().map(|()| spec))
    }
}
