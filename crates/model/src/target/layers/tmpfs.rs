//! A filesystem in memory (tmpfs), as containers use it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments};

/// A tmpfs in which the target's file is created. It is mounted for the run and as large as the workloads need.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TmpfsSpec {}

impl LayerType for TmpfsSpec {
    fn key(&self) -> &'static str {
        "tmpfs"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::Nothing]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Directory
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("tmpfs mounts one".into())
    }

    /// Returns no parts: a tmpfs differs from every disk by its location, which is compared separately.
    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec!["tmpfs".into()]
    }
}

impl FromLine for TmpfsSpec {
    const FORMS: &[&str] = &["tmpfs"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "tmpfs").then(|| segments.take().spec([]))
    }
}
