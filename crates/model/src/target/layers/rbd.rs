//! A Ceph block device: an image in a cluster of one node on this machine, accessed by QEMU's client. The cluster's disk is a raw file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments, keys,
};
use crate::units::Bytes;
use crate::words::words;

words! {
    /// The kind of disk that an OSD is set up for.
    OsdMedia, "media" {
        /// Settings for flash: small writes go directly to their final location, and more threads serve requests.
        Ssd = "ssd",
        /// Settings for hard disks: small writes go to the journal first, and to their final location later.
        Hdd = "hdd",
    }
}

/// An image in a Ceph cluster that iotax starts in a private network namespace, accessed by QEMU's own client (librbd). The cluster has one monitor,
/// one OSD (BlueStore) with the raw file as its disk, and a pool without replicas. The layer above sets the client's cache: `cache = "writeback"`
/// turns it on, `"none"` off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RbdSpec {
    /// Bytes of each object that the image is divided into: a power of two from 4k to 32m.
    pub object_size: Bytes,
    /// The kind of disk that the OSD is set up for. Ceph itself treats every file as a hard disk.
    pub media: OsdMedia,
    /// Keep data in the OSD's memory after a read, as Ceph does by default (`bluestore_default_buffered_read`); otherwise each read comes from the
    /// OSD's disk.
    pub buffered_read: bool,
}

impl Default for RbdSpec {
    fn default() -> Self {
        Self { object_size: Bytes(4 << 20), media: OsdMedia::Ssd, buffered_read: false }
    }
}

impl RbdSpec {
    /// Space for the Ceph monitor's database, which lies next to the raw file.
    pub const STORE: Bytes = Bytes(256 << 20);
    /// Bytes of the raw file that are reserved for BlueStore's database and log, which grow with writes. An OSD that runs out of space aborts.
    const DATABASE: u64 = 5 << 30;
}

impl LayerType for RbdSpec {
    fn key(&self) -> &'static str {
        "rbd"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[LayerInterface::RawFile]
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::BlockNode
    }

    fn cache(&self) -> Option<CacheMode> {
        // The OSD opens the file with direct I/O, and acknowledges a write only once it is durable.
        Some(if self.buffered_read { CacheMode::Writethrough } else { CacheMode::None })
    }

    fn amplifies(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), String> {
        let Bytes(size) = self.object_size;
        if size.is_power_of_two() && (4 << 10..=32 << 20).contains(&size) {
            return Ok(());
        }
        Err(format!("rbd: object_size = {}: accepted: a power of two from 4k to 32m", self.object_size))
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        let Self { object_size: _, media: _, buffered_read: _ } = self;
        Ok(())
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("rbd", "Ceph RBD", self, &[])]
    }

    fn size_below(&self, above: Bytes, files: &mut Option<Bytes>) -> Bytes {
        // A filesystem below also holds the monitor's database.
        let beside = files.take().unwrap_or_default();
        *files = Some(Bytes(beside.0.saturating_add(Self::STORE.0)));
        // Objects have metadata, and an OSD that is 95% full takes no more writes.
        Bytes(above.0.saturating_add(above.0 / 8).saturating_add(Self::DATABASE))
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        vec![format!("rbd{}", keys(self, Some(&Self::default()), &[]))]
    }
}

impl FromLine for RbdSpec {
    const FORMS: &[&str] = &["rbd"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "rbd").then(|| segments.take().spec([]))
    }
}

#[cfg(test)]
mod tests {
    use crate::target::Stack;

    #[test]
    fn objects_have_a_size_that_ceph_takes() {
        for (size, is_fine) in [("4k", true), ("32m", true), ("2k", false), ("64m", false), ("3m", false)] {
            let stack = Stack::parse(&format!("/srv > raw file > rbd object_size={size} > virtio"));
            let checked = stack.expect("a line").check();
            assert_eq!(checked.is_ok(), is_fine, "{size}: {checked:?}");
            let said = checked.err().unwrap_or_default();
            assert!(is_fine || said.contains("accepted: a power of two from 4k to 32m"), "{said}");
        }
    }

    #[test]
    fn a_cache_is_one_where_reads_stay_in_memory() {
        let cached = |line: &str| Stack::parse(line).expect(line).is_cached();
        assert!(!cached("/srv > raw file > rbd > virtio"));
        assert!(cached("/srv > raw file > rbd buffered_read=true > virtio"));
        assert!(cached("/srv > raw file > rbd > virtio cache=writeback"));
    }
}
