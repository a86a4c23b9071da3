//! A loop device over a file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments};

/// A loop device over the target's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoopSpec {
    /// Bypass the host's page cache.
    pub direct_io: bool,
}

impl Default for LoopSpec {
    fn default() -> Self {
        Self { direct_io: true }
    }
}

impl LayerType for LoopSpec {
    fn key(&self) -> &'static str {
        "loop"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::RawFile]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Block
    }

    fn cache(&self) -> Option<CacheMode> {
        Some(if self.direct_io { CacheMode::None } else { CacheMode::Writeback })
    }

    fn is_reusable(&self) -> bool {
        true
    }

    fn wants_filesystem(&self) -> Option<&'static str> {
        Some("a loop device is a raw disk; leave loop out")
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        let Self { direct_io: _ } = self;
        Ok(())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("loop", "loop device", self, &[])]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![format!("loop direct_io={}", self.direct_io)]
    }
}

impl FromLine for LoopSpec {
    const FORMS: &[&str] = &["loop"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "loop").then(|| segments.take().spec([]))
    }
}
