//! Checksums for each sector, kept by the kernel's dm-integrity.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments, keys,
};
use crate::units::Bytes;
use crate::words::words;

words! {
    /// The method that keeps a sector and its checksum consistent in a crash.
    IntegrityMode, "mode" {
        /// Both are written to a journal first, so that all data is written twice.
        Journal = "journal",
        /// A bitmap marks regions whose checksums are recalculated after a crash.
        Bitmap = "bitmap",
        /// No protection: after a crash a sector may fail its checksum.
        Direct = "direct",
    }
}

/// A dm-integrity device, formatted and wiped by integritysetup and opened for the run. Each sector has a checksum, which reads verify.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IntegritySpec {
    /// Protection of data and checksums in a crash.
    pub mode: IntegrityMode,
    /// Bytes that share a checksum: 512, 1024, 2048 or 4096 [default: integritysetup's, 512]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sector_size: Option<u32>,
}

impl Default for IntegritySpec {
    fn default() -> Self {
        Self { mode: IntegrityMode::Journal, sector_size: None }
    }
}

impl LayerType for IntegritySpec {
    fn key(&self) -> &'static str {
        "integrity"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::Block]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Block
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn amplifies(&self) -> bool {
        true
    }

    fn formats(&self) -> bool {
        true
    }

    fn check_on(&self, below: &[PlannedLayer]) -> Result<(), String> {
        super::check_made(below, "integrity: its superblock")
    }

    fn check(&self) -> Result<(), String> {
        check_sector_size(self.sector_size)
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("integrity opens a mapping of the kernel's".into())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("integrity", "dm-integrity", self, &[])]
    }

    fn size_below(&self, above: Bytes, _: &mut Option<Bytes>) -> Bytes {
        // Checksums take 1/128 at most and the journal as much; they begin at whole MiB.
        Bytes(above.0.saturating_add(above.0 / 32).saturating_add(16 << 20))
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![format!("integrity{}", keys(self, None, &[]))]
    }
}

impl FromLine for IntegritySpec {
    const FORMS: &[&str] = &["integrity"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "integrity").then(|| segments.take().spec([]))
    }
}

/// Rejects sector sizes that dm-integrity and dm-crypt do not support.
pub(super) fn check_sector_size(size: Option<u32>) -> Result<(), String> {
    match size {
        None | Some(512 | 1024 | 2048 | 4096) => Ok(()),
        Some(size) => Err(format!("sector_size = {size}: accepted: 512, 1024, 2048 or 4096")),
    }
}
