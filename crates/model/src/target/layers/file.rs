//! A new file or disk image: its format and allocation.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Aio, Area, Below, BottomLocation, CacheMode, FilterSpec, FromLine, LayerInterface, LayerSpec, LayerType,
    Part, PlannedLayer, Segments, keys,
};
use crate::target::{Layer, LayerKind};
use crate::units::Bytes;
use crate::words::words;

words! {
    /// The format of a disk image.
    Format, "format" {
        /// The disk's bytes without any format metadata.
        Raw = "raw",
        /// QEMU's copy-on-write format.
        Qcow2 = "qcow2",
        /// VMware's format; by default one file that grows as data is written.
        Vmdk = "vmdk",
        /// Hyper-V's format; by default the file grows as data is written.
        Vhdx = "vhdx",
        /// Hyper-V's older format (VHD); by default it grows as data is written.
        Vpc = "vpc",
        /// VirtualBox's format; the file grows as data is written.
        Vdi = "vdi",
        /// Parallels' format; the file grows as data is written.
        Parallels = "parallels",
        /// A raw disk that QEMU encrypts (LUKS).
        Luks = "luks",
    }
}

words! {
    /// Preallocation by `qemu-img create`.
    Preallocation, "preallocation" {
        /// No preallocation.
        Off = "off",
        /// qcow2: the metadata tables.
        Metadata = "metadata",
        /// All space, reserved with posix_fallocate.
        Falloc = "falloc",
        /// All space, reserved by writing zeros.
        Full = "full",
    }
}

words! {
    /// A snapshot of the filled image, taken again before each measurement, so that writes trigger copy-on-write.
    Snapshot, "snapshot" {
        /// A qcow2 overlay with the image as its backing file.
        External = "external",
        /// A snapshot inside the qcow2 image.
        Internal = "internal",
    }
}

/// Keys that a stack's line expresses in words, such as `+ 2 external snapshots`, instead of as `key=value`.
const SNAPSHOT_KEYS: &[&str] = &["snapshot", "backing_depth", "internal_snapshots"];

impl Snapshot {
    /// Returns the key for the number of overlays or snapshots.
    const fn count_key(self) -> &'static str {
        match self {
            Self::External => "backing_depth",
            Self::Internal => "internal_snapshots",
        }
    }
}

words! {
    /// The encryption of an image by QEMU.
    Encryption, "encryption" {
        /// LUKS, with AES-256 in XTS mode.
        Luks = "luks",
    }
}

words! {
    /// The layout of an image file, under QEMU's names.
    Subformat, "subformat" {
        /// vhdx, vpc: space is allocated as data is written.
        Dynamic = "dynamic",
        /// vhdx, vpc: all space is allocated when the image is created.
        Fixed = "fixed",
        /// vmdk: one file that grows as data is written.
        MonolithicSparse = "monolithicSparse",
        /// vmdk: a descriptor, and one file of full size with the data.
        MonolithicFlat = "monolithicFlat",
        /// vmdk: a descriptor, and for every 2 GiB a file that grows as data is written.
        TwoGbMaxExtentSparse = "twoGbMaxExtentSparse",
        /// vmdk: a descriptor, and for every 2 GiB a file of full size with the data.
        TwoGbMaxExtentFlat = "twoGbMaxExtentFlat",
    }
}

impl Subformat {
    /// Returns whether an image in this subformat is a descriptor with its data in separate files. QEMU always opens such files with `aio =
    /// "threads"`.
    pub(in crate::target) const fn has_extents(self) -> bool {
        matches!(self, Self::MonolithicFlat | Self::TwoGbMaxExtentSparse | Self::TwoGbMaxExtentFlat)
    }

    /// Returns whether QEMU offers this subformat for images of `format`.
    const fn is_of(self, format: Format) -> bool {
        match self {
            Self::Dynamic | Self::Fixed => matches!(format, Format::Vhdx | Format::Vpc),
            Self::MonolithicSparse
            | Self::MonolithicFlat
            | Self::TwoGbMaxExtentSparse
            | Self::TwoGbMaxExtentFlat => matches!(format, Format::Vmdk),
        }
    }
}

