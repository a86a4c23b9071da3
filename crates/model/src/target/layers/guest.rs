//! The settings of QEMU guests.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::{
    Area, Below, BottomLocation, FileSpec, FromLine, LayerInterface, LayerSpec, LayerType, Part,
    PlannedLayer, Segments, Snapshot, keys,
};
use crate::target::{Layer, LayerKind};
use crate::units::Bytes;
use crate::words::words;

words! {
    /// The bus of the guest's disk.
    Bus, "bus" {
        /// virtio-blk over PCI, or over MMIO on microvm.
        VirtioBlk = "virtio-blk",
        /// A SCSI disk on a virtio-scsi controller.
        VirtioScsi = "virtio-scsi",
        /// An emulated NVMe controller.
        Nvme = "nvme",
        /// A disk on an emulated AHCI controller.
        Sata = "sata",
        /// A disk on an emulated PIIX3 controller.
        Ide = "ide",
    }
}

words! {
    /// QEMU's machine type.
    MachineType, "machine" {
        /// A PC with Intel's Q35 chipset of 2009 and PCI Express.
        Q35 = "q35",
        /// A PC with Intel's i440FX chipset of 1996 and PCI.
        Pc = "pc",
        /// The minimal machine: no PCI, virtio over MMIO.
        Microvm = "microvm",
    }
}

words! {
    /// QEMU's cache mode of a drive.
    CacheMode, "cache" {
        /// Host page cache bypassed, guest flushes honoured.
        None = "none",
        /// Host page cache used, guest flushes honoured.
        Writeback = "writeback",
        /// Host page cache used, every write flushed.
        Writethrough = "writethrough",
        /// Host page cache bypassed, every write flushed.
        Directsync = "directsync",
        /// Host page cache used, flushes ignored.
        Unsafe = "unsafe",
    }
}

/// Rejects an I/O backend that QEMU does not support with this cache mode: `native` needs one that bypasses the page cache.
pub(super) fn check_aio(aio: Aio, cache: CacheMode) -> Result<(), String> {
    if aio == Aio::Native && !cache.direct() {
        return Err(format!(
            "aio = \"native\" needs cache = \"none\" or \"directsync\", not {:?}",
            cache.word()
        ));
    }
    Ok(())
}

impl CacheMode {
    /// Returns QEMU's `cache.direct` for this mode: whether the host's page cache is bypassed.
    #[must_use]
    pub const fn direct(self) -> bool {
        matches!(self, Self::None | Self::Directsync)
    }

    /// Returns QEMU's `cache.no-flush` for this mode: whether the guest's flushes are ignored.
    #[must_use]
    pub const fn no_flush(self) -> bool {
        matches!(self, Self::Unsafe)
    }

    /// Returns the guest device's `write-cache` for this mode: whether the guest sees a volatile cache, which it must flush.
    #[must_use]
    pub const fn write_cache(self) -> bool {
        !matches!(self, Self::Writethrough | Self::Directsync)
    }
}

words! {
    /// QEMU's asynchronous I/O backend of a drive.
    Aio, "aio" {
        /// A thread pool.
        Threads = "threads",
        /// Linux AIO; needs a cache mode that bypasses the page cache.
        Native = "native",
        /// io_uring.
        IoUring = "io_uring",
    }
}

words! {
    /// The accelerator of the guest's CPU.
    Accel, "accel" {
        /// KVM if it can run a guest here, otherwise TCG.
        Auto = "auto",
        /// Hardware virtualization.
        Kvm = "kvm",
        /// Emulation; results are labelled as emulated.
        Tcg = "tcg",
    }
}

words! {
    /// Handling of discarded blocks below the guest.
    Discard, "discard" {
        /// Passed down to the storage.
        Unmap = "unmap",
        /// Ignored.
        Ignore = "ignore",
    }
}

words! {
    /// A filesystem created in the guest.
    GuestFs, "filesystem" {
        /// ext4.
        Ext4 = "ext4",
        /// XFS.
        Xfs = "xfs",
    }
}

