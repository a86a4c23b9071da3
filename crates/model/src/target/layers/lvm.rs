//! A logical volume that iotax creates in a volume group: the user's, or a new one on the block device below.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, BottomLocation, CacheMode, FromLine, LayerInterface, LayerSpec, LayerType, Part,
    PlannedLayer, Segments,
};
use crate::units::Bytes;
use crate::words::words;

words! {
    /// Allocation of a logical volume.
    LvKind, "kind" {
        /// Fully allocated on creation.
        Thick = "thick",
        /// Allocated from a thin pool on write.
        Thin = "thin",
    }
}

/// A logical volume that iotax creates and removes, in a new group on the block device below or in an existing group with free space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LvmSpec {
    /// An existing volume group [default: a new one on the block device below]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vg: Option<String>,
    /// Allocation of the volume.
    pub kind: LvKind,
    /// Take a new snapshot before each measurement, so that writes trigger copy-on-write.
    pub snapshot: bool,
}

impl Default for LvmSpec {
    fn default() -> Self {
        Self { vg: None, kind: LvKind::Thick, snapshot: false }
    }
}

/// The space that one logical volume takes of its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeAllocation {
    /// Length of the volume in bytes, a multiple of the extent size.
    pub size: Bytes,
    /// Number of extents of the volume or, if it is thin, of its pool.
    pub data: u64,
    /// Bytes of the thin pool's metadata, a multiple of the extent size; `None` for a thick volume.
    pub pool_metadata: Option<u64>,
    /// Number of extents of each snapshot; `None` without snapshots, or for a thin volume.
    pub copy_on_write: Option<u64>,
    /// True if snapshots are taken of the volume.
    pub snapshots: bool,
}

impl VolumeAllocation {
    /// Returns the number of extents that the volume takes with its pool and one snapshot.
    #[must_use]
    pub fn extents(&self, extent: u64) -> u64 {
        self.data + self.pool_metadata.unwrap_or_default() / extent + self.copy_on_write.unwrap_or_default()
    }
}

impl LvmSpec {
    /// Extent size of a new volume group in bytes: LVM's default.
    pub const EXTENT: u64 = 4 << 20;
    /// Bytes before the first extent of a new physical volume: label, metadata and alignment.
    pub const HEADER: u64 = 4 << 20;

    /// Computes the space of a volume of at least `size` bytes in a group with extents of `extent` bytes.
    #[must_use]
    pub fn allocation(&self, size: Bytes, extent: u64) -> VolumeAllocation {
        // Larger than any disk; avoids overflow below.
        const MOST: Bytes = Bytes(1 << 60);
        let extents = size.min(MOST).0.div_ceil(extent);
        let (size, snapshots) = (Bytes(extents * extent), self.snapshot);
        if self.kind == LvKind::Thin {
            // The pool holds both versions of data that volume and snapshot do not share.
            let data = if snapshots { 2 * extents } else { extents };
            // 64 bytes per chunk of 64 KiB, and as much again for changes of the metadata itself; at least 4 MiB, at most 15 GiB, as LVM
            // allows just under 16 GiB.
            let metadata = (data * extent / 512).clamp(4 << 20, 15 << 30).next_multiple_of(extent);
            return VolumeAllocation {
                size,
                data,
                pool_metadata: Some(metadata),
                copy_on_write: None,
                snapshots,
            };
        }
        // Each copied chunk of 4 KiB needs 16 bytes of metadata.
        let copies = size.0 + size.0 / 200 + (1 << 20);
        let copy_on_write = snapshots.then(|| copies.div_ceil(extent));
        VolumeAllocation { size, data: extents, pool_metadata: None, copy_on_write, snapshots }
    }
}

impl LayerType for LvmSpec {
    fn key(&self) -> &'static str {
        "lvm"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        if self.vg.is_some() { &[LayerInterface::Nothing] } else { &[LayerInterface::Block] }
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::Block
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn amplifies(&self) -> bool {
        self.snapshot || self.kind == LvKind::Thin
    }

