//! An iSCSI disk: a raw file that a target daemon on this machine serves over TCP, accessed by QEMU's own initiator.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments};

/// A raw file that tgt serves by iSCSI on loopback, bypassing the page cache. QEMU's own initiator (libiscsi) accesses it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IscsiSpec {}

impl LayerType for IscsiSpec {
    fn key(&self) -> &'static str {
        "iscsi"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::RawFile]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::BlockNode
    }

    fn cache(&self) -> Option<CacheMode> {
        // The server bypasses the page cache.
        Some(CacheMode::None)
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        let Self {} = self;
        Ok(())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("iscsi", "iSCSI", self, &[])]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec!["iscsi".into()]
    }
}

impl FromLine for IscsiSpec {
    const FORMS: &[&str] = &["iscsi"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "iscsi").then(|| segments.take().spec([]))
    }
}