/// A file that iotax creates, fills and removes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FileSpec {
    /// An existing directory for the file [default: the target's own filesystem]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Image format; all but raw need a layer above that reads images, such as virtio, fuse or a guest.
    pub format: Format,
    /// Space to allocate in advance.
    pub preallocation: Preallocation,
    /// qcow2: cluster size, a power of two from 512 bytes to 2 MiB [default: QEMU's, 64 KiB]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_size: Option<Bytes>,
    /// qcow2: divide each cluster into 32 subclusters.
    #[serde(skip_serializing_if = "is_false")]
    pub extended_l2: bool,
    /// qcow2: update reference counts lazily, and check them after a crash.
    #[serde(skip_serializing_if = "is_false")]
    pub lazy_refcounts: bool,
    /// qcow2: encrypt the guest's data, also in overlays on the image [default: no encryption]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypt: Option<Encryption>,
    /// qcow2: keep the guest's data in a separate raw file next to the image, which then holds only the metadata tables.
    #[serde(skip_serializing_if = "is_false")]
    pub data_file: bool,
    /// vhdx and vpc: dynamic or fixed; vmdk: monolithicSparse, monolithicFlat, twoGbMaxExtentSparse or twoGbMaxExtentFlat [default: the first]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subformat: Option<Subformat>,
    /// qcow2: size of the cache for L2 tables [default: QEMU's]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2_cache_size: Option<Bytes>,
    /// A snapshot of the filled image; needs format = "qcow2" [default: none]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
    /// Number of overlays of an external snapshot, 1 to 64; writes go to the topmost [default: 1]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backing_depth: Option<u32>,
    /// Number of internal snapshots that the image contains, all with the same content [default: 1]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub internal_snapshots: Option<u32>,
}

