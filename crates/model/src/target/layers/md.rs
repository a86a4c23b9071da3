//! RAID by the kernel: an md array whose members are files.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, BottomLocation, CacheMode, FileSpec, FromLine, LayerInterface, LayerType, LoopSpec, Part,
    PlannedLayer, Segments, keys,
};
use crate::units::Bytes;
use crate::words::words;

words! {
    /// The level of an array.
    RaidLevel, "level" {
        /// Stripes.
        Raid0 = "raid0",
        /// Mirrors.
        Raid1 = "raid1",
        /// Stripes with parity.
        Raid5 = "raid5",
        /// Stripes over mirrors.
        Raid10 = "raid10",
    }
}

words! {
    /// The write-intent bitmap of an array.
    RaidBitmap, "bitmap" {
        /// No bitmap: after a crash the whole array is resynchronized.
        Off = "none",
        /// A bitmap on the members, in which each write first marks its region.
        Internal = "internal",
    }
}

/// An md array that iotax creates over raw files, each with a loop device, to measure the cost of RAID. The members share a disk, so the array is no
/// faster than that disk. Keys are those of mdadm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MdSpec {
    /// An existing directory for the members [default: the target's own filesystem]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dir: Option<PathBuf>,
    /// RAID level.
    pub level: RaidLevel,
    /// Number of members.
    #[schemars(range(min = 2, max = 32))]
    pub raid_devices: u32,
    /// raid0, raid5 and raid10: bytes written to one member before the next, a power of two from 4 KiB to 64 MiB [default: mdadm's, 512 KiB]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub chunk: Option<Bytes>,
    /// raid1, raid5 and raid10: write-intent bitmap [default: none]
    #[serde(default = "no_bitmap")]
    pub bitmap: RaidBitmap,
}

/// Returns the default, no bitmap, which is also mdadm's default for arrays of this size.
const fn no_bitmap() -> RaidBitmap {
    RaidBitmap::Off
}

impl RaidLevel {
    /// Returns the minimum number of members of an array of this level.
    const fn least(self) -> u32 {
        match self {
            Self::Raid0 | Self::Raid1 | Self::Raid10 => 2,
            Self::Raid5 => 3,
        }
    }
}

impl MdSpec {
    /// Bytes at the start of a member that hold no data: superblock, bitmap, and room for reshaping.
    pub const DATA_OFFSET: Bytes = Bytes(2 << 20);
    /// Maximum number of members of an array.
    const MOST: u32 = 32;
    /// mdadm's default chunk size.
    const CHUNK: Bytes = Bytes(512 << 10);

    /// Returns the size that each member needs for an array of `size` bytes, including [`Self::DATA_OFFSET`] and one spare chunk.
    #[must_use]
    pub fn member(&self, size: Bytes) -> Bytes {
        let members = u64::from(self.raid_devices);
        let share = match self.level {
            RaidLevel::Raid0 => size.0.div_ceil(members),
            RaidLevel::Raid1 => size.0,
            RaidLevel::Raid5 => size.0.div_ceil(members.saturating_sub(1).max(1)),
            // Each block has two copies.
            RaidLevel::Raid10 => size.0.saturating_mul(2).div_ceil(members),
        };
        // Whole chunks, and a spare one: two copies of each chunk may not divide evenly among the members.
        let chunk = self.chunk.unwrap_or(Self::CHUNK).0.max(1);
        let data = share.div_ceil(chunk).saturating_add(1).saturating_mul(chunk);
        Bytes(data.saturating_add(Self::DATA_OFFSET.0))
    }
}

impl LayerType for MdSpec {
    fn key(&self) -> &'static str {
        "md"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        if self.dir.is_some() { &[LayerInterface::Nothing] } else { &[LayerInterface::Directory] }
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

