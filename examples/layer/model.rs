//! A fictional layer that a test adds to iotax: its part in the model.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, BottomLocation, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments,
};

/// A directory in a bottle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BottleSpec {
    /// An existing directory for the bottle.
    pub dir: PathBuf,
    /// Volume in litres.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<u32>,
}

impl LayerType for BottleSpec {
    fn key(&self) -> &'static str {
        "bottle"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::Nothing]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Directory
    }

    fn cache(&self) -> Option<CacheMode> {
        Some(CacheMode::Unsafe)
    }

    fn check(&self) -> Result<(), String> {
        if self.volume == Some(0) { Err("volume = 0: a bottle holds at least 1".into()) } else { Ok(()) }
    }

    fn location(&self) -> Option<BottomLocation<'_>> {
        Some(BottomLocation::Directory(&self.dir))
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.dir]
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("bottle mounts one".into())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("bottle", "bottle", self, &["dir"])]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![super::word(&self.dir.to_string_lossy()), format!("bottle{}", super::keys(self, None, &["dir"]))]
    }
}

impl FromLine for BottleSpec {
    const FORMS: &[&str] = &["bottle"];

    fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "bottle").then(|| segments.take().spec(below.place.map(|dir| ("dir", dir.into()))))
    }
}