impl Default for FileSpec {
    fn default() -> Self {
        Self {
            dir: None,
            format: Format::Raw,
            preallocation: Preallocation::Off,
            cluster_size: None,
            extended_l2: false,
            lazy_refcounts: false,
            encrypt: None,
            data_file: false,
            subformat: None,
            l2_cache_size: None,
            snapshot: None,
            backing_depth: None,
            internal_snapshots: None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl FileSpec {
    /// Returns the bytes on disk of a file whose disk has `size` bytes: its data and 2% of metadata, the same again for a completely
    /// written snapshot, and 1 MiB for each further backing file or snapshot in the image.
    #[must_use]
    pub fn on_disk(&self, size: Bytes) -> Bytes {
        /// Estimated size in bytes of an empty overlay, or of the tables of a snapshot.
        const EMPTY: u64 = 1 << 20;
        let images = if self.snapshot.is_some() { 2 } else { 1 };
        let further = u64::from(self.snapshot_count().unwrap_or(1) - 1) * EMPTY;
        Bytes(size.0.saturating_add(size.0 / 50).saturating_mul(images).saturating_add(further))
    }
}

impl LayerType for FileSpec {
    fn key(&self) -> &'static str {
        "file"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        if self.dir.is_some() { &[LayerInterface::Nothing] } else { &[LayerInterface::Directory] }
    }

    fn offers(&self) -> LayerInterface {
        match self.format {
            Format::Raw => LayerInterface::RawFile,
            _ => LayerInterface::Image,
        }
    }

    fn cache(&self) -> Option<CacheMode> {
        None
    }

    fn amplifies(&self) -> bool {
        self.snapshot.is_some()
    }

    fn check(&self) -> Result<(), String> {
        if self.format != Format::Qcow2 {
            match (self.format, self.preallocation) {
                (_, Preallocation::Off) | (Format::Raw, Preallocation::Falloc | Preallocation::Full) => {}
                (Format::Raw, preallocation) => {
                    return Err(format!(
                        "preallocation = \"{preallocation}\" is for qcow2; raw takes off, falloc or full"
                    ));
                }
                (format, preallocation) => {
                    return Err(format!(
                        "preallocation = \"{preallocation}\" is for raw and qcow2, not {format}"
                    ));
                }
            }
            let qcow2_only = [
                ("cluster_size", self.cluster_size.is_some()),
                ("extended_l2", self.extended_l2),
                ("lazy_refcounts", self.lazy_refcounts),
                ("encrypt", self.encrypt.is_some()),
                ("data_file", self.data_file),
                ("l2_cache_size", self.l2_cache_size.is_some()),
                ("snapshot", self.snapshot.is_some()),
                ("backing_depth", self.backing_depth.is_some()),
                ("internal_snapshots", self.internal_snapshots.is_some()),
            ];
            if let Some((key, _)) = qcow2_only.iter().find(|(_, given)| *given) {
                let other =
                    if *key == "encrypt" { "; a raw image is encrypted by format = \"luks\"" } else { "" };
                return Err(format!("{key} needs format = \"qcow2\"{other}"));
            }
        }
        if let Some(subformat) = self.subformat.filter(|subformat| !subformat.is_of(self.format)) {
            return Err(format!(
                "subformat = \"{subformat}\" is none of {}'s; accepted: dynamic and fixed for vhdx and vpc, monolithicSparse, monolithicFlat, \
                 twoGbMaxExtentSparse and twoGbMaxExtentFlat for vmdk",
                self.format
            ));
        }
        if self.data_file && self.snapshot == Some(Snapshot::Internal) {
            return Err("data_file = true: QEMU takes no internal snapshot of such an image; use snapshot = \"external\"".into());
        }
        if let Some(size) = self.cluster_size
            && !(size.0.is_power_of_two() && (512..=2 << 20).contains(&size.0))
        {
            return Err(format!("cluster_size = {size}: accepted: a power of two from 512 to 2m"));
        }
        if self.extended_l2 && self.cluster_size.is_some_and(|size| size < Bytes(16 << 10)) {
            return Err("extended_l2 needs a cluster_size of at least 16k".into());
        }
        if let Some(depth) = self.backing_depth {
            if self.snapshot != Some(Snapshot::External) {
                return Err("backing_depth needs snapshot = \"external\"".into());
            }
            if depth == 0 || depth > 64 {
                return Err(format!("backing_depth = {depth}: accepted: 1 to 64"));
            }
        }
        if let Some(count) = self.internal_snapshots {
            match self.snapshot {
                Some(Snapshot::Internal) => {}
                Some(Snapshot::External) => {
                    return Err("internal_snapshots: with snapshot = \"external\" writes go to the overlay and copy nothing in the \
                                image below; use snapshot = \"internal\""
                        .into());
                }
                None => return Err("internal_snapshots needs snapshot = \"internal\"".into()),
            }
            if count == 0 || count > 64 {
                return Err(format!(
                    "internal_snapshots = {count}: accepted: 1 to 64; for none leave snapshot out"
                ));
            }
        }
        Ok(())
    }

    fn is_reusable(&self) -> bool {
        self.snapshot.is_none()
    }

    /// Rejects an `aio` setting that QEMU would ignore: it always opens the extent files of a VMDK image with threads.
    fn check_under(&self, above: &[PlannedLayer]) -> Result<(), String> {
        let Some(subformat) = self.subformat.filter(|subformat| subformat.has_extents()) else {
            return Ok(());
        };
        let opens = above.iter().find(|layer| FilterSpec::of(layer).is_none());
        match opens.and_then(|layer| layer.kind().aio()).filter(|aio| *aio != Aio::Threads) {
            Some(aio) => Err(format!(
                "aio = \"{aio}\": QEMU opens the extents of an image with subformat = \"{subformat}\" with threads; use aio = \"threads\""
            )),
            None => Ok(()),
        }
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

    fn size_below(&self, above: Bytes, _: &mut Option<Bytes>) -> Bytes {
        // What a raw file takes beside its data is the filesystem's.
        if self.format == Format::Raw { above } else { self.on_disk(above) }
    }

    fn confine(&self, area: &dyn Area) -> Result<(), String> {
        let Self {
            dir,
            format: _,
            preallocation: _,
            cluster_size: _,
            extended_l2: _,
            lazy_refcounts: _,
            encrypt: _,
            data_file: _,
            subformat: _,
            l2_cache_size: _,
            snapshot: _,
            backing_depth: _,
            internal_snapshots: _,
        } = self;
        area.takes_files("file.dir", dir.as_deref())
    }

    fn parts(&self) -> Vec<Part> {
        if self.format == Format::Raw {
            // A raw file comes with the filesystem below, so it is not a separate part.
            return vec![Part::of_below(self, &["dir", "format"])];
        }
        let mut without = [&["dir", "format"], SNAPSHOT_KEYS].concat();
        if self.format != Format::Qcow2 {
            // Other formats accept only `preallocation = "off"`.
            without.push("preallocation");
        }
        let format = Part::format(self.format, Part::new("", self.format.word(), self, &without));
        let snapshot = self.snapshot.map(|kind| {
            let mut part = Part::plain(format!("{kind} snapshot"));
            let count = self.snapshot_count().unwrap_or(1);
            if count > 1 {
                part.name = format!("{count} {kind} snapshots");
            }
            part.settings.insert(kind.count_key().into(), count.to_string());
            part
        });
        [format].into_iter().chain(snapshot).collect()
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        let snapshot = self.snapshot.map(|kind| match self.snapshot_count() {
            Some(count) => format!(" + {count} {kind} snapshots"),
            None => format!(" + {kind} snapshot"),
        });
        let other = keys(self, Some(&Self::default()), &[&["dir", "format"], SNAPSHOT_KEYS].concat());
        let file = format!("{} file{}{other}", self.format, snapshot.unwrap_or_default());
        let dir = self.dir.as_ref().map(|dir| super::word(&dir.to_string_lossy()));
        dir.into_iter().chain([file]).collect()
    }
}

impl FromLine for FileSpec {
    const FORMS: &[&str] = &[
        "raw file",
        "qcow2 file",
        "qcow2 file + external snapshot",
        "qcow2 file + 2 internal snapshots",
        "vmdk file",
        "vhdx file",
        "vpc file",
        "vdi file",
        "parallels file",
        "luks file",
    ];

    fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>> {
        let words = segments.next_words()?;
        let (format, rest) = words.split_first()?;
        let format = format.parse::<Format>().ok()?;
        let (file, rest) = rest.split_first()?;
        if file != "file" {
            return None;
        }
        let (count, snapshot) = match rest {
            [] => (None, None),
            [plus, kind, one] if plus == "+" && one == "snapshot" => (None, Some(kind)),
            [plus, count, kind, more] if plus == "+" && matches!(more.as_str(), "snapshot" | "snapshots") => {
                (Some(count.parse::<u32>().ok()?), Some(kind))
            }
            _ => return None,
        };
        let mut pairs = vec![("format", format.word().into())];
        pairs.extend(below.place.map(|dir| ("dir", dir.into())));
        let key = snapshot.and_then(|kind| kind.parse().ok()).unwrap_or(Snapshot::External).count_key();
        pairs.extend(count.map(|count| (key, i64::from(count).into())));
        pairs.extend(snapshot.map(|kind| ("snapshot", kind.as_str().into())));
        Some(segments.take().spec(pairs))
    }
}

impl FileSpec {
    /// Creates a raw file in an existing directory, with default settings.
    #[must_use]
    pub fn in_dir(dir: impl Into<PathBuf>) -> Self {
        Self { dir: Some(dir.into()), ..Self::default() }
    }

    /// Returns the number of overlays of an external snapshot, or of snapshots in the image; `None` if the plan does not set it.
    #[must_use]
    pub fn snapshot_count(&self) -> Option<u32> {
        self.backing_depth.or(self.internal_snapshots)
    }

    /// Describes the image, and its snapshot if there is one, as layers for a run's results.
    #[must_use]
    pub fn image_layers(&self) -> Vec<Layer> {
        let image = Layer::new(LayerKind::Image, self.format.word(), self.detail());
        let snapshot = self.snapshot.map(|snapshot| {
            let count = self.snapshot_count().map(|count| match snapshot {
                Snapshot::External => format!(", {count} overlays deep"),
                Snapshot::Internal => format!(", {count} in the image"),
            });
            let detail = format!("new before each measurement{}", count.unwrap_or_default());
            Layer::new(LayerKind::Snapshot, format!("{snapshot} snapshot"), detail)
        });
        [image].into_iter().chain(snapshot).collect()
    }

    /// Lists the image's settings: its preallocation, the settings that the plan gives, and for qcow2 that clusters are not compressed.
    fn detail(&self) -> String {
        let mut words = vec![format!("preallocation={}", self.preallocation)];
        words.extend(self.cluster_size.map(|size| format!("cluster_size={size}")));
        words.extend(self.extended_l2.then(|| "extended_l2".to_owned()));
        words.extend(self.lazy_refcounts.then(|| "lazy_refcounts".to_owned()));
        words.extend(self.encrypt.map(|encryption| format!("encrypt={encryption}")));
        words.extend(self.data_file.then(|| "data_file".to_owned()));
        words.extend(self.subformat.map(|subformat| format!("subformat={subformat}")));
        words.extend(self.l2_cache_size.map(|size| format!("l2_cache_size={size}")));
        if self.format == Format::Qcow2 {
            // Only qemu-img convert would compress them.
            words.push("not compressed".to_owned());
        }
        words.join(" ")
    }
}
