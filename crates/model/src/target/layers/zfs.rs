//! ZFS: a pool that iotax creates, which provides a volume (zvol) or a filesystem (dataset).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments, keys,
};
use crate::units::Bytes;
use crate::words::words;

words! {
    /// The storage that a ZFS pool provides.
    ZfsKind, "kind" {
        /// A volume: a block device.
        Zvol = "zvol",
        /// A filesystem.
        Dataset = "dataset",
    }
}

words! {
    /// Compression of the data in a ZFS pool.
    ZfsCompression, "compression" {
        /// No compression.
        Off = "off",
        /// LZ4, which Proxmox VE and OpenZFS 2.2 use by default.
        Lz4 = "lz4",
        /// Zstandard, level 3.
        Zstd = "zstd",
    }
}

words! {
    /// The moment at which ZFS completes writes and flushes.
    ZfsSync, "sync" {
        /// Synchronous writes and flushes wait for the disk; all other writes are kept in memory for up to 5 s.
        Standard = "standard",
        /// Every write waits for the disk.
        Always = "always",
        /// Nothing waits for the disk, and a power failure loses up to 5 s of writes.
        Disabled = "disabled",
    }
}

words! {
    /// The content of ZFS's cache in memory (ARC).
    ZfsPrimaryCache, "primarycache" {
        /// Data and metadata.
        All = "all",
        /// Only metadata, so that every read of data reaches the disk.
        Metadata = "metadata",
        /// Neither, so that a read of data also reads metadata.
        Off = "none",
    }
}

/// A ZFS pool with one volume or filesystem, created by zpool(8) and destroyed afterwards. Its settings have the names of ZFS's properties. Blocks have at
/// least 4 KiB (`ashift=12`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ZfsSpec {
    /// The storage to create in the pool.
    pub kind: ZfsKind,
    /// zvol: block size, a power of two from 4k to 128k [default: ZFS's, 8k up to version 2.1, 16k since]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volblocksize: Option<Bytes>,
    /// dataset: maximum block size of files, a power of two from 4k to 1m [default: ZFS's, 128k]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recordsize: Option<Bytes>,
    /// Compression of the data.
    #[serde(default = "no_compression")]
    pub compression: ZfsCompression,
    /// Handling of synchronous writes and flushes.
    #[serde(default = "standard_sync")]
    pub sync: ZfsSync,
    /// Content of ZFS's cache in memory (ARC), which direct I/O passes through too.
    #[serde(default = "whole_cache")]
    pub primarycache: ZfsPrimaryCache,
}

const fn no_compression() -> ZfsCompression {
    ZfsCompression::Off
}

const fn standard_sync() -> ZfsSync {
    ZfsSync::Standard
}

const fn whole_cache() -> ZfsPrimaryCache {
    ZfsPrimaryCache::All
}

impl ZfsSpec {
    /// Largest block size of a zvol. The length of a zvol is a multiple of it.
    pub const LARGEST_VOLUME_BLOCK: Bytes = Bytes(128 << 10);
    /// Largest block size of a dataset.
    const LARGEST_RECORD: Bytes = Bytes(1 << 20);
    /// Smallest block size: that of the pool's disk.
    const SMALLEST_BLOCK: Bytes = Bytes(4 << 10);

    /// Creates a layer without compression, and with ZFS's own defaults otherwise.
    #[must_use]
    pub const fn new(kind: ZfsKind) -> Self {
        Self {
            kind,
            volblocksize: None,
            recordsize: None,
            compression: no_compression(),
            sync: standard_sync(),
            primarycache: whole_cache(),
        }
    }

    /// Rejects a block size that belongs to the other kind of storage, is no power of two, or is out of range.
    fn check_block(&self, key: &str, size: Option<Bytes>, of: ZfsKind, largest: Bytes) -> Result<(), String> {
        let Some(size) = size else { return Ok(()) };
        if self.kind != of {
            let own = if of == ZfsKind::Zvol { "recordsize" } else { "volblocksize" };
            return Err(format!("zfs: {key} = {size} is for a {of}; a {} has {own}", self.kind));
        }
        if size.0.is_power_of_two() && (Self::SMALLEST_BLOCK..=largest).contains(&size) {
            return Ok(());
        }
        let least = Self::SMALLEST_BLOCK;
        Err(format!("zfs: {key} = {size}: accepted: a power of two from {least} to {largest}"))
    }
}