/// A QEMU guest that has the target as its disk, or that is the client of a network target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GuestSpec {
    /// Bus of the disk.
    pub bus: Bus,
    /// Cache mode of the drive.
    pub cache: CacheMode,
    /// I/O backend of the drive.
    pub aio: Aio,
    /// Handling of discarded blocks.
    pub discard: Discard,
    /// Number of virtual CPUs.
    pub vcpus: u32,
    /// Guest memory.
    pub memory: Bytes,
    /// Number of I/O threads that serve the disk, outside of QEMU's main loop; `true` is 1, `false` is 0 [default: 1 if the bus supports
    /// it]
    #[serde(deserialize_with = "flag_or_number", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FlagOrNumber")]
    pub iothread: Option<u32>,
    /// Number of queues of the disk [default: QEMU's, for virtio one per virtual CPU]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// QEMU machine type [default: q35; pc for the bus ide]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineType>,
    /// A filesystem created in the guest, with the file to measure on it [default: the raw disk]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<GuestFs>,
    /// Number of identical guests that run concurrently, each with its own disk.
    pub count: u32,
    /// Kernel image of the guest [default: that of `--kernel`, else the running kernel, else the newest in /boot that has its modules]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<PathBuf>,
}

impl Default for GuestSpec {
    fn default() -> Self {
        Self {
            bus: Bus::VirtioBlk,
            cache: CacheMode::None,
            aio: Aio::IoUring,
            discard: Discard::Unmap,
            vcpus: 1,
            memory: Bytes(512 << 20),
            iothread: None,
            queues: None,
            machine: None,
            filesystem: None,
            count: 1,
            kernel: None,
        }
    }
}

/// The accepted forms of `iothread`: a boolean or a number of threads.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum FlagOrNumber {
    Flag(bool),
    Number(u32),
}

/// Deserializes `iothread`, which is a boolean or a number of threads: `true` is 1 thread, `false` none.
fn flag_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    struct Either;
    impl serde::de::Visitor<'_> for Either {
        type Value = u32;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("true, false or a number of threads")
        }

        fn visit_bool<E>(self, flag: bool) -> Result<u32, E> {
            Ok(u32::from(flag))
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<u32, E> {
            u32::try_from(number).map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(number), &self))
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<u32, E> {
            u32::try_from(number)
                .map_err(|_| E::invalid_value(serde::de::Unexpected::Unsigned(number), &self))
        }
    }
    deserializer.deserialize_any(Either).map(Some)
}

impl Bus {
    /// Returns whether the disk is a virtio device, whose queues can be served by I/O threads.
    #[must_use]
    pub const fn is_virtio(self) -> bool {
        matches!(self, Self::VirtioBlk | Self::VirtioScsi)
    }
}

/// Bytes added to a guest's disk for the filesystem's journal, in addition to a sixteenth of the area for its tables.
const FILESYSTEM_JOURNAL: u64 = 128 << 20;
/// Minimum size in bytes of a disk with an XFS filesystem: mkfs.xfs rejects sizes below 300 MiB.
const SMALLEST_XFS: u64 = 320 << 20;

impl GuestSpec {
    /// Returns the layer of the guest's bus, with the options of the disk on it.
    #[must_use]
    pub fn bus_layer(&self) -> Layer {
        let mut words = vec![format!("cache={} aio={}", self.cache, self.aio)];
        match self.iothreads() {
            0 => {}
            1 => words.push("iothread".to_owned()),
            threads => words.push(format!("{threads} iothreads")),
        }
        words.extend(self.queues.map(|queues| format!("queues={queues}")));
        if self.discard == Discard::Ignore {
            words.push("discard=ignore".to_owned());
        }
        Layer::new(LayerKind::Bus, self.bus.word(), words.join(" "))
    }

    /// Returns the number of I/O threads that serve the disk: the plan's, else 1 for a virtio disk and 0 for others.
    #[must_use]
    pub fn iothreads(&self) -> u32 {
        self.iothread.unwrap_or_else(|| u32::from(self.bus.is_virtio()))
    }

    /// Returns the QEMU machine type of the guest: the plan's, else `pc` for an IDE disk and `q35` for others.
    #[must_use]
    pub fn machine_type(&self) -> MachineType {
        self.machine.unwrap_or(match self.bus {
            Bus::Ide => MachineType::Pc,
            _ => MachineType::Q35,
        })
    }

    /// Returns the size that the guest's disk needs for an area of `size`. A filesystem needs a sixteenth and 128 MiB more, and XFS at
    /// least 320 MiB in total.
    #[must_use]
    pub fn disk_size(&self, size: Bytes) -> Bytes {
        let with_tables = size.0.saturating_add(size.0 / 16).saturating_add(FILESYSTEM_JOURNAL);
        match self.filesystem {
            None => size,
            // A multiple of the largest sector size.
            Some(GuestFs::Ext4) => Bytes(with_tables.next_multiple_of(4096)),
            Some(GuestFs::Xfs) => Bytes(with_tables.next_multiple_of(4096).max(SMALLEST_XFS)),
        }
    }

