//! The kinds of layers that a plan can name, one file per kind.
//!
//! To add a kind, add a file with its keys and its [`LayerType`], and a line in `layers!` below, from which the table form of plans and the
//! schema are generated. The compiler then requires the code that builds the layer in `testbed::target`.

mod cache;
mod cgroup;
mod device;
mod file;
mod filesystem;
mod filter;
mod fuse;
mod guest;
mod image;
mod integrity;
mod iscsi;
mod loop_device;
mod luks;
mod lvm;
mod md;
mod nbd;
mod nbd_export;
mod network;
mod nfs;
mod nvme_tcp;
mod overlay;
mod path;
mod rbd;
mod segments;
mod tmpfs;
mod virtio;
mod volatile;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Settings;
use super::area::Area;
use super::part::Part;
use crate::units::Bytes;

pub use cache::{CacheSpec, CacheType, DmCacheMode};
pub use cgroup::CgroupSpec;
pub use device::DeviceSpec;
pub use file::{FileSpec, Format, Preallocation, Snapshot, Subformat};
pub use filesystem::{FilesystemSpec, FsType};
pub use filter::{FilterSpec, FilterType};
pub use fuse::FuseSpec;
pub use guest::{Accel, Aio, Bus, CacheMode, Discard, GuestFs, GuestSpec, MachineType};
pub use image::ImageSpec;
pub use integrity::{IntegrityMode, IntegritySpec};
pub use iscsi::IscsiSpec;
pub use loop_device::LoopSpec;
pub use luks::LuksSpec;
pub use lvm::{LvKind, LvmSpec};
pub use md::{MdSpec, RaidBitmap, RaidLevel};
pub use nbd::{NbdServer, NbdSpec};
pub use nbd_export::{NbdAddress, NbdExportSpec};
pub use network::{LocalPath, NetPath, NetworkEnds, NetworkSpec, NetworkStack, Nic};
pub use nfs::NfsSpec;
pub use nvme_tcp::NvmeTcpSpec;
pub use overlay::OverlaySpec;
pub use path::PathSpec;
pub use rbd::{OsdMedia, RbdSpec};
pub(super) use segments::Segments;
use segments::{keys, word};
pub use tmpfs::TmpfsSpec;
pub use virtio::VirtioSpec;
pub use volatile::VolatileSpec;

/// The interface that a layer offers to the layer above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerInterface {
    /// The machine itself, below the bottom layer.
    Nothing,
    /// A block device.
    Block,
    /// A directory for new files.
    Directory,
    /// A file with the contents of the disk.
    RawFile,
    /// A disk image in a format that QEMU reads.
    Image,
    /// A node of QEMU's block layer.
    BlockNode,
    /// The queues of a virtio block device.
    VirtioQueue,
    /// The disk of a guest.
    GuestDisk,
    /// A file on a filesystem in a guest.
    FileInGuest,
    /// A network that a guest's NIC can connect to.
    GuestNetwork,
    /// The interface of the layer below, for processes with an I/O limit.
    Limited,
    /// An existing file or device, measured as it is.
    Found,
}

impl LayerInterface {
    /// Returns whether a workload can run on a layer that offers this interface.
    #[must_use]
    pub const fn is_measurable(self) -> bool {
        match self {
            Self::Block
            | Self::RawFile
            | Self::VirtioQueue
            | Self::GuestDisk
            | Self::FileInGuest
            | Self::Limited
            | Self::Found => true,
            Self::Nothing | Self::Directory | Self::Image | Self::BlockNode | Self::GuestNetwork => false,
        }
    }

    /// The name of the interface in error messages.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing below it",
            Self::Block => "a block device",
            Self::Directory => "a directory",
            Self::RawFile => "a raw file",
            Self::Image => "a disk image",
            Self::BlockNode => "a block node of QEMU's",
            Self::VirtioQueue => "a virtio device without a guest",
            Self::GuestDisk => "a guest's disk",
            Self::FileInGuest => "a file in a guest",
            Self::GuestNetwork => "a network for a guest",
            Self::Limited => "a limit on the load, which stands on top",
            Self::Found => "something that is measured where it is",
        }
    }
}

