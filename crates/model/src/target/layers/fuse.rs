//! QEMU's FUSE export of an image: a file with the contents of the virtual disk.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::guest::check_aio;
use super::{
    Aio, Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments, keys,
};

/// An image that `qemu-storage-daemon` accesses as a guest's QEMU would, and shows as a raw file by a FUSE export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FuseSpec {
    /// Cache mode of the drive.
    pub cache: CacheMode,
    /// I/O backend of the drive.
    pub aio: Aio,
}

impl Default for FuseSpec {
    fn default() -> Self {
        Self { cache: CacheMode::None, aio: Aio::IoUring }
    }
}

impl LayerType for FuseSpec {
    fn key(&self) -> &'static str {
        "fuse"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        super::BENEATH_A_DAEMON
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::RawFile
    }

    fn cache(&self) -> Option<CacheMode> {
        Some(self.cache)
    }

    fn aio(&self) -> Option<Aio> {
        Some(self.aio)
    }

    fn wants_filesystem(&self) -> Option<&'static str> {
        // A directory for files would be made next to the export, on the host's filesystem.
        Some(
            "fuse shows one file, in which no others can be made; leave fuse out, or use a guest with filesystem = \"ext4\"",
        )
    }

    fn check(&self) -> Result<(), String> {
        check_aio(self.aio, self.cache)
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        let Self { cache: _, aio: _ } = self;
        Ok(())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("fuse", "QEMU's block layer by FUSE", self, &[])]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![format!("fuse{}", keys(self, None, &[]))]
    }
}

impl FromLine for FuseSpec {
    const FORMS: &[&str] = &["fuse"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "fuse").then(|| segments.take().spec([]))
    }
}