    /// Rejects combinations of machine type, bus, queues and I/O threads that QEMU does not support.
    fn check_bus(&self) -> Result<(), String> {
        let (bus, machine) = (self.bus, self.machine_type());
        match (bus, machine) {
            (Bus::Ide, MachineType::Q35 | MachineType::Microvm) => {
                return Err(format!("bus = \"ide\" needs machine = \"pc\", not {:?}", machine.word()));
            }
            (Bus::Nvme | Bus::Sata, MachineType::Microvm) => {
                return Err(format!(
                    "machine = \"microvm\" has no PCI, which bus = {:?} needs; it takes virtio-blk and virtio-scsi",
                    bus.word()
                ));
            }
            _ => {}
        }
        if let Some(queues) = self.queues {
            if matches!(bus, Bus::Sata | Bus::Ide) {
                return Err(format!("queues = {queues}: bus = {:?} has one; leave queues out", bus.word()));
            }
            if queues == 0 || queues > 256 {
                return Err(format!("queues = {queues}: accepted: 1 to 256"));
            }
        }
        let threads = self.iothreads();
        if threads > 0 && !bus.is_virtio() {
            return Err(format!(
                "iothread = {threads}: QEMU serves bus = {:?} in its main loop; threads are for virtio-blk and virtio-scsi",
                bus.word()
            ));
        }
        let queues = self.queues.unwrap_or(self.vcpus);
        if threads > 1 && threads > queues {
            return Err(format!(
                "iothread = {threads}: a thread serves at least one queue, and the disk has {queues}; set queues = {threads}"
            ));
        }
        Ok(())
    }

    /// Rejects settings of a disk, for a guest that has a directory by `protocol` instead.
    pub(in crate::target) fn check_without_disk(&self, protocol: &str) -> Result<(), String> {
        let (own, usual) = (Part::settings_of(self, &[]), Part::settings_of(&Self::default(), &[]));
        let is_set = |key: &&&str| own.get(**key) != usual.get(**key);
        match OF_DISK.iter().chain(&["filesystem"]).find(is_set) {
            Some(key) => Err(format!(
                "guest: {key} is for a disk, and {protocol} gives the guest a directory in its place; leave it out"
            )),
            None => Ok(()),
        }
    }

    /// Returns the guest as a part of a target without a disk.
    #[must_use]
    pub fn part_without_disk(&self) -> Part {
        let mut part = Part::new("guest", "guest", self, &[&OF_DISK[..], &["filesystem"]].concat());
        part.open.insert("machine", self.machine_type().to_string());
        part
    }
}

/// Returns whether a guest on this layer has a disk; false on a network or a directory.
fn has_disk(below: Option<&PlannedLayer>) -> bool {
    let offered = below.map(|below| below.kind().offers());
    !matches!(offered, Some(LayerInterface::GuestNetwork | LayerInterface::GuestDirectory))
}

/// Keys of a guest that describe its disk.
const OF_DISK: [&str; 6] = ["bus", "cache", "aio", "discard", "iothread", "queues"];
/// Keys of a guest that describe the virtual machine.
const OF_MACHINE: [&str; 6] = ["vcpus", "memory", "machine", "filesystem", "count", "kernel"];
/// Keys that a stack's line shows at fixed positions in the guest's text; all other keys follow as `key=value`.
const IN_LINE: [&str; 5] = ["bus", "cache", "aio", "count", "filesystem"];

