//! A disk image that exists, which is only read.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Below, BottomLocation, FromLine, LayerInterface, LayerType, PlannedLayer, Segments, word};

/// An existing disk image in any format that QEMU knows by its content. It is only read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ImageSpec(pub PathBuf);

impl LayerType for ImageSpec {
    fn key(&self) -> &'static str {
        "image"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::Nothing]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::BlockNode
    }

    fn location(&self) -> Option<BottomLocation<'_>> {
        Some(BottomLocation::Path(&self.0))
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.0]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![format!("image {}", word(&self.0.to_string_lossy()))]
    }
}

impl FromLine for ImageSpec {
    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word, path] = segments.next_words()? else { return None };
        let spec = Self(path.into());
        (word == "image").then(|| segments.take().without_keys().map(|()| spec))
    }
}
