//! A fast device that caches a slow device: dm-cache and dm-writecache.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, BottomLocation, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer,
    Segments, keys,
};
use crate::units::Bytes;
use crate::words::words;

words! {
    /// The kernel's device-mapper target for caching.
    CacheType, "type" {
        /// Caches frequently used blocks, with the smq policy.
        DmCache = "dm-cache",
        /// Caches every write and writes it back later; reads of data that is not in the cache go to the slow device.
        DmWritecache = "dm-writecache",
    }
}

words! {
    /// The handling of writes by dm-cache.
    DmCacheMode, "mode" {
        /// A write to a cached block goes to both devices before it completes.
        Writethrough = "writethrough",
        /// A write to a cached block goes to the fast device, and later to the slow one.
        Writeback = "writeback",
    }
}

/// A device-mapper cache on a raw file with a loop device, in front of the block device below. The cache is empty when the target is built. From then
/// on it keeps its content: filling and earlier measurements warm it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheSpec {
    /// An existing directory on the fast device, for the cache's files [default: the directory at the target's bottom, so that the cache is no faster]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dir: Option<PathBuf>,
    /// Size of the cache.
    pub size: Bytes,
    /// The kernel's device-mapper target.
    #[serde(rename = "type", default = "CacheSpec::usual")]
    pub kind: CacheType,
    /// dm-cache: handling of writes [default: writethrough]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mode: Option<DmCacheMode>,
    /// dm-cache: bytes that are cached together, a multiple of 32k up to 1g [default: 64k]; dm-writecache: 512, 1k, 2k or 4k [default: 4k]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub block_size: Option<Bytes>,
}

impl CacheSpec {
    /// Minimum size of the cache device.
    const LEAST: Bytes = Bytes(1 << 20);

    const fn usual() -> CacheType {
        CacheType::DmCache
    }

    /// Returns the size of the blocks in which data is cached: the plan's, else 64 KiB for dm-cache and 4 KiB for dm-writecache.
    #[must_use]
    pub fn block(&self) -> Bytes {
        self.block_size.unwrap_or(match self.kind {
            CacheType::DmCache => Bytes(64 << 10),
            CacheType::DmWritecache => Bytes(4 << 10),
        })
    }

    /// Returns the size of dm-cache's metadata file; `None` for dm-writecache, which keeps its metadata on the cache device.
    #[must_use]
    pub fn metadata(&self) -> Option<Bytes> {
        // By the kernel's documentation of dm-cache: 4 MiB plus 16 bytes per block.
        let blocks = self.size.0 / self.block().0.max(1);
        (self.kind == CacheType::DmCache)
            .then(|| Bytes(((4 << 20) + blocks.saturating_mul(16)).next_multiple_of(1 << 20)))
    }
}

impl LayerType for CacheSpec {
    fn key(&self) -> &'static str {
        "cache"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::Block]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Block
    }

    fn cache(&self) -> Option<CacheMode> {
        // The cache is on a disk, not in memory.
        None
    }

    fn amplifies(&self) -> bool {
        true
    }

    fn formats(&self) -> bool {
        true
    }

    fn check_on(&self, below: &[PlannedLayer]) -> Result<(), String> {
        super::check_made(below, "cache: a filesystem on it")?;
        let bottom = below.first().and_then(|bottom| bottom.kind().location());
        if self.dir.is_none() && !matches!(bottom, Some(BottomLocation::Directory(_))) {
            return Err("cache needs dir = \"...\", a directory on the fast device".into());
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let (kind, block) = (self.kind, self.block());
        let (is_fine, accepted) = match kind {
            CacheType::DmCache => (
                block.0.is_multiple_of(32 << 10) && (1..=1 << 30).contains(&block.0),
                "a multiple of 32k up to 1g",
            ),
            CacheType::DmWritecache => {
                (block.0.is_power_of_two() && (512..=4096).contains(&block.0), "512, 1k, 2k or 4k")
            }
        };
        if !is_fine {
            return Err(format!("block_size = {block}: accepted for {kind}: {accepted}"));
        }
        if let Some(mode) = self.mode.filter(|_| kind == CacheType::DmWritecache) {
            return Err(format!(
                "mode = \"{mode}\": dm-writecache has none; leave it out, or use type = \"dm-cache\""
            ));
        }
        let least = Self::LEAST.max(block);
        if self.size < least {
            return Err(format!("size = {}: accepted: at least {least}", self.size));
        }
        Ok(())
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.dir.iter_mut().collect()
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("cache makes a mapping of the kernel's".into())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new(&format!("cache {}", self.kind), self.kind.word(), self, &["dir", "type"])]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![format!("{}{}", self.kind, keys(self, None, &["type"]))]
    }
}

impl FromLine for CacheSpec {
    const FORMS: &[&str] = CacheType::WORDS;

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        let kind = word.parse::<CacheType>().ok()?;
        Some(segments.take().spec([("type", kind.word().into())]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(keys: &str) -> CacheSpec {
        toml::from_str(&format!("dir = '/fast'\n{keys}")).unwrap_or_else(|error| panic!("{keys}: {error}"))
    }

    #[test]
    fn caches_that_cannot_be_are_refused_with_the_reason() {
        for (keys, words) in [
            (
                "size = '64m'\nblock_size = '48k'",
                "block_size = 48k: accepted for dm-cache: a multiple of 32k",
            ),
            ("size = '64m'\nblock_size = '0'", "accepted for dm-cache: a multiple of 32k up to 1g"),
            (
                "size = '64m'\ntype = 'dm-writecache'\nblock_size = '64k'",
                "accepted for dm-writecache: 512, 1k",
            ),
            ("size = '64m'\ntype = 'dm-writecache'\nmode = 'writeback'", "dm-writecache has none"),
            ("size = '512k'", "size = 512k: accepted: at least 1m"),
            ("size = '1m'\nblock_size = '2m'", "size = 1m: accepted: at least 2m"),
        ] {
            let refusal = cache(keys).check().expect_err(keys);
            assert!(refusal.contains(words), "{keys}: {refusal}");
        }
        for (keys, words) in [
            ("size = '64m'\ntype = 'bcache'", "dm-writecache"),
            ("size = '64m'\nmode = 'fast'", "writethrough"),
            ("mode = 'writeback'", "missing field `size`"),
        ] {
            let refusal = toml::from_str::<CacheSpec>(&format!("dir = '/fast'\n{keys}")).expect_err(keys);
            assert!(refusal.to_string().contains(words), "{keys}: {refusal}");
        }
    }

    #[test]
    fn metadata_grows_with_the_blocks_of_dm_cache_alone() {
        assert_eq!(cache("size = '64m'").metadata(), Some(Bytes(5 << 20)));
        assert_eq!(cache("size = '64g'").metadata(), Some(Bytes(20 << 20)));
        assert_eq!(cache("size = '64m'\ntype = 'dm-writecache'").metadata(), None);
    }
}