impl LayerType for GuestSpec {
    fn key(&self) -> &'static str {
        "guest"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        &[
            LayerInterface::Block,
            LayerInterface::RawFile,
            LayerInterface::Image,
            LayerInterface::GuestNetwork,
            LayerInterface::GuestDirectory,
        ]
    }

    fn offers(&self) -> LayerInterface {
        if self.filesystem.is_some() { LayerInterface::FileInGuest } else { LayerInterface::GuestDisk }
    }

    fn cache(&self) -> Option<CacheMode> {
        Some(self.cache)
    }

    fn aio(&self) -> Option<Aio> {
        Some(self.aio)
    }

    fn check(&self) -> Result<(), String> {
        check_aio(self.aio, self.cache)?;
        if self.vcpus == 0 || self.vcpus > 64 {
            return Err(format!("vcpus = {}: accepted: 1 to 64", self.vcpus));
        }
        if self.memory < Bytes(256 << 20) {
            return Err(format!("memory = {}: at least 256m is needed to boot", self.memory));
        }
        if self.count == 0 || self.count > 64 {
            return Err(format!("count = {}: accepted: 1 to 64", self.count));
        }
        self.check_bus()
    }

    fn check_on(&self, below: &[PlannedLayer]) -> Result<(), String> {
        if let Some(protocol) = below.iter().rev().find_map(|layer| layer.kind().shared_directory()) {
            self.check_without_disk(protocol.word())?;
        }
        let snapshot = below.iter().rev().find_map(FileSpec::of).and_then(|file| file.snapshot);
        if snapshot == Some(Snapshot::External) && self.filesystem.is_some() {
            return Err(
                "snapshot = \"external\" takes the disk back to what it was, which a filesystem mounted in the guest \
                 does not survive; use snapshot = \"internal\", or leave guest.filesystem out"
                    .into(),
            );
        }
        let bottom = below.first().and_then(|bottom| bottom.kind().location());
        if self.count > 1 && matches!(bottom, Some(BottomLocation::Device(_))) {
            return Err("several guests need a disk each: use file or lvm with a volume group".into());
        }
        Ok(())
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.kernel.iter_mut().collect()
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        let Self {
            kernel,
            bus: _,
            cache: _,
            aio: _,
            discard: _,
            vcpus: _,
            memory: _,
            iothread: _,
            queues: _,
            machine: _,
            filesystem: _,
            count: _,
        } = self;
        match kernel {
            Some(kernel) => Err(format!("guest.kernel = {}: a program of its own", kernel.display())),
            None => Ok(()),
        }
    }

    fn parts(&self) -> Vec<Part> {
        let mut guest = Part::new("guest", format!("{} + guest", self.bus), self, &["filesystem"]);
        guest.open.insert("machine", self.machine_type().to_string());
        guest.open.insert("iothread", self.iothreads().to_string());
        let filesystem = self.filesystem.map(|filesystem| {
            let mut part = Part::plain(format!("{filesystem} in the guest"));
            part.kind = "guest filesystem".into();
            part.settings.insert("filesystem".into(), filesystem.to_string());
            part
        });
        [guest].into_iter().chain(filesystem).collect()
    }

    fn size_below(&self, above: Bytes, files: &mut Option<Bytes>) -> Bytes {
        // Without a filesystem on the disk, such files are in a directory of the host.
        if self.filesystem.is_none() {
            return above;
        }
        let files = files.take().unwrap_or_default();
        self.disk_size(Bytes(above.0.saturating_add(files.0)))
    }

    fn segments(&self, below: Option<&PlannedLayer>) -> Vec<String> {
        let none = Self::default();
        let guests = if self.count > 1 { format!("{} guests", self.count) } else { "guest".into() };
        let machine = format!("{guests}{}", keys(self, Some(&none), &[&OF_DISK[..], &IN_LINE].concat()));
        if !has_disk(below) {
            return vec![machine];
        }
        let of_disk = keys(self, Some(&none), &[&OF_MACHINE[..], &IN_LINE].concat());
        let disk = format!("{} cache={} aio={}{of_disk}", self.bus, self.cache, self.aio);
        [disk, machine].into_iter().chain(self.filesystem.map(|filesystem| filesystem.to_string())).collect()
    }
}

impl FromLine for GuestSpec {
    const FORMS: &[&str] = &["virtio-blk > guest"];

    fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>> {
        let mut pairs = Vec::new();
        let mut disk = toml::Table::new();
        if has_disk(below.layer) {
            let [bus] = segments.next_words()? else { return None };
            pairs.push(("bus", bus.parse::<Bus>().ok()?.word().into()));
            disk = segments.take().keys;
        }
        let count = match segments.next_words() {
            Some([guest]) if guest == "guest" => 1,
            Some([count, guests]) if guests == "guests" => match count.parse::<u32>() {
                Ok(count) => count,
                Err(_) => return Some(Err(format!("{count:?} is no number of guests"))),
            },
            _ => {
                let (device, form) = if has_disk(below.layer) {
                    ("disk", "virtio-blk")
                } else {
                    ("directory or network", "9p")
                };
                return Some(Err(format!(
                    "a guest's {device} is followed by its guest: ... > {form} > guest"
                )));
            }
        };
        pairs.push(("count", i64::from(count).into()));
        let mut machine = segments.take();
        machine.keys.extend(disk);
        if let Some([filesystem]) = segments.next_words()
            && let Ok(filesystem) = filesystem.parse::<GuestFs>()
        {
            pairs.push(("filesystem", filesystem.word().into()));
            if let Err(error) = segments.take().without_keys() {
                return Some(Err(error));
            }
        }
        Some(machine.spec(pairs))
    }
}
