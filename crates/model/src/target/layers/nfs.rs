//! A file on NFS: a raw file that an NFS server on this machine serves, accessed by QEMU's NFS client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments};

/// A raw file that nfs-ganesha serves by NFS 3, through the page cache. QEMU's own client (libnfs) accesses it over loopback in a private
/// network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NfsSpec {}

impl LayerType for NfsSpec {
    fn key(&self) -> &'static str {
        "nfs"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::RawFile]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::BlockNode
    }

    fn cache(&self) -> Option<CacheMode> {
        // The server keeps the file in the page cache.
        Some(CacheMode::Writeback)
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        let Self {} = self;
        Ok(())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("nfs", "NFS", self, &[])]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec!["nfs".into()]
    }
}

impl FromLine for NfsSpec {
    const FORMS: &[&str] = &["nfs"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "nfs").then(|| segments.take().spec([]))
    }
}