    fn partitioned_by_zpool(&self) -> Option<&'static str> {
        Some("an array; put luks = {} between")
    }

    fn check(&self) -> Result<(), String> {
        let (level, least) = (self.level, self.level.least());
        if !(least..=Self::MOST).contains(&self.raid_devices) {
            return Err(format!(
                "raid_devices = {}: accepted for {level}: {least} to {}",
                self.raid_devices,
                Self::MOST
            ));
        }
        if let Some(chunk) = self.chunk {
            if level == RaidLevel::Raid1 {
                return Err(format!(
                    "chunk = {chunk}: raid1 has no chunks; leave it out, or use raid0, raid5 or raid10"
                ));
            }
            if !(chunk.0.is_power_of_two() && (4 << 10..=64 << 20).contains(&chunk.0)) {
                return Err(format!("chunk = {chunk}: accepted: a power of two from 4k to 64m"));
            }
        }
        if self.bitmap != RaidBitmap::Off && level == RaidLevel::Raid0 {
            return Err(format!(
                "bitmap = \"{}\": raid0 has nothing to synchronize; use raid1, raid5 or raid10",
                self.bitmap
            ));
        }
        Ok(())
    }

    fn needed_at_bottom(&self) -> Option<&'static str> {
        Some(super::DIR_OR_FILESYSTEM)
    }

    fn location(&self) -> Option<BottomLocation<'_>> {
        self.dir.as_deref().map(BottomLocation::Directory)
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.dir.iter_mut().collect()
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        Err("md makes an array of the kernel's".into())
    }

    /// Describes the members as raw files with loop devices, so that an array can be compared with a single loop device.
    fn parts(&self) -> Vec<Part> {
        vec![
            Part::of_below(&FileSpec::default(), &["dir", "format"]),
            Part::new("loop", "loop device", &LoopSpec::default(), &[]),
            Part::new("md", self.level.word(), self, &["dir"]),
        ]
    }

    fn size_below(&self, above: Bytes, _: &mut Option<Bytes>) -> Bytes {
        Bytes(self.member(above).0.saturating_mul(u64::from(self.raid_devices)))
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        let defaults = Self { chunk: None, bitmap: RaidBitmap::Off, ..self.clone() };
        let more = keys(self, Some(&defaults), &["dir", "level"]);
        let array = format!("{} raid_devices={}{more}", self.level, self.raid_devices);
        let dir = self.dir.as_ref().map(|dir| super::word(&dir.to_string_lossy()));
        dir.into_iter().chain([array]).collect()
    }
}

impl FromLine for MdSpec {
    const FORMS: &[&str] = RaidLevel::WORDS;

    fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        let level = word.parse::<RaidLevel>().ok()?;
        let dir = below.place.map(|dir| ("dir", dir.into()));
        Some(segments.take().spec([("level", level.word().into())].into_iter().chain(dir)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(keys: &str) -> MdSpec {
        toml::from_str(keys).unwrap_or_else(|error| panic!("{keys}: {error}"))
    }

    #[test]
    fn arrays_that_cannot_be_are_refused_with_the_reason() {
        for (keys, words) in [
            ("level = 'raid5'\nraid_devices = 2", "raid_devices = 2: accepted for raid5: 3 to 32"),
            ("level = 'raid1'\nraid_devices = 1", "accepted for raid1: 2 to 32"),
            ("level = 'raid0'\nraid_devices = 33", "accepted for raid0: 2 to 32"),
            ("level = 'raid1'\nraid_devices = 2\nchunk = '64k'", "raid1 has no chunks"),
            ("level = 'raid0'\nraid_devices = 2\nchunk = '48k'", "chunk = 48k: accepted: a power of two"),
            ("level = 'raid0'\nraid_devices = 2\nbitmap = 'internal'", "raid0 has nothing to synchronize"),
        ] {
            let refusal = array(keys).check().expect_err(keys);
            assert!(refusal.contains(words), "{keys}: {refusal}");
        }
        let refusal = toml::from_str::<MdSpec>("level = 'raid7'\nraid_devices = 2").expect_err("no level");
        assert!(refusal.to_string().contains("raid0, raid1, raid5"), "{refusal}");
    }

    #[test]
    fn members_hold_the_array_its_copies_and_its_parity() {
        const MIB: u64 = 1 << 20;
        for (keys, data) in [
            ("level = 'raid0'\nraid_devices = 4", 25 * MIB),
            ("level = 'raid1'\nraid_devices = 3", 100 * MIB),
            ("level = 'raid5'\nraid_devices = 3", 50 * MIB),
            ("level = 'raid10'\nraid_devices = 4", 50 * MIB),
        ] {
            let spec = array(keys);
            let member = spec.member(Bytes(100 * MIB));
            assert_eq!(member, Bytes(data + MIB / 2 + 2 * MIB), "{keys}");
            let all = spec.size_below(Bytes(100 * MIB), &mut None);
            assert_eq!(all.0, member.0 * u64::from(spec.raid_devices));
        }
    }
}
