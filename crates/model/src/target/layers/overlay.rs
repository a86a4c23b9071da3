//! An overlay (union) mount, as containers use it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, BottomLocation, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments,
};

/// An overlayfs in which the target's file is created, as in the writable layer of a container: mounted for the run over an empty lower
/// directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OverlaySpec {
    /// An existing directory for the overlay's upper and lower directories [default: the target's own filesystem]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Use overlayfs's mount option `volatile`, which skips all syncs (Linux 5.10 or later): a crash may lose any data.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub volatile: bool,
}

impl LayerType for OverlaySpec {
    fn key(&self) -> &'static str {
        "overlay"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        if self.dir.is_some() { &[LayerInterface::Nothing] } else { &[LayerInterface::Directory] }
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Directory
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn is_exported_by_nfs(&self) -> bool {
        false
    }

    fn needed_at_bottom(&self) -> Option<&'static str> {
        Some(super::DIR_OR_FILESYSTEM)
    }

    fn location(&self) -> Option<BottomLocation<'_>> {
        self.dir.as_deref().map(BottomLocation::Directory)
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.dir.iter_mut().collect()
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("overlay mounts one".into())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part { aside: true, ..Part::new("overlay", "overlayfs", self, &["dir"]) }]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        let more = super::keys(self, Some(&Self::default()), &["dir"]);
        let dir = self.dir.as_ref().map(|dir| super::word(&dir.to_string_lossy()));
        dir.into_iter().chain([format!("overlay{more}")]).collect()
    }
}

impl FromLine for OverlaySpec {
    const FORMS: &[&str] = &["overlay"];

    fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "overlay").then(|| segments.take().spec(below.place.map(|dir| ("dir", dir.into()))))
    }
}