    fn formats(&self) -> bool {
        self.vg.is_none()
    }

    fn needed_at_bottom(&self) -> Option<&'static str> {
        Some("vg = \"...\", or a block device below it for a new group")
    }

    fn check_on(&self, below: &[PlannedLayer]) -> Result<(), String> {
        let has_snapshot = |layer| Self::of(layer).is_some_and(|lvm| lvm.snapshot);
        if self.snapshot && below.iter().any(has_snapshot) {
            return Err("lvm: a snapshot of one volume is taken before each measurement, and two volumes have snapshot = true; \
                        leave it out of one"
                .into());
        }
        Ok(())
    }

    fn location(&self) -> Option<BottomLocation<'_>> {
        self.vg.as_deref().map(BottomLocation::Group)
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("lvm changes a volume group".into())
    }

    fn parts(&self) -> Vec<Part> {
        let volume = Part::new("lvm", "LVM", self, &["vg", "snapshot"]);
        let snapshot = self.snapshot.then(|| Part::plain("LVM snapshot"));
        [volume].into_iter().chain(snapshot).collect()
    }

    fn size_below(&self, above: Bytes, _: &mut Option<Bytes>) -> Bytes {
        let extents = self.allocation(above, Self::EXTENT).extents(Self::EXTENT);
        Bytes(extents * Self::EXTENT + Self::HEADER)
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        let snapshot = if self.snapshot { " + snapshot" } else { "" };
        let volume = format!("{} LVM volume{snapshot}", self.kind);
        self.vg.as_deref().map(super::word).into_iter().chain([volume]).collect()
    }
}

impl FromLine for LvmSpec {
    const FORMS: &[&str] = &["thick LVM volume", "thin LVM volume", "thick LVM volume + snapshot"];

    fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>> {
        let words = segments.next_words()?;
        let (kind, rest) = words.split_first()?;
        let kind = kind.parse::<LvKind>().ok()?;
        let snapshot = match rest {
            [lvm, volume] if lvm == "LVM" && volume == "volume" => false,
            [lvm, volume, plus, snapshot]
                if lvm == "LVM" && volume == "volume" && plus == "+" && snapshot == "snapshot" =>
            {
                true
            }
            _ => return None,
        };
        let spec = Self { vg: below.place.map(str::to_owned), kind, snapshot };
        Some(segments.take().without_keys().map(|()| spec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_volume_takes_what_it_needs() {
        const GIB: u64 = 1 << 30;
        let of = |keys: &str, size| {
            let spec: LvmSpec = toml::from_str(keys).expect(keys);
            (spec.allocation(Bytes(size), LvmSpec::EXTENT), spec.size_below(Bytes(size), &mut None))
        };
        let (thick, below) = of("", GIB + 1);
        assert_eq!((thick.size, thick.extents(LvmSpec::EXTENT)), (Bytes(GIB + LvmSpec::EXTENT), 257));
        assert_eq!(below, Bytes(258 * LvmSpec::EXTENT));
        // Room for a copy of the whole volume and 0.4% of metadata.
        let (snapshot, below) = of("snapshot = true", GIB);
        assert_eq!((snapshot.copy_on_write, snapshot.extents(LvmSpec::EXTENT)), (Some(258), 256 + 258));
        assert_eq!(below, Bytes((256 + 258 + 1) * LvmSpec::EXTENT));
        let (thin, below) = of("kind = 'thin'\nsnapshot = true", GIB);
        assert_eq!((thin.size, thin.data, thin.pool_metadata), (Bytes(GIB), 512, Some(4 << 20)));
        assert_eq!(below, Bytes((512 + 1 + 1) * LvmSpec::EXTENT));
        // No overflow, whatever a plan asks for.
        let (_, below) = of("snapshot = true", u64::MAX);
        assert!(below.0 > 1 << 60);
    }
}