/// Interfaces that QEMU's storage daemon can open.
const BENEATH_A_DAEMON: &[LayerInterface] =
    &[LayerInterface::RawFile, LayerInterface::Image, LayerInterface::BlockNode, LayerInterface::Block];

/// Location of a stack's bottom layer on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BottomLocation<'a> {
    /// An existing file or device, or the path of a new one.
    Path(&'a Path),
    /// A block device.
    Device(&'a Path),
    /// A volume group.
    Group(&'a str),
    /// A directory.
    Directory(&'a Path),
}

/// The behaviour of a kind of layer.
pub trait LayerType {
    /// The key of the layer in a target's table.
    fn key(&self) -> &'static str;

    /// The interfaces that the layer below may offer.
    fn stands_on(&self) -> &'static [LayerInterface];

    /// The interface that it offers to the layer above.
    fn offers(&self) -> LayerInterface;

    /// The cache mode in which the layer accesses the layer below; `None` if it passes I/O on unchanged.
    fn cache(&self) -> Option<CacheMode>;

    /// The I/O backend with which QEMU opens the layer below; `None` if QEMU does not open it.
    fn aio(&self) -> Option<Aio> {
        None
    }

    /// Returns whether QEMU's client for this layer sends flushes even if the cache mode above ignores them.
    fn client_flushes(&self) -> bool {
        false
    }

    /// Returns whether the layer moves more data below than is requested of it: copies, checksums, a journal.
    fn amplifies(&self) -> bool {
        false
    }

    /// Returns whether the layer formats the block device below and occupies all of it.
    fn formats(&self) -> bool {
        false
    }

    /// Rejects incompatible settings.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// The location of a bottom layer on this machine; `None` for all other layers.
    fn location(&self) -> Option<BottomLocation<'_>> {
        None
    }

    /// The local paths in the layer's settings.
    fn paths(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }

    /// Rejects settings that a plan of an untrusted author may not use: such a plan may only read, and create files in an area.
    /// Structs are destructured in full, so that a new key does not compile until it is considered here.
    fn confine(&self, area: &dyn Area) -> Result<(), String>;

    /// The parts that the layer contributes to a comparison of targets.
    fn parts(&self) -> Vec<Part>;

    /// Bytes that the layer below must offer so that this layer can offer `above`. The workloads' `files` are stored next to the area on the topmost
    /// filesystem, whose layer adds them and clears the value.
    fn size_below(&self, above: Bytes, files: &mut Option<Bytes>) -> Bytes {
        let _ = files;
        above
    }

    /// The text of the layer in a stack's line, on the layer `below`: one or more segments, without the arrows between them.
    fn segments(&self, below: Option<&PlannedLayer>) -> Vec<String>;
}

/// A kind of layer that can be parsed from a stack's line.
trait FromLine: Sized {
    /// Parses the output of [`LayerType::segments`]; `None` if the next segment is of another kind.
    fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>>;
}

/// The context below a segment of a stack's line.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::target) struct Below<'a> {
    /// A directory or volume group that the next layer uses.
    pub(in crate::target) place: Option<&'a str>,
    /// The layer below.
    pub(in crate::target) layer: Option<&'a PlannedLayer>,
}

/// A layer of one of these kinds.
pub trait LayerSpec: LayerType + Sized {
    /// The layer's settings if it is of this kind.
    fn of(layer: &PlannedLayer) -> Option<&Self>;
    /// Like [`Self::of`], mutable.
    fn of_mut(layer: &mut PlannedLayer) -> Option<&mut Self>;
}

macro_rules! layers {
    ($($(#[$doc:meta])* $field:ident $(as $key:literal)? : $variant:ident($spec:ty)),+ $(,)?) => {
        /// A layer of a plan, by its kind.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum PlannedLayer { $($(#[$doc])* $variant($spec)),+ }

        impl PlannedLayer {
            /// The interface common to all kinds.
            #[must_use]
            pub fn kind(&self) -> &dyn LayerType {
                match self { $(Self::$variant(spec) => spec),+ }
            }

            /// Like [`Self::kind`], mutable.
            pub fn kind_mut(&mut self) -> &mut dyn LayerType {
                match self { $(Self::$variant(spec) => spec),+ }
            }

            /// Parses the next layer of a line; `None` if it is not a layer.
            pub(in crate::target) fn read(segments: &mut Segments, below: &Below<'_>) -> Option<Result<Self, String>> {
                // The first to match wins; a path takes anything, so it comes last.
                let read = [$(|segments: &mut Segments, below: &Below<'_>| {
                    Some(<$spec>::read(segments, below)?.map(Self::$variant))
                }),+];
                read.iter().rev().find_map(|read| read(segments, below))
            }
        }

        /// A target as plans and the store have it. Its layers stand on one another in the order of the keys here; `stack` has any other
        /// order.
        #[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(in crate::target) struct TargetTable {
            /// Unique within a plan.
            pub(in crate::target) name: String,
            /// All layers in one line, from the bottom up, as reports have them; in place of their keys.
            #[serde(skip_serializing_if = "Option::is_none", default)]
            pub(in crate::target) stack: Option<String>,
            $(
                $(#[$doc])*
                $(#[serde(rename = $key)])?
                #[serde(skip_serializing_if = "Option::is_none", default)]
                pub(in crate::target) $field: Option<$spec>,
            )+
            /// Run the agent on the path's machine under sudo(8).
            #[serde(skip_serializing_if = "std::ops::Not::not", default)]
            pub(in crate::target) sudo: bool,
            /// Name of a `[[neighbour]]` that produces load while this target is measured.
            #[serde(skip_serializing_if = "Option::is_none", default)]
            pub(in crate::target) neighbour: Option<String>,
            /// Settings of the kernel that hold while the target is measured: applied right before each measurement, restored right after
            /// it.
            #[serde(skip_serializing_if = "Option::is_none", default)]
            pub(in crate::target) settings: Option<Settings>,
        }

        impl TargetTable {
            /// Removes and returns the layers given by keys.
            pub(in crate::target) fn take_layers(&mut self) -> Vec<PlannedLayer> {
                let layers = [$(self.$field.take().map(PlannedLayer::$variant)),+];
                layers.into_iter().flatten().collect()
            }

            /// Sets the layers' keys; returns false if the order of the layers differs from that of the keys.
            pub(in crate::target) fn set_layers(&mut self, layers: &[PlannedLayer]) -> bool {
                let mut left = layers;
                $(
                    if let Some((PlannedLayer::$variant(spec), above)) = left.split_first() {
                        self.$field = Some(spec.clone());
                        left = above;
                    }
                )+
                left.is_empty()
            }
        }

        $(
            impl From<$spec> for PlannedLayer {
                fn from(spec: $spec) -> Self {
                    Self::$variant(spec)
                }
            }

            impl LayerSpec for $spec {
                fn of(layer: &PlannedLayer) -> Option<&Self> {
                    if let PlannedLayer::$variant(spec) = layer { Some(spec) } else { None }
                }

                fn of_mut(layer: &mut PlannedLayer) -> Option<&mut Self> {
                    if let PlannedLayer::$variant(spec) = layer { Some(spec) } else { None }
                }
            }
        )+
    };
}

layers! {
    /// A file or block device, on this machine, on another (`ssh://[user@]host[:port]/path`) or in a container: `docker://[user@]container/path`,
    /// `podman://`, `lxc://`, `incus://`, `lxd://`, `kubectl://namespace/pod[:container]/path`. An existing one is measured as it is; a missing
    /// file is created, filled, measured and removed.
    path: Path(PathSpec),
    /// A disk image that exists, as QEMU reads it; it stays as it is: writes go to an overlay.
    image: Image(ImageSpec),
    /// An export of somebody's NBD server, as `nbd://host[:port][/export]` or `nbd+unix:///[export]?socket=PATH`. iotax writes to it only
    /// if the command line names it again.
    nbd_export: NbdExport(NbdExportSpec),
    /// A network path between client and server, instead of storage.
    network: Network(NetworkSpec),
    /// A block device. iotax writes to it only if the command line names it again.
    device: Device(DeviceSpec),
    /// A new logical volume.
    lvm: Lvm(LvmSpec),
    /// A new array of md's (RAID).
    md: Md(MdSpec),
    /// Checksums by dm-integrity.
    integrity: Integrity(IntegritySpec),
    /// A cache of the device mapper, dm-cache or dm-writecache, before the volume, array or loop device.
    cache: Cache(CacheSpec),
    /// Encryption by dm-crypt (LUKS2) of the device, volume or array.
    luks: Luks(LuksSpec),
    /// A filesystem in memory.
    tmpfs: Tmpfs(TmpfsSpec),
    /// A new filesystem on the device or volume.
    filesystem: Filesystem(FilesystemSpec),
    /// A filesystem on that one or in a directory, which keeps writes in memory until they are flushed.
    volatile: Volatile(VolatileSpec),
    /// An overlayfs on that filesystem or in a directory, as containers have it.
    overlay: Overlay(OverlaySpec),
    /// A new file, on that filesystem or in a directory.
    file: File(FileSpec),
    /// A block filter of QEMU's over the file: throttle, compress, copy-on-read or blkdebug.
    filter: Filter(FilterSpec),
    /// The file, served by NBD and read by QEMU's client.
    nbd: Nbd(NbdSpec),
    /// The raw file, served by iSCSI and read by QEMU's initiator.
    iscsi: Iscsi(IscsiSpec),
    /// The raw file, served by NFS and read by QEMU's client.
    nfs: Nfs(NfsSpec),
    /// The raw file as the disk of a Ceph cluster of the run's own, and an image there, read by QEMU's client.
    rbd: Rbd(RbdSpec),
    /// The file as QEMU reads and writes it, shown as a raw file by the FUSE export of its storage daemon.
    fuse: Fuse(FuseSpec),
    /// The file as QEMU reads and writes it, shown as a virtio block device by its storage daemon, without a guest.
    virtio: Virtio(VirtioSpec),
    /// A loop device over the file.
    loop_device as "loop": Loop(LoopSpec),
    /// The raw file or device, served by the kernel's NVMe target and connected by TCP on loopback.
    nvme_tcp: NvmeTcp(NvmeTcpSpec),
    /// The guest that has the target as its disk; if absent, it is measured on the host.
    guest: Guest(GuestSpec),
    /// A limit on the I/O of the processes that make the load.
    cgroup: Cgroup(CgroupSpec),
}

/// Layers to suggest when one is missing: plan key, text in a line, and settings.
pub(super) fn proposals() -> [(&'static str, &'static str, PlannedLayer); 6] {
    [
        ("filesystem = { type = \"ext4\" }", "ext4", FilesystemSpec::new(FsType::Ext4).into()),
        ("file = {}", "raw file", FileSpec::default().into()),
        ("loop = {}", "loop", LoopSpec::default().into()),
        ("virtio = {}", "virtio", VirtioSpec::default().into()),
        ("fuse = {}", "fuse", FuseSpec::default().into()),
        ("guest = {}", "virtio-blk > guest", GuestSpec::default().into()),
    ]
}

#[cfg(test)]
#[expect(dead_code, unreachable_pub, reason = "layers! makes more than a test of it uses")]
mod tests;