impl LayerType for ZfsSpec {
    fn key(&self) -> &'static str {
        "zfs"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::Block]
    }

    fn offers(&self) -> LayerInterface {
        match self.kind {
            ZfsKind::Zvol => LayerInterface::Block,
            ZfsKind::Dataset => LayerInterface::Directory,
        }
    }

    fn cache(&self) -> Option<CacheMode> {
        // ZFS accepts direct I/O and passes it through its memory all the same.
        Some(match self.sync {
            ZfsSync::Disabled => CacheMode::Unsafe,
            ZfsSync::Standard | ZfsSync::Always => CacheMode::Writeback,
        })
    }

    fn amplifies(&self) -> bool {
        true
    }

    fn formats(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), String> {
        self.check_block("volblocksize", self.volblocksize, ZfsKind::Zvol, Self::LARGEST_VOLUME_BLOCK)?;
        self.check_block("recordsize", self.recordsize, ZfsKind::Dataset, Self::LARGEST_RECORD)
    }

    fn partitioned_by_zpool(&self) -> Option<&'static str> {
        Some("a zvol; put a filesystem on it")
    }

    fn check_on(&self, below: &[PlannedLayer]) -> Result<(), String> {
        // zpool(8) partitions whole disks, and takes device-mapper and loop devices as they are (efi_get_info() in rdwr_efi.c).
        match below.last().and_then(|below| below.kind().partitioned_by_zpool()) {
            Some(below) => Err(format!(
                "zfs: zpool writes a partition table to {below}, or use a file with a loop device"
            )),
            None => super::check_made(below, "zfs: a pool"),
        }
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("zfs makes a pool of the kernel's".into())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new(&format!("zfs {}", self.kind), self.name(), self, &["kind"])]
    }

    /// Returns the size of the pool's disk: a quarter more than the data for metadata, room for blocks that are written anew before their old copies
    /// are free, and what ZFS keeps free itself (spa_get_slop_space() in spa_misc.c).
    fn size_below(&self, above: Bytes, files: &mut Option<Bytes>) -> Bytes {
        const KEPT_FREE: u64 = 256 << 20;
        const WRITTEN_ANEW: u64 = 2 << 30;
        let beside = match self.kind {
            ZfsKind::Zvol => Bytes(0),
            ZfsKind::Dataset => files.take().unwrap_or_default(),
        };
        let data = above.0.saturating_add(beside.0);
        let anew = data.min(WRITTEN_ANEW);
        Bytes(data.saturating_add(data / 4).saturating_add(anew + KEPT_FREE))
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![format!("{}{}", self.name(), keys(self, Some(&Self::new(self.kind)), &["kind"]))]
    }
}

impl ZfsSpec {
    /// Returns the text of the layer in a stack's line, without settings.
    const fn name(&self) -> &'static str {
        match self.kind {
            ZfsKind::Zvol => "zvol",
            ZfsKind::Dataset => "zfs dataset",
        }
    }
}

impl FromLine for ZfsSpec {
    const FORMS: &[&str] = &["zvol", "zfs dataset"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let kind = match segments.next_words()? {
            [zvol] if zvol == "zvol" => ZfsKind::Zvol,
            [zfs, dataset] if zfs == "zfs" && dataset == "dataset" => ZfsKind::Dataset,
            _ => return None,
        };
        Some(segments.take().spec([("kind", kind.word().into())]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_that_cannot_be_are_refused_with_what_is_accepted() {
        for (keys, words) in [
            (
                "kind = 'zvol'\nvolblocksize = '48k'",
                "volblocksize = 48k: accepted: a power of two from 4k to 128k",
            ),
            ("kind = 'zvol'\nvolblocksize = '256k'", "from 4k to 128k"),
            ("kind = 'zvol'\nvolblocksize = '0'", "from 4k to 128k"),
            (
                "kind = 'zvol'\nrecordsize = '16k'",
                "recordsize = 16k is for a dataset; a zvol has volblocksize",
            ),
            (
                "kind = 'dataset'\nrecordsize = '2k'",
                "recordsize = 2k: accepted: a power of two from 4k to 1m",
            ),
            (
                "kind = 'dataset'\nvolblocksize = '16k'",
                "volblocksize = 16k is for a zvol; a dataset has recordsize",
            ),
        ] {
            let spec: ZfsSpec = toml::from_str(keys).expect(keys);
            let refusal = spec.check().expect_err(keys);
            assert!(refusal.contains(words), "{keys}: {refusal}");
        }
        for (keys, words) in [
            ("kind = 'pool'", "accepted: zvol, dataset"),
            ("kind = 'zvol'\ncompression = 'gzip'", "accepted: off, lz4, zstd"),
            ("kind = 'zvol'\nsync = 'on'", "accepted: standard, always, disabled"),
            ("kind = 'zvol'\nprimarycache = 'data'", "accepted: all, metadata, none"),
            ("volblocksize = '16k'", "missing field `kind`"),
        ] {
            let refusal = toml::from_str::<ZfsSpec>(keys).expect_err(keys);
            assert!(refusal.to_string().contains(words), "{keys}: {refusal}");
        }
    }

    #[test]
    fn the_disk_has_room_for_what_zfs_keeps_free() {
        const MIB: u64 = 1 << 20;
        let (zvol, dataset) = (ZfsSpec::new(ZfsKind::Zvol), ZfsSpec::new(ZfsKind::Dataset));
        let mut files = Some(Bytes(64 * MIB));
        assert_eq!(zvol.size_below(Bytes(64 * MIB), &mut files), Bytes((64 + 16 + 64 + 256) * MIB));
        assert_eq!(dataset.size_below(Bytes(64 * MIB), &mut files), Bytes((128 + 32 + 128 + 256) * MIB));
        assert_eq!(files, None, "counted once");
        let large = zvol.size_below(Bytes(100 << 30), &mut None);
        assert_eq!(large, Bytes((125 << 30) + (2 << 30) + 256 * MIB));
    }
}
